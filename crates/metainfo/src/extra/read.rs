//! Reading the `tidecast` key, in two steps: skim it before the tree is built, because it names
//! the empty directories; decode its columns after, because they are checked against the tree.

use super::column::Numbers;
use super::{Extra, VERSION};
use crate::bencode::Cursor;
use crate::parse::fields;
use crate::tree::{SYMLINK, Tree, TreeBuilder};
use crate::{Error, Layout, Version};
use std::ops::Range;

/// Longest name and value of an extended attribute that Linux takes.
const MAX_XATTR_NAME: usize = 255;
const MAX_XATTR_VALUE: usize = 64 << 10;
const MAX_PREFIX: usize = 4095;

/// The key as it stands: where its parts lie.
#[derive(Debug, Default)]
pub(crate) struct Raw {
    version: Option<i64>,
    dirs: Option<usize>,
    holes: Option<usize>,
    links: Option<usize>,
    modes: Option<usize>,
    mtimes: Option<usize>,
    nanos: Option<usize>,
    prefix: Option<usize>,
    root: bool,
    sets: Option<usize>,
    symlinks: Option<usize>,
    xattrs: Option<usize>,
}

impl Raw {
    /// Finds the parts of the key whose dictionary is at `at`, if the manifest has it.
    pub(crate) fn skim(info: &[u8], at: Option<usize>) -> Result<Self, Error> {
        let Some(at) = at else {
            return Ok(Raw::default());
        };
        let keys = [
            "dirs", "holes", "links", "modes", "mtimes", "nanos", "prefix", "root", "sets", "symlinks", "v",
            "xattrs",
        ];
        let [dirs, holes, links, modes, mtimes, nanos, prefix, root, sets, symlinks, version, xattrs] =
            fields(&mut Cursor::at(info, at), "tidecast key", keys)?;
        let int = |at: usize| Cursor::at(info, at).int();
        let Some(version) = version.map(int).transpose()? else {
            return Err(Error::Missing { key: "v", place: "tidecast key" });
        };
        if version != VERSION {
            return Ok(Raw { version: Some(version), ..Raw::default() });
        }
        Ok(Raw {
            version: Some(version),
            dirs,
            holes,
            links,
            modes,
            mtimes,
            nanos,
            prefix,
            root: root.map(int).transpose()?.is_some_and(|r| r == 1),
            sets,
            symlinks,
            xattrs,
        })
    }

    /// The version of the key, if it is not known here.
    pub(crate) fn unknown(&self) -> Option<i64> {
        self.version.filter(|v| *v != VERSION)
    }

    /// True if the key marks the root as a directory.
    pub(crate) fn is_directory(&self) -> bool {
        self.root
    }

    /// Adds the directories that no file's path implies.
    pub(crate) fn add_empty_dirs(&self, info: &[u8], builder: &mut TreeBuilder<'_>) -> Result<(), Error> {
        let Some(at) = self.dirs else {
            return Ok(());
        };
        if builder.tree().is_single() {
            return Err(Error::Extra("a single file cannot have directories".into()));
        }
        let mut c = Cursor::at(info, at);
        c.enter_list()?;
        while c.next_item()? {
            let path = c.range()?;
            let mut start = path.start;
            let mut dir = 0;
            for part in info.get(path).unwrap_or_default().split(|b| *b == b'/') {
                dir = builder.dir(dir, start..start + part.len())?;
                start += part.len() + 1;
            }
        }
        Ok(())
    }

    /// Decodes the columns against the finished tree.
    pub(crate) fn decode(
        &self,
        info: &[u8],
        tree: &Tree,
        layout: &Layout,
        version: Version,
    ) -> Result<Extra, Error> {
        if self.version != Some(VERSION) {
            return Ok(Extra::default());
        }
        let d = Decoder { info, tree, layout, version, entries: tree.file_count() + tree.dir_count() };
        let mut extra = Extra {
            present: true,
            prefix: d.prefix(self.prefix)?,
            links: d.links(self.links)?,
            symlinks: d.symlinks(self.symlinks)?,
            sets: d.sets(self.sets)?,
            ..Extra::default()
        };
        if let Some(n) = d.numbers(self.modes, "modes")? {
            extra.modes = n.runs(d.entries, 0o10000)?;
        }
        if let Some(n) = d.numbers(self.nanos, "nanos")? {
            extra.nanos = n.runs(d.entries, 1_000_000_000)?;
        }
        if let Some(n) = d.numbers(self.mtimes, "mtimes")? {
            extra.secs = n.deltas(d.entries)?;
        }
        if self.nanos.is_some() != self.mtimes.is_some() {
            return Err(Error::Extra("`mtimes` and `nanos` must come together".into()));
        }
        if let Some(n) = d.numbers(self.xattrs, "xattrs")? {
            extra.xattrs = n.runs(d.entries, extra.sets.len() as u64)?;
        }
        if let Some(n) = d.numbers(self.holes, "holes")? {
            d.holes(n, &mut extra)?;
        }
        Ok(extra)
    }
}

struct Decoder<'a> {
    info: &'a [u8],
    tree: &'a Tree,
    layout: &'a Layout,
    version: Version,
    /// Files and directories.
    entries: u32,
}

