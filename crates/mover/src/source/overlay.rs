//! Several sources whose contents are merged (`a/ b/`), with rsync's rules of precedence.

use std::collections::HashMap;
use std::io;

use rustix::fs::{AtFlags, FileType, OFlags, Stat, fstat, statat};

use super::location::Top;
use super::{Dir, Tree, join};
use crate::spec::Follow;

/// Which sources may have a path in the copy: two can where contents go right into the destination, or names are the same.
#[derive(Debug)]
pub(super) struct Overlay {
    contents: Vec<usize>,
    /// All others, by the one name that each has in the copy.
    named: HashMap<Vec<u8>, Vec<usize>>,
}

/// The entries of other sources at a place in the copy. The contents of directories are merged; a directory
/// wins over everything else, and otherwise the first source wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Others {
    /// Nothing that comes before.
    Nothing,
    /// An earlier one has a directory.
    Directory,
    /// An earlier one has something else.
    File,
    /// A later one has a directory.
    LaterDirectory,
}

impl Overlay {
    /// None when no two sources can meet.
    pub(super) fn new(tops: &[Top]) -> Option<Self> {
        let mut overlay = Self { contents: Vec::new(), named: HashMap::new() };
        for (number, top) in tops.iter().enumerate() {
            match top.single.as_ref().unwrap_or(&top.inside) {
                name if name.is_empty() => overlay.contents.push(number),
                name => overlay.named.entry(name.clone()).or_default().push(number),
            }
        }
        let meet = !overlay.contents.is_empty() || overlay.named.values().any(|tops| tops.len() > 1);
        (tops.len() > 1 && meet).then_some(overlay)
    }

    /// The sources that may have something at `inside`, a path in the copy, in their order.
    fn meeting(&self, inside: &[u8]) -> Vec<usize> {
        let name = inside.split(|&b| b == b'/').next().unwrap_or_default();
        let named = self.named.get(name).into_iter().flatten();
        let mut all: Vec<usize> = self.contents.iter().chain(named).copied().collect();
        all.sort_unstable();
        all
    }
}

impl Tree {
    /// The entry of other sources than that of `dir` in the place of `name`, which is a directory or not;
    /// empty: of `dir` itself.
    pub(super) fn others(&self, dir: &Dir, name: &[u8], is_dir: bool) -> Others {
        let Some(overlay) = &self.overlay else { return Others::Nothing };
        let inside = join(&dir.inside, name);
        let mut earlier = Others::Nothing;
        for top in overlay.meeting(&inside).into_iter().filter(|top| *top != dir.top) {
            match self.is_dir(top, &inside) {
                Some(true) if top < dir.top => return Others::Directory,
                Some(true) if !is_dir => return Others::LaterDirectory,
                Some(false) if top < dir.top && !is_dir => earlier = Others::File,
                Some(_) | None => {}
            }
        }
        earlier
    }

    /// Whether a source has a directory at `inside`; None if it has nothing there, or an entry that the
    /// filter leaves out.
    fn is_dir(&self, top: usize, inside: &[u8]) -> Option<bool> {
        let below = self.tops.get(top)?.below(inside)?;
        let found = self.open(top, below, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC);
        let stat = match found.and_then(fstat) {
            Ok(stat) => stat,
            // A link that leads nowhere is copied as it is where only links to directories are followed.
            Err(_) if self.follow == Follow::Dirs => self.lstat(top, below).ok()?,
            Err(_) => return None,
        };
        let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        (!self.filter.leaves_out(inside, is_dir)).then_some(is_dir)
    }

    /// What has this name, if it is a link the link.
    fn lstat(&self, top: usize, path: &[u8]) -> io::Result<Stat> {
        let slash = path.iter().rposition(|&b| b == b'/');
        let (dir, name) = slash.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
        let dir = self.open(top, dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC)?;
        Ok(statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

impl Top {
    /// Where a path in the copy would lie in this source.
    pub(super) fn below<'p>(&self, inside: &'p [u8]) -> Option<&'p [u8]> {
        let below = match &self.single {
            Some(name) => return (name == inside).then_some(inside),
            None => inside.strip_prefix(self.inside.as_slice())?,
        };
        if self.inside.is_empty() || below.is_empty() { Some(below) } else { below.strip_prefix(b"/") }
    }
}
