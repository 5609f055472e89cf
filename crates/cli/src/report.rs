//! The output of a command while it runs and when it ends: a bar on a terminal, plain lines when piped,
//! one JSON object per line with `--json`.
//!
//! Invariants: results go to standard output, everything else to standard error, so that piping is safe. With `--json`
//! standard output has JSON lines only: first `started` (except for commands that only answer a query, and after warnings
//! about peers that do not answer), last `done` or `error`. The rate of progress lines is bounded whatever the caller does.
//! A closed pipe ends the program silently. A line for people is one line, whatever names and messages of peers are
//! in it (`names.rs`).

mod line;

use std::cell::{Cell, RefCell};
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Map, Value, json};
use tidecast::event::status::About;
use tidecast::event::{Failed, Phase, Progress, Resumed, Stage, Warning};

use tidecast::Kind;
use tidecast::status::Announced;
use tidecast_node::{Message, MessageSink};
use tidecast_text::{Span, with_causes};

use self::line::{draw, line};
use crate::failure::{Failure, Outcome};
pub(crate) use crate::fields::{fields_of, object, round};
use crate::names;

/// Time between two plain lines of progress.
const LINES: Duration = Duration::from_secs(2);
/// Time between two JSON events of progress.
const EVENTS: Duration = Duration::from_millis(250);
/// Number of different warnings whose repetitions are counted.
const WARNINGS: usize = 200;

