//! When upkeep is next due: often while requests are out, now and then while something has to be watched.

use std::time::Duration;

use crate::api::Time;

/// While something may have to be taken from the slow.
const BUSY: Duration = Duration::from_millis(50);
/// While requests are out.
const CALM: Duration = Duration::from_millis(250);

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    at: Option<Time>,
    /// There is something to do though nothing is requested.
    armed: bool,
}

impl Upkeep {
    /// There is something to look at, whether or not anything is requested.
    pub(crate) fn arm(&mut self) {
        self.armed = true;
    }

    /// Likewise, if this is so.
    pub(crate) fn arm_if(&mut self, watch: bool) {
        self.armed |= watch;
    }

    /// When it is due.
    pub(crate) fn at(&self) -> Option<Time> {
        self.at
    }

    /// Whether it is due now; reported once, and the peers to watch have to be determined again.
    pub(crate) fn begins(&mut self, now: Time) -> bool {
        let due = self.at.is_some_and(|at| at <= now);
        if due {
            *self = Upkeep::default();
        }
        due
    }

    /// Sets when it is due next, if there is anything to keep up. `busy`: requests are out.
    pub(crate) fn plan(&mut self, now: Time, busy: bool) {
        let pause = match (busy, self.armed) {
            (true, true) => BUSY,
            (true, false) | (false, true) => CALM,
            (false, false) => return,
        };
        let at = now.after(pause);
        self.at = Some(self.at.map_or(at, |old| old.min(at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn often_while_there_is_something_to_watch() {
        const MS: u64 = 1_000_000;
        let mut upkeep = Upkeep::default();
        upkeep.plan(Time(0), false);
        assert_eq!(upkeep.at(), None);
        upkeep.plan(Time(0), true);
        assert_eq!(upkeep.at(), Some(Time(250 * MS)));
        upkeep.arm();
        upkeep.plan(Time(10 * MS), true);
        upkeep.plan(Time(20 * MS), true);
        assert_eq!(upkeep.at(), Some(Time(60 * MS)));
        assert!(
            !upkeep.begins(Time(59 * MS)) && upkeep.begins(Time(60 * MS)) && !upkeep.begins(Time(61 * MS))
        );
        upkeep.plan(Time(60 * MS), false);
        assert_eq!(upkeep.at(), None, "it has to be armed again");
    }
}
