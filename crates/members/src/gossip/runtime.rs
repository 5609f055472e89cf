//! foca's runtime: packets to send, timers to set, changes to report.

use std::time::Duration;

use foca::{Notification, Runtime, Timer};
use tidecast_identity::NodeId;

use super::Change;
use crate::Peer;

/// A timer of foca, ordered so that the top of a heap is due first.
pub(super) struct Due(pub(super) u64, pub(super) u64, pub(super) Timer<Peer>);

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.0, other.1).cmp(&(self.0, self.1))
    }
}

/// Collects foca's requests.
#[derive(Default)]
pub(super) struct Asked {
    pub(super) send: Vec<(NodeId, Vec<u8>)>,
    pub(super) timers: Vec<(Duration, Timer<Peer>)>,
    pub(super) changes: Vec<Change>,
    pub(super) joined: bool,
    pub(super) defunct: bool,
}

impl Runtime<Peer> for &mut Asked {
    fn notify(&mut self, notification: Notification<'_, Peer>) {
        match notification {
            Notification::MemberUp(peer) => self.changes.push(Change::Up(peer.clone())),
            Notification::MemberDown(peer) => self.changes.push(Change::Down(peer.node())),
            Notification::Rename(_, peer) => self.changes.push(Change::Renamed(peer.clone())),
            Notification::Active => self.joined = true,
            Notification::Defunct => self.defunct = true,
            _ => {}
        }
    }

    fn send_to(&mut self, to: Peer, data: &[u8]) {
        self.send.push((to.node(), data.to_vec()));
    }

    fn submit_after(&mut self, event: Timer<Peer>, after: Duration) {
        self.timers.push((after, event));
    }
}
