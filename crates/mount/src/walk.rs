//! Paths in a tree that is mounted somewhere, followed as the kernel would follow them.

use std::borrow::Cow;

/// Most symlinks in a lookup, the kernel's limit.
const MAX_SYMLINKS: u32 = 40;
/// Longest path, and most bytes that all symlinks of a lookup may add.
const MAX_PATH: usize = 4096;

/// Number of the root directory, which FUSE has fixed.
pub const ROOT: u64 = 1;

/// As much of a tree as paths need.
pub trait Tree {
    /// The entry of this name in a directory, which is [`ROOT`] or the result of an earlier call.
    fn child(&self, dir: u64, name: &[u8]) -> Option<Node<'_>>;
}

/// The target of a name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node<'a> {
    /// A directory, by its number.
    Dir(u64),
    /// A regular file, by its index.
    File(u32),
    /// A symlink and where it leads.
    Symlink(Cow<'a, [u8]>),
}

impl<T: Tree + ?Sized> Tree for &T {
    fn child(&self, dir: u64, name: &[u8]) -> Option<Node<'_>> {
        (**self).child(dir, name)
    }
}

/// A regular file, and the absolute path that leads to it without symlinks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its index.
    pub file: u32,
    /// Its path.
    pub path: Vec<u8>,
}

/// Follows an absolute path to a regular file of the tree that is mounted at `prefix` (absolute too). Paths
/// may leave the tree and return to it; paths outside are assumed to have no symlinks. `None`: not a file of
/// this tree.
pub fn find(tree: &impl Tree, prefix: &[u8], path: &[u8]) -> Option<Found> {
    if !path.starts_with(b"/") {
        return None;
    }
    let prefix = normal(prefix);
    let mut todo = Cow::Borrowed(path);
    let mut place = Place::top(&prefix);
    let (mut at, mut symlinks, mut length) = (0, 0, path.len());
    loop {
        let rest = todo.get(at..).unwrap_or_default();
        let end = rest.iter().position(|&b| b == b'/');
        let name = &rest[..end.unwrap_or(rest.len())];
        match place.enter(tree, name)? {
            // A path that ends here names a directory.
            Step::Inside => at += end? + 1,
            // A path that continues uses a file as a directory.
            Step::File(file) if end.is_none() => return Some(Found { file, path: place.path }),
            Step::File(_) => return None,
            Step::Symlink(target) => {
                symlinks += 1;
                length += target.len();
                if symlinks > MAX_SYMLINKS || length > MAX_SYMLINKS as usize * MAX_PATH {
                    return None;
                }
                if target.starts_with(b"/") {
                    place = Place::top(&prefix);
                }
                let tail = end.map(|end| &rest[end..]).unwrap_or_default();
                todo = Cow::Owned([&target[..], tail].concat());
                at = 0;
            }
        }
    }
}

/// The path without empty names, `.`, and `/` at its end: nothing for the root of the machine.
fn normal(path: &[u8]) -> Vec<u8> {
    let names = path.split(|&b| b == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.flat_map(|name| [b"/", name].concat()).collect()
}

/// How far a walk has come.
struct Place<'a> {
    prefix: &'a [u8],
    path: Vec<u8>,
    /// Inside the tree: its directories from the root to this one.
    dirs: Vec<u64>,
}

enum Step<'a> {
    Inside,
    File(u32),
    Symlink(Cow<'a, [u8]>),
}

impl<'a> Place<'a> {
    /// The root of the machine.
    fn top(prefix: &'a [u8]) -> Self {
        let dirs = if prefix.is_empty() { vec![ROOT] } else { Vec::new() };
        Place { prefix, path: Vec::new(), dirs }
    }

    fn enter<'t>(&mut self, tree: &'t impl Tree, name: &[u8]) -> Option<Step<'t>> {
        match name {
            b"" | b"." => return Some(Step::Inside),
            b".." => {
                if !self.path.is_empty() {
                    self.dirs.pop();
                }
                let parent = self.path.iter().rposition(|&b| b == b'/').unwrap_or(0);
                self.path.truncate(parent);
            }
            name => {
                let node = match self.dirs.last() {
                    Some(&dir) => Some(tree.child(dir, name)?),
                    None => None,
                };
                if let Some(Node::Symlink(target)) = node {
                    return Some(Step::Symlink(target));
                }
                self.path.push(b'/');
                self.path.extend(name);
                match node {
                    Some(Node::File(file)) => return Some(Step::File(file)),
                    Some(Node::Dir(dir)) => self.dirs.push(dir),
                    _ if self.path == self.prefix => self.dirs.push(ROOT),
                    _ => {}
                }
            }
        }
        Some(Step::Inside)
    }
}

#[cfg(test)]
#[path = "walk_tests.rs"]
mod tests;
