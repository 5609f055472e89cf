//! How far the work is: as a line for people, as a bar, and as the fields of a JSON event.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tidecast::event::Progress;
use tidecast::event::bcast::Hosts;
use tidecast::event::copy::{Limit, Working};
use tidecast_text::{Size, Span, bytes_per_second, count};

use crate::fields::fields_of;
use crate::names;

/// How far back the rates look.
const WINDOW: Duration = Duration::from_secs(4);

/// A state of the work, as often as the caller likes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    /// What is being done, one word: "hash", "check", "get", "seed".
    pub(crate) stage: &'static str,
    /// Bytes done of `total`.
    pub(crate) bytes: u64,
    /// Bytes to do; 0 when there is no end.
    pub(crate) total: u64,
    /// Pieces done.
    pub(crate) pieces: u64,
    /// Pieces to do.
    pub(crate) pieces_total: u64,
    /// Connected peers; none when the work is local.
    pub(crate) peers: Option<usize>,
    /// Payload received, bytes.
    pub(crate) received: u64,
    /// Payload sent, bytes.
    pub(crate) sent: u64,
    /// Of a simulation: what runs, and seconds that it has simulated.
    pub(crate) run: Option<(String, Option<f64>)>,
    /// Of a broadcast.
    pub(crate) hosts: Option<Hosts>,
    /// Of a copy.
    pub(crate) copy: Option<Working>,
    /// The whole line for people, where what is done is not bytes of files.
    pub(crate) said: Option<String>,
}

/// As the line and the bar have it.
pub(super) fn snapshot(now: &Progress) -> Snapshot {
    let traffic = now.traffic.as_ref();
    Snapshot {
        stage: now.stage.name(),
        bytes: now.bytes,
        total: now.total,
        peers: traffic.map(|traffic| traffic.peers),
        sent: traffic.map_or(now.bytes, |traffic| traffic.sent),
        hosts: now.hosts,
        copy: now.copy,
        ..Snapshot::default()
    }
}

/// Averages over the last few seconds; instantaneous rates jump too much to read.
#[derive(Default)]
pub(super) struct Rates {
    samples: VecDeque<(Instant, u64, u64, u64)>,
}

impl Rates {
    pub(super) fn note(&mut self, at: Instant, s: &Snapshot) {
        // Bounded: at most one sample in 50 ms, and none older than the window but one.
        let before = self.samples.len().checked_sub(2).and_then(|i| self.samples.get(i));
        if before.is_some_and(|(t, ..)| at - *t < Duration::from_millis(50)) {
            self.samples.pop_back();
        }
        self.samples.push_back((at, s.bytes, s.received, s.sent));
        while self.samples.get(1).is_some_and(|(t, ..)| at - *t > WINDOW) {
            self.samples.pop_front();
        }
    }

    /// Bytes per second of work, in, and out.
    pub(super) fn get(&self) -> (f64, f64, f64) {
        let (Some(a), Some(b)) = (self.samples.front(), self.samples.back()) else { return (0.0, 0.0, 0.0) };
        let seconds = (b.0 - a.0).as_secs_f64();
        let rate =
            |from: u64, to: u64| if seconds > 0.0 { to.saturating_sub(from) as f64 / seconds } else { 0.0 };
        (rate(a.1, b.1), rate(a.2, b.2), rate(a.3, b.3))
    }
}

pub(super) fn snapshot_json(s: &Snapshot, (work, received, sent): (f64, f64, f64)) -> Value {
    if s.said.is_some() {
        return json!({ "stage": s.stage, "done": s.bytes, "of": s.total, "received": s.received });
    }
    let mut all = json!({
        "stage": s.stage, "bytes": s.bytes, "total": s.total, "pieces": s.pieces,
        "pieces_total": s.pieces_total, "rate": work.round() as u64,
    });
    if let (Some(peers), Value::Object(map)) = (s.peers, &mut all) {
        map.insert("peers".into(), peers.into());
        map.insert("received".into(), s.received.into());
        map.insert("sent".into(), s.sent.into());
        map.insert("rate_in".into(), (received.round() as u64).into());
        map.insert("rate_out".into(), (sent.round() as u64).into());
    }
    if let (Some((name, simulated)), Value::Object(map)) = (&s.run, &mut all) {
        map.insert("run".into(), name.as_str().into());
        map.extend(simulated.map(|seconds| ("simulated_seconds".into(), seconds.into())));
    }
    if let Value::Object(map) = &mut all {
        map.extend(s.hosts.iter().flat_map(fields_of));
    }
    all
}

