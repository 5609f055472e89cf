//! The changes of a dry run or a copy in the format of rsync's `--itemize-changes`: eleven letters for each
//! name, as its manual defines. A test compares them with rsync (`tests/e2e/test_copy_flags.py`).

use std::collections::HashMap;

use parking_lot::Mutex;
use rustix::fs::{FileType, Stat};

use super::Directory;
use super::ask::{NamedEntry, named_entry};
use super::dirs::{Dirs, kind};
use super::link_dest::{Basis, Equal};
use crate::entry::{Entry, Kind};
use crate::job::Change;

/// How a change begins whose name is deleted.
const DELETING: &str = "*deleting   ";

/// Most changes that are reported singly, those in rsync's format, and bytes of all of them: they are sent in
/// one message.
const CHANGES: usize = 10_000;
const ITEMIZED: usize = 100_000;
const BYTES: usize = 8 << 20;
/// Most directories whose earlier state is remembered.
const MOST: usize = 100_000;

/// The state of directories before this copy changed anything in them, by path; None: they did not exist.
#[derive(Debug, Default)]
pub(super) struct Before(Mutex<HashMap<Vec<u8>, Option<Stat>>>);

impl Before {
    /// Records a directory and those above it, unless that was done.
    pub(super) fn note(&self, dirs: &mut Dirs, path: &[u8]) {
        let mut known = self.0.lock();
        let ends = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        for end in std::iter::once(0).chain(ends).chain([path.len()]) {
            let above = &path[..end];
            if known.len() < MOST && !known.contains_key(above) {
                let stat = named_entry(dirs, above).ok().flatten().map(|there| there.stat);
                known.insert(above.to_vec(), stat);
            }
        }
    }

    fn of(&self, path: &[u8]) -> Option<Stat> {
        self.0.lock().get(path).copied().flatten()
    }
}

impl Directory {
    /// The itemized change of an entry, if it is to be reported: determined before the change.
    pub(super) fn item(&self, dirs: &mut Dirs, entry: &Entry, path: &[u8], made: bool) -> Option<String> {
        self.before.is_some().then(|| self.itemized(Some(dirs), entry, path, made))
    }

    /// The itemized change of a directory, if any; `was_there` tells whether it existed before this copy.
    pub(super) fn directory_item(&self, dirs: &mut Dirs, entry: &Entry, path: &[u8], was_there: bool) {
        let Some(before) = &self.before else { return };
        if !was_there || path.is_empty() && self.place.made {
            // Directories below were reported when they were created.
            if path.is_empty() {
                self.change_done(path, "make the directory", Some(format!("cd+++++++++ {}", shown(entry))));
            }
            return;
        }
        let Ok(Some(mut there)) = named_entry(dirs, path) else { return };
        there.stat = before.of(path).unwrap_or(there.stat);
        let letters = self.letters(entry, &there, false);
        if letters.bytes().any(|b| b != b'.') {
            self.change_done(path, "set attributes", Some(format!(".d{letters} {}", shown(entry))));
        }
    }

    /// The itemized change of an entry that is made from another directory's file.
    pub(super) fn local_item(&self, entry: &Entry, from: &NamedEntry<'_>) -> Option<String> {
        self.before.is_some().then(|| format!("cf{} {}", self.letters(entry, from, true), shown(entry)))
    }

    /// Records a change, if it is to be reported.
    pub(super) fn change_done(&self, path: &[u8], what: &str, item: Option<String>) {
        if item.is_some() {
            self.note_change(path, what, item);
        }
    }

    pub(super) fn note_change(&self, path: &[u8], what: &str, itemized: Option<String>) {
        let most = if self.spec.itemize { ITEMIZED } else { CHANGES };
        let path = self.place.show(path);
        let bytes = path.len() + itemized.as_ref().map_or(0, String::len);
        let mut told = self.told_bytes.lock();
        let mut said = self.said.lock();
        if said.planned.len() < most && *told + bytes <= BYTES {
            *told += bytes;
            said.planned.push(Change { itemized, ..Change::new(&path, what) });
        } else {
            said.more_planned += 1;
        }
    }

