//! What a command says while it runs and when it ends: a bar on a terminal, plain lines when piped,
//! one JSON object a line with `--json`.
//!
//! Promises: results go to standard output, everything else to standard error, so that piping is safe;
//! with `--json` standard output holds JSON lines only, first `started` (but for commands that only
//! answer, and warnings of peers that do not answer), last `done` or `error`; progress is bounded in rate whatever the caller does; a closed
//! pipe ends the program quietly; a line for people is one line, whatever names and messages of peers are
//! in it (`names.rs`).

use std::cell::{Cell, RefCell};
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Map, Value, json};

use crate::failure::{Code, Failure, Outcome};
use crate::live::Live;
use crate::names;
use crate::units::{Size, Span, bytes_per_second, count};

/// Time between two plain lines of progress.
const LINES: Duration = Duration::from_secs(2);
/// Time between two JSON events of progress.
const EVENTS: Duration = Duration::from_millis(250);
/// How far back the rates look.
const WINDOW: Duration = Duration::from_secs(4);

/// Different warnings whose repetitions are counted.
const WARNINGS: usize = 200;

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
    /// Of a broadcast: hosts that have it, that have failed, and in all.
    pub(crate) hosts: Option<(usize, usize, usize)>,
    /// Of a copy: what it runs with.
    pub(crate) copy: Option<Parallel>,
    /// Some of the connected peers, as JSON has them.
    pub(crate) connected: Vec<Value>,
    /// The whole line for people, where what is done is not bytes of files.
    pub(crate) said: Option<String>,
}

/// Said in place of a limit when all has come.
pub(crate) const SYNCING: &str = "syncing";

/// How many threads, connections and blocks a copy has found to be of use, and what holds it up.
#[derive(Debug, Clone)]
pub(crate) struct Parallel {
    pub(crate) streams: u32,
    pub(crate) readers: u32,
    pub(crate) writers: u32,
    /// Blocks in memory, at both ends.
    pub(crate) blocks: u32,
    pub(crate) limit: &'static str,
}

/// Says it. One a command.
pub(crate) struct Reporter {
    json: bool,
    quiet: bool,
    bar: Option<ProgressBar>,
    began: Instant,
    last: Option<Instant>,
    rates: Rates,
    /// JSON events that came before `started`; none once that was said.
    early: RefCell<Option<Vec<String>>>,
    /// Standard output has something else than lines.
    aside: Cell<bool>,
    /// Warnings, and how many times each came again.
    said: RefCell<Vec<(String, u64)>>,
    /// Why no peer gives anything, as told last.
    trouble: RefCell<Option<String>>,
    /// What `tidecast status` hears.
    live: Option<Live>,
}

