//! A copy of one file to a pipe, a device or standard output of this host: its bytes in order, as `cp` and `cat` write them.
//!
//! A file of this host is read and written. One of another host comes as blocks, which arrive in any order: the receiver puts them in order
//! ([`InOrder`]), so few are under way at a time.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, anyhow};
use serde_json::json;
use tidecast_mover::back::Outcome;
use tidecast_mover::sink::InOrder;
use tidecast_mover::spec::Follow;
use tidecast_paths::{Stream, is_stdout, is_stream, pour};

use super::place::Place;
use super::session::{self, Ended, Job};
use super::tell;
use crate::cmd::Context;
use crate::failure::Failure;
use crate::output::Output;
use crate::report::{Reporter, Snapshot, object};
use crate::stop::{Stop, block_on};

/// Where such a copy goes; `None` for all others. `-` is standard output, and `./-` a file.
pub(super) fn end<'a>(job: &'a Job<'_>) -> Option<&'a Path> {
    let (Place::Local(to), [from]) = (&job.to, job.send.sources.as_slice()) else { return None };
    let to = Path::new(to);
    let fits = !job.receive.dry_run && !job.send.remove && job.send.null.is_none() && !job.receive.null;
    let is_file = !matches!(job.from, Place::Local(_)) || Path::new(from).is_file();
    let is_dash = to.as_os_str() == "-";
    (fits && (is_dash || is_file && (is_stdout(to) || is_stream(to)))).then_some(to)
}

/// Whether a source is standard input or another descriptor of this process. A copy reads names in directories, which a
/// reader that fell behind reads again: of these it would copy the link, which leads nowhere afterwards.
pub(super) fn is_descriptor(from: &Place) -> bool {
    let Place::Local(path) = from else { return false };
    let path = Path::new(path);
    let below = ["/dev/fd", "/proc/self/fd", "/proc/thread-self/fd"];
    path.as_os_str() == "-"
        || path == Path::new("/dev/stdin")
        || below.iter().any(|dir| path.parent() == Some(Path::new(dir)))
}

/// Copies, and tells of it.
pub(super) fn run(
    to: &Path,
    job: &Job<'_>,
    context: &Context<'_>,
    reporter: &mut Reporter,
) -> crate::failure::Outcome {
    let output = Output::of(to, reporter)?;
    reporter.started("copy", object(json!({ "from": job.from.to_string(), "to": output.to_string() })));
    let stream = until_stopped(&output, context, |is_over| match &output {
        Output::Stdout => Stream::stdout(),
        Output::Path(path) => Stream::open(path, is_over),
    })?;
    let outcome = match (&job.from, job.send.sources.first()) {
        (Place::Local(_), Some(from)) => {
            let from = Path::new(from);
            until_stopped(&output, context, |is_over| here(from, &stream, is_over, reporter))?
        }
        _ => from_there(stream, &output, job, context, reporter)?,
    };
    tell::tell(&outcome, false, tell::Shown::default(), None, reporter)
}

/// Does what may wait for a reader; a signal ends it.
fn until_stopped<T>(
    to: &Output,
    context: &Context<'_>,
    work: impl FnOnce(&dyn Fn() -> bool) -> io::Result<T>,
) -> Result<T, Failure> {
    block_on(context.threads(), async {
        let stop = Stop::listen()?;
        match work(&|| stop.is_asked()) {
            Err(_) if stop.is_asked() => Err(Failure::cut("interrupted")),
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {
                Err(anyhow!("cannot write to {to}: its reader has closed it before all was written").into())
            }
            other => Ok(other.with_context(|| format!("cannot copy to {to}"))?),
        }
    })
}

/// A file of another host.
fn from_there(
    stream: Stream,
    to: &Output,
    job: &Job<'_>,
    context: &Context<'_>,
    reporter: &mut Reporter,
) -> Result<Outcome, Failure> {
    let stream = Arc::new(stream);
    let writes = stream.clone();
    let sink = InOrder::new(to.to_string(), move |bytes, is_over| writes.write_all(bytes, is_over));
    let mut job = Job { stream: Some(Arc::new(sink)), ..job.clone() };
    job.send.in_order = true;
    // As `cp` and `cat` read what a link leads to.
    job.send.follow = Follow::All;
    match session::copy(&job, None, context, reporter)? {
        Ended::Whole(outcome) => {
            stream.finish().with_context(|| format!("cannot write to {to}"))?;
            Ok(*outcome)
        }
        Ended::Cut { .. } => Err(session::failure(tidecast_mover::Error::Cancelled)),
    }
}

/// A file of this host.
fn here(
    from: &Path,
    to: &Stream,
    is_over: &dyn Fn() -> bool,
    reporter: &mut Reporter,
) -> io::Result<Outcome> {
    let began = Instant::now();
    let total = from.metadata()?.len();
    let mut say = |bytes| {
        reporter.progress(&Snapshot { stage: "copy", bytes, sent: bytes, total, ..Snapshot::default() });
    };
    let poured = pour(from, to, is_over, &mut say)?;
    let mut outcome = Outcome { seconds: began.elapsed().as_secs_f64(), ..Outcome::default() };
    let (walked, written) = (&mut outcome.walked, &mut outcome.written);
    (walked.entries, walked.files, walked.bytes) = (1, 1, poured);
    (written.files, written.bytes) = (1, poured);
    Ok(outcome)
}
