//! How long a peer has kept us waiting, and when that is too long.

use std::time::Duration;

use crate::api::Time;

/// Silence that is never held against a peer, and silence that always is.
const SILENCE_LEAST: Duration = Duration::from_secs(2);
pub(crate) const SILENCE_MOST: Duration = Duration::from_secs(60);
/// Before a peer has shown its rate.
const SILENCE_FIRST: Duration = Duration::from_secs(4);
/// Silences in a row, each twice as long, after which a peer is let go: 62 s at least.
const SILENCES: u32 = 5;
/// Rejects in a row, each with a pause, after which a peer that claims the pieces is let go.
const REJECTS: u32 = 16;
/// First pause after a reject, and the longest.
const REST: Duration = Duration::from_millis(50);
const REST_MOST: Duration = Duration::from_secs(10);
/// A peer that sends a part of a block now and then is tolerated for this long.
const BLOCK_MOST: Duration = Duration::from_mins(15);

/// How long a peer has kept us waiting.
#[derive(Clone, Debug)]
pub(crate) struct Silence {
    /// Its last delivery, or the first request after a pause.
    last: Time,
    /// When a part of a block came last.
    part: Time,
    /// Since when the current silence is counted, and since when it was not interrupted.
    silent_since: Time,
    woken: Time,
    /// When all that it still owed was taken from it.
    taken_at: Option<Time>,
    silences: u32,
    rejects: u32,
    rest_until: Time,
}

impl Silence {
    pub(crate) fn new(now: Time) -> Self {
        Silence {
            last: now,
            part: now,
            silent_since: now,
            woken: now,
            taken_at: None,
            silences: 0,
            rejects: 0,
            rest_until: Time(0),
        }
    }

    /// Requests go out to a peer that had none. A silence that ended because others were asked instead
    /// continues: otherwise silent peers would take requests from one another in turn, each with a fresh
    /// start, for ever.
    pub(crate) fn wake(&mut self, now: Time) {
        let pause = self.taken_at.take().map(|at| now.since(at)).filter(|&pause| pause < SILENCE_MOST);
        self.last = pause.map_or(now, |pause| self.last.after(pause));
        self.silent_since = pause.map_or(now, |pause| self.silent_since.after(pause));
        self.woken = now;
    }

    /// All that it still owed was taken from it.
    pub(crate) fn requests_taken(&mut self, now: Time) {
        self.taken_at = Some(now);
    }

    /// How long it had been silent when all that it owed was taken from it.
    pub(crate) fn unanswered(&self) -> Duration {
        self.taken_at.map_or(Duration::ZERO, |at| at.since(self.last))
    }

    pub(crate) fn delivered(&mut self, now: Time) {
        *self = Silence::new(now);
    }

    /// Part of a block has come.
    pub(crate) fn coming(&mut self, now: Time) {
        if now.since(self.last) < BLOCK_MOST {
            (self.part, self.silent_since, self.woken, self.silences) = (now, now, now, 0);
        }
    }

    /// The time since any data has come.
    pub(crate) fn silence(&self, now: Time) -> Duration {
        now.since(self.last.max(self.part))
    }

    pub(crate) fn last(&self) -> Time {
        self.last
    }

    /// It has been silent for too long, and has delivered nothing since.
    pub(crate) fn stalled(&self) -> bool {
        self.silences > 0
    }

    /// It has rejected and is not asked for a while.
    pub(crate) fn resting(&self, now: Time) -> bool {
        now < self.rest_until
    }

    /// It has rejected a request. Several rejects during one pause are one.
    pub(crate) fn rejected(&mut self, now: Time) {
        if !self.resting(now) {
            let pause = REST.saturating_mul(1 << self.rejects.min(12)).min(REST_MOST);
            self.rejects += 1;
            self.rest_until = now.after(pause);
        }
    }

    /// Whether the silence is over its bound now; the next one is twice as long. `explained`: by the peer's
    /// own rate; `drain`: how long all outstanding requests take.
    pub(crate) fn overdue(&mut self, now: Time, explained: Option<Duration>, drain: Duration) -> bool {
        let base = match explained {
            Some(time) => time.saturating_mul(8).clamp(SILENCE_LEAST, SILENCE_MOST),
            None => SILENCE_FIRST,
        };
        let base = base.max(drain.saturating_mul(4)).min(SILENCE_MOST);
        let bound = base.saturating_mul(1 << self.silences.min(8)).min(SILENCE_MOST);
        let over = now.since(self.silent_since) >= bound;
        if over {
            // Delivery by other peers does not prove that it never would have delivered: only a silence of
            // which no part was taken over counts permanently.
            let whole = now.since(self.woken) >= bound;
            self.silences = if whole { self.silences + 1 } else { self.silences.max(1) };
            (self.silent_since, self.woken) = (now, now);
        }
        over
    }

    /// Its last answers were silence or a reject.
    pub(crate) fn is_suspect(&self) -> bool {
        self.silences > 0 || self.rejects > 0
    }

    /// Its silence has lasted as long as is tolerated.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.silences >= SILENCES || self.rejects >= REJECTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn the_silent_do_not_gain_time_by_losing_requests() {
        let at = |tenths: u64| Time(tenths * S / 10);
        let mut silence = Silence::new(at(0));
        let explained = Some(Duration::from_millis(1));
        // Asked for a tenth of a second, its requests taken, asked again two tenths later.
        let overdue = (0..100).find(|round| {
            silence.wake(at(round * 3));
            let over = silence.overdue(at(round * 3 + 1), explained, Duration::ZERO);
            silence.requests_taken(at(round * 3 + 1));
            over
        });
        assert_eq!(overdue, Some(19), "two seconds of silence");
        assert!(silence.stalled() && !silence.is_exceeded());
        assert_eq!(silence.unanswered(), Duration::from_secs(2));
        // Long after, or when it has answered, it starts again.
        silence.wake(at(10_000));
        assert_eq!(silence.last(), at(10_000));
        silence.requests_taken(at(10_001));
        silence.delivered(at(10_002));
        silence.wake(at(10_003));
        assert_eq!(silence.last(), at(10_003));
    }
}
