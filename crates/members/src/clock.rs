//! A clock for deadlines of other members: it neither jumps forward nor goes back.
//!
//! The caller's clock may do both. It is the wall clock, which NTP and administrators set. And a process that was
//! stopped, or waited for a processor, has missed some time: messages of others from that time are still unread, so it
//! must not count against their deadlines (Lifeguard's local health, in its simplest form).

/// The part of a delay that counts, milliseconds: ticks are late on a loaded machine, which must detect failures too. It is
/// less than the timeout of an answer.
const LATE: u64 = 1_500;

pub(crate) struct Clock {
    outer: u64,
    inner: u64,
}

impl Clock {
    pub(crate) fn new(outer: u64) -> Self {
        Self { outer, inner: outer }
    }

    /// This clock's time when the caller's clock shows `outer` and the next deadline by this clock is `due`.
    pub(crate) fn read(&mut self, outer: u64, due: u64) -> u64 {
        let passed = outer.saturating_sub(self.outer);
        let most = due.saturating_sub(self.inner).saturating_add(LATE);
        self.outer = outer;
        self.inner = self.inner.saturating_add(passed.min(most));
        self.inner
    }

    /// The time `due` by the caller's clock.
    pub(crate) fn outer(&self, due: u64) -> u64 {
        self.outer.saturating_add(due.saturating_sub(self.inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_nothing_was_seen_does_not_count() {
        let mut clock = Clock::new(1_000);
        assert_eq!(clock.read(1_400, 2_000), 1_400);
        assert_eq!(clock.outer(2_000), 2_000);
        assert_eq!(clock.read(2_100, 2_000), 2_100, "a little late");
        // Stopped for a minute, or the clock was set forward.
        assert_eq!(clock.read(62_000, 3_000), 4_500);
        assert_eq!(clock.outer(5_000), 62_500);
        // Set back by an hour: it continues from there.
        assert_eq!(clock.read(10_000, 5_000), 4_500);
        assert_eq!(clock.outer(5_000), 10_500);
        assert_eq!(clock.read(10_500, 5_000), 5_000);
        assert_eq!(clock.outer(u64::MAX), u64::MAX);
    }
}
