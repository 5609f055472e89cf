//! The flags: each is a line of a table with its effect on the requests to the two ends. A flag with an empty
//! help is hidden.

use std::ffi::OsStr;

use tidecast_text::Size;

use super::Flags;
use crate::chmod::Chmod;
use crate::flags::Keep;
use crate::spec::{Follow, InPlace};

/// An attribute of an entry that may be kept: `--NAME` or its letter keeps it, `--no-NAME` or `--no-LETTER`
/// does not.
#[derive(Debug)]
pub struct Kept {
    /// Its name.
    pub name: &'static str,
    /// Its letter.
    pub letter: Option<char>,
    /// The name by which it is not kept.
    pub no: &'static str,
    /// The same by its letter.
    pub no_letter: Option<&'static str>,
    pub(super) keep: fn(&mut Keep, bool),
}

macro_rules! kept {
    ($name:literal, $letter:literal, $keep:expr) => {
        Kept { letter: Some($letter), no_letter: Some(concat!("no-", $letter)), ..kept!($name, $keep) }
    };
    ($name:literal, $keep:expr) => {
        Kept { name: $name, letter: None, no: concat!("no-", $name), no_letter: None, keep: $keep }
    };
}

/// All of them.
pub const KEPT: [Kept; 12] = [
    kept!("links", 'l', |keep, on| keep.links = on),
    kept!("perms", 'p', |keep, on| keep.perms = on),
    kept!("times", 't', |keep, on| keep.times = on),
    kept!("group", 'g', |keep, on| keep.group = on),
    kept!("owner", 'o', |keep, on| keep.owner = on),
    kept!("devices-and-specials", 'D', |keep, on| (keep.devices, keep.specials) = (on, on)),
    kept!("devices", |keep, on| keep.devices = on),
    kept!("specials", |keep, on| keep.specials = on),
    kept!("executability", 'E', |keep, on| keep.executability = on),
    kept!("hard-links", 'H', |keep, on| keep.hard_links = on),
    kept!("acls", 'A', |keep, on| (keep.acls, keep.perms) = (on, keep.perms || on)),
    kept!("xattrs", 'X', |keep, on| keep.xattrs = on),
];
/// The letters of `-a`: given singly they name everything that is to be kept. All of them, or none, keep
/// everything.
pub(super) const ARCHIVE: [&str; 7] =
    ["recursive", "links", "perms", "times", "group", "owner", "devices-and-specials"];
/// Flags that do not select other attributes, and have no help of their own.
pub(super) const BESIDE: [&str; 3] = ["hard-links", "acls", "xattrs"];

/// A flag without a value: its name, its letter, its help, and its effect when it is given this many times.
pub type Switch = (&'static str, Option<char>, &'static str, fn(&mut Flags, u8));
/// All of them.
pub const SWITCHES: [Switch; 25] = [
    ("itemize-changes", Some('i'), "Print a line for each change, in the format of rsync", |f, _| {
        f.itemize = true
    }),
    ("stats", None, "Print statistics in the format of rsync", |f, _| f.stats = true),
    ("delete-excluded", None, "As --delete, and delete excluded files, too", |f, _| f.delete_excluded = true),
    (
        "archive",
        Some('a'),
        "Keep all attributes, which is the default; flags of -rlptgoD keep only the named ones, --no-perms, --no-owner, ... leave one out",
        |f, _| keep_all(f),
    ),
    ("recursive", Some('r'), "", |f, _| f.paths.recursive = true),
    (
        "relative",
        Some('R'),
        "Keep the paths of sources (after /./ if they contain it) and copy the directories above them, too",
        |f, _| f.paths.relative = Some(true),
    ),
    ("no-relative", None, "", |f, _| f.paths.relative = Some(false)),
    (
        "no-implied-dirs",
        None,
        "With -R, do not copy the attributes of the directories above sources",
        |f, _| f.paths.no_implied = true,
    ),
    ("from0", Some('0'), "Read names and patterns in files as separated by NUL, not by newline", |f, _| {
        f.paths.nul = true
    }),
    ("copy-links", Some('L'), "Copy the targets of symbolic links instead of the links", |f, _| {
        f.send.follow = Follow::All
    }),
    ("copy-dirlinks", Some('k'), "Copy directories in place of symbolic links to them", |f, _| {
        follow_dirs(f)
    }),
    (
        "one-file-system",
        Some('x'),
        "Leave out file systems mounted below a source, except for an empty directory (-xx: leave that out, too)",
        |f, n| f.send.one_file_system = n.min(2),
    ),
    ("omit-dir-times", Some('O'), "Do not copy the times of directories", |f, _| {
        f.receive.keep.dir_times = false
    }),
    ("omit-link-times", Some('J'), "Do not copy the times of symbolic links", |f, _| {
        f.receive.keep.link_times = false
    }),
    ("numeric-ids", None, "Keep numeric IDs of users and groups instead of mapping their names", |f, _| {
        f.receive.alter.numeric_ids = true
    }),
    (
        "existing",
        None,
        "Copy only files that exist at the destination; hard links are then copied as separate files",
        |f, _| f.receive.only.existing = true,
    ),
    (
        "ignore-existing",
        None,
        "Copy only files that do not exist at the destination; hard links are then copied as separate files",
        |f, _| f.receive.only.missing = true,
    ),
    ("size-only", None, "Treat files of equal size as unchanged", |f, _| f.receive.only.size_only = true),
    ("ignore-times", Some('I'), "Copy files even if their size and time are equal", |f, _| {
        f.receive.only.ignore_times = true
    }),
    (
        "backup",
        Some('b'),
        "Keep replaced and deleted files, with ~ appended to their names (--suffix) or in --backup-dir",
        |f, _| f.backup = true,
    ),
    (
        "remove-source-files",
        None,
        "Remove sources, except directories, after the destination has proved that it has them",
        |f, _| (f.send.remove, f.receive.prove) = (true, true),
    ),
    (
        "inplace",
        None,
        "Update existing files in place instead of replacing them, once all changed data has arrived",
        |f, _| {
            // Appending is in place, whichever flag comes first.
            if f.receive.in_place == InPlace::No {
                f.receive.in_place = InPlace::Yes;
            }
        },
    ),
    (
        "append",
        None,
        "Append to files that are shorter than the source, assuming that they match its beginning; skip other files; hard links are \
         then copied as separate files",
        |f, _| f.receive.in_place = InPlace::Append,
    ),
    (
        "append-verify",
        None,
        "Like --append, but compare the existing data and rewrite it where it differs",
        |f, _| f.receive.in_place = InPlace::AppendVerify,
    ),
    ("force", None, "Replace a directory by a file or link even if it is not empty", |f, _| {
        f.receive.force = true
    }),
];

