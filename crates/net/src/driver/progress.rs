//! Reports of a run, while it runs and when it ends.

use std::net::SocketAddr;
use std::time::Instant;

use super::Driver;
use super::conn::Conn;
use super::stall::{SILENT, StallChange};
use crate::input::Out;
use crate::report::{Connected, Notice, PeerReport, Progress, Summary};

/// Peers that are named where payload has stopped.
const NAMED: usize = 4;
/// Peers that are named in [`Progress`].
const CONNECTED: usize = 16;

impl Driver {
    /// Connected peers for display.
    pub(super) fn connected(&self) -> Vec<Connected> {
        let mut conns: Vec<&Conn> = self.conns.values().collect();
        if conns.len() > CONNECTED {
            conns.sort_by_key(|conn| std::cmp::Reverse(conn.received.saturating_add(conn.sent)));
            conns.truncate(CONNECTED);
        }
        let quiet = |conn: &Conn| conn.last_payload.last().map(|at| at.elapsed());
        conns.into_iter().map(|conn| Connected { report: conn.report(), quiet: quiet(conn) }).collect()
    }

    /// Publishes the progress.
    pub(super) fn publish(&mut self) {
        self.published = Instant::now();
        let progress = self.snapshot();
        self.progress.send_replace(progress);
        self.watch_for_stalls();
    }

    fn snapshot(&self) -> Progress {
        let stats = self.engine.stats();
        Progress {
            wanted_bytes: self.wanted_bytes,
            verified_bytes: self.verified_bytes,
            pieces: self.manifest.piece_count(),
            verified_pieces: stats.verified,
            unchecked_pieces: self.unchecked.len() as u32,
            peers: self.conns.values().filter(|c| c.web.is_none()).count(),
            web_seeds: self.conns.values().filter(|c| c.web.is_some()).count(),
            // Data of a connection that has just ended counts too.
            received_bytes: stats.received,
            web_bytes: self.address_book.web_seeds().map(|seed| seed.received()).sum(),
            sent_bytes: self.sent,
            duplicate_bytes: stats.duplicate,
            corrupt_bytes: self.corrupt,
            planned: self.role.is_some(),
            gathering: self.awaits_role(),
            complete: self.is_complete(),
            connected: self.connected(),
        }
    }

    /// Closes all connections; the summary.
    pub(super) fn stop(mut self) {
        for conn in self.conns.values() {
            let _ = conn.outbox.try_send(Out::Close);
        }
        let progress = self.snapshot();
        let peers = self.reports();
        let elapsed = self.start.elapsed();
        let web_seeds = self.address_book.web_seeds().map(|seed| seed.report()).collect();
        let cpu = self.shared.cpu.clone();
        let summary = Summary { progress: progress.clone(), peers, web_seeds, elapsed, cpu };
        self.progress.send_replace(progress);
        if let Some(reply) = self.stopping.take() {
            let _ = reply.send(summary);
        }
    }

    /// Statistics of each peer, disconnected ones included.
    pub(super) fn reports(&self) -> Vec<PeerReport> {
        let mut peers: Vec<PeerReport> = Vec::new();
        for report in self
            .ended
            .iter()
            .cloned()
            .chain(self.conns.values().filter(|c| c.web.is_none()).map(Conn::report))
        {
            // A peer that came back is still one peer.
            match peers.iter_mut().find(|p| p.addr == report.addr && p.node == report.node) {
                Some(known) => known.add(&report),
                None => peers.push(report),
            }
        }
        peers
    }

    /// Looks at all connections, at each snapshot.
    pub(super) fn watch_for_stalls(&mut self) {
        let now = Instant::now();
        let fetches = !self.engine.is_complete() && self.unchecked.is_empty() && !self.conns.is_empty();
        let fetching = self.stall.fetching.filter(|_| fetches).unwrap_or(now);
        self.stall.fetching = fetches.then_some(fetching);
        let last = self.conns.values().filter_map(|conn| conn.last_payload.last_came()).max();
        let silent = fetches.then(|| last.map_or(fetching, |last| last.max(fetching)));
        let news = self.stall.receiving.look(now, silent, last);
        self.tell_stall(news, false, |_| true);
        let stuck = |conn: &Conn| {
            conn.last_payload.stuck().is_some_and(|since| now.saturating_duration_since(since) >= SILENT)
        };
        // Each connection may be stuck alone: the longest stuck one counts.
        let silent =
            self.conns.values().filter(|conn| stuck(conn)).filter_map(|c| c.last_payload.stuck()).min();
        let went = self.conns.values().filter_map(|conn| conn.last_payload.last_went()).max();
        let news = self.stall.sending.look(now, silent, went);
        self.tell_stall(news, true, stuck);
    }

    fn tell_stall(&mut self, news: Option<StallChange>, sending: bool, concerns: impl Fn(&Conn) -> bool) {
        let notice = match news {
            None => return,
            Some(StallChange::Resumed(silent)) => Notice::Resumed { silent, sending },
            Some(StallChange::Stalled(silent)) => {
                let conns = self.conns.values().filter(|conn| concerns(conn));
                let addrs: Vec<SocketAddr> = conns.map(|c| c.listens.unwrap_or(c.addr)).take(NAMED).collect();
                let missing = if sending { 0 } else { self.engine.missing_at_all() };
                Notice::Stalled { addrs, silent, sending, missing }
            }
        };
        self.notify(notice);
    }
}