    /// The itemized change of an entry: more than a change of attributes, if it is `made`.
    pub(super) fn itemized(&self, dirs: Option<&mut Dirs>, entry: &Entry, path: &[u8], made: bool) -> String {
        self.itemized_by(dirs, entry, path, made, None)
    }

    /// As `itemized`; an entry that does not exist yet is compared with `basis`.
    pub(super) fn itemized_by(
        &self,
        dirs: Option<&mut Dirs>,
        entry: &Entry,
        path: &[u8],
        made: bool,
        basis: Option<Basis<'_>>,
    ) -> String {
        let found = dirs.and_then(|dirs| named_entry(dirs, path).ok().flatten());
        let found = found.filter(|found| is_of(kind(&found.stat), &entry.kind));
        let is_local = found.is_none() && basis.as_ref().is_some_and(|basis| basis.equal > Equal::Kind);
        let found = found.or(basis.map(|basis| basis.there));
        let by = match (made, &entry.kind) {
            (false, _) => '.',
            (true, Kind::File { .. }) if is_local => 'c',
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
        let letters = found.map_or_else(|| "+++++++++".to_owned(), |there| self.letters(entry, &there, made));
        let letters = if by != '>' && letters.bytes().all(|b| b == b'.') { " ".repeat(9) } else { letters };
        format!("{by}{what}{letters} {}", shown(entry))
    }

    fn letters(&self, entry: &Entry, there: &NamedEntry<'_>, made: bool) -> String {
        let attributes = self.owners.settled(entry, Some(&there.stat), None);
        let differs = self.owners.differ(&there.dir, there.name, &there.stat, &attributes);
        let is_file = matches!(entry.kind, Kind::File { .. });
        let content = match &entry.kind {
            Kind::File { .. } => self.spec.checksum,
            Kind::Dir | Kind::HardLink { .. } => false,
            _ => true,
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

/// Of a directory that is made.
pub(super) fn making(path: &[u8]) -> String {
    format!("cd+++++++++ {}/", name(path))
}

/// Of a name that is deleted.
pub(super) fn deleting(path: &[u8], is_dir: bool) -> String {
    format!("{DELETING}{}{}", name(path), if is_dir { "/" } else { "" })
}

/// A name as rsync writes it, with the target of a link.
fn shown(entry: &Entry) -> String {
    let path = name(&entry.path);
    match &entry.kind {
        Kind::Dir if path.is_empty() => "./".into(),
        Kind::Dir => format!("{path}/"),
        Kind::Symlink { target } => format!("{path} -> {}", name(target)),
        Kind::HardLink { to } => format!("{path} => {}", name(to)),
        _ => path,
    }
}

/// A name in one line: bytes that are no character, and control characters, are `\#` and three octal digits, and so is a backslash
/// that would begin one.
fn name(path: &[u8]) -> String {
    let mut out = String::with_capacity(path.len());
    let octal = |out: &mut String, byte: u8| out.push_str(&format!("\\#{byte:03o}"));
    for chunk in path.utf8_chunks() {
        for (at, c) in chunk.valid().char_indices() {
            let behind = chunk.valid().as_bytes().get(at + 1..at + 5);
            let is_escape = behind.is_some_and(|b| b[0] == b'#' && b[1..].iter().all(u8::is_ascii_digit));
            match u8::try_from(c) {
                Ok(byte) if byte.is_ascii_control() && byte != b'\t' || byte == b'\\' && is_escape => {
                    octal(&mut out, byte);
                }
                _ => out.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| octal(&mut out, *byte));
    }
    out
}

/// Whether the existing entry is of the same kind, so that it is changed and not created.
pub(super) fn is_of(there: FileType, kind: &Kind) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart_in_one_line() {
        let plain = "a\tb é \\n \\#12";
        assert_eq!(name(plain.as_bytes()), plain);
        assert_eq!(name(b"a\nb\xff\xfe\x7f"), r"a\#012b\#377\#376\#177");
        assert_eq!(name(br"\#012"), r"\#134#012");
    }
}
