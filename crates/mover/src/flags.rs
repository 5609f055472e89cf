//! The attributes that a copy keeps beside names and contents, and the files that it selects: the meaning of
//! rsync's flags of these names.

use serde::{Deserialize, Serialize};

use crate::chmod::Chmod;

/// The attributes that are kept. Others are as the receiver's system creates them, and stay as they are of
/// existing names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Keep {
    /// Symbolic links; else they are left out.
    pub links: bool,
    /// Devices, likewise.
    pub devices: bool,
    /// Pipes and sockets, likewise.
    pub specials: bool,
    /// Further names of one file; else each is a file of its own.
    pub hard_links: bool,
    /// Modes.
    pub perms: bool,
    /// Without `perms`, of files whether they can be executed.
    pub executability: bool,
    /// Times of the last change.
    pub times: bool,
    /// With `times`, those of directories too.
    pub dir_times: bool,
    /// And those of symbolic links.
    pub link_times: bool,
    /// Users.
    pub owner: bool,
    /// Groups.
    pub group: bool,
    /// With `perms`, access control lists.
    pub acls: bool,
    /// Other extended attributes.
    pub xattrs: bool,
}

impl Keep {
    /// Everything, the default.
    pub const ALL: Self = Self::each(true);
    /// Names and contents alone.
    pub const NOTHING: Self = Self { dir_times: true, link_times: true, ..Self::each(false) };

    const fn each(all: bool) -> Self {
        Self {
            links: all,
            devices: all,
            specials: all,
            hard_links: all,
            perms: all,
            executability: false,
            times: all,
            dir_times: all,
            link_times: all,
            owner: all,
            group: all,
            acls: all,
            xattrs: all,
        }
    }

    /// Whether an extended attribute of that name is kept.
    pub(crate) fn xattr(&self, name: &[u8]) -> bool {
        if crate::xattr::is_acl(name) { self.acls && self.perms } else { self.xattrs }
    }
}

impl Default for Keep {
    fn default() -> Self {
        Self::ALL
    }
}

/// Changes to entries before they count as the sender's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Alter {
    /// Their modes.
    pub chmod: Chmod,
    /// Their user, by name or number of the receiver's host.
    pub user: Option<String>,
    /// Their group, likewise.
    pub group: Option<String>,
    /// Owners are mapped by number, whatever their names.
    pub numeric_ids: bool,
}

/// Which files are copied, and when one counts as there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Only {
    /// Existing names, of whatever kind.
    pub existing: bool,
    /// Names that are not there, and directories.
    pub missing: bool,
    /// Files of at least this many bytes.
    pub least: Option<u64>,
    /// Files of at most this many bytes.
    pub most: Option<u64>,
    /// A file of equal size counts as the same.
    pub size_only: bool,
    /// No file counts as the same.
    pub ignore_times: bool,
    /// Times that differ by at most this many seconds are equal; -1: to the nanosecond.
    pub window: Option<i64>,
}

impl Only {
    /// Whether the receiver must be asked of every file.
    pub(crate) fn selects(&self) -> bool {
        self.existing || self.missing || self.least.is_some() || self.most.is_some()
    }

    /// Whether a file of that length is copied.
    pub(crate) fn has_len(&self, len: u64) -> bool {
        self.least.is_none_or(|least| len >= least) && self.most.is_none_or(|most| len <= most)
    }
}
