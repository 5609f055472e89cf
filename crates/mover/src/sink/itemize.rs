//! What a dry run would do, in the letters of rsync's `--itemize-changes`: eleven for each name, as its manual says. rsync judges them
//! (`tests/e2e/test_copy_flags.py`).

use rustix::fs::FileType;

use super::Directory;
use super::ask::{There, there};
use super::dirs::{Dirs, kind};
use crate::entry::{Entry, Kind};
use crate::part::{Data, Part};

/// How a change begins whose name is deleted.
const DELETING: &str = "*deleting   ";

impl Directory {
    /// What would be done to an entry: more than its attributes set, if it is `made`.
    pub(super) fn itemized(&self, dirs: Option<&mut Dirs>, part: &Part, path: &[u8], made: bool) -> String {
        let entry = &part.entry;
        let found = dirs.and_then(|dirs| there(dirs, path).ok().flatten());
        let found = found.filter(|found| is_of(kind(&found.stat), &entry.kind));
        let by = match (made, &entry.kind) {
            (false, _) => '.',
            (true, Kind::File { .. }) => '>',
            (true, Kind::HardLink { .. }) => 'h',
            (true, _) => 'c',
        };
        let what = match &entry.kind {
            Kind::Dir => 'd',
            Kind::File { .. } | Kind::HardLink { .. } => 'f',
            Kind::Symlink { .. } => 'L',
            Kind::Fifo | Kind::Socket => 'S',
            Kind::Device { .. } => 'D',
        };
        let letters = found.map_or_else(|| "+++++++++".to_owned(), |there| self.letters(part, &there, made));
        let letters = if by != '>' && letters.bytes().all(|b| b == b'.') { " ".repeat(9) } else { letters };
        format!("{by}{what}{letters} {}", shown(entry))
    }

    fn letters(&self, part: &Part, there: &There<'_>, made: bool) -> String {
        let entry = &part.entry;
        let attributes = self.owners.settled(entry, Some(&there.stat));
        let differs = self.owners.differ(&there.dir, there.name, &there.stat, &attributes);
        let is_file = matches!(entry.kind, Kind::File { .. });
        let content = match (&entry.kind, &part.data) {
            (Kind::File { .. }, Data::Ask { root }) => root.is_some(),
            (kind, _) => !matches!(kind, Kind::Dir | Kind::File { .. } | Kind::HardLink { .. }),
        };
        let time = match (differs.time, self.owners.keeps_time(kind(&there.stat))) {
            (true, _) => 't',
            (false, false) if made && self.spec.keep.times => 't',
            (false, false) if made => 'T',
            _ => '.',
        };
        let letter = |on: bool, letter: char| if on { letter } else { '.' };
        [
            letter(made && content, 'c'),
            letter(is_file && u64::try_from(there.stat.st_size) != Ok(entry.len()), 's'),
            time,
            letter(differs.perms, 'p'),
            letter(differs.owner, 'o'),
            letter(differs.group, 'g'),
            '.',
            letter(differs.acl, 'a'),
            letter(differs.xattr, 'x'),
        ]
        .iter()
        .collect()
    }
}

/// Of a name that would be deleted.
pub(super) fn deleting(path: &[u8], is_dir: bool) -> String {
    format!("{DELETING}{}{}", String::from_utf8_lossy(path), if is_dir { "/" } else { "" })
}

/// A name as rsync writes it, with what it leads to.
fn shown(entry: &Entry) -> String {
    let path = String::from_utf8_lossy(&entry.path);
    match &entry.kind {
        Kind::Dir if path.is_empty() => "./".into(),
        Kind::Dir => format!("{path}/"),
        Kind::Symlink { target } => format!("{path} -> {}", String::from_utf8_lossy(target)),
        Kind::HardLink { to } => format!("{path} => {}", String::from_utf8_lossy(to)),
        _ => path.into_owned(),
    }
}

/// Whether what is there is of the kind of an entry, so that it is changed and not made.
fn is_of(there: FileType, kind: &Kind) -> bool {
    match kind {
        Kind::Dir => there == FileType::Directory,
        Kind::Symlink { .. } => there == FileType::Symlink,
        Kind::File { .. } | Kind::HardLink { .. } => there == FileType::RegularFile,
        Kind::Fifo => there == FileType::Fifo,
        Kind::Socket => there == FileType::Socket,
        Kind::Device { character: true, .. } => there == FileType::CharacterDevice,
        Kind::Device { character: false, .. } => there == FileType::BlockDevice,
    }
}
