//! The meaning of rsync's flags for a copy: tables for command lines, and the combination of the given flags.
//!
//! Every flag of rsync is in [`table`] or in [`other_flags`], so that no combination of them is read as something else. They count in the
//! order in which they are given, so that `-a --no-perms` is all but modes.

pub mod other_flags;
pub mod table;

use std::ffi::OsStr;

use self::table::{ARCHIVE, BESIDE, KEPT, Kept, Named, Switch, Valued};
use crate::flags::Keep;
use crate::session::KeepPaths;
use crate::spec::{ReceiveSpec, SendSpec};

/// The combined flags.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// Settings of the sender; its sources, filter and offer are set elsewhere.
    pub send: SendSpec,
    /// Of the receiver, likewise.
    pub receive: ReceiveSpec,
    /// At most this many bytes a second.
    pub limit: Option<u64>,
    /// Report the changes in rsync's format.
    pub itemize: bool,
    /// Print statistics in rsync's format.
    pub stats: bool,
    /// Excluded names are deleted at the destination.
    pub delete_excluded: bool,
    /// Which sources keep their paths, and how lists are read.
    pub paths: KeepPaths,
    /// Replaced and deleted files keep a name with this suffix.
    backup: bool,
    suffix: Option<String>,
}

/// A flag that was given.
#[derive(Clone, Copy, Debug)]
pub enum GivenFlag<'a> {
    /// Something is kept of entries, or not.
    Keep(&'static Kept, bool),
    /// A flag without a value, this many times.
    Switch(&'static Switch, u8),
    /// One with a value.
    Value(&'static Valued, &'a str),
    /// One that names a file or directory.
    Name(&'static Named, &'a OsStr),
}

impl Flags {
    /// Combines flags in the order in which they are given.
    ///
    /// # Errors
    /// A value is not valid for its flag.
    pub fn of(said: &[GivenFlag<'_>]) -> Result<Self, String> {
        let mut flags = Self::default();
        let has = |name: &str| {
            said.iter().any(|said| match said {
                GivenFlag::Keep(kept, on) => *on && kept.name == name,
                GivenFlag::Switch((other, ..), _) => *other == name,
                GivenFlag::Value(..) | GivenFlag::Name(..) => false,
            })
        };
        let is_all = ARCHIVE.iter().all(|name| has(name));
        let mut names_some = KEPT.iter().map(|kept| kept.name).chain(["recursive"]);
        if names_some.any(|name| !BESIDE.contains(&name) && has(name)) && !is_all {
            flags.receive.keep = Keep::NOTHING;
        }
        for said in said {
            match said {
                GivenFlag::Keep(kept, on) => (kept.keep)(&mut flags.receive.keep, *on),
                GivenFlag::Switch((.., apply), times) => apply(&mut flags, *times),
                GivenFlag::Value((.., apply), text) => apply(&mut flags, text)?,
                GivenFlag::Name((.., apply), path) => apply(&mut flags, path),
            }
        }
        // An explicit owner is to be applied.
        let alter = &flags.receive.alter;
        flags.receive.keep.owner |= alter.user.is_some();
        flags.receive.keep.group |= alter.group.is_some();
        flags.back_up();
        flags.send.keep = flags.receive.keep;
        Ok(flags)
    }

    /// The combination of `--backup`, its suffix and its directory.
    fn back_up(&mut self) {
        if self.backup {
            self.receive.backup.get_or_insert_default();
        }
        let Some(backup) = &mut self.receive.backup else { return };
        let usual = if backup.dir.is_some() { "" } else { "~" };
        backup.suffix = self.suffix.as_deref().unwrap_or(usual).into();
        // Backups beside the originals change the times of directories in any case.
        self.receive.keep.dir_times &= backup.dir.is_some();
    }

    /// The pattern of names that `--delete` spares because they are backups.
    #[must_use]
    pub fn backups(&self) -> Option<Vec<u8>> {
        use std::os::unix::ffi::OsStrExt as _;
        let backup = self.receive.backup.as_ref().filter(|backup| backup.dir.is_none())?;
        (!self.delete_excluded).then(|| [b"*", backup.suffix.as_bytes()].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::table::{SWITCHES, VALUED};
    use super::*;

    /// Applies `perms`, `no-perms`, `archive` or `max-delete=5`.
    fn given(word: &str) -> GivenFlag<'_> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let kept = KEPT.iter().find_map(|kept| match name {
            _ if kept.name == name => Some(GivenFlag::Keep(kept, true)),
            _ if kept.no == name => Some(GivenFlag::Keep(kept, false)),
            _ => None,
        });
        let switch =
            || SWITCHES.iter().find(|switch| switch.0 == name).map(|switch| GivenFlag::Switch(switch, 1));
        let valued =
            || VALUED.iter().find(|valued| valued.0 == name).map(|valued| GivenFlag::Value(valued, value));
        kept.or_else(switch).or_else(valued).unwrap()
    }

    fn flags(words: &[&str]) -> Flags {
        Flags::of(&words.iter().map(|word| given(word)).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn flags_count_in_their_order() {
        let keep = |words: &[&str]| flags(words).receive.keep;
        assert!(keep(&[]).perms && keep(&["archive"]).perms && keep(&ARCHIVE).perms);
        assert!(!keep(&["archive", "no-perms"]).perms && keep(&["no-perms", "archive"]).perms);
        let some = keep(&["recursive", "times"]);
        assert!(some.times && !some.perms && !some.links);
        assert!(keep(&["hard-links"]).perms, "what is beside it does not say what else is kept");
        assert!(keep(&["times", "chown=:staff"]).group);
    }

    #[test]
    fn values_are_read_or_refused() {
        assert_eq!(flags(&["max-delete=5"]).receive.max_delete, Some(5));
        assert_eq!(flags(&["modify-window=-1"]).receive.only.window, Some(-1));
        assert_eq!(flags(&["bwlimit=10"]).limit, Some(10 << 10));
        assert_eq!(flags(&["backup", "suffix=.old"]).backups().as_deref(), Some(&b"*.old"[..]));
        for bad in ["chmod=x!", "max-size=many"] {
            assert!(Flags::of(&[given(bad)]).is_err(), "{bad}");
        }
    }
}
