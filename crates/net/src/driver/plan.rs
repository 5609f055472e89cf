//! The plan of a broadcast in the driver: which connection is which member, and which members to dial.
//!
//! A child dials its parents, and a member that cannot be reached dials its children too. A member is identified by
//! the key that TLS has proven; without keys, by the peer id of its run, or else by its address.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use tidecast_swarm::plan::Role;
use tidecast_swarm::{Candidate, Event, PeerId};

use super::Driver;
use super::conn::Conn;
use super::members::Members;
use crate::member::{Complained, Group, Member};

/// Members that the engine may dial at random besides, in case the plan fails: about this many of all.
const SPARE: u32 = 64;

impl Driver {
    /// A new epoch: the engine is given its role, then the connected members, then those that it may dial.
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
        // A member that cannot be reached dials its children too.
        if self.members.get(role.member).is_some_and(|own| own.addrs.is_empty()) {
            dialled.extend(role.stripes.iter().flat_map(|edges| &edges.children));
        }
        dialled.iter().for_each(|member| self.propose(*member, true));
        let spare = spares(known as u32, self.members.list.len() as u32);
        let spare: Vec<u32> = spare.filter(|m| *m != role.member && !dialled.contains(m)).collect();
        spare.into_iter().for_each(|member| self.propose(member, false));
        self.publish();
    }

    /// Gives the engine a member's addresses to dial; permanently if it is `told`.
    fn propose(&mut self, member: u32, told: bool) {
        let Some(addrs) = self.members.get(member).map(|m| &m.addrs) else { return };
        let known = addrs.iter().find_map(|a| self.address_book.find(*a));
        if let Some(candidate) = self.address_book.enter(addrs).or(known) {
            self.engine_event(Event::Candidate { candidate, told });
        }
    }

    /// The candidate whose dialling would lead to this connection.
    pub(super) fn candidate_of(&self, conn: &Conn) -> Option<Candidate> {
        let listens = conn.listens.and_then(|a| self.address_book.find(a));
        let member = || self.members.get(self.members.of(conn)?.0);
        listens.or_else(|| member()?.addrs.iter().find_map(|a| self.address_book.find(*a)))
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
        if self.group_state.group != Group::None {
            return self.report_complaint(complaint);
        }
        if self.complaints.try_send(complaint).is_err() {
            tracing::debug!("dropped a complaint: its queue is full");
        }
    }
}

/// A random share of the new members (those after `known`), in proportion to their `count`.
fn spares(known: u32, count: u32) -> impl Iterator<Item = u32> {
    (known..count).filter(move |_| rand::random_ratio(SPARE.min(count), count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latecomers_are_spare_members_too() {
        assert!(spares(0, SPARE).eq(0..SPARE));
        assert!(spares(5, SPARE).eq(5..SPARE));
        assert_eq!(spares(SPARE, SPARE).count(), 0, "nobody new");
        // A hundredth of them on average.
        let late = spares(3000, 6400).count();
        assert!((1..200).contains(&late), "{late}");
    }
}