impl Reporter {
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal() && !json && !quiet;
        let bar = terminal.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
            bar.set_style(ProgressStyle::default_bar());
            bar
        });
        let early = RefCell::new(Some(Vec::new()));
        let (rates, said, trouble) = (Rates::default(), RefCell::default(), RefCell::default());
        Self {
            json,
            quiet,
            bar,
            began: Instant::now(),
            last: None,
            rates,
            early,
            aside: Cell::new(false),
            said,
            trouble,
            live: None,
        }
    }

    /// From now on `tidecast status` shows this process.
    pub(crate) fn go_live(&mut self, command: &'static str) {
        self.live = Live::start(command);
    }

    /// What this process is about, for `tidecast status`.
    pub(crate) fn about(&self, fields: &Map<String, Value>) {
        self.live.iter().for_each(|live| live.about(fields));
    }

    /// How far it is, for `tidecast status` alone.
    pub(crate) fn publish(&self, now: &Snapshot) {
        self.live.iter().for_each(|live| live.progress(now));
    }

    /// What is done for each of several manifests, for `tidecast status` alone.
    pub(crate) fn publish_swarms(&self, swarms: impl FnOnce() -> Vec<Value>) {
        if let Some(live) = &self.live {
            live.swarms(swarms());
        }
    }

    /// True with `--json`.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// From now on lines of the result go to standard error, and `--quiet` keeps them back: standard output has a file.
    pub(crate) fn keep_stdout_free(&self) {
        self.aside.set(true);
    }

    /// Seconds since the command began.
    pub(crate) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// The first JSON event; warnings that came before follow it. Without `--json` nothing is said.
    pub(crate) fn started(&self, command: &str, fields: Map<String, Value>) {
        self.about(&fields);
        let early = self.early.take().unwrap_or_default();
        self.event("started", json!({ "command": command }), fields);
        early.iter().for_each(|line| say(line));
    }

    /// The last state of a stage: for programs, whatever was said a moment ago.
    pub(crate) fn progress_at_last(&mut self, now: &Snapshot) {
        if self.json {
            self.last = None;
            self.progress(now);
        }
    }

    /// Progress; most calls are passed over. While data that is there already is checked (stage `check`), the
    /// JSON event is called `check`, for it counts something else than `progress` after it.
    pub(crate) fn progress(&mut self, now: &Snapshot) {
        let at = Instant::now();
        self.rates.note(at, now);
        self.publish(now);
        if let Some(bar) = &self.bar {
            draw(bar, now, &self.rates);
            return;
        }
        // What is soon over needs no line; before `started` there is no progress to tell of.
        let soon =
            if self.json { self.early.borrow().is_some() } else { self.quiet || at - self.began < LINES };
        let pause = if self.json { EVENTS } else { LINES };
        if soon || self.last.is_some_and(|last| at - last < pause) {
            return;
        }
        self.last = Some(at);
        if self.json {
            let Value::Object(fields) = snapshot_json(now, &self.rates) else { return };
            let name = if now.stage == "check" { "check" } else { "progress" };
            self.event(name, json!({ "seconds": round(self.seconds()) }), fields);
        } else {
            complain(&line(now, &self.rates));
        }
    }

    /// Something the user should know; the work goes on. What was said already is counted, and said again at the end.
    pub(crate) fn warning(&self, text: &str) {
        if self.is_new(text) {
            self.warn(text);
        }
    }

    /// Whether a warning has not been said yet; counts it if it has.
    fn is_new(&self, text: &str) -> bool {
        self.live.iter().for_each(|live| live.trouble(text));
        let mut said = self.said.borrow_mut();
        if let Some((_, times)) = said.iter_mut().find(|(known, _)| known == text) {
            *times += 1;
            return false;
        }
        // What comes after so many is not counted any more, but said.
        if said.len() < WARNINGS {
            said.push((text.to_owned(), 0));
        }
        true
    }

    /// A peer does not answer: a warning that does not wait for `started`, as nothing may start without that peer.
    pub(crate) fn trouble(&self, peer: &str, why: &str) {
        self.silence(&format!("peer {peer}: {why}"), object(json!({ "peer": peer, "reason": why })));
    }

    /// Why nothing comes or goes: as [`Reporter::trouble`], in other words.
    pub(crate) fn silence(&self, text: &str, fields: Map<String, Value>) {
        *self.trouble.borrow_mut() = Some(text.to_owned());
        if !self.is_new(text) {
            return;
        }
        if self.json {
            let mut all = object(json!({ "event": "warning", "message": text }));
            all.extend(fields);
            say(&names::json_line(Value::Object(all)));
        } else {
            self.warn(text);
        }
    }

    /// Peers answer again.
    pub(crate) fn well(&self) {
        self.trouble.take();
    }

    /// Why no peer gives anything, if that was told and has not passed.
    pub(crate) fn why(&self) -> Option<String> {
        self.trouble.borrow().clone()
    }

    /// What was said more than once, and how often.
    fn warn_of_repeats(&self) {
        let said = self.said.take();
        let again = |times: u64| if times == 1 { "once more".into() } else { format!("{times} times more") };
        said.iter()
            .filter(|(_, n)| *n > 0)
            .for_each(|(text, n)| self.warn(&format!("{text} ({})", again(*n))));
    }

    fn warn(&self, text: &str) {
        if self.json {
            self.event("warning", json!({ "message": text }), Map::new());
        } else {
            self.aside(|| complain(&format!("tidecast: warning: {text}")));
        }
    }

    /// Something of the command's own, for programs.
    pub(crate) fn happened(&self, name: &str, fields: Map<String, Value>) {
        self.event(name, json!({}), fields);
    }

    /// Any BitTorrent client can join, by this file, at these peers.
    pub(crate) fn open(&self, torrent: &Path, peers: &[SocketAddr]) {
        if self.json {
            self.event("open", json!({ "torrent": names::json(torrent), "peers": peers }), Map::new());
        } else {
            let peers = peers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
            self.aside(|| {
                complain(&format!("tidecast: open to any client: {}, peer {peers}", torrent.display()))
            });
        }
    }

    /// Something good to know; not said with `--quiet` or `--json`.
    pub(crate) fn note(&self, text: &str) {
        if !self.json && !self.quiet {
            self.aside(|| complain(&format!("tidecast: {text}")));
        }
    }

    /// A line of the result on standard output; not said with `--json`, where the last event has it all.
    pub(crate) fn result(&self, text: &str) {
        match self.aside.get() {
            true => self.note(text),
            false if self.json => {}
            false => self.aside(|| say(&names::line(text))),
        }
    }

    /// A path as the result: as it is for a program that reads it, printable on a terminal.
    pub(crate) fn result_path(&self, path: &Path) {
        if self.json {
            return;
        }
        if std::io::stdout().is_terminal() {
            return self.result(&path.display().to_string());
        }
        let mut bytes = path.as_os_str().as_bytes().to_vec();
        bytes.push(b'\n');
        self.aside(|| write(&bytes));
    }

    /// Takes the bar away for a moment, so that a line does not tear it.
    fn aside(&self, speak: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(speak),
            None => speak(),
        }
    }

    /// Takes the bar away: what follows is the result.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// The end: the last event or the error's text; answers the exit code.
    pub(crate) fn finish(&self, outcome: Outcome) -> u8 {
        self.clear();
        self.live.iter().for_each(Live::end);
        self.early.take().unwrap_or_default().iter().for_each(|line| say(line));
        self.warn_of_repeats();
        let seconds = round(self.seconds());
        match outcome {
            Ok(fields) => {
                self.event("done", json!({ "seconds": seconds }), fields);
                0
            }
            Err(Failure { code, error, fields }) => {
                let head = json!({
                    "code": code as u8, "kind": code.name(), "message": in_full(&error), "seconds": seconds,
                });
                self.event("error", head, fields);
                if !self.json {
                    let kind = if code == Code::Cut { "" } else { "error: " };
                    complain(&format!("tidecast: {kind}{}", in_full(&error)));
                }
                code as u8
            }
        }
    }

    fn event(&self, name: &str, head: Value, fields: Map<String, Value>) {
        if !self.json {
            return;
        }
        let mut all = Map::new();
        all.insert("event".into(), name.into());
        if let Value::Object(head) = head {
            all.extend(head);
        }
        all.extend(fields);
        let line = names::json_line(Value::Object(all));
        match self.early.borrow_mut().as_mut() {
            // Bounded: there are few warnings before the start.
            Some(early) => early.push(line),
            None => say(&line),
        }
    }
}