/// Prints a command's progress, warnings and result. One per command.
pub(crate) struct Reporter {
    json: bool,
    quiet: bool,
    bar: Option<ProgressBar>,
    began: Instant,
    last: Option<Instant>,
    /// The progress event with all bytes was written.
    whole: bool,
    /// JSON events that came before `started`; `None` after `started` was written.
    early: RefCell<Option<Vec<String>>>,
    /// Standard output carries a file, so lines go to standard error.
    aside: Cell<bool>,
    /// Warnings, and how many times each was repeated.
    printed: RefCell<Vec<(String, u64)>>,
    /// The entry that `tidecast status` reads.
    live: Option<Announced>,
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
        Self {
            json,
            quiet,
            bar,
            began: Instant::now(),
            last: None,
            whole: false,
            early,
            aside: Cell::new(false),
            printed: RefCell::default(),
            live: None,
        }
    }

    /// From now on `tidecast status` shows this process.
    pub(crate) fn go_live(&mut self, command: &'static str) {
        self.live = Announced::start(command);
    }

    /// Sets name and destination of this process, for `tidecast status`.
    pub(crate) fn about(&self, about: About) {
        self.live.iter().for_each(|live| live.about(about.clone(), None));
    }

    /// True with `--json`.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// From now on lines of the result go to standard error, unless `--quiet`: standard output carries a file.
    pub(crate) fn keep_stdout_free(&self) {
        self.aside.set(true);
    }

    /// Seconds since the command began.
    pub(crate) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Writes the first JSON event; warnings that came before follow it. Without `--json` it prints nothing.
    pub(crate) fn began(&self, fields: Map<String, Value>) {
        if let Some(live) = &self.live {
            // `About` has no field for a secret.
            let about = serde_json::from_value(Value::Object(fields.clone())).unwrap_or_default();
            live.about(about, fields.get("total").and_then(Value::as_u64));
        }
        let early = self.early.take().unwrap_or_default();
        self.event("started", fields);
        early.iter().for_each(|line| print(line));
    }

    /// Progress of an operation. Most calls print nothing, to bound the rate; the first with all bytes always prints.
    pub(crate) fn advance(&mut self, now: &Progress) {
        self.live.iter().for_each(|live| live.progress(now));
        let whole = self.json && now.bytes == now.total && (now.total > 0 || now.stage == Stage::Get);
        if whole && !std::mem::replace(&mut self.whole, true) {
            self.last = None;
        }
        if let Some(bar) = &self.bar {
            return draw(bar, (now.bytes, now.total), &line(now));
        }
        if !self.is_time() {
            return;
        }
        if self.json {
            // `check` counts bytes hashed, `progress` bytes transferred.
            let name = if now.stage == Stage::Check { "check" } else { "progress" };
            self.event(name, fields_of(now));
        } else {
            print_error(&line(now));
        }
    }

    /// Progress that is not in bytes of files, for people. Most calls print nothing, to bound the rate.
    pub(crate) fn advance_in_words(&mut self, text: &str) {
        if let Some(bar) = &self.bar {
            return draw(bar, (0, 0), text);
        }
        if !self.json && self.is_time() {
            print_error(text);
        }
    }

    /// Whether progress is due: not in the first seconds, as a short operation needs no line, and not before `started`.
    fn is_time(&mut self) -> bool {
        let at = Instant::now();
        let soon =
            if self.json { self.early.borrow().is_some() } else { self.quiet || at - self.began < LINES };
        let pause = if self.json { EVENTS } else { LINES };
        if soon || self.last.is_some_and(|last| at - last < pause) {
            return false;
        }
        self.last = Some(at);
        true
    }

    /// Prints a warning; the work continues. A repeated warning is counted, and printed with its count at the end.
    pub(crate) fn warning(&self, text: &str) {
        if self.is_new(text) {
            self.warn(text);
        }
    }

    /// Whether this warning was not printed yet; counts it if it was.
    fn is_new(&self, text: &str) -> bool {
        self.live.iter().for_each(|live| live.note_error(text));
        let mut printed = self.printed.borrow_mut();
        if let Some((_, times)) = printed.iter_mut().find(|(known, _)| known == text) {
            *times += 1;
            return false;
        }
        // Beyond this number repetitions are printed instead of counted, which bounds the memory.
        if printed.len() < WARNINGS {
            printed.push((text.to_owned(), 0));
        }
        true
    }

    /// Prints a warning of an operation.
    fn warned(&self, warning: &Warning) {
        if !warning.is_silence() {
            return self.warning(&warning.message);
        }
        let mut fields = fields_of(warning);
        fields.shift_remove("message");
        self.silence(&warning.message, fields);
    }

    /// Warns that a peer does not answer or no data moves. It does not wait for `started`, which may never come without
    /// that peer.
    pub(crate) fn silence(&self, text: &str, fields: Map<String, Value>) {
        if !self.is_new(text) {
            return;
        }
        if self.json {
            let mut all = object(json!({ "message": text }));
            all.extend(fields);
            print(&event_line("warning", all));
        } else {
            self.warn(text);
        }
    }

    /// Reports that data moves again.
    fn resumed(&self, resumed: &Resumed) {
        let way = if resumed.sending { "sending" } else { "receiving" };
        self.note(&format!("{way} again after {} s without data", resumed.silent_seconds));
        self.happened("resumed", fields_of(resumed));
    }

    fn begins(&self, phase: &Phase) {
        match phase {
            Phase::AskingForManifest => self.note("requesting the manifest"),
            Phase::Comparing => self.note("comparing with local data"),
            Phase::ServingFor(time) => {
                self.note(&format!("complete; serving other peers for {}", Span(*time)));
            }
            Phase::Serving { name, listen } => {
                self.about(About { name: Some(name.clone()), ..About::default() });
                let listen = listen.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                self.note(&format!("seeding {} at {listen}; Ctrl-C stops", names::line(name)));
            }
            _ => {}
        }
    }

    /// Prints the warnings that were repeated, with their count.
    fn warn_of_repeats(&self) {
        let printed = self.printed.take();
        let again =
            |times: u64| if times == 1 { "repeated once".into() } else { format!("repeated {times} times") };
        printed
            .iter()
            .filter(|(_, n)| *n > 0)
            .for_each(|(text, n)| self.warn(&format!("{text} ({})", again(*n))));
    }

    fn warn(&self, text: &str) {
        if self.json {
            self.event("warning", object(json!({ "message": text })));
        } else {
            self.aside(|| print_error(&format!("tidecast: warning: {text}")));
        }
    }

    /// Writes a JSON event that only this command has.
    pub(crate) fn happened(&self, name: &str, fields: Map<String, Value>) {
        self.event(name, fields);
    }

    /// Prints a message for people, with `--quiet` too.
    pub(crate) fn print(&self, text: &str) {
        self.aside(|| print_error(&format!("tidecast: {text}")));
    }

    /// Prints a notice for people; not with `--quiet` or `--json`.
    pub(crate) fn note(&self, text: &str) {
        if !self.json && !self.quiet {
            self.print(text);
        }
    }

    /// Prints a line of the result on standard output; not with `--json`, where the last event has the result.
    pub(crate) fn result(&self, text: &str) {
        match self.aside.get() {
            true => self.note(text),
            false if self.json => {}
            false => self.aside(|| print(&names::line(text))),
        }
    }

    /// Prints a path as the result: unchanged for a program that reads it, escaped on a terminal.
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

    /// Hides the bar while a line is printed, so that the line does not break it.
    fn aside(&self, speak: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(speak),
            None => speak(),
        }
    }

    /// Removes the bar before the result is printed.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Prints the last event or the error's text; returns the exit code.
    pub(crate) fn finish(&self, outcome: Outcome) -> u8 {
        self.clear();
        self.live.iter().for_each(Announced::end);
        self.early.take().unwrap_or_default().iter().for_each(|line| print(line));
        self.warn_of_repeats();
        let seconds = round(self.seconds());
        match outcome {
            Ok(fields) => {
                let mut all = object(json!({ "seconds": seconds }));
                all.extend(fields);
                self.event("done", all);
                0
            }
            Err(Failure { kind, error, fields }) => {
                let message = tidecast_secret::shown(&with_causes(error.as_ref()));
                let failed =
                    Failed { code: kind as u8, kind: kind.name(), message: message.clone(), seconds };
                let mut all = fields_of(&failed);
                all.extend(fields);
                self.event("error", all);
                if !self.json {
                    let word = if kind == Kind::Interrupted { "" } else { "error: " };
                    print_error(&format!("tidecast: {word}{message}"));
                }
                kind as u8
            }
        }
    }

    fn event(&self, name: &str, fields: Map<String, Value>) {
        if !self.json {
            return;
        }
        let line = event_line(name, fields);
        match self.early.borrow_mut().as_mut() {
            // Bounded, because there are few warnings before the start.
            Some(early) => early.push(line),
            None => print(&line),
        }
    }
}

