//! The live connections, by number.
//!
//! Every event looks a peer up, most several times, so the numbers are stored together: a search is a few
//! steps in one or two cache lines, and the state of other peers is not read. They are in order of number, so
//! that a walk over all peers is the same in every run.

use crate::api::PeerId;
use crate::state::peer::Peer;

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// Ascending.
    ids: Vec<PeerId>,
    /// In the same order.
    peers: Vec<Peer>,
}

impl Peers {
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    fn place(&self, id: PeerId) -> Option<usize> {
        self.ids.binary_search(&id).ok()
    }

    pub(crate) fn contains_key(&self, id: &PeerId) -> bool {
        self.place(*id).is_some()
    }

    pub(crate) fn get(&self, id: &PeerId) -> Option<&Peer> {
        self.peers.get(self.place(*id)?)
    }

    pub(crate) fn get_mut(&mut self, id: &PeerId) -> Option<&mut Peer> {
        let place = self.place(*id)?;
        self.peers.get_mut(place)
    }

    /// A new connection, or another in place of the one of that number.
    pub(crate) fn insert(&mut self, id: PeerId, peer: Peer) {
        match self.ids.binary_search(&id) {
            Ok(place) => {
                if let Some(old) = self.peers.get_mut(place) {
                    *old = peer;
                }
            }
            Err(place) => {
                self.ids.insert(place, id);
                self.peers.insert(place, peer);
            }
        }
    }

    pub(crate) fn remove(&mut self, id: &PeerId) -> Option<Peer> {
        let place = self.place(*id)?;
        self.ids.remove(place);
        Some(self.peers.remove(place))
    }

    /// Ascending.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &PeerId> {
        self.ids.iter()
    }

    /// By number, ascending.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter()
    }

    /// By number, ascending.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.peers.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Limits, Protocol, Time};

    #[test]
    fn in_order_whatever_the_order_of_arrival() {
        let mut peers = Peers::default();
        for id in [5, 1, 9, 3].map(PeerId) {
            let protocol = Protocol::Stock { fast: true };
            peers.insert(id, Peer::new(id, protocol, None, &Limits::default(), Time(0)));
        }
        assert!(peers.remove(&PeerId(3)).is_some() && peers.remove(&PeerId(4)).is_none());
        let ids: Vec<u32> = peers.values().map(|p| p.id.0).collect();
        assert_eq!(ids, [1, 5, 9]);
        assert!(peers.keys().zip(ids).all(|(key, id)| key.0 == id));
        assert!(peers.get(&PeerId(9)).is_some_and(|p| p.id == PeerId(9)));
        assert!(peers.get(&PeerId(3)).is_none() && !peers.contains_key(&PeerId(2)) && peers.len() == 3);
    }
}
