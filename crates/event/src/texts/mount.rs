//! Texts of a mount.

use std::time::Duration;

use tidecast_text::{Size, Span, count};

use crate::mount::{State, Status};

/// Number of files shown for which processes waited.
const SLOWEST: usize = 5;

impl State {
    /// Lines for people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let path = self.path.display();
        match &self.status {
            Some(status) => lines(&path.to_string(), status),
            None => {
                let why = self.dead.as_deref().unwrap_or_default();
                vec![format!("{path}: dead ({why}); remove it with `tidecast umount`")]
            }
        }
    }
}

fn lines(path: &str, status: &Status) -> Vec<String> {
    let mut lines = Vec::new();
    let mut say = |text: String| lines.push(text);
    let here = status.pieces.saturating_sub(status.pieces_missing);
    say(format!(
        "{path}: {}, {} in {}; {here} of {} pieces local",
        status.name,
        Size(status.bytes),
        count(u64::from(status.files), "file"),
        status.pieces,
    ));
    say(format!(
        "  fetched {} from the origin, {} from peers; sent {}; {}",
        Size(status.from_origin),
        Size(status.from_peers),
        Size(status.sent),
        count(status.connections as u64, "connection"),
    ));
    let kinds = status.requests.iter().filter(|(_, n)| **n > 0).map(|(kind, n)| format!("{kind} {n}"));
    let kinds = kinds.collect::<Vec<_>>().join(", ");
    say(format!(
        "  opens and reads: {} local, {} waited, {} failed; requests: {kinds}",
        status.hits, status.misses, status.errors,
    ));
    status.trouble.iter().for_each(|trouble| say(format!("  {trouble}")));
    for failed in status.failures.iter().take(SLOWEST) {
        let (times, ago) = (count(failed.times, "time"), span(failed.seconds));
        say(format!("  failed {times}, last {ago} ago on {}: {}", failed.path, failed.why));
    }
    for hold in status.waits.iter().take(SLOWEST) {
        let (pid, time) = (hold.pid, span(hold.seconds));
        say(format!("  waits for {}: process {pid}, for {time} so far", hold.path));
    }
    for wait in status.slowest.iter().take(SLOWEST) {
        say(format!("  waited {} for {}", span(wait.seconds), wait.path));
    }
    lines
}

fn span(seconds: f64) -> Span {
    Span(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}