/// One line for people, with bytes per second of work, and sent.
pub(super) fn line(s: &Snapshot, (work, sent): (f64, f64)) -> String {
    if let Some(said) = &s.said {
        return format!("{}: {said}", s.stage);
    }
    let mut parts = Vec::new();
    let percent = s.bytes.min(s.total) as f64 * 100.0 / s.total.max(1) as f64;
    // Never 100% before the end.
    let percent = if s.bytes < s.total { percent.min(99.9) } else { percent };
    if let Some((name, simulated)) = &s.run {
        parts.push(if s.total > 0 { format!("{name}: {percent:.1}%") } else { name.clone() });
        parts.extend(simulated.map(|seconds| format!("{seconds:.3} s simulated")));
    } else if s.total > 0 {
        parts.push(format!("{}: {percent:.1}% of {}", s.stage, Size(s.total)));
        parts.push(bytes_per_second(work));
    } else {
        parts.push(format!("{}: {} sent", s.stage, Size(s.sent)));
        parts.push(bytes_per_second(sent));
    }
    if let Some(peers) = s.peers {
        parts.push(count(peers as u64, "peer"));
    }
    if let Some(Hosts { hosts, hosts_done, hosts_failed }) = s.hosts {
        parts.push(format!("{hosts_done} of {} done", count(hosts as u64, "host")));
        if hosts_failed > 0 {
            parts.push(format!("{hosts_failed} failed"));
        }
    }
    if let Some(copy) = &s.copy {
        let name = copy.limit.name();
        let limit = if copy.limit == Limit::Syncing { name.into() } else { format!("limit: {name}") };
        parts.push(format!("{}, {limit}", count(copy.streams.into(), "stream")));
    }
    if s.bytes < s.total && work > 0.0 {
        let left = (s.total - s.bytes) as f64 / work;
        parts.push(format!("{} left", Span(Duration::from_secs_f64(left.min(3.6e6)))));
    }
    parts.join(", ")
}

pub(super) fn draw(bar: &ProgressBar, s: &Snapshot, rates: (f64, f64)) {
    let known = s.total > 0;
    if bar.length().is_some() != known || bar.message().is_empty() {
        let template = if known { "{bar:24} {msg}" } else { "{spinner} {msg}" };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("##-"));
        }
    }
    if known {
        bar.set_length(s.total);
    } else {
        bar.unset_length();
    }
    bar.set_position(s.bytes.min(s.total));
    bar.set_message(names::line(&line(s, rates)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_rate_peers_and_time_left() {
        let t = Instant::now();
        let mut rates = Rates::default();
        let at =
            |bytes| Snapshot { stage: "get", bytes, total: 1_000_000, peers: Some(1), ..Snapshot::default() };
        rates.note(t, &at(0));
        rates.note(t + Duration::from_secs(1), &at(250_000));
        let (work, _, sent) = rates.get();
        let rates = (work, sent);
        assert_eq!(line(&at(250_000), rates), "get: 25.0% of 1.00 MB, 250 kB/s, 1 peer, 3.00 s left");
        assert!(line(&at(999_999), rates).contains("99.9%"), "not yet all");
        let run = Some(("chain".to_owned(), Some(1.5)));
        let simulating = Snapshot { run, peers: None, ..at(250_000) };
        assert_eq!(line(&simulating, rates), "chain: 25.0%, 1.500 s simulated, 3.00 s left");
        let seeding = Snapshot { stage: "seed", sent: 5, peers: Some(2), ..Snapshot::default() };
        assert_eq!(line(&seeding, (0.0, 0.0)), "seed: 5 B sent, 0 B/s, 2 peers");
    }

    #[test]
    fn rates_remember_a_few_seconds_only() {
        let t = Instant::now();
        let mut rates = Rates::default();
        for i in 0..10_000u64 {
            let s = Snapshot { bytes: i * 10, ..Snapshot::default() };
            rates.note(t + Duration::from_millis(i), &s);
        }
        assert!(rates.samples.len() < 200, "{}", rates.samples.len());
        assert!((rates.get().0 - 10_000.0).abs() < 500.0, "{:?}", rates.get());
    }
}
