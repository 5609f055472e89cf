//! From all pieces to the final names, and the events about it.

use std::time::Duration;

use tidecast_event::get::{Action, Done};
use tidecast_event::{Context as _, Error, Fault as _};
use tidecast_net::Summary;
use tidecast_node::{MessageSender, Running, Stop, SwarmSettings, efficiency, totals};
use tidecast_store::Summary as Placed;
use tidecast_text::Span;

use super::deadline::Deadline;

/// A wait for another process is reported if it takes longer.
const WAIT_UNSAID: Duration = Duration::from_secs(2);

/// Restores metadata and gives everything its final name.
///
/// Another process that writes to the same destination is waited for, until the user or the deadline ends
/// that. The final renaming is not interrupted.
pub(super) async fn finish(
    running: &Running,
    deadline: Deadline,
    stop: &Stop,
    messages: &MessageSender<'_>,
) -> Result<Placed, Error> {
    let store = running.swarm.store().clone();
    let finishing = store.clone();
    let mut finishing = tokio::task::spawn_blocking(move || finishing.finish());
    let (mut unsaid, mut cut) = (true, None);
    let done = loop {
        tokio::select! {
            done = &mut finishing => break done.context("a thread of Tidecast failed")?,
            () = stop.wait(), if cut.is_none() => {
                cut = Some("interrupted".to_owned());
                store.stop_waiting();
            }
            () = deadline.wait(), if cut.is_none() => {
                cut = Some(format!("not in place within {}", Span(deadline.after)));
                store.stop_waiting();
            }
            () = tokio::time::sleep(WAIT_UNSAID), if unsaid => {
                if let Some(lock) = store.waits_for() {
                    let (to, lock) = (store.path(), lock.display().to_string());
                    let to = to.display();
                    messages.warning(format!("another tidecast is writing to {to}; waiting for its lock {lock}"));
                    unsaid = false;
                }
            }
        }
    };
    let done = match (done, cut) {
        (Err(error @ tidecast_store::Error::Waited { .. }), Some(cut)) => {
            return Err(Error::interrupted(format!("{cut}: {error}")));
        }
        (done, _) => done.fault()?,
    };
    done.warnings.iter().for_each(|warning| messages.warning(warning));
    Ok(done)
}

/// The result: in place after `seconds`, at the end after `total`.
pub(super) fn done(
    got: Placed,
    summary: &Summary,
    settings: &SwarmSettings,
    (seconds, total): (f64, f64),
) -> Done {
    let unchanged = got.kept == got.files && got.deleted == 0;
    let action = match (got.fresh, unchanged) {
        (true, _) => Action::Delivered,
        (_, true) => Action::Unchanged,
        _ => Action::Replaced,
    };
    Done {
        seconds: total,
        totals: totals(summary),
        path: got.path,
        files: got.files,
        action,
        files_kept: got.kept,
        files_replaced: got.replaced,
        files_stale: got.stale,
        files_foreign: got.foreign,
        files_deleted: got.deleted,
        get_seconds: seconds,
        efficiency: efficiency(summary, settings, seconds),
        file_bytes: got.bytes,
    }
}
