//! The address book: which addresses belong to which candidate, and which peers are banned.
//!
//! A candidate is one node; it may have several addresses, tried in order. The engine sees only its
//! number. Bounded: a hostile tracker or peer cannot fill memory with addresses.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use tidecast_identity::NodeId;
use tidecast_swarm::Candidate;

use crate::web_seed::Seed;

/// Candidates kept at most; later ones are dropped.
const MAX_CANDIDATES: usize = 16_384;
/// Bans kept at most; the oldest kinds of attack are long gone when it fills.
const MAX_BANS: usize = 65_536;

/// Identifies a peer for a ban.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Culprit {
    /// A Tidecast node, by its key.
    Node(NodeId),
    /// Anything else, by its address; on loopback, where all share one, by its port too.
    Address(IpAddr, Option<u16>),
}

impl Culprit {
    /// The identity of the peer of a connection.
    pub(crate) fn new(node: Option<NodeId>, addr: SocketAddr) -> Culprit {
        match node {
            Some(node) => Culprit::Node(node),
            None => Culprit::Address(addr.ip(), addr.ip().is_loopback().then(|| addr.port())),
        }
    }
}

#[derive(Default)]
pub(crate) struct AddressBook {
    addresses: Vec<Vec<SocketAddr>>,
    known: BTreeMap<SocketAddr, Candidate>,
    /// Web seeds have no address here.
    web: BTreeMap<Candidate, Arc<Seed>>,
    /// The end of the ban; `None`: permanent.
    banned: BTreeMap<Culprit, Option<Instant>>,
}

impl AddressBook {
    /// Enters one node by its addresses. None when all of them are known, or the book is full.
    pub(crate) fn enter(&mut self, addresses: &[SocketAddr]) -> Option<Candidate> {
        let usable = |a: &&SocketAddr| a.port() != 0 && !a.ip().is_unspecified() && !a.ip().is_multicast();
        let usable: Vec<SocketAddr> = addresses.iter().filter(usable).copied().collect();
        if usable.iter().all(|a| self.known.contains_key(a)) || self.addresses.len() >= MAX_CANDIDATES {
            return None;
        }
        let candidate = Candidate(u32::try_from(self.addresses.len()).ok()?);
        for address in &usable {
            self.known.entry(*address).or_insert(candidate);
        }
        self.addresses.push(usable);
        Some(candidate)
    }

    /// Enters a web seed. None when the book is full.
    pub(crate) fn enter_web(&mut self, seed: Arc<Seed>) -> Option<Candidate> {
        let candidate = Candidate(u32::try_from(self.addresses.len()).ok()?);
        self.addresses.push(Vec::new());
        self.web.insert(candidate, seed);
        Some(candidate)
    }

    /// The web seed that a candidate is.
    pub(crate) fn web(&self, candidate: Candidate) -> Option<&Arc<Seed>> {
        self.web.get(&candidate)
    }

    pub(crate) fn web_seeds(&self) -> impl Iterator<Item = &Arc<Seed>> {
        self.web.values()
    }

    pub(crate) fn has_web(&self) -> bool {
        !self.web.is_empty()
    }

    /// The candidate that listens at `address`, if any is known to.
    pub(crate) fn find(&self, address: SocketAddr) -> Option<Candidate> {
        self.known.get(&address).copied()
    }

    /// Addresses to dial, in order.
    pub(crate) fn addresses(&self, candidate: Candidate) -> &[SocketAddr] {
        self.addresses.get(candidate.0 as usize).map_or(&[], Vec::as_slice)
    }

    /// Bans a peer, permanently or until a time.
    pub(crate) fn ban(&mut self, culprit: Culprit, until: Option<Instant>) {
        if self.banned.len() < MAX_BANS || self.banned.contains_key(&culprit) {
            self.banned.insert(culprit, until);
        }
    }

    pub(crate) fn is_banned(&self, culprit: &Culprit) -> bool {
        self.banned.get(culprit).is_some_and(|until| until.is_none_or(|t| t > Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_belongs_to_one_candidate() {
        let mut address_book = AddressBook::default();
        let [a, b, c] = ["10.0.0.1:1", "10.0.0.2:1", "[::1]:2"].map(|a| a.parse().unwrap());
        let first = address_book.enter(&[a, b]).unwrap();
        assert_eq!(address_book.enter(&[b]), None);
        let second = address_book.enter(&[b, c]).unwrap();
        assert_eq!((address_book.find(b), address_book.find(c)), (Some(first), Some(second)));
        assert_eq!(address_book.enter(&["0.0.0.0:5".parse().unwrap()]), None);
    }

    #[test]
    fn bans_on_loopback_spare_the_neighbours() {
        let mut address_book = AddressBook::default();
        let (bad, good) = ("127.0.0.1:5".parse().unwrap(), "127.0.0.1:6".parse().unwrap());
        address_book.ban(Culprit::new(None, bad), None);
        assert!(address_book.is_banned(&Culprit::new(None, bad)));
        assert!(!address_book.is_banned(&Culprit::new(None, good)));
        address_book.ban(Culprit::new(None, good), Some(Instant::now()));
        assert!(!address_book.is_banned(&Culprit::new(None, good)), "its time is over");
    }
}
