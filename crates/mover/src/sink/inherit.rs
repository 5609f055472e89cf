//! What a directory passes on to its new entries: its group, and its default access list (acl(5)). Entries that are made elsewhere and
//! renamed to there must be given it.

use rustix::fd::OwnedFd;
use rustix::fs::{self, XattrFlags};
use rustix::io::Errno;
use tidecast_paths::acl;

use super::entry_error::{Doing, EntryResult};
use crate::xattr;

pub(super) const DEFAULT: &str = "system.posix_acl_default";
/// Before the entries of a list, and of each entry.
const HEAD: usize = 4;
const ENTRY: usize = 8;

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    /// User and group.
    pub(super) owner: (u32, u32),
    pub(super) acl: Option<DefaultAcl>,
}

/// A default access list, as the system stores it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DefaultAcl(Vec<u8>);

impl DefaultAcl {
    /// That of a directory, whose handle may be one that only names it.
    pub(super) fn of(dir: &OwnedFd) -> Option<Self> {
        xattr::of_dir(dir, DEFAULT).map(Self)
    }

    /// The bits of a mode that new entries may have, instead of those that the umask leaves.
    pub(super) fn mode(&self) -> u32 {
        let rights = |tag: u16| {
            let mut entries = self.0.get(HEAD..).unwrap_or_default().chunks_exact(ENTRY);
            let found = entries.find(|entry| entry[..2] == tag.to_le_bytes())?;
            Some(u32::from(found[2] & 7))
        };
        let [user, group, mask, others] = [0x01, 0x04, 0x10, 0x20].map(rights);
        user.unwrap_or(7) << 6 | mask.or(group).unwrap_or(7) << 3 | others.unwrap_or(7)
    }

    /// Makes it the access list of a new file; a mode that is set later restricts it.
    pub(super) fn give(&self, file: &OwnedFd) -> Result<(), Errno> {
        fs::fsetxattr(file, acl::ATTRIBUTE, &self.0, XattrFlags::empty())
    }

    /// The same for a name.
    pub(super) fn give_name(&self, dir: &OwnedFd, name: &str) -> Result<(), Errno> {
        xattr::set_at(dir, name.as_bytes(), acl::ATTRIBUTE.as_bytes(), &self.0)
    }
}

/// Gives a directory the access lists of another, and no others.
pub(super) fn copy_lists(from: &OwnedFd, to: &OwnedFd) -> EntryResult {
    for name in [acl::ATTRIBUTE, DEFAULT] {
        let done = match xattr::of_dir(from, name) {
            Some(list) => fs::fsetxattr(to, name, &list, XattrFlags::empty()),
            None => fs::fremovexattr(to, name),
        };
        match done {
            // Neither directory has such a list.
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(e) => return Err(e).doing("set the access list of"),
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16)]) -> DefaultAcl {
        let each = entries.iter().flat_map(|(tag, rights)| {
            [tag.to_le_bytes(), rights.to_le_bytes(), [0xff; 2], [0xff; 2]].concat()
        });
        DefaultAcl(2u32.to_le_bytes().into_iter().chain(each).collect())
    }

    #[test]
    fn the_mask_is_the_group_of_a_mode() {
        assert_eq!(list(&[(1, 7), (4, 5), (0x20, 0)]).mode(), 0o750);
        assert_eq!(list(&[(1, 6), (2, 7), (4, 5), (0x10, 7), (0x20, 4)]).mode(), 0o674);
        assert_eq!(DefaultAcl(Vec::new()).mode(), 0o777, "nothing is taken away that was not stated");
    }
}
