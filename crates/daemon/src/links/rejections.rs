//! Recent rejections of certificates, by this daemon or of this daemon, with the reason: for the log (once a
//! minute per node), and for users whose cache cannot be fetched because of it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tidecast_identity::NodeId;
use tokio::time::Instant;

/// A rejection of the same node is logged again after this time.
const AGAIN: Duration = Duration::from_secs(60);
/// Users are told of a rejection for this long; by then the connection has been tried again.
const REPORTED: Duration = Duration::from_secs(150);
/// Remembered at most. Keys cost nothing: without a bound a stranger could fill memory, log and audit log with them.
const MOST: usize = 64;
/// At most this many letters of a peer's name or reason are repeated.
const LETTERS: usize = 400;

/// Those of the last minutes.
#[derive(Default)]
pub(crate) struct Rejections(Mutex<HashMap<(NodeId, RejectedBy), RejectedPeer>>);

/// Which side rejected the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RejectedBy {
    ThisDaemon,
    Peer,
}

struct RejectedPeer {
    text: String,
    logged: Instant,
    at: Instant,
}

impl Rejections {
    /// Notes one; true if it is to be logged: the first of this node, or the first for a minute.
    pub(crate) fn note(&self, whose: RejectedBy, node: NodeId, who: &str, why: &str) -> bool {
        let text = match whose {
            RejectedBy::ThisDaemon => format!("certificate of {who} was rejected: {why}"),
            RejectedBy::Peer => rejected_peer(who, why),
        };
        let now = Instant::now();
        let mut all = self.0.lock();
        all.retain(|_, old| old.at.elapsed() < REPORTED);
        if let Some(old) = all.get_mut(&(node, whose)) {
            let news = old.logged.elapsed() >= AGAIN;
            let logged = if news { now } else { old.logged };
            *old = RejectedPeer { text, logged, at: now };
            return news;
        }
        if all.len() >= MOST {
            return false;
        }
        all.insert((node, whose), RejectedPeer { text, logged: now, at: now });
        true
    }

    /// In words, the latest first, of nodes that `counts`.
    pub(crate) fn lately(&self, counts: impl Fn(NodeId) -> bool) -> Vec<String> {
        let all = self.0.lock();
        let mut lately: Vec<&RejectedPeer> = all
            .iter()
            .filter(|((node, _), one)| one.at.elapsed() < REPORTED && counts(*node))
            .map(|(_, one)| one)
            .collect();
        lately.sort_by_key(|one| std::cmp::Reverse(one.at));
        lately.into_iter().map(|one| one.text.clone()).collect()
    }
}

/// A rejected peer for people: the name that it claims, and its address.
pub(crate) fn who(name: &str, addr: SocketAddr) -> String {
    format!("{} at {addr}", plain(name))
}

/// The text for a daemon that was rejected by `name`.
pub(crate) fn rejected_peer(name: &str, why: &str) -> String {
    format!("{} rejected this daemon: {}", plain(name), plain(why))
}

/// A stranger's words as a part of a line.
pub(crate) fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(LETTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_is_said_once_a_minute_and_memory_has_a_bound() {
        let rejections = Rejections::default();
        let node = |n: u8| NodeId([n; 32]);
        let note =
            |n| rejections.note(RejectedBy::ThisDaemon, node(n), "x at 127.0.0.1:1", "a card has expired");
        assert!(note(1) && !note(1) && note(2));
        assert!(rejections.note(RejectedBy::Peer, node(1), "x", "no"), "the other way is another matter");
        tokio::time::advance(AGAIN).await;
        assert!(note(1) && !note(1));
        assert_eq!(
            rejections.lately(|n| n == node(2)),
            ["certificate of x at 127.0.0.1:1 was rejected: a card has expired"]
        );
        for n in 0..=255 {
            note(n);
        }
        assert_eq!(rejections.0.lock().len(), MOST);
        tokio::time::advance(REPORTED).await;
        assert!(rejections.lately(|_| true).is_empty());
        assert!(note(200));
        assert_eq!(
            rejected_peer("a\nb", &"y".repeat(999)).len(),
            "ab rejected this daemon: ".len() + LETTERS
        );
    }
}
