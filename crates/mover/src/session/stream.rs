//! A copy of one file to a pipe, a device or standard output of this host: its bytes in order, as `cp` and `cat` write them.
//!
//! A file of this host is read and written. One of another host comes as blocks, which arrive in any order: the receiver puts them in order
//! ([`InOrder`]), so few are under way at a time.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Instant;

use tidecast_paths::{Stream, is_stdout, is_stream, pour};

use super::event::Event;
use super::job::{Job, Watch};
use super::location::Location;
use crate::error::Error;
use crate::sink::InOrder;
use crate::spec::Follow;
use crate::transfer::{Monitor, Outcome, Progress};

/// The name of standard output.
const STDOUT: &str = "standard output";

/// Where such a copy goes; `None` for all others. `-` is standard output, and `./-` a file.
pub(super) fn end(job: &Job) -> Option<&Path> {
    let (Location::Local(to), [from]) = (&job.to, job.send.sources.as_slice()) else { return None };
    let to = Path::new(to);
    let fits = !job.receive.dry_run && !job.send.remove && job.send.null.is_none() && !job.receive.null;
    let is_file = !job.from.is_here() || Path::new(from).is_file();
    let is_dash = to.as_os_str() == "-";
    (fits && (is_dash || is_file && (is_stdout(to) || is_stream(to)))).then_some(to)
}

/// Whether a source is standard input or another descriptor of this process. A copy reads names in directories, which a
/// reader that fell behind reads again: of these it would copy the link, which leads nowhere afterwards.
pub(super) fn is_descriptor(from: &Location) -> bool {
    let Location::Local(path) = from else { return false };
    let path = Path::new(path);
    let below = ["/dev/fd", "/proc/self/fd", "/proc/thread-self/fd"];
    path.as_os_str() == "-"
        || path == Path::new("/dev/stdin")
        || below.iter().any(|dir| path.parent() == Some(Path::new(dir)))
}

/// The destination and its name.
struct Output {
    shown: PathBuf,
    is_stdout: bool,
}

impl Output {
    /// Does work that may wait for a reader; stopping the copy ends it.
    fn until_stopped<T>(
        &self,
        watch: &Watch,
        work: impl FnOnce(&dyn Fn() -> bool) -> io::Result<T>,
    ) -> Result<T, Error> {
        match work(&|| watch.is_stopped()) {
            Err(_) if watch.is_stopped() => Err(Error::Interrupted),
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(Error::ReaderGone(self.shown.clone())),
            other => other.map_err(Error::io("copy to", &self.shown)),
        }
    }
}

/// Copies.
pub(super) fn run(job: &Job, watch: &Watch, say: &mpsc::Sender<Event>) -> Result<Outcome, Error> {
    let path = Path::new(job.to.path());
    let is_stdout = path.as_os_str() == "-" || is_stdout(path);
    let to = Output { shown: if is_stdout { STDOUT.into() } else { path.into() }, is_stdout };
    let stream = to.until_stopped(watch, |is_over| match to.is_stdout {
        true => Stream::stdout(),
        false => Stream::open(path, is_over),
    })?;
    match (&job.from, job.send.sources.first()) {
        (Location::Local(_), Some(from)) => {
            to.until_stopped(watch, |is_over| here(Path::new(from), &stream, is_over, watch))
        }
        _ => from_there(stream, &to, job, watch, say),
    }
}

/// A file of another host.
fn from_there(
    stream: Stream,
    to: &Output,
    job: &Job,
    watch: &Watch,
    say: &mpsc::Sender<Event>,
) -> Result<Outcome, Error> {
    let stream = Arc::new(stream);
    let writes = stream.clone();
    let sink = InOrder::new(&to.shown, move |bytes, is_over| writes.write_all(bytes, is_over));
    let mut job = Job { stream: Some(Arc::new(sink)), ..job.clone() };
    job.send.in_order = true;
    // Links are followed, as by `cp` and `cat`.
    job.send.follow = Follow::All;
    let outcome = job.whole(watch, say)?;
    stream.finish().map_err(Error::io("write to", &to.shown))?;
    Ok(outcome)
}

/// A file of this host.
fn here(from: &Path, to: &Stream, is_over: &dyn Fn() -> bool, watch: &Watch) -> io::Result<Outcome> {
    let (began, monitor) = (Instant::now(), Arc::new(Monitor::default()));
    watch.look_at(vec![monitor.clone()]);
    let mut progress = Progress::default();
    let meta = from.metadata()?;
    if !meta.is_file() {
        // Opening a pipe would wait for its writer.
        let what = if meta.is_dir() { "a directory" } else { "not a regular file" };
        let why = format!("{} is {what}", from.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    (progress.walked.bytes, progress.walked.complete) = (meta.len(), true);
    let mut say = |bytes| monitor.show(Progress { bytes, ..progress.clone() });
    let poured = pour(from, to, is_over, &mut say)?;
    let mut outcome = Outcome { seconds: began.elapsed().as_secs_f64(), ..Outcome::default() };
    let (walked, written) = (&mut outcome.walked, &mut outcome.written);
    (walked.entries, walked.files, walked.bytes) = (1, 1, poured);
    (written.files, written.bytes) = (1, poured);
    Ok(outcome)
}