/// Other names of switches.
pub const ALIASES: [(&str, &str); 2] = [("existing", "ignore-non-existing"), ("no-relative", "no-R")];

/// A flag with a value: its name, its letter, the name of the value, its help, and its effect.
pub type Valued =
    (&'static str, Option<char>, &'static str, &'static str, fn(&mut Flags, &str) -> Result<(), String>);
/// All of them.
pub const VALUED: [Valued; 8] = [
    (
        "chmod",
        None,
        "CHANGES",
        "Change modes during the copy, e.g. D755,F644 or u+rwX,go-w (D: directories only, F: files only)",
        |f, text| {
            f.receive.alter.chmod.extend(text.parse::<Chmod>().map_err(|e| e.to_string())?);
            Ok(())
        },
    ),
    (
        "chown",
        None,
        "USER:GROUP",
        "Set the owner, the group or both of everything, by name or number at the destination",
        chown,
    ),
    (
        "max-delete",
        None,
        "N",
        "Delete at most N names, and fail if there are more [default: no limit]",
        |f, text| {
            f.receive.max_delete =
                Some(text.parse().map_err(|_| "expected a number of names, e.g. 100".to_owned())?);
            Ok(())
        },
    ),
    ("max-size", None, "SIZE", "Leave out files larger than SIZE", |f, text| {
        f.receive.only.most = Some(Size::as_rsync(text)?.0);
        Ok(())
    }),
    ("min-size", None, "SIZE", "Leave out files smaller than SIZE", |f, text| {
        f.receive.only.least = Some(Size::as_rsync(text)?.0);
        Ok(())
    }),
    (
        "modify-window",
        Some('@'),
        "SECONDS",
        "Treat times that differ by at most SECONDS as equal; -1: compare nanoseconds [default: the coarser resolution of the two file systems]",
        |f, text| {
            let window: i64 = text.parse().map_err(|_| "expected a number of seconds, or -1".to_owned())?;
            f.receive.only.window = Some(window);
            Ok(())
        },
    ),
    (
        "suffix",
        None,
        "SUFFIX",
        "Append SUFFIX to the names of backups [default: ~, or nothing with --backup-dir]",
        |f, text| {
            if text.contains('/') {
                return Err("a suffix must not contain a slash".into());
            }
            f.suffix = Some(text.to_owned());
            Ok(())
        },
    ),
    ("bwlimit", None, "RATE", "", |f, text| {
        f.limit = rate(text)?;
        Ok(())
    }),
];

/// A flag that names a file or directory: its name, the name of the value, its help, and its effect.
pub type Named = (&'static str, &'static str, &'static str, fn(&mut Flags, &OsStr));
/// All of them.
pub const NAMED: [Named; 3] = [
    (
        "backup-dir",
        "DIR",
        "Move replaced and deleted files below DIR, with their paths; a relative DIR is below DEST. Nothing in DIR is deleted",
        |f, dir| f.receive.backup.get_or_insert_default().dir = Some(dir.to_owned()),
    ),
    (
        "link-dest",
        "DIR",
        "Hard-link files that are unchanged in DIR instead of copying them; a relative DIR is below DEST (up to 20 times)",
        |f, dir| f.receive.link_dest.push(dir.to_owned()),
    ),
    (
        "files-from",
        "FILE",
        "Copy the paths below SRC that FILE lists, one a line (- is standard input), keeping them as -R does; -r copies the contents of listed directories",
        |f, file| f.paths.files_from = Some(file.to_owned()),
    ),
];

fn keep_all(flags: &mut Flags) {
    let Keep { dir_times, link_times, .. } = flags.receive.keep;
    flags.receive.keep = Keep { dir_times, link_times, ..Keep::ALL };
}

fn follow_dirs(flags: &mut Flags) {
    if flags.send.follow == Follow::None {
        flags.send.follow = Follow::Dirs;
    }
}

fn chown(flags: &mut Flags, text: &str) -> Result<(), String> {
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    let name = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let alter = &mut flags.receive.alter;
    alter.user = name(user).or(alter.user.take());
    alter.group = name(group).or(alter.group.take());
    if group.contains(':') || (user.is_empty() && group.is_empty()) {
        return Err("expected USER, :GROUP or USER:GROUP".into());
    }
    Ok(())
}

/// Bytes a second as rsync reads them: KiB, unless there is a unit; 0 means no limit.
fn rate(text: &str) -> Result<Option<u64>, String> {
    let bytes = match text.parse::<f64>() {
        Ok(number) => (number * 1024.0).round().max(0.0) as u64,
        Err(_) => Size::as_rsync(text.trim_end_matches("/s"))?.0,
    };
    Ok((bytes > 0).then_some(bytes))
}
