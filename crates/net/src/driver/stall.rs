//! Detects when payload has stopped moving though peers are connected, and when it moves again.

use std::time::{Duration, Instant};

/// No payload for this long: the user is told.
pub(super) const SILENT: Duration = Duration::from_secs(5);

/// The reported state.
#[derive(Default)]
pub(super) struct Stall {
    /// Since when there is something to fetch from peers that are connected.
    pub(super) fetching: Option<Instant>,
    pub(super) receiving: Direction,
    pub(super) sending: Direction,
}

/// One of the two ways. Pure: the time comes in.
#[derive(Default)]
pub(super) struct Direction {
    /// Start of the reported silence.
    pub(super) told: Option<Instant>,
}

/// A change to report.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StallChange {
    Stalled(Duration),
    Resumed(Duration),
}

impl Direction {
    /// `silent`: since when nothing moves that should; None where nothing is to move. `moved`: when something did last.
    pub(super) fn look(
        &mut self,
        now: Instant,
        silent: Option<Instant>,
        moved: Option<Instant>,
    ) -> Option<StallChange> {
        match (self.told, silent) {
            (None, Some(since)) if now.saturating_duration_since(since) >= SILENT => {
                self.told = Some(since);
                Some(StallChange::Stalled(now.saturating_duration_since(since)))
            }
            (Some(told), since) if since != Some(told) => {
                self.told = None;
                // A silence that ends with its connection is not reported here.
                let moved = moved.filter(|moved| *moved > told)?;
                Some(StallChange::Resumed(moved.saturating_duration_since(told)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_is_told_once_and_its_end_once() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut direction = Direction::default();
        let stalled = Some(StallChange::Stalled(SILENT));
        assert_eq!(direction.look(at(4), Some(start), None), None, "it is short yet");
        assert_eq!(direction.look(at(5), Some(start), None), stalled);
        assert_eq!(direction.look(at(60), Some(start), None), None, "it was told");
        let resumed = Some(StallChange::Resumed(Duration::from_secs(61)));
        assert_eq!(direction.look(at(61), Some(at(61)), Some(at(61))), resumed);
        assert_eq!(direction.look(at(66), Some(at(61)), Some(at(61))), stalled);
        assert_eq!(direction.look(at(70), None, Some(at(61))), None, "the connection has ended");
        assert_eq!(
            direction.look(at(80), Some(at(71)), Some(at(61))),
            Some(StallChange::Stalled(Duration::from_secs(9)))
        );
    }
}
