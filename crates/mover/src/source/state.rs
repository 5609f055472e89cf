//! States of a file: its identity by `stat`, and reading so that two states are never mixed.
//!
//! A file is in one state while its `stat` does not differ. Any program can set back its length and its
//! modification time; it cannot set back `ctime` and the inode. So the data read between two equal `stat`
//! results is of one state, if the first was taken at least one clock tick after the last change: two changes
//! within a tick leave the same times.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fd::OwnedFd;
use rustix::fs::{Stat, fstat};
use rustix::io;

use super::read::NotSent;
use super::{Is, Item};
use crate::entry::Time;

/// The kernel's clock for files stands still for this long at most (100 Hz, and one tick more).
const TICK: Duration = Duration::from_millis(20);
/// The same where times are whole seconds.
const SECOND: Duration = Duration::from_secs(1);
/// How often a file is read again that something changed but its content.
pub(super) const TRIES: usize = 4;

/// The `stat` of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) len: u64,
    pub(super) mtime: Time,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    inode: (u64, u64),
    ctime: Time,
}

impl Seen {
    pub(super) fn new(stat: &Stat) -> Self {
        Self {
            len: stat.st_size as u64,
            mtime: Time { seconds: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 },
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            inode: (stat.st_dev, stat.st_ino),
            ctime: Time { seconds: stat.st_ctime, nanos: stat.st_ctime_nsec as u32 },
        }
    }

    /// Numbers that are all of it.
    pub(super) const NUMBERS: usize = 9;

    pub(super) fn numbers(&self) -> [u64; Self::NUMBERS] {
        let Self { len, mtime, mode, uid, gid, inode, ctime } = self;
        let nanos = |time: &Time| u64::from(time.nanos);
        let owner = u64::from(*uid) << 32 | u64::from(*gid);
        let times = [mtime.seconds as u64, nanos(mtime), ctime.seconds as u64, nanos(ctime)];
        let [mtime, mtime_nanos, ctime, ctime_nanos] = times;
        [*len, mtime, mtime_nanos, ctime, ctime_nanos, u64::from(*mode), owner, inode.0, inode.1]
    }

    pub(super) fn from_numbers(numbers: &[u64; Self::NUMBERS]) -> Self {
        let [len, mtime, mtime_nanos, ctime, ctime_nanos, mode, owner, dev, ino] = *numbers;
        let time = |seconds: u64, nanos: u64| Time { seconds: seconds as i64, nanos: nanos as u32 };
        Self {
            len,
            mtime: time(mtime, mtime_nanos),
            mode: mode as u32,
            uid: (owner >> 32) as u32,
            gid: owner as u32,
            inode: (dev, ino),
            ctime: time(ctime, ctime_nanos),
        }
    }

    /// Whether a file is still in this state; `unlinked`: except that another name of it was removed.
    pub(super) fn is_still(&self, now: &Self, unlinked: bool) -> bool {
        let ctime = if unlinked { now.ctime } else { self.ctime };
        Self { ctime, ..*self } == *now
    }

    /// An open file, now.
    pub(super) fn now(fd: &OwnedFd) -> io::Result<Self> {
        Ok(Self::new(&fstat(fd)?))
    }

    /// The same, as soon as a further change would show.
    pub(super) fn settled(fd: &OwnedFd) -> io::Result<Self> {
        let mut seen = Self::now(fd)?;
        for _ in 0..TRIES {
            let Some(wait) = seen.unsettled(SystemTime::now()) else { break };
            std::thread::sleep(wait);
            seen = Self::now(fd)?;
        }
        Ok(seen)
    }

    /// For how long a further change may leave the same times.
    fn unsettled(&self, now: SystemTime) -> Option<Duration> {
        let tick = if self.ctime.nanos == 0 { SECOND } else { TICK };
        let changed = Duration::new(u64::try_from(self.ctime.seconds).ok()?, self.ctime.nanos);
        let since = now.duration_since(UNIX_EPOCH).ok()?.checked_sub(changed)?;
        tick.checked_sub(since).filter(|rest| !rest.is_zero())
    }
}

impl Item {
    /// Whether a file in this state is the one about which the receiver has decided: by length and time.
    /// Other attributes are sent as they are in the state that is read; its inode may differ, as some file
    /// systems give a file a new number each time. Only a file with several names must be the very one that
    /// was walked, as the others become links to it.
    pub(super) fn is_as_announced(&self, seen: &Seen) -> bool {
        let linked = matches!(self.kind, Is::File { linked: true, .. });
        (seen.len, seen.mtime) == (self.seen.len, self.seen.mtime)
            && (!linked || seen.inode == self.seen.inode)
    }

    /// The result of `read` on one state of the file, and that state.
    pub(super) fn steady<T>(
        &self,
        fd: &OwnedFd,
        mut read: impl FnMut() -> Result<T, NotSent>,
    ) -> Result<(T, Seen), NotSent> {
        // The walk's look is the first of the two, so that most files need one more only.
        let mut before = self.seen;
        if before.unsettled(SystemTime::now()).is_some() {
            before = Seen::settled(fd)?;
        }
        for _ in 0..TRIES {
            if !self.is_as_announced(&before) {
                break;
            }
            let done = read()?;
            if Seen::now(fd)? == before {
                return Ok((done, before));
            }
            before = Seen::settled(fd)?;
        }
        Err(NotSent::Changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_settled_a_tick_after_its_last_change() {
        let file = tempfile::tempfile().unwrap();
        let mut seen = Seen::now(&file.into()).unwrap();
        let at = |nanos: u64| UNIX_EPOCH + Duration::from_secs(1_000) + Duration::from_nanos(nanos);
        seen.ctime = Time { seconds: 1_000, nanos: 5 };
        assert_eq!(seen.unsettled(at(5)), Some(TICK));
        assert_eq!(seen.unsettled(at(10_000_005)), Some(TICK / 2));
        assert_eq!(seen.unsettled(at(20_000_005)), None);
        // A server's clock may be ahead of this host's: nothing is known then.
        assert_eq!(seen.unsettled(at(4)), None);
        seen.ctime.nanos = 0;
        assert_eq!(seen.unsettled(at(999_999_999)), Some(Duration::from_nanos(1)));
        assert_eq!(seen.unsettled(at(1_000_000_000)), None);
    }
}
