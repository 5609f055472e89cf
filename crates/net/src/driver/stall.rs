//! Says when payload has stopped moving though peers are connected, and when it moves again.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::progress::Notice;
use super::{Conn, Driver};

/// Nothing has moved for so long: people hear of it.
const SILENT: Duration = Duration::from_secs(5);
/// Peers named.
const NAMED: usize = 4;

/// What was told.
#[derive(Default)]
pub(super) struct Stall {
    /// Since when there is something to fetch from peers that are connected.
    fetching: Option<Instant>,
    receiving: Way,
    sending: Way,
}

/// One of the two ways. Pure: the time comes in.
#[derive(Default)]
struct Way {
    /// The silence that was told began then.
    told: Option<Instant>,
}

/// What is new.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Stalled(Duration),
    Resumed(Duration),
}

impl Way {
    /// `silent`: since when nothing moves that should; None where nothing is to move. `moved`: when something did last.
    fn look(&mut self, now: Instant, silent: Option<Instant>, moved: Option<Instant>) -> Option<News> {
        match (self.told, silent) {
            (None, Some(since)) if now.saturating_duration_since(since) >= SILENT => {
                self.told = Some(since);
                Some(News::Stalled(now.saturating_duration_since(since)))
            }
            (Some(told), since) if since != Some(told) => {
                self.told = None;
                // A silence that ends with its connection is no news here.
                let moved = moved.filter(|moved| *moved > told)?;
                Some(News::Resumed(moved.saturating_duration_since(told)))
            }
            _ => None,
        }
    }
}

impl Driver {
    /// Looks at all connections, at each snapshot.
    pub(super) fn watch_for_stalls(&mut self) {
        let now = Instant::now();
        let fetches = !self.engine.is_complete() && self.unchecked.is_empty() && !self.conns.is_empty();
        let fetching = self.stall.fetching.filter(|_| fetches).unwrap_or(now);
        self.stall.fetching = fetches.then_some(fetching);
        let last = self.conns.values().filter_map(|conn| conn.moved.last_came()).max();
        let silent = fetches.then(|| last.map_or(fetching, |last| last.max(fetching)));
        let news = self.stall.receiving.look(now, silent, last);
        self.tell_stall(news, false, |_| true);
        let stuck = |conn: &Conn| {
            conn.moved.stuck().is_some_and(|since| now.saturating_duration_since(since) >= SILENT)
        };
        // Each connection is another way: the one that is stuck longest speaks for all.
        let silent = self.conns.values().filter(|conn| stuck(conn)).filter_map(|c| c.moved.stuck()).min();
        let went = self.conns.values().filter_map(|conn| conn.moved.last_went()).max();
        let news = self.stall.sending.look(now, silent, went);
        self.tell_stall(news, true, stuck);
    }

    fn tell_stall(&mut self, news: Option<News>, sending: bool, concerns: impl Fn(&Conn) -> bool) {
        let notice = match news {
            None => return,
            Some(News::Resumed(silent)) => Notice::Resumed { silent, sending },
            Some(News::Stalled(silent)) => {
                let conns = self.conns.values().filter(|conn| concerns(conn));
                let addrs: Vec<SocketAddr> = conns.map(|c| c.listens.unwrap_or(c.addr)).take(NAMED).collect();
                Notice::Stalled { addrs, silent, sending }
            }
        };
        self.notify(notice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_is_told_once_and_its_end_once() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut way = Way::default();
        let stalled = Some(News::Stalled(SILENT));
        assert_eq!(way.look(at(4), Some(start), None), None, "it is short yet");
        assert_eq!(way.look(at(5), Some(start), None), stalled);
        assert_eq!(way.look(at(60), Some(start), None), None, "it was told");
        let resumed = Some(News::Resumed(Duration::from_secs(61)));
        assert_eq!(way.look(at(61), Some(at(61)), Some(at(61))), resumed);
        assert_eq!(way.look(at(66), Some(at(61)), Some(at(61))), stalled);
        assert_eq!(way.look(at(70), None, Some(at(61))), None, "the connection has ended");
        assert_eq!(way.look(at(80), Some(at(71)), Some(at(61))), Some(News::Stalled(Duration::from_secs(9))));
    }
}
