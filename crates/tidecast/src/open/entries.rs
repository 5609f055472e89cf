//! The entries of a tree that is read, and the lookup of paths.

use std::borrow::Cow;
use std::collections::HashMap;

use tidecast_metainfo::Manifest;

/// Symbolic links that a path may lead through, as the kernel has it.
const LINKS: usize = 40;

/// The kind of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, and where it leads.
    Symlink(Vec<u8>),
}

/// A name in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Below the tree's top, with `/` between names. A file that was published alone has its own name.
    pub path: Vec<u8>,
    /// Its kind.
    pub kind: EntryKind,
    /// Bytes of a file; 0 of others.
    pub len: u64,
    /// Permission bits.
    pub mode: u32,
    /// Modification time, seconds since 1970 and nanoseconds, if it is known.
    pub mtime: Option<(i64, u32)>,
}

/// All names of a tree.
#[derive(Debug)]
pub(super) struct Entries {
    pub(super) all: Vec<Entry>,
    by_path: HashMap<Vec<u8>, usize>,
}

impl Entries {
    pub(super) fn new(all: Vec<Entry>) -> Self {
        let by_path = all.iter().enumerate().map(|(at, entry)| (entry.path.clone(), at)).collect();
        Self { all, by_path }
    }

    /// The file or directory at a path, through links within the tree. `None` for the top, for a missing
    /// entry, and for a link out of the tree.
    pub(super) fn find(&self, path: &[u8]) -> Option<usize> {
        let names = |path: &[u8]| -> Vec<Vec<u8>> {
            path.split(|byte| *byte == b'/').rev().map(<[u8]>::to_vec).collect()
        };
        let (mut todo, mut at, mut links) = (names(path), Vec::<u8>::new(), 0);
        let mut found = None;
        while let Some(name) = todo.pop() {
            match name.as_slice() {
                b"" | b"." => continue,
                b".." if at.is_empty() => return None,
                b".." => {
                    at.truncate(at.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
                    found = self.by_path.get(&at).copied();
                    continue;
                }
                _ => {}
            }
            let above = at.len();
            if !at.is_empty() {
                at.push(b'/');
            }
            at.extend(name);
            let entry = *self.by_path.get(&at)?;
            if let EntryKind::Symlink(target) = &self.all.get(entry)?.kind {
                links += 1;
                if links > LINKS || target.starts_with(b"/") {
                    return None;
                }
                at.truncate(above);
                found = self.by_path.get(&at).copied();
                todo.extend(names(target));
            } else {
                found = Some(entry);
            }
        }
        found
    }
}

/// How many entries of [`of_manifest`] are directories; files follow in their order.
pub(super) fn dirs(manifest: &Manifest) -> usize {
    manifest.dirs().len().saturating_sub(1)
}

/// The entries of a manifest: directories without the top, then files.
pub(super) fn of_manifest(manifest: &Manifest) -> Entries {
    let time = |of: tidecast_metainfo::Mtime| (of.secs, of.nanos);
    let dirs = manifest.dirs().skip(1).map(|dir| Entry {
        path: dir.path().inner().join(&b'/'),
        kind: EntryKind::Directory,
        len: 0,
        mode: dir.mode().unwrap_or(0o755),
        mtime: dir.mtime().map(time),
    });
    let files = manifest.files().map(|file| {
        let usual = if file.is_executable() { 0o755 } else { 0o644 };
        Entry {
            path: match manifest.is_single_file() {
                true => file.path().name().to_vec(),
                false => file.path().inner().join(&b'/'),
            },
            kind: file.symlink().map_or(EntryKind::File, |to| EntryKind::Symlink(Cow::into_owned(to))),
            len: file.len(),
            mode: file.mode().unwrap_or(usual),
            mtime: file.mtime().map(time),
        }
    });
    Entries::new(dirs.chain(files).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(entries: &[(&str, Option<&str>)]) -> Entries {
        let entry = |(path, link): &(&str, Option<&str>)| Entry {
            path: path.as_bytes().to_vec(),
            kind: match link {
                Some("/dir") => EntryKind::Directory,
                Some(to) => EntryKind::Symlink(to.as_bytes().to_vec()),
                None => EntryKind::File,
            },
            len: 0,
            mode: 0,
            mtime: None,
        };
        Entries::new(entries.iter().map(entry).collect())
    }

    #[test]
    fn paths_lead_through_links_and_never_out() {
        let tree = tree(&[
            ("a", Some("/dir")),
            ("a/file", None),
            ("link", Some("a/file")),
            ("a/up", Some("../a")),
            ("out", Some("../../etc/passwd")),
            ("absolute", Some("/etc/passwd")),
            ("loop", Some("loop")),
        ]);
        for path in
            ["a/file", "/a//file", "./a/./file", "a/../a/file", "link", "a/up/file", "a/up/up/../a/file"]
        {
            assert_eq!(tree.find(path.as_bytes()), Some(1), "{path}");
        }
        assert_eq!(tree.find(b"a/"), Some(0));
        for path in ["", "/", "..", "out", "absolute", "loop", "a/none", "a/file/x", "../a"] {
            assert_eq!(tree.find(path.as_bytes()), None, "{path}");
        }
    }
}
