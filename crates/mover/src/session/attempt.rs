//! One copy by one pair of ends, looked at until it is over.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use super::ends::Ends;
use super::event::{Event, moved};
use super::job::{Job, LOOK, Watch};
use crate::error::Error;
use crate::job::{Sink as _, Walked};
use crate::transfer::{Monitor, Outcome, Wire};

/// The result of a copy that may be ended early.
pub(super) enum Attempt {
    /// It is done.
    Complete(Box<Outcome>),
    /// It was ended by its time limit: bytes that the receiver wrote after the first, in this many seconds, and
    /// the files seen.
    TimeLimit { bytes: u64, seconds: f64, met: SourceStats },
}

/// The size of the sources, as far as they were walked.
#[derive(Clone, Debug, Default)]
pub(super) struct SourceStats {
    /// Bytes of files, if it was all seen.
    pub(super) bytes: Option<u64>,
    /// Of a file, in the mean.
    pub(super) mean: u64,
    /// How the sender's streams went.
    pub(super) wire: Wire,
}

impl From<&Walked> for SourceStats {
    fn from(walked: &Walked) -> Self {
        let bytes = walked.complete.then_some(walked.bytes);
        Self { bytes, mean: walked.bytes / walked.files.max(1), wire: Wire::default() }
    }
}

impl Job {
    /// Copies to the end.
    pub(super) fn whole(&self, watch: &Watch, say: &mpsc::Sender<Event>) -> Result<Outcome, Error> {
        match self.copy(None, watch, say)? {
            Attempt::Complete(outcome) => Ok(*outcome),
            Attempt::TimeLimit { .. } => Err(Error::Cancelled),
        }
    }

    /// Copies, for at most this long.
    pub(super) fn copy(
        &self,
        most: Option<Duration>,
        watch: &Watch,
        say: &mpsc::Sender<Event>,
    ) -> Result<Attempt, Error> {
        let monitor = self.memory.as_ref().map_or_else(Arc::default, |held| held.monitor.clone());
        watch.look_at(vec![monitor.clone()]);
        let (mut since, mut cut) = (None, None);
        let (running, over) = mpsc::channel::<()>();
        let work = std::thread::scope(|scope| {
            let ends = Ends { job: self, monitor: &monitor, say: say.clone() };
            let working = scope.spawn(move || {
                let outcome = ends.run();
                drop(running);
                outcome
            });
            while over.recv_timeout(LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
                if watch.is_stopped() {
                    monitor.cancel();
                }
                if let Some(held) = self.memory.as_ref().filter(|_| monitor.is_cancelled()) {
                    // The receiving end may read nothing while it waits for space.
                    held.memory.stop();
                }
                if cut.is_none() {
                    cut = ends_early(&monitor, most, &mut since);
                }
            }
            working.join().unwrap_or(Err(Error::Cancelled))
        });
        match (work, cut) {
            (Ok(outcome), _) => Ok(Attempt::Complete(Box::new(outcome))),
            (Err(Error::Cancelled), Some(cut)) if !watch.is_stopped() => Ok(cut),
            (Err(e), _) => Err(e),
        }
    }
}

/// Cancels a copy that has moved data for this long; `since` is its start, with the data received by then.
fn ends_early(
    monitor: &Monitor,
    most: Option<Duration>,
    since: &mut Option<(Instant, u64)>,
) -> Option<Attempt> {
    let most = most?;
    let progress = monitor.progress();
    let moved = Some(moved(&progress, 0)).filter(|moved| *moved > 0)?;
    let (first, bytes) = *since.get_or_insert((Instant::now(), moved));
    if first.elapsed() < most {
        return None;
    }
    monitor.cancel();
    let met = SourceStats { wire: progress.wire, ..SourceStats::from(&progress.walked) };
    Some(Attempt::TimeLimit {
        bytes: moved.saturating_sub(bytes),
        seconds: first.elapsed().as_secs_f64(),
        met,
    })
}
