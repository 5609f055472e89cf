//! The flags: each is a line of a table, which says what it changes in what the two ends are asked to do. An empty help is that of
//! a flag that is not shown.

use std::ffi::OsStr;

use tidecast_text::Size;

use super::Flags;
use crate::chmod::Chmod;
use crate::flags::Keep;
use crate::spec::{Follow, InPlace};

/// What may be kept of an entry: `--NAME` or its letter keeps it, `--no-NAME` or `--no-LETTER` does not.
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
/// The letters of `-a`: who names some of them names all that is to be kept. All of them, and none, keep everything.
pub(super) const ARCHIVE: [&str; 7] =
    ["recursive", "links", "perms", "times", "group", "owner", "devices-and-specials"];
/// Such as do not say what else is kept, and have no help of their own.
pub(super) const BESIDE: [&str; 3] = ["hard-links", "acls", "xattrs"];

/// A flag without a value: its name, its letter, what it says in the help, and what it does if it is given so many times.
pub type Switch = (&'static str, Option<char>, &'static str, fn(&mut Flags, u8));
/// All of them.
pub const SWITCHES: [Switch; 25] = [
    ("itemize-changes", Some('i'), "Say what changes, in the letters of rsync", |f, _| f.itemize = true),
    ("stats", None, "Say how much was found and done, in the words of rsync", |f, _| f.stats = true),
    ("delete-excluded", None, "Delete what --exclude leaves out, too, with --delete", |f, _| {
        f.delete_excluded = true
    }),
    (
        "archive",
        Some('a'),
        "Keep everything, as without flags; -rlptgoD one by one keep what they name, --no-perms, --no-owner, ... leave one out",
        |f, _| keep_all(f),
    ),
    ("recursive", Some('r'), "", |f, _| f.paths.recursive = true),
    (
        "relative",
        Some('R'),
        "Keep the paths of sources, from a /./ in them on; the directories above them are copied, too",
        |f, _| f.paths.relative = Some(true),
    ),
    ("no-relative", None, "", |f, _| f.paths.relative = Some(false)),
    (
        "no-implied-dirs",
        None,
        "With -R, leave the attributes of directories above sources as the destination has or makes them",
        |f, _| f.paths.no_implied = true,
    ),
    ("from0", Some('0'), "Names and patterns in files end with a NUL, not with the line", |f, _| {
        f.paths.nul = true
    }),
    ("copy-links", Some('L'), "Copy what symbolic links lead to, instead of the links", |f, _| {
        f.send.follow = Follow::All
    }),
    (
        "copy-dirlinks",
        Some('k'),
        "Copy the directories that symbolic links lead to, instead of the links",
        |f, _| follow_dirs(f),
    ),
    (
        "one-file-system",
        Some('x'),
        "Leave out what is mounted below a source; its directory is made (-xx: not even that)",
        |f, n| f.send.one_file_system = n.min(2),
    ),
    ("omit-dir-times", Some('O'), "Leave the times of directories out", |f, _| {
        f.receive.keep.dir_times = false
    }),
    ("omit-link-times", Some('J'), "Leave the times of symbolic links out", |f, _| {
        f.receive.keep.link_times = false
    }),
    ("numeric-ids", None, "Keep numbers of users and groups, whatever their names are", |f, _| {
        f.receive.alter.numeric_ids = true
    }),
    ("existing", None, "Copy only what the destination has already", |f, _| f.receive.only.existing = true),
    ("ignore-existing", None, "Copy only what the destination does not have", |f, _| {
        f.receive.only.missing = true
    }),
    ("size-only", None, "Take files of equal size for the same", |f, _| f.receive.only.size_only = true),
    ("ignore-times", Some('I'), "Copy files of equal size and time, too", |f, _| {
        f.receive.only.ignore_times = true
    }),
    (
        "backup",
        Some('b'),
        "Keep what is replaced or deleted, with ~ at the end of its name (--suffix), or in --backup-dir",
        |f, _| f.backup = true,
    ),
    (
        "remove-source-files",
        None,
        "Remove sources, but for directories, that the destination has proved to have",
        |f, _| (f.send.remove, f.receive.prove) = (true, true),
    ),
    (
        "inplace",
        None,
        "Write what differs to files that are there, instead of replacing them, when all of it has come",
        |f, _| f.receive.in_place = InPlace::Yes,
    ),
    (
        "append",
        None,
        "Write to the end of files that are shorter than the source, whose beginning they are believed to be; leave others alone",
        |f, _| f.receive.in_place = InPlace::Append,
    ),
    (
        "append-verify",
        None,
        "The same, but compare what is there, and write to it where it differs",
        |f, _| f.receive.in_place = InPlace::AppendVerify,
    ),
    ("force", None, "Replace a directory by what is none, whatever is in it", |f, _| f.receive.force = true),
];

