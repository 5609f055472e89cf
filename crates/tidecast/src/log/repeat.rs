//! Lines that repeat are counted, not written again: a peer that requests unreadable data a thousand times
//! must not fill a disk with the same reason.
//!
//! A line is written once. Its repetitions are counted, and the count is written after 10 s, 20 s, 40 s, up
//! to an hour, while there are more, and at the end. Of different lines from one place (a peer's address, a
//! piece's number) a limited number is written a minute; the others are counted with the last of them. Pure:
//! time is a parameter.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// When a count is written for the first time; the pause doubles each time.
pub(super) const PAUSE: Duration = Duration::from_secs(10);
/// The longest pause; a line that has not come for this long is written again.
const LONGEST: Duration = Duration::from_secs(3600);
/// Different lines of one place that are written within a minute.
const BURST: u32 = 10;
const MINUTE: Duration = Duration::from_secs(60);
/// Remembered lines: beyond that, the oldest one is removed, and its count written.
const MOST: usize = 1000;

/// The lines of one log. `K` is the place in the program that a line comes from.
pub(super) struct Repeats<K> {
    lines: HashMap<(K, Option<String>), Line>,
    bursts: HashMap<K, (Instant, u32)>,
}

/// A line, or all of one place that are too many (they have no text of their own).
struct Line {
    text: String,
    since: String,
    last: Instant,
    told: Instant,
    pause: Duration,
    uncounted: u64,
    count: u64,
}

impl<K: Clone + Eq + Hash> Repeats<K> {
    pub(super) fn new() -> Self {
        Self { lines: HashMap::new(), bursts: HashMap::new() }
    }

    /// Takes a line; returns whether to write it. `clock`: the time of day as text.
    pub(super) fn hear(&mut self, now: Instant, clock: &str, place: &K, text: &str) -> bool {
        if let Some(line) = self.lines.get_mut(&(place.clone(), Some(text.to_owned()))) {
            line.last = now;
            line.count(text);
            return false;
        }
        let fits = self.fits(now, place);
        let key = if fits { Some(text.to_owned()) } else { None };
        let fresh = || Line {
            text: text.to_owned(),
            since: clock.to_owned(),
            last: now,
            told: now,
            pause: PAUSE,
            uncounted: 0,
            count: 0,
        };
        let line = self.lines.entry((place.clone(), key)).or_insert_with(fresh);
        line.last = now;
        if !fits {
            line.count(text);
        }
        fits
    }

    /// Whether a new line of this place is written.
    fn fits(&mut self, now: Instant, place: &K) -> bool {
        let (since, written) = self.bursts.entry(place.clone()).or_insert((now, 0));
        if now - *since >= MINUTE {
            (*since, *written) = (now, 0);
        }
        *written = written.saturating_add(1);
        *written <= BURST
    }

    /// The counts to write now; removes lines that have not repeated for long.
    pub(super) fn due(&mut self, now: Instant) -> Vec<String> {
        let mut told = Vec::new();
        for ((_, own), line) in &mut self.lines {
            if line.uncounted > 0 && now - line.told >= line.pause {
                told.push(line.tell(own.is_some()));
                line.told = now;
                line.pause = (line.pause * 2).min(LONGEST);
            }
        }
        self.lines.retain(|_, line| line.uncounted > 0 || now - line.last < LONGEST);
        while self.lines.len() > MOST
            && let Some(oldest) =
                self.lines.iter().min_by_key(|(_, line)| line.last).map(|(key, _)| key.clone())
        {
            let gone = self.lines.remove(&oldest).filter(|line| line.uncounted > 0);
            told.extend(gone.map(|mut line| line.tell(oldest.1.is_some())));
        }
        told
    }

    /// All counts that have not been written.
    pub(super) fn rest(&mut self) -> Vec<String> {
        let untold = self.lines.iter_mut().filter(|(_, line)| line.uncounted > 0);
        untold.map(|((_, own), line)| line.tell(own.is_some())).collect()
    }

    /// Whether a count is still to be written.
    pub(super) fn is_waiting(&self) -> bool {
        self.lines.values().any(|line| line.uncounted > 0)
    }
}

impl Line {
    fn count(&mut self, text: &str) {
        self.uncounted += 1;
        self.count += 1;
        if self.text != text {
            text.clone_into(&mut self.text);
        }
    }

    fn tell(&mut self, one: bool) -> String {
        self.uncounted = 0;
        let (text, count, since) = (&self.text, self.count, &self.since);
        let times = if count == 1 { "once".into() } else { format!("{count} times") };
        match one {
            true => format!("{text} (again {times} since {since})"),
            false => format!("{text} (the last of {count} lines like this since {since})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_is_written_once_and_counted() {
        let (t, mut log) = (Instant::now(), Repeats::new());
        let at = |seconds| t + Duration::from_secs(seconds);
        assert!(log.hear(t, "09:30Z", &1, "it changed"));
        assert!((0..213).all(|_| !log.hear(at(1), "09:31Z", &1, "it changed")));
        assert!(log.due(at(9)).is_empty());
        assert_eq!(log.due(at(10)), ["it changed (again 213 times since 09:30Z)"]);
        assert!(log.due(at(30)).is_empty() && log.rest().is_empty(), "nothing has come since");
        assert!(!log.hear(at(25), "", &1, "it changed"));
        assert!(log.due(at(29)).is_empty(), "the pause doubles");
        assert_eq!(log.rest(), ["it changed (again 214 times since 09:30Z)"]);
        assert!(log.hear(at(40), "", &2, "it changed"), "another place in the program says it");
    }

    #[test]
    fn many_that_differ_are_counted_together() {
        let (t, mut log) = (Instant::now(), Repeats::new());
        let written = (0..500).filter(|n| log.hear(t, "09:30Z", &1, &format!("peer {n} is banned"))).count();
        assert_eq!(written, BURST as usize);
        assert_eq!(log.rest(), ["peer 499 is banned (the last of 490 lines like this since 09:30Z)"]);
        assert!(log.hear(t + MINUTE, "", &1, "peer 500 is banned"));
    }

    #[test]
    fn what_has_not_come_for_long_is_written_again() {
        let (t, mut log) = (Instant::now(), Repeats::new());
        assert!(log.hear(t, "", &1, "a"));
        log.due(t + LONGEST);
        assert!(log.hear(t + LONGEST, "", &1, "a"));
    }

    #[test]
    fn memory_is_bounded() {
        let (t, mut log) = (Instant::now(), Repeats::new());
        for place in 0..2 * MOST {
            log.hear(t, "", &place, "a");
            log.hear(t, "", &place, "a");
        }
        assert_eq!(log.due(t).len(), MOST, "what is forgotten is told");
        assert_eq!(log.lines.len(), MOST);
    }
}
