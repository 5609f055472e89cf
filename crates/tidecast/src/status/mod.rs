//! The status of a running process for `tidecast status`: a socket of its own in a directory of this user
//! alone, at which each connection gets one JSON object; and the reader of all these sockets.
//!
//! Promises: no command fails or waits because of it; nothing secret is in it (no ticket, no key); the socket
//! of a dead process is skipped and removed by the next reader.

mod places;

use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tidecast_event::status::{About, LastError, Process};
use tidecast_event::{Progress, round};
use tidecast_socket::Bound;

/// A reader's time limit to take the answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// The status of all processes of this user, oldest first: those that run a command of the
/// program, or have an [`Announced`].
#[must_use]
pub fn processes() -> Vec<Process> {
    places::look()
}

/// This process, as [`processes`] shows it. Cheap to clone.
///
/// ```no_run
/// use tidecast::event::Progress;
/// use tidecast::status::{Announced, processes};
///
/// let announced = Announced::start("get").expect("a directory of this user's own");
/// announced.progress(&Progress { bytes: 3, total: 5, ..Default::default() });
/// let own = processes().into_iter().find(|one| one.pid == Some(std::process::id()));
/// assert_eq!(own.and_then(|one| one.work.bytes), Some(3));
/// announced.end();
/// ```
#[derive(Clone)]
pub struct Announced(Arc<Mutex<State>>);

struct State {
    began: Instant,
    /// All of it, but for times.
    process: Process,
    last_error_at: Option<Instant>,
    bound: Option<Bound>,
}

impl Announced {
    /// Begins to answer requests; `None` if that is not possible, which does not affect the work.
    #[must_use]
    pub fn start(command: &'static str) -> Option<Self> {
        let (listener, bound) = places::listen(command)
            .inspect_err(|error| tracing::debug!(%error, "this process is not visible in `tidecast status`"))
            .ok()?;
        let process = Process {
            pid: Some(std::process::id()),
            command: Some(command.to_owned()),
            since: Some(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())),
            ..Process::default()
        };
        let state = State { began: Instant::now(), process, last_error_at: None, bound: Some(bound) };
        let announced = Self(Arc::new(Mutex::new(state)));
        let answering = announced.clone();
        let thread = std::thread::Builder::new().name("status".into());
        thread.spawn(move || answering.answer(&listener)).ok()?;
        Some(announced)
    }

    fn answer(&self, listener: &UnixListener) {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else {
                // Out of descriptors or the like: it may pass.
                std::thread::sleep(PATIENCE);
                continue;
            };
            let text = serde_json::to_string(&self.now()).unwrap_or_default();
            // The reader may have ended.
            let _ = stream.set_write_timeout(Some(PATIENCE)).and_then(|()| stream.write_all(text.as_bytes()));
        }
    }

    /// The subject of the work: `None` values stay unchanged. `total`: bytes to do, until the first progress.
    pub fn about(&self, about: About, total: Option<u64>) {
        let process = &mut self.0.lock().process;
        process.work.total = total.or(process.work.total);
        let was = std::mem::take(&mut process.about);
        process.about = About {
            name: about.name.or(was.name),
            listen: about.listen.or(was.listen),
            source: about.source.or(was.source),
            dest: about.dest.or(was.dest),
            to: about.to.or(was.to),
        };
    }

    /// How far it is.
    pub fn progress(&self, now: &Progress) {
        self.0.lock().process.advance(now);
    }

    /// Something went wrong.
    pub fn note_error(&self, text: &str) {
        let mut state = self.0.lock();
        let last = state.process.last_error.take().filter(|last| last.message == text);
        let times = last.and_then(|last| last.times).unwrap_or_default() + 1;
        let error = LastError { message: text.to_owned(), seconds: None, times: Some(times) };
        (state.process.last_error, state.last_error_at) = (Some(error), Some(Instant::now()));
    }

    /// Takes its name away.
    pub fn end(&self) {
        let bound = self.0.lock().bound.take();
        if let Some(bound) = bound {
            bound.remove();
        }
    }

    fn now(&self) -> Process {
        let state = self.0.lock();
        let since = |at: Instant| round(at.elapsed().as_secs_f64());
        let mut process = state.process.clone();
        process.seconds = Some(since(state.began));
        if let Some(last) = &mut process.last_error {
            last.seconds = state.last_error_at.map(since);
        }
        process
    }
}