impl<'a> Decoder<'a> {
    fn numbers(&self, at: Option<usize>, column: &'static str) -> Result<Option<Numbers<'a>>, Error> {
        let bytes = at.map(|at| Cursor::at(self.info, at).bytes()).transpose()?;
        Ok(bytes.map(|b| Numbers::new(b, column)))
    }

    fn prefix(&self, at: Option<usize>) -> Result<Option<Range<usize>>, Error> {
        let Some(at) = at else {
            return Ok(None);
        };
        let range = Cursor::at(self.info, at).range()?;
        let bytes = self.info.get(range.clone()).unwrap_or_default();
        if !bytes.starts_with(b"/") || bytes.contains(&0) || bytes.len() > MAX_PREFIX {
            return Err(Error::Extra("`prefix` is not an absolute path".into()));
        }
        Ok(Some(range))
    }

    fn is_symlink(&self, file: u32) -> bool {
        self.tree.flags(file) & SYMLINK != 0
    }

    /// The next of ascending file numbers, which stand as differences to the one before.
    fn next_file(&self, n: &mut Numbers<'_>, last: Option<u32>) -> Result<u32, Error> {
        let gap = n.up_to(u64::from(u32::MAX))?;
        let file = u64::from(last.unwrap_or(0)) + gap;
        if last.is_some() && gap == 0 {
            return n.fail("a file occurs twice");
        }
        if file >= u64::from(self.tree.file_count()) {
            return n.fail(&format!("unknown file {file}"));
        }
        Ok(file as u32)
    }

    fn links(&self, at: Option<usize>) -> Result<Vec<(u32, u32)>, Error> {
        let mut links: Vec<(u32, u32)> = Vec::new();
        let Some(mut n) = self.numbers(at, "links")? else {
            return Ok(links);
        };
        while !n.is_empty() {
            let file = self.next_file(&mut n, links.last().map(|l| l.0))?;
            let target = n.up_to(u64::from(u32::MAX))? as u32;
            let same_len = self.layout.file_len(file) == self.layout.file_len(target);
            let same_root = !self.version.has_v2()
                || self.layout.file_len(file) == 0
                || self.tree.pieces_root(self.info, file) == self.tree.pieces_root(self.info, target);
            let chained = links.binary_search_by_key(&target, |l| l.0).is_ok();
            let why = if target >= file || chained {
                "it must point to an earlier file that is not a link itself"
            } else if self.is_symlink(file) || self.is_symlink(target) {
                "one of its names is a symbolic link"
            } else if !same_len || !same_root {
                "its content differs from its target"
            } else {
                links.push((file, target));
                continue;
            };
            let path = self.tree.describe_file(self.info, file);
            return n.fail(&format!("invalid hard link `{path}`: {why}"));
        }
        Ok(links)
    }

    fn symlinks(&self, at: Option<usize>) -> Result<Vec<(u32, Range<u32>)>, Error> {
        let mut all: Vec<(u32, Range<u32>)> = Vec::new();
        let Some(at) = at else {
            return Ok(all);
        };
        let mut c = Cursor::at(self.info, at);
        c.enter_list()?;
        while c.next_item()? {
            let file = c.int()?;
            let text = c.range()?;
            let known = u32::try_from(file).ok().filter(|f| self.is_symlink(*f));
            let ascending = |f: &u32| all.last().is_none_or(|l| l.0 < *f);
            let Some(file) = known.filter(ascending) else {
                let why = format!("in `symlinks`, {file} is not a symbolic link or is out of order");
                return Err(Error::Extra(why));
            };
            all.push((file, text.start as u32..text.end as u32));
        }
        Ok(all)
    }

    fn sets(&self, at: Option<usize>) -> Result<Vec<u32>, Error> {
        let mut sets = Vec::new();
        let Some(at) = at else {
            return Ok(sets);
        };
        let mut c = Cursor::at(self.info, at);
        c.enter_list()?;
        while c.next_item()? {
            sets.push(c.pos() as u32);
            let mut last: &[u8] = b"";
            c.enter_dict()?;
            while let Some(name) = c.next_key()? {
                let value = c.bytes()?;
                let good = name > last
                    && name.len() <= MAX_XATTR_NAME
                    && !name.contains(&0)
                    && value.len() <= MAX_XATTR_VALUE;
                if !good {
                    let why = "an extended attribute has an invalid name, or more than 64 KiB";
                    return Err(Error::Extra(why.into()));
                }
                last = name;
            }
        }
        Ok(sets)
    }

    fn holes(&self, mut n: Numbers<'_>, extra: &mut Extra) -> Result<(), Error> {
        while !n.is_empty() {
            let file = self.next_file(&mut n, extra.sparse.last().map(|s| s.0))?;
            let len = self.layout.file_len(file);
            let count = n.up_to(len)?;
            extra.sparse.push((file, extra.holes.len() as u32));
            let mut end = 0;
            for i in 0..count {
                let start = end + n.up_to(len - end)?;
                if i > 0 && start == end {
                    return n.fail("two holes are adjacent");
                }
                end = start + n.up_to(len - start)?;
                if end == start {
                    return n.fail("a hole is empty");
                }
                extra.holes.push(start..end);
            }
        }
        Ok(())
    }
}