/// Other names of switches.
pub const ALIASES: [(&str, &str); 2] = [("existing", "ignore-non-existing"), ("no-relative", "no-R")];

/// A flag with a value: its name, its letter, what the value is, what it says in the help, and what it does.
pub type Valued =
    (&'static str, Option<char>, &'static str, &'static str, fn(&mut Flags, &str) -> Result<(), String>);
/// All of them.
pub const VALUED: [Valued; 8] = [
    (
        "chmod",
        None,
        "CHANGES",
        "Change modes on the way, as D755,F644 or u+rwX,go-w (D, F: of directories or files only)",
        |f, text| {
            f.receive.alter.chmod.extend(text.parse::<Chmod>().map_err(|e| e.to_string())?);
            Ok(())
        },
    ),
    (
        "chown",
        None,
        "USER:GROUP",
        "Give everything to this user, group or both, by name or number at the destination",
        chown,
    ),
    (
        "max-delete",
        None,
        "N",
        "Delete at most N names, and fail if there were more [default: no limit]",
        |f, text| {
            f.receive.max_delete = Some(text.parse().map_err(|_| "a number of names, as 100".to_owned())?);
            Ok(())
        },
    ),
    ("max-size", None, "SIZE", "Leave out files that are larger", |f, text| {
        f.receive.only.most = Some(Size::as_rsync(text)?.0);
        Ok(())
    }),
    ("min-size", None, "SIZE", "Leave out files that are smaller", |f, text| {
        f.receive.only.least = Some(Size::as_rsync(text)?.0);
        Ok(())
    }),
    (
        "modify-window",
        Some('@'),
        "SECONDS",
        "Take times for equal that differ by no more; -1: to the nanosecond [default: as exact as both file systems are]",
        |f, text| {
            let window: i64 = text.parse().map_err(|_| "a number of seconds, or -1".to_owned())?;
            f.receive.only.window = Some(window);
            Ok(())
        },
    ),
    (
        "suffix",
        None,
        "SUFFIX",
        "End the names of --backup with SUFFIX [default: ~, or nothing with --backup-dir]",
        |f, text| {
            if text.contains('/') {
                return Err("the end of a name, without a slash".into());
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

/// A flag that names a file or directory: its name, what the value is, what it says in the help, and what it does.
pub type Named = (&'static str, &'static str, &'static str, fn(&mut Flags, &OsStr));
/// All of them.
pub const NAMED: [Named; 3] = [
    (
        "backup-dir",
        "DIR",
        "Keep what is replaced or deleted below DIR, with its path; a relative DIR begins at DEST. Nothing is deleted in it",
        |f, dir| f.receive.backup.get_or_insert_default().dir = Some(dir.to_owned()),
    ),
    (
        "link-dest",
        "DIR",
        "Link files that DIR has just as they are sent, instead of copying them; a relative DIR begins at DEST (up to 20 times)",
        |f, dir| f.receive.link_dest.push(dir.to_owned()),
    ),
    (
        "files-from",
        "FILE",
        "Copy the paths below SRC that FILE names, one a line (- is standard input), as -R does; directories with what is in them by -r only",
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
        return Err("a user, a :GROUP, or USER:GROUP".into());
    }
    Ok(())
}

/// Bytes a second as rsync reads them: KiB, unless there is a unit; 0 is no limit.
fn rate(text: &str) -> Result<Option<u64>, String> {
    let bytes = match text.parse::<f64>() {
        Ok(number) => (number * 1024.0).round().max(0.0) as u64,
        Err(_) => Size::as_rsync(text.trim_end_matches("/s"))?.0,
    };
    Ok((bytes > 0).then_some(bytes))
}