/// An error and its causes, but those that it names itself.
pub(crate) fn in_full(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// The work goes on when nobody reads standard output any more: other hosts are in it.
pub(crate) fn outlive_reader() {
    OUTLIVES.store(true, Ordering::Relaxed);
}

static OUTLIVES: AtomicBool = AtomicBool::new(false);

/// A line on standard output. A reader that has gone ends the program, as it would any filter, unless it is to outlive it.
pub(crate) fn say(text: &str) {
    write(format!("{text}\n").as_bytes());
}

fn write(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    if let Err(e) = out.write_all(bytes).and_then(|()| out.flush()) {
        if OUTLIVES.load(Ordering::Relaxed) {
            return;
        }
        if e.kind() != std::io::ErrorKind::BrokenPipe {
            complain(&format!("tidecast: error: cannot write to standard output: {e}"));
        }
        std::process::exit(Code::Cut as i32);
    }
}

/// A line on standard error. If nobody can hear it, there is nobody to tell.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", names::line(text));
}

/// Milliseconds are enough for people and keep lines short.
pub(crate) fn round(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

/// The fields of a JSON object.
pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => Map::from_iter([("value".to_owned(), other)]),
    }
}

/// Averages over the last few seconds; instantaneous rates jump too much to read.
#[derive(Default)]
pub(crate) struct Rates {
    samples: std::collections::VecDeque<(Instant, u64, u64, u64)>,
}

