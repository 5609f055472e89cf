//! A copy of one file of this host to a pipe or a device of this host: its bytes in order, as `cp` writes them. Blocks of a
//! session arrive in any order, so that another host's file is refused there (by the mover).

use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use serde_json::json;
use tidecast_mover::back::Outcome;
use tidecast_paths::{is_stream, pour};

use super::place::Place;
use super::session::Job;
use super::tell;
use crate::cmd::Context;
use crate::failure::Failure;
use crate::report::{Reporter, Snapshot, object};
use crate::stop::{Stop, block_on};

/// The file and the pipe or device of such a copy; `None` for all others.
pub(super) fn ends<'a>(job: &'a Job<'_>) -> Option<(&'a Path, &'a Path)> {
    let (Place::Local(_), Place::Local(to), [from]) = (&job.from, &job.to, job.send.sources.as_slice())
    else {
        return None;
    };
    let (from, to) = (Path::new(from), Path::new(to));
    let fits = !job.receive.dry_run && !job.send.remove && job.send.null.is_none() && !job.receive.null;
    (fits && is_stream(to) && from.is_file()).then_some((from, to))
}

/// Copies, and tells of it.
pub(super) fn run(
    (from, to): (&Path, &Path),
    job: &Job<'_>,
    context: &Context<'_>,
    reporter: &mut Reporter,
) -> crate::failure::Outcome {
    reporter.started("copy", object(json!({ "from": job.from.to_string(), "to": job.to.to_string() })));
    block_on(context.threads(), async {
        let stop = Stop::listen()?;
        let began = Instant::now();
        let total = from.metadata().map_or(0, |meta| meta.len());
        let mut say = |bytes| {
            reporter.progress(&Snapshot { stage: "copy", bytes, sent: bytes, total, ..Snapshot::default() });
        };
        let poured = match pour(from, to, &|| stop.is_asked(), &mut say) {
            Err(_) if stop.is_asked() => return Err(Failure::cut("interrupted")),
            other => other.with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?,
        };
        let mut outcome = Outcome { seconds: began.elapsed().as_secs_f64(), ..Outcome::default() };
        let (walked, written) = (&mut outcome.walked, &mut outcome.written);
        (walked.entries, walked.files, walked.bytes) = (1, 1, poured);
        (written.files, written.bytes) = (1, poured);
        tell::tell(&outcome, false, tell::Shown::default(), None, reporter)
    })
}
