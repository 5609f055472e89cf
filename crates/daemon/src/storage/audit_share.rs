//! Each user's share of the audit log: requests that cost nothing are logged up to a rate, so that no user can push the entries of
//! others out of it. Pure: time comes in.

use std::collections::HashMap;

/// Bytes that a user may write at once, and in a second in the long run.
const BURST: u64 = 2 << 20;
const RATE: u64 = 512;
/// Users that are remembered; of more, those that have all of their share are forgotten first.
const USERS: usize = 10_000;

/// The shares of all users.
#[derive(Default)]
pub(super) struct Shares(HashMap<String, Share>);

struct Share {
    left: u64,
    /// When it was `left`, seconds.
    at: u64,
    /// Entries that were not logged.
    skipped: u64,
}

impl Share {
    fn refilled(&self, now: u64) -> u64 {
        self.left.saturating_add(now.saturating_sub(self.at).saturating_mul(RATE)).min(BURST)
    }
}

impl Shares {
    /// Takes bytes from a user's share, at a time in seconds: how many entries before this one were not logged, or none
    /// if neither is this one.
    pub(super) fn take(&mut self, who: &str, bytes: u64, now: u64) -> Option<u64> {
        if !self.0.contains_key(who) {
            if self.0.len() >= USERS {
                self.0.retain(|_, share| share.refilled(now) < BURST || share.skipped > 0);
            }
            if self.0.len() >= USERS {
                return Some(0);
            }
            self.0.insert(who.to_owned(), Share { left: BURST, at: now, skipped: 0 });
        }
        let share = self.0.get_mut(who)?;
        (share.left, share.at) = (share.refilled(now), now);
        match share.left.checked_sub(bytes) {
            Some(left) => {
                share.left = left;
                Some(std::mem::take(&mut share.skipped))
            }
            None => {
                share.skipped += 1;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn who_writes_too_much_is_cut_and_no_other() {
        let mut shares = Shares::default();
        for _ in 0..BURST / 1000 {
            assert_eq!(shares.take("eve", 1000, 7), Some(0));
        }
        for _ in 0..5 {
            assert_eq!(shares.take("eve", 1000, 7), None);
        }
        assert_eq!(shares.take("alice", 1000, 7), Some(0));
        assert_eq!(shares.take("eve", 1000, 9), Some(5), "what was left out is told");
        assert_eq!(shares.take("eve", 1000, 6), None, "a clock that goes back gives nothing");
        // A day later all is there again, and not more.
        let later = 9 + 86_400;
        for _ in 0..BURST / 1000 {
            assert!(shares.take("eve", 1000, later).is_some());
        }
        assert_eq!(shares.take("eve", 1000, later), None);
    }

    #[test]
    fn users_beyond_the_limit_are_logged_and_not_remembered() {
        let mut shares = Shares::default();
        (0..2 * USERS).for_each(|n| assert_eq!(shares.take(&n.to_string(), 10, 1), Some(0)));
        assert!(shares.0.len() <= USERS);
        assert_eq!(shares.take("late", 10, 1 << 40), Some(0));
        assert_eq!(shares.0.len(), 1, "those that have their share again are forgotten");
    }
}