impl Rates {
    pub(crate) fn note(&mut self, at: Instant, s: &Snapshot) {
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
    fn get(&self) -> (f64, f64, f64) {
        let (Some(a), Some(b)) = (self.samples.front(), self.samples.back()) else { return (0.0, 0.0, 0.0) };
        let seconds = (b.0 - a.0).as_secs_f64();
        let rate =
            |from: u64, to: u64| if seconds > 0.0 { to.saturating_sub(from) as f64 / seconds } else { 0.0 };
        (rate(a.1, b.1), rate(a.2, b.2), rate(a.3, b.3))
    }
}

pub(crate) fn snapshot_json(s: &Snapshot, rates: &Rates) -> Value {
    if s.said.is_some() {
        return json!({ "stage": s.stage, "done": s.bytes, "of": s.total, "received": s.received });
    }
    let (work, received, sent) = rates.get();
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
    if let (Some((done, failed, hosts)), Value::Object(map)) = (s.hosts, &mut all) {
        map.insert("hosts".into(), hosts.into());
        map.insert("hosts_done".into(), done.into());
        map.insert("hosts_failed".into(), failed.into());
    }
    if let (Some(copy), Value::Object(map)) = (&s.copy, &mut all) {
        map.extend(object(json!({
            "streams": copy.streams, "readers": copy.readers, "writers": copy.writers, "blocks": copy.blocks,
            "limit": copy.limit,
        })));
    }
    all
}

/// One line for people.
fn line(s: &Snapshot, rates: &Rates) -> String {
    if let Some(said) = &s.said {
        return format!("{}: {said}", s.stage);
    }
    let (work, _, sent) = rates.get();
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
    if let Some((done, failed, hosts)) = s.hosts {
        parts.push(format!("{done} of {} done", count(hosts as u64, "host")));
        if failed > 0 {
            parts.push(format!("{failed} failed"));
        }
    }
    if let Some(copy) = &s.copy {
        let limit = if copy.limit == SYNCING { SYNCING.into() } else { format!("limit: {}", copy.limit) };
        parts.push(format!("{}, {limit}", count(copy.streams.into(), "stream")));
    }
    if s.bytes < s.total && work > 0.0 {
        let left = (s.total - s.bytes) as f64 / work;
        parts.push(format!("{} left", Span(Duration::from_secs_f64(left.min(3.6e6)))));
    }
    parts.join(", ")
}

fn draw(bar: &ProgressBar, s: &Snapshot, rates: &Rates) {
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
        assert_eq!(line(&at(250_000), &rates), "get: 25.0% of 1.00 MB, 250 kB/s, 1 peer, 3.00 s left");
        assert!(line(&at(999_999), &rates).contains("99.9%"), "not yet all");
        let run = Some(("chain".to_owned(), Some(1.5)));
        let simulating = Snapshot { run, peers: None, ..at(250_000) };
        assert_eq!(line(&simulating, &rates), "chain: 25.0%, 1.500 s simulated, 3.00 s left");
        let seeding = Snapshot { stage: "seed", sent: 5, peers: Some(2), ..Snapshot::default() };
        assert_eq!(line(&seeding, &Rates::default()), "seed: 5 B sent, 0 B/s, 2 peers");
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

    #[test]
    fn what_an_error_says_of_its_cause_is_not_said_twice() {
        let cause = || std::io::Error::other("no such file");
        let said = anyhow::Error::from(cause()).context("cannot open x: no such file");
        assert_eq!(in_full(&said), "cannot open x: no such file");
        let unsaid = anyhow::Error::from(cause()).context("cannot open x").context("it failed");
        assert_eq!(in_full(&unsaid), "it failed: cannot open x: no such file");
    }
}
