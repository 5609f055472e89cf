//! The plan of a broadcast, seen from the driver: which connection is which member, and whom to dial.
//!
//! A child dials its parents, and whoever nobody can connect to dials its children too. A
//! member is known by the key that TLS has proven; where there are no keys, by the peer id of its
//! run, or failing that by its address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use tidecast_identity::NodeId;
use tidecast_swarm::plan::Role;
use tidecast_swarm::{Candidate, Complaint, Event, PeerId};

use super::gather::Group;
use super::{Conn, Driver};

/// Members beside those that the engine may dial by chance, should the plan not hold: about so many of all.
const SPARE: u32 = 64;
/// Complaints that nobody has read yet; more are dropped, the engine repeats what stays true.
pub(crate) const COMPLAINTS: usize = 256;

/// A member of the plan, as who makes the plan knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Its key: what counts in a private swarm.
    pub node: Option<NodeId>,
    /// The peer id of its run ([`crate::Swarm::peer_id`]): what counts where there are no keys.
    pub peer_id: Option<[u8; 20]>,
    /// Where it listens, in the order in which to try; empty if nobody can connect to it.
    pub addrs: Vec<SocketAddr>,
    /// 0 at our own place in the topology, more beyond each cut.
    pub distance: u8,
}

/// A member does not do its part in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Complained {
    /// Its number.
    pub member: u32,
    /// The stripe in which it is our parent.
    pub stripe: u16,
    /// What is wrong.
    pub why: Complaint,
}

/// Who is who.
#[derive(Default)]
pub(crate) struct Members {
    list: Vec<Member>,
    by_node: BTreeMap<NodeId, u32>,
    by_peer_id: BTreeMap<[u8; 20], u32>,
    /// Those of whom nothing better is known.
    by_addr: BTreeMap<SocketAddr, u32>,
}

impl Members {
    /// `keys`: nodes prove their keys here, so that nothing else counts for a member who has one.
    pub(crate) fn new(list: Vec<Member>, keys: bool) -> Members {
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

    pub(crate) fn get(&self, member: u32) -> Option<&Member> {
        self.list.get(member as usize)
    }

    /// The member at the other end of a connection, and how far it is.
    fn of(&self, conn: &Conn) -> Option<(u32, u8)> {
        let known = conn.node.and_then(|n| self.by_node.get(&n));
        let known = known.or_else(|| self.by_peer_id.get(&conn.remote_id));
        let dialled = Some(conn.addr).filter(|_| conn.outgoing);
        let by_addr = || [dialled, conn.listens].into_iter().flatten().find_map(|a| self.by_addr.get(&a));
        let number = *known.or_else(by_addr)?;
        Some((number, self.get(number)?.distance))
    }
}

impl Driver {
    /// A new epoch: the engine hears its role, then who is connected, then whom it may dial.
    pub(super) fn plan(&mut self, role: Arc<Role>, members: Vec<Member>) {
        if self.role.as_ref().is_some_and(|known| known.epoch > role.epoch) {
            return;
        }
        self.role = Some(role.clone());
        let known = self.members.list.len();
        self.members = Members::new(members, self.shared.security.knows_nodes());
        self.engine_event(Event::Plan(role.clone()));
        for peer in self.conns.keys().copied().collect::<Vec<_>>() {
            self.introduce_member(peer);
        }
        let mut dialled: BTreeSet<u32> = role.stripes.iter().filter_map(|edges| edges.parent).collect();
        // Whom nobody can connect to calls its children too.
        if self.members.get(role.member).is_some_and(|own| own.addrs.is_empty()) {
            dialled.extend(role.stripes.iter().flat_map(|edges| &edges.children));
        }
        dialled.iter().for_each(|member| self.propose(*member, true));
        let spare = spares(known as u32, self.members.list.len() as u32);
        let spare: Vec<u32> = spare.filter(|m| *m != role.member && !dialled.contains(m)).collect();
        spare.into_iter().for_each(|member| self.propose(member, false));
        self.publish();
    }

    /// Gives the engine a member's addresses, to be dialled: for good if it is `told`.
    fn propose(&mut self, member: u32, told: bool) {
        let Some(addrs) = self.members.get(member).map(|m| &m.addrs) else { return };
        let known = addrs.iter().find_map(|a| self.book.find(*a));
        if let Some(candidate) = self.book.enter(addrs).or(known) {
            self.engine_event(Event::Candidate { candidate, told });
        }
    }

    /// The candidate that would be dialled to get the connection that is there.
    pub(super) fn candidate_of(&self, conn: &Conn) -> Option<Candidate> {
        let listens = conn.listens.and_then(|a| self.book.find(a));
        let member = || self.members.get(self.members.of(conn)?.0);
        listens.or_else(|| member()?.addrs.iter().find_map(|a| self.book.find(*a)))
    }

    /// The peer id of a node with one of these addresses, if it is connected.
    pub(super) fn met_at(&self, addresses: &[SocketAddr]) -> Option<[u8; 20]> {
        let of_member = |c: &Conn| c.member.and_then(|m| self.members.get(m)).map(|m| m.addrs.as_slice());
        let known = |c: &Conn, a: &SocketAddr| {
            c.listens == Some(*a) || of_member(c).is_some_and(|addrs| addrs.contains(a))
        };
        self.conns.values().find(|c| addresses.iter().any(|a| known(c, a))).map(|c| c.remote_id)
    }

    /// Tells the engine which member a connection is, once. A peer that takes no offers has no part
    /// in a plan.
    pub(super) fn introduce_member(&mut self, peer: PeerId) {
        let Some(conn) = self.conns.get_mut(&peer).filter(|c| c.takes_offers && c.member.is_none()) else {
            return;
        };
        let Some((member, distance)) = self.members.of(conn) else { return };
        if self.role.as_ref().is_some_and(|role| role.member == member) {
            return;
        }
        conn.member = Some(member);
        self.engine_event(Event::Member { peer, member, distance });
    }

    pub(super) fn complain(&mut self, complaint: Complained) {
        tracing::debug!(?complaint, "complaint");
        if self.gather.group != Group::None {
            return self.complain_of(complaint);
        }
        if self.complaints.try_send(complaint).is_err() {
            tracing::debug!("a complaint was dropped: nobody reads them");
        }
    }
}

/// Of the members that are new, those beyond `known`, the share of the `count` that there are now which chance gives us.
fn spares(known: u32, count: u32) -> impl Iterator<Item = u32> {
    (known..count).filter(move |_| rand::random_ratio(SPARE.min(count), count))
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
            web: None,
            member: None,
            greeting: None,
            outbox: mpsc::channel(1).0,
            moved: Default::default(),
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
    fn latecomers_are_spare_members_too() {
        assert!(spares(0, SPARE).eq(0..SPARE));
        assert!(spares(5, SPARE).eq(5..SPARE));
        assert_eq!(spares(SPARE, SPARE).count(), 0, "nobody new");
        // A hundredth of them on average.
        let late = spares(3000, 6400).count();
        assert!((1..200).contains(&late), "{late}");
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
