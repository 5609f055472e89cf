//! What a process that runs says of itself to `tidecast status`: a socket of its own in a directory that is this user's
//! alone, at which each connection gets one JSON object.
//!
//! Promises: no command fails or waits because of it; nothing secret is in it (no ticket, no key); what a dead process
//! left is passed over and removed by who looks next.

pub(crate) mod places;

use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tidecast_socket::Bound;

use crate::fields::{object, round};

/// Who asks has so long to take the answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Fields of the event `started` that say what a process is about.
const ABOUT: &[&str] = &["name", "listen", "total", "source", "dest", "to"];

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Live(Arc<Mutex<State>>);

struct State {
    command: &'static str,
    began: Instant,
    since: u64,
    about: Map<String, Value>,
    /// How far it is, as JSON has it.
    now: Map<String, Value>,
    trouble: Option<Trouble>,
    bound: Option<Bound>,
}

/// The last warning.
struct Trouble {
    text: String,
    at: Instant,
    times: u64,
}

impl Live {
    /// Begins to answer who asks; None where that cannot be, which is no matter to the command.
    pub(crate) fn start(command: &'static str) -> Option<Self> {
        let (listener, bound) = places::listen(command)
            .inspect_err(|error| tracing::debug!(%error, "`tidecast status` will not show this process"))
            .ok()?;
        let live = Self(Arc::new(Mutex::new(State {
            command,
            began: Instant::now(),
            since: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
            about: Map::new(),
            now: Map::new(),
            trouble: None,
            bound: Some(bound),
        })));
        let answering = live.clone();
        let thread = std::thread::Builder::new().name("status".into());
        thread.spawn(move || answering.answer(&listener)).ok()?;
        Some(live)
    }

    fn answer(&self, listener: &UnixListener) {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else {
                // Out of descriptors or the like: it may pass.
                std::thread::sleep(PATIENCE);
                continue;
            };
            let text = self.state().to_string();
            // Who asked may have gone.
            let _ = stream.set_write_timeout(Some(PATIENCE)).and_then(|()| stream.write_all(text.as_bytes()));
        }
    }

    /// What it is about: of the fields of `started`, those that are no secret.
    pub(crate) fn about(&self, fields: &Map<String, Value>) {
        let known = fields.iter().filter(|(key, _)| ABOUT.contains(&key.as_str()));
        self.0.lock().about.extend(known.map(|(key, value)| (key.clone(), value.clone())));
    }

    /// How far it is.
    pub(crate) fn progress(&self, now: Map<String, Value>) {
        self.0.lock().now = now;
    }

    /// Something went wrong.
    pub(crate) fn trouble(&self, text: &str) {
        let mut state = self.0.lock();
        let times = state.trouble.as_ref().filter(|last| last.text == text).map_or(0, |last| last.times);
        state.trouble = Some(Trouble { text: text.to_owned(), at: Instant::now(), times: times + 1 });
    }

    /// Takes its name away.
    pub(crate) fn end(&self) {
        let bound = self.0.lock().bound.take();
        if let Some(bound) = bound {
            bound.remove();
        }
    }

    fn state(&self) -> Value {
        let state = self.0.lock();
        let mut all = object(json!({
            "pid": std::process::id(), "command": state.command, "since": state.since,
            "seconds": round(state.began.elapsed().as_secs_f64()),
        }));
        all.extend(state.about.clone());
        all.extend(state.now.clone());
        let trouble = state.trouble.as_ref().map(|trouble| {
            let seconds = round(trouble.at.elapsed().as_secs_f64());
            json!({ "message": trouble.text, "seconds": seconds, "times": trouble.times })
        });
        all.insert("last_error".into(), trouble.into());
        Value::Object(all)
    }
}
