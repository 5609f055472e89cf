//! Several sources whose contents go to one place (`a/ b/`): what an earlier one has there wins, as with rsync.

use std::collections::HashMap;

use rustix::fs::{AtFlags, FileType, statat};

use super::place::Top;

/// Which sources may have a path in the copy: two can where contents go right into the destination, or names are the same.
#[derive(Debug)]
pub(super) struct Overlay {
    contents: Vec<usize>,
    /// All others, by the one name that each has in the copy.
    named: HashMap<Vec<u8>, Vec<usize>>,
}

/// What an earlier source has at a place in the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Earlier {
    Nothing,
    Directory,
    /// Anything else.
    File,
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

    /// What the first of the sources before `top` that has something at `inside`, a path in the copy, has there.
    pub(super) fn earlier(&self, tops: &[Top], top: usize, inside: &[u8]) -> Earlier {
        let name = inside.split(|&b| b == b'/').next().unwrap_or_default();
        let named = self.named.get(name).into_iter().flatten();
        let mut before: Vec<usize> =
            self.contents.iter().chain(named).copied().filter(|&n| n < top).collect();
        before.sort_unstable();
        let stat = before.iter().filter_map(|&n| tops.get(n)).find_map(|top| {
            let below = top.below(inside)?;
            statat(&top.fd, below, AtFlags::SYMLINK_NOFOLLOW).ok()
        });
        match stat.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            None => Earlier::Nothing,
            Some(FileType::Directory) => Earlier::Directory,
            Some(_) => Earlier::File,
        }
    }
}

impl Top {
    /// Where a path in the copy would lie in this source.
    fn below<'p>(&self, inside: &'p [u8]) -> Option<&'p [u8]> {
        let below = match &self.single {
            Some(name) => (name == inside).then_some(inside)?,
            None => inside.strip_prefix(self.inside.as_slice())?,
        };
        match below {
            b"" => Some(b"."),
            below => Some(below.strip_prefix(b"/").unwrap_or(below)),
        }
    }
}
