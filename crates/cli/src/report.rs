//! What a command says while it runs and when it ends: a bar on a terminal, plain lines when piped,
//! one JSON object a line with `--json`.
//!
//! Promises: results go to standard output, everything else to standard error, so that piping is safe;
//! with `--json` standard output holds JSON lines only, first `started` (but for commands that only
//! answer, and warnings of peers that do not answer), last `done` or `error`; progress is bounded in rate whatever the caller does; a closed
//! pipe ends the program quietly; a line for people is one line, whatever names and messages of peers are
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
use tidecast_node::{Said, Tell};
use tidecast_text::{Span, with_causes};

use self::line::{draw, line};
use crate::failure::{Failure, Outcome};
pub(crate) use crate::fields::{fields_of, object, round};
use crate::names;

/// Time between two plain lines of progress.
const LINES: Duration = Duration::from_secs(2);
/// Time between two JSON events of progress.
const EVENTS: Duration = Duration::from_millis(250);
/// Different warnings whose repetitions are counted.
const WARNINGS: usize = 200;

/// Says it. One a command.
pub(crate) struct Reporter {
    json: bool,
    quiet: bool,
    bar: Option<ProgressBar>,
    began: Instant,
    last: Option<Instant>,
    /// All is there, and that was said.
    whole: bool,
    /// JSON events that came before `started`; none once that was said.
    early: RefCell<Option<Vec<String>>>,
    /// Standard output has something else than lines.
    aside: Cell<bool>,
    /// Warnings, and how many times each came again.
    said: RefCell<Vec<(String, u64)>>,
    /// What `tidecast status` hears.
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
            said: RefCell::default(),
            live: None,
        }
    }

    /// From now on `tidecast status` shows this process.
    pub(crate) fn go_live(&mut self, command: &'static str) {
        self.live = Announced::start(command);
    }

    /// What this process is about, for `tidecast status`.
    pub(crate) fn about(&self, about: About) {
        self.live.iter().for_each(|live| live.about(about.clone(), None));
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
    pub(crate) fn began(&self, fields: Map<String, Value>) {
        if let Some(live) = &self.live {
            // No secret is among what it takes of these.
            let about = serde_json::from_value(Value::Object(fields.clone())).unwrap_or_default();
            live.about(about, fields.get("total").and_then(Value::as_u64));
        }
        let early = self.early.take().unwrap_or_default();
        self.event("started", fields);
        early.iter().for_each(|line| say(line));
    }

    /// Progress of an operation; most calls are passed over, but not the first that says that all is there.
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
            // It counts something else than `progress` after it.
            let name = if now.stage == Stage::Check { "check" } else { "progress" };
            self.event(name, fields_of(now));
        } else {
            complain(&line(now));
        }
    }

    /// Progress of what is not bytes of files, for people; most calls are passed over.
    pub(crate) fn advance_in_words(&mut self, text: &str) {
        if let Some(bar) = &self.bar {
            return draw(bar, (0, 0), text);
        }
        if !self.json && self.is_time() {
            complain(text);
        }
    }

    /// Whether progress is due: what is soon over needs no line, and before `started` there is none to tell of.
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

    /// A warning of an operation.
    fn warned(&self, warning: &Warning) {
        if !warning.is_silence() {
            return self.warning(&warning.message);
        }
        let mut fields = fields_of(warning);
        fields.shift_remove("message");
        self.silence(&warning.message, fields);
    }

    /// Why nothing comes or goes: a warning that does not wait for `started`, as nothing may start without that peer.
    pub(crate) fn silence(&self, text: &str, fields: Map<String, Value>) {
        if !self.is_new(text) {
            return;
        }
        if self.json {
            let mut all = object(json!({ "message": text }));
            all.extend(fields);
            say(&event_line("warning", all));
        } else {
            self.warn(text);
        }
    }

    /// Bytes move again.
    fn resumed(&self, resumed: &Resumed) {
        let way = if resumed.sending { "taken" } else { "received" };
        self.note(&format!("bytes are {way} again, after {} s", resumed.silent_seconds));
        self.happened("resumed", fields_of(resumed));
    }

    fn begins(&self, phase: &Phase) {
        match phase {
            Phase::AskingForManifest => self.note("asking for the manifest"),
            Phase::Comparing => self.note("comparing with what is here"),
            Phase::ServingFor(time) => {
                self.note(&format!("all is there; serving others for {}", Span(*time)));
            }
            Phase::Serving { name, listen } => {
                self.about(About { name: Some(name.clone()), ..About::default() });
                let listen = listen.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                self.note(&format!("seeding {} at {listen}; Ctrl-C stops", names::line(name)));
            }
            _ => {}
        }
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
            self.event("warning", object(json!({ "message": text })));
        } else {
            self.aside(|| complain(&format!("tidecast: warning: {text}")));
        }
    }

    /// Something of the command's own, for programs.
    pub(crate) fn happened(&self, name: &str, fields: Map<String, Value>) {
        self.event(name, fields);
    }

    /// Something that people need to know, with `--quiet` too.
    pub(crate) fn say(&self, text: &str) {
        self.aside(|| complain(&format!("tidecast: {text}")));
    }

    /// Something good to know; not said with `--quiet` or `--json`.
    pub(crate) fn note(&self, text: &str) {
        if !self.json && !self.quiet {
            self.say(text);
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
        self.live.iter().for_each(Announced::end);
        self.early.take().unwrap_or_default().iter().for_each(|line| say(line));
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
                let failed = Failed {
                    code: kind as u8,
                    kind: kind.name(),
                    message: with_causes(error.as_ref()),
                    seconds,
                };
                let mut all = fields_of(&failed);
                all.extend(fields);
                self.event("error", all);
                if !self.json {
                    let word = if kind == Kind::Cut { "" } else { "error: " };
                    complain(&format!("tidecast: {word}{}", with_causes(error.as_ref())));
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
            // Bounded: there are few warnings before the start.
            Some(early) => early.push(line),
            None => say(&line),
        }
    }
}

/// An event as a line of JSON.
fn event_line(name: &str, fields: Map<String, Value>) -> String {
    let mut all = object(json!({ "event": name }));
    all.extend(fields);
    names::json_line(Value::Object(all))
}

impl Tell for Reporter {
    fn tell(&self, said: Said) {
        match said {
            Said::Warning(warning) => self.warned(&warning),
            Said::Resumed(resumed) => self.resumed(&resumed),
            Said::Phase(phase) => self.begins(&phase),
        }
    }
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
        std::process::exit(Kind::Cut as i32);
    }
}

/// A line on standard error. If nobody can hear it, there is nobody to tell.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", names::line(text));
}
