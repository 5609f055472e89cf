//! Which connection is which member of the plan.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use tidecast_identity::NodeId;

use super::conn::Conn;
use crate::member::Member;

/// The members by their identities.
#[derive(Default)]
pub(super) struct Members {
    pub(super) list: Vec<Member>,
    pub(super) by_node: BTreeMap<NodeId, u32>,
    pub(super) by_peer_id: BTreeMap<[u8; 20], u32>,
    /// Members without a better identification.
    pub(super) by_addr: BTreeMap<SocketAddr, u32>,
}

impl Members {
    /// `keys`: nodes prove their keys here, so only the key identifies a member that has one.
    pub(super) fn new(list: Vec<Member>, keys: bool) -> Members {
        let mut members = Members::default();
        for (number, member) in (0..).zip(&list) {
            match (member.node.filter(|_| keys), member.peer_id.filter(|_| !keys)) {
                (Some(node), _) => drop(members.by_node.insert(node, number)),
                (_, Some(id)) => drop(members.by_peer_id.insert(id, number)),
                _ => members.by_addr.extend(member.addrs.iter().map(|a| (*a, number))),
            }
        }
        Members { list, ..members }
    }

    pub(super) fn get(&self, member: u32) -> Option<&Member> {
        self.list.get(member as usize)
    }

    /// The member at the other end of a connection, and the quality of the identification.
    pub(super) fn of(&self, conn: &Conn) -> Option<(u32, u8)> {
        let known = conn.node.and_then(|n| self.by_node.get(&n));
        let known = known.or_else(|| self.by_peer_id.get(&conn.remote_id));
        let dialled = Some(conn.addr).filter(|_| conn.outgoing);
        let by_addr = || [dialled, conn.listens].into_iter().flatten().find_map(|a| self.by_addr.get(&a));
        let number = *known.or_else(by_addr)?;
        Some((number, self.get(number)?.distance))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tidecast_swarm::Protocol;
    use tokio::sync::mpsc;

    use super::*;

    fn conn(node: Option<u8>, remote_id: u8, addr: &str, outgoing: bool) -> Conn {
        Conn {
            addr: addr.parse().unwrap(),
            listens: None,
            node: node.map(|n| NodeId([n; 32])),
            client: String::new(),
            protocol: Protocol::Tidecast { max_block: 1 << 18 },
            remote_id: [remote_id; 20],
            outgoing,
            takes_offers: true,
            gathers: false,
            reads_hex: false,
            web: None,
            member: None,
            greeting: None,
            outbox: mpsc::channel(1).0,
            cut: Default::default(),
            last_payload: Default::default(),
            received: 0,
            sent: 0,
            introduced: 0,
            others: Vec::new(),
            withdrew: false,
        }
    }

    fn members(keys: bool) -> Members {
        let addr = |n: u8| vec![SocketAddr::from(([10, 0, 0, n], 7))];
        let list = vec![
            Member { node: Some(NodeId([1; 32])), peer_id: Some([1; 20]), addrs: addr(1), distance: 1 },
            Member { addrs: addr(2), distance: 2, ..Member::default() },
        ];
        Members::new(list, keys)
    }

    #[test]
    fn where_nodes_have_keys_nothing_else_counts() {
        let members = members(true);
        assert_eq!(members.of(&conn(Some(1), 9, "10.0.0.9:50", false)), Some((0, 1)));
        assert_eq!(members.of(&conn(Some(5), 1, "10.0.0.1:7", true)), None, "an impostor");
    }

    #[test]
    fn without_keys_the_peer_id_counts_and_else_the_address() {
        let members = members(false);
        assert_eq!(members.of(&conn(None, 1, "10.0.0.9:50", false)), Some((0, 1)));
        assert_eq!(members.of(&conn(None, 9, "10.0.0.1:7", true)), None, "another run than was announced");
        assert_eq!(members.of(&conn(None, 9, "10.0.0.2:7", true)), Some((1, 2)));
        assert_eq!(members.of(&conn(None, 9, "10.0.0.2:7", false)), None, "a port by chance");
        let listens =
            Conn { listens: Some(([10, 0, 0, 2], 7).into()), ..conn(None, 9, "10.0.0.2:50", false) };
        assert_eq!(members.of(&listens), Some((1, 2)));
    }
}
