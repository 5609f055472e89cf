//! Names that another user may have planted, so that a process would use them as its own.

/// Only owners of names may replace them.
pub const STICKY: u32 = 0o1000;
const GROUP_WRITES: u32 = 0o020;
const ALL_WRITE: u32 = 0o002;
/// Users besides the owner may write.
pub const OTHERS_WRITE: u32 = GROUP_WRITES | ALL_WRITE;

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
    /// any of them may replace each name anyway. Root and the owner of the directory are trusted.
    #[must_use]
    pub fn lets_plant(self, owner: u32, me: u32) -> bool {
        self.is_open() && ![0, me, self.owner].contains(&owner)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_users_are_planted_where_all_may_create_names() {
        let (me, other, third) = (1000, 1001, 1002);
        let planted = |mode| Access { owner: third, mode }.lets_plant(other, me);
        assert_eq!([0o777, 0o1777, 0o1770, 0o1775].map(planted), [true; 4]);
        assert_eq!([0o755, 0o770, 0o775, 0o1755, 0o1700].map(planted), [false; 5]);
        for owner in [0, me, third] {
            assert!(!Access { owner: third, mode: 0o1777 }.lets_plant(owner, me));
        }
    }
}
