//! Daemons that the catalogue names.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Daemons kept of a catalogue, and how many of them are asked without being named.
pub(super) const REMEMBERED: usize = 10_000;
const ASKED: usize = 16;

/// The daemons found at the last visit, in the format of `--peer`.
#[derive(Default)]
pub(crate) struct KnownPeers {
    peers: Mutex<Vec<String>>,
    /// Others were found than before.
    pub(crate) changed: Notify,
}

impl KnownPeers {
    /// Daemons to ask: the one of this name, and a few others, which differ from daemon to daemon.
    pub(crate) fn some(&self, host: Option<&str>, own: &str) -> Vec<String> {
        let all = self.peers.lock();
        let named = |peer: &&String| peer.split_once('=').map(|(name, _)| name) == host && host.is_some();
        let mut some: Vec<String> = all.iter().filter(named).cloned().collect();
        let mut others: Vec<&String> = all.iter().filter(|peer| !named(peer)).collect();
        others.sort_by_cached_key(|peer| {
            let mut hasher = DefaultHasher::new();
            (own, peer).hash(&mut hasher);
            hasher.finish()
        });
        some.extend(others.into_iter().take(ASKED).cloned());
        some
    }

    pub(super) fn set(&self, mut peers: Vec<String>) {
        peers.truncate(REMEMBERED);
        peers.sort();
        let mut before = self.peers.lock();
        if *before != peers {
            *before = peers;
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_one_is_asked_and_a_few_others() {
        let found = KnownPeers::default();
        found.set((0..100).map(|n| format!("node{n}=10.0.0.1:{n}")).collect());
        let some = found.some(Some("node42"), "head");
        assert_eq!((some.len(), some[0].as_str()), (1 + ASKED, "node42=10.0.0.1:42"));
        assert_eq!(found.some(None, "head"), found.some(None, "head"));
        assert_ne!(found.some(None, "head"), found.some(None, "node1"), "not everybody asks the same few");
    }
}
