//! Names that another user may have planted, so that a process would use them as its own.

use std::sync::OnceLock;

/// Only owners of names may replace them.
pub const STICKY: u32 = 0o1000;
const GROUP_WRITES: u32 = 0o020;
const ALL_WRITE: u32 = 0o002;
/// Users besides the owner may write.
pub const OTHERS_WRITE: u32 = GROUP_WRITES | ALL_WRITE;

/// The owner that a kernel shows by default for users that a namespace does not know.
const NOBODY: u32 = 65534;

/// Owner and permissions of a directory.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The user that it belongs to.
    pub owner: u32,
    /// Permission bits, with the sticky bit.
    pub mode: u32,
}

impl Access {
    /// Whether a name of user `owner` in this directory may have been planted for user `me`: it is another user's, and
    /// all users may create names there. In a directory of a group without the sticky bit the members work together:
    /// any of them may replace each name anyway. Root and the owner of the directory are trusted, unless this process cannot tell
    /// them from other users ([`unmapped`]).
    #[must_use]
    pub fn lets_plant(self, owner: u32, me: u32) -> bool {
        self.lets_plant_where(owner, me, unmapped())
    }

    fn lets_plant_where(self, owner: u32, me: u32, unmapped: Option<u32>) -> bool {
        self.is_open() && (unmapped == Some(owner) || ![0, me, self.owner].contains(&owner))
    }

    /// Whether every user may put another name in the place of one in this directory.
    #[must_use]
    pub fn lets_exchange(self) -> bool {
        self.mode & ALL_WRITE != 0 && self.mode & STICKY == 0
    }

    /// Whether users besides the owner and a group that works together may create names in this directory.
    #[must_use]
    pub fn is_open(self) -> bool {
        self.mode & ALL_WRITE != 0 || self.mode & STICKY != 0 && self.mode & GROUP_WRITES != 0
    }
}

/// Whether users besides the owner of a directory may create names in it. A group does not count that is this process's own and
/// that of one user only, as many systems make one for each user.
#[must_use]
pub fn others_write(owner: u32, group: u32, mode: u32) -> bool {
    let is_of_one = group == owner && group == rustix::process::getegid().as_raw();
    mode & ALL_WRITE != 0 || mode & GROUP_WRITES != 0 && !is_of_one
}

/// The owner that a user namespace shows for all users that it does not know, the host's root among them; `None` in the host's
/// own. Found out once: a process that enters a namespace of its own asks before that, and has looked at names then.
pub fn unmapped() -> Option<u32> {
    static UNMAPPED: OnceLock<Option<u32>> = OnceLock::new();
    *UNMAPPED.get_or_init(unmapped_now)
}

/// The same in the namespace that the process is in now.
#[must_use]
pub fn unmapped_now() -> Option<u32> {
    let words = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let is_host = words("/proc/self/uid_map").split_whitespace().eq(["0", "0", "4294967295"]);
    (!is_host).then(|| words("/proc/sys/kernel/overflowuid").trim().parse().unwrap_or(NOBODY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_users_are_planted_where_all_may_create_names() {
        let (me, other, third) = (1000, 1001, 1002);
        let planted = |mode| Access { owner: third, mode }.lets_plant(other, me);
        assert_eq!([0o777, 0o1777, 0o1770, 0o1775].map(planted), [true; 4]);
        assert_eq!([0o755, 0o770, 0o775, 0o1755, 0o1700].map(planted), [false; 5]);
        let tmp = Access { owner: third, mode: 0o1777 };
        for owner in [0, me, third] {
            assert!(!tmp.lets_plant(owner, me));
        }
        // In a namespace that does not know the owner of the directory, that name may be anybody's.
        assert!(tmp.lets_plant_where(third, 0, Some(third)) && !tmp.lets_plant_where(0, 0, Some(third)));
        assert!(!Access { owner: third, mode: 0o755 }.lets_plant_where(third, 0, Some(third)));
    }
}