/// An event as a line of JSON.
fn event_line(name: &str, fields: Map<String, Value>) -> String {
    let mut all = object(json!({ "event": name }));
    all.extend(fields);
    names::json_line(Value::Object(all))
}

impl MessageSink for Reporter {
    fn send(&self, message: Message) {
        match message {
            Message::Warning(warning) => self.warned(&warning),
            Message::Resumed(resumed) => self.resumed(&resumed),
            Message::Phase(phase) => self.begins(&phase),
        }
    }
}

/// From now on a closed standard output does not end the program: other hosts depend on its work.
pub(crate) fn outlive_reader() {
    OUTLIVES.store(true, Ordering::Relaxed);
}

static OUTLIVES: AtomicBool = AtomicBool::new(false);

/// Prints a line on standard output. A closed pipe ends the program, as any filter, unless [`outlive_reader`] was called.
pub(crate) fn print(text: &str) {
    write(format!("{text}\n").as_bytes());
}

fn write(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    written(out.write_all(bytes));
}

/// Ends the program if this write to standard output, or what is left of it, fails: a closed pipe interrupts it, silently as
/// with any filter; any other cause, as a full disk, is a fault.
pub(crate) fn written(tried: std::io::Result<()>) {
    if let Err(e) = tried.and_then(|()| std::io::stdout().flush()) {
        if OUTLIVES.load(Ordering::Relaxed) {
            return;
        }
        if e.kind() == std::io::ErrorKind::BrokenPipe {
            std::process::exit(Kind::Interrupted as i32);
        }
        print_error(&format!("tidecast: error: cannot write to standard output: {e}"));
        std::process::exit(Kind::Fault as i32);
    }
}

/// Begins the line of an error that is printed by another crate.
pub(crate) fn begin_error() {
    let _ = write!(std::io::stderr().lock(), "tidecast: ");
}

/// Prints a line on standard error. A failure is ignored, since it cannot be reported elsewhere.
pub(crate) fn print_error(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", names::line(text));
}
