//! The peers to check for requests at the end of an event, and the condition for checking a peer again.
//!
//! Promise: a peer for which no request was found is checked again only when more can be requested than then.
//! The count of those changes is the *epoch*; a peer keeps the one in which it was found dry (`Peer::dry`).

use crate::api::{PeerId, Time};

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct RequestChecks {
    /// Peers that may have room; asked at the end of the event.
    hungry: Vec<PeerId>,
    /// Counts the times that more could be asked for than before.
    epoch: u64,
    /// Peers without possible requests are checked again.
    stirred: bool,
    /// Nothing is asked for before this time: a plan may come.
    held_until: Option<Time>,
}

impl RequestChecks {
    pub(crate) fn new() -> Self {
        RequestChecks { hungry: Vec::new(), epoch: 1, stirred: false, held_until: None }
    }

    /// This peer may have room.
    pub(crate) fn add(&mut self, peer: PeerId) {
        self.hungry.push(peer);
    }

    /// These may.
    pub(crate) fn add_all(&mut self, peers: impl IntoIterator<Item = PeerId>) {
        self.hungry.extend(peers);
    }

    /// Entries, of which some may name one peer.
    pub(crate) fn len(&self) -> usize {
        self.hungry.len()
    }

    /// More can be asked for than before.
    pub(crate) fn changed(&mut self) {
        self.epoch += 1;
        self.stirred = true;
    }

    /// How often more could be asked for than before.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether peers without possible requests are to be checked again; reported once.
    pub(crate) fn take_stirred(&mut self) -> bool {
        std::mem::take(&mut self.stirred)
    }

    /// Takes all entries, in the order in which they came. Give the list back, empty, to `keep`.
    pub(crate) fn take(&mut self) -> Vec<PeerId> {
        std::mem::take(&mut self.hungry)
    }

    /// Keeps the memory of a list that was taken. Asking may have made others hungry: the next event serves them.
    pub(crate) fn keep(&mut self, mut empty: Vec<PeerId>) {
        debug_assert!(empty.is_empty(), "peers that were not asked");
        empty.append(&mut self.hungry);
        self.hungry = empty;
    }

    /// Nothing is asked for before this time; `None`: it may be at once.
    pub(crate) fn hold(&mut self, until: Option<Time>) {
        self.held_until = until;
    }

    pub(crate) fn held_until(&self) -> Option<Time> {
        self.held_until
    }

    /// Ends the wait; whether there was one.
    pub(crate) fn release(&mut self) -> bool {
        self.held_until.take().is_some()
    }
}
