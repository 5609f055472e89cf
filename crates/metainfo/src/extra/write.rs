//! Writing the `tidecast` key.

use super::VERSION;
use super::column::{put, put_runs, zigzag};
use crate::bencode::Writer;
use crate::builder::{Content, Entry};
use std::collections::BTreeMap;

/// Names and values of extended attributes, sorted.
type AttributeSet<'a> = Vec<(&'a [u8], &'a [u8])>;

/// The inputs of the key.
pub(crate) struct Columns<'a> {
    /// Files in manifest order.
    pub(crate) files: &'a [Entry],
    /// Directories in the order in which a reader will find them, with their paths; `None` for
    /// those that were not given as entries.
    pub(crate) dirs: Vec<Option<&'a Entry>>,
    /// Directories that no file implies, sorted.
    pub(crate) empty_dirs: Vec<&'a [u8]>,
    /// (link, target), ascending.
    pub(crate) links: Vec<(u32, u32)>,
    /// (symbolic link, exact text), ascending, where the text cannot be computed.
    pub(crate) texts: Vec<(u32, &'a [u8])>,
    pub(crate) prefix: Option<&'a [u8]>,
    /// True if the root must be marked as a directory.
    pub(crate) root: bool,
}

impl<'a> Columns<'a> {
    fn entries(&self) -> impl Iterator<Item = Option<&'a Entry>> {
        self.files.iter().map(Some).chain(self.dirs.iter().copied())
    }

    fn modes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mode = |e: Option<&Entry>| e.and_then(|e| e.mode).map_or(0, |m| m + 1);
        if self.entries().any(|e| mode(e) != 0) {
            put_runs(&mut out, self.entries().map(mode));
        }
        out
    }

    /// Seconds and nanoseconds.
    fn mtimes(&self) -> (Vec<u8>, Vec<u8>) {
        let (mut secs, mut nanos) = (Vec::new(), Vec::new());
        let time = |e: Option<&Entry>| e.and_then(|e| e.mtime);
        if self.entries().any(|e| time(e).is_some()) {
            let mut last: i64 = 0;
            for entry in self.entries() {
                let now = time(entry).map_or(last, |t| t.secs);
                put(&mut secs, zigzag(now.wrapping_sub(last)));
                last = now;
            }
            let nano = |e| time(e).map_or(0, |t| t.nanos + 1);
            put_runs(&mut nanos, self.entries().map(nano));
        }
        (secs, nanos)
    }

    /// The distinct sets of attributes, in order of first use, and the column.
    fn xattrs(&self) -> (Vec<AttributeSet<'a>>, Vec<u8>) {
        let mut sets: BTreeMap<AttributeSet<'_>, u32> = BTreeMap::new();
        let mut order = Vec::new();
        let mut column = Vec::new();
        for entry in self.entries() {
            let mut set: AttributeSet<'_> =
                entry.map_or(Vec::new(), |e| e.xattrs.iter().map(|(n, v)| (&**n, &**v)).collect());
            set.sort_unstable();
            if set.is_empty() {
                column.push(0);
                continue;
            }
            let next = sets.len() as u32 + 1;
            let number = *sets.entry(set.clone()).or_insert(next);
            if number == next {
                order.push(set);
            }
            column.push(number);
        }
        let mut out = Vec::new();
        if !order.is_empty() {
            put_runs(&mut out, column.into_iter());
        }
        (order, out)
    }

    fn links(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut last = 0;
        for (file, target) in &self.links {
            put(&mut out, u64::from(file - last));
            put(&mut out, u64::from(*target));
            last = *file;
        }
        out
    }

    fn holes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut last = 0;
        for (index, entry) in self.files.iter().enumerate() {
            let Content::File { holes, .. } = &entry.content else {
                continue;
            };
            if holes.is_empty() {
                continue;
            }
            put(&mut out, (index - last) as u64);
            put(&mut out, holes.len() as u64);
            let mut end = 0;
            for hole in holes {
                put(&mut out, hole.start - end);
                put(&mut out, hole.end - hole.start);
                end = hole.end;
            }
            last = index;
        }
        out
    }
}

/// The dictionary for the key `tidecast`, or `None` if it would be empty.
pub(crate) fn write(columns: &Columns<'_>) -> Option<Vec<u8>> {
    let (modes, holes, links) = (columns.modes(), columns.holes(), columns.links());
    let (mtimes, nanos) = columns.mtimes();
    let (sets, xattrs) = columns.xattrs();
    let silent = [&modes, &holes, &links, &mtimes, &xattrs].iter().all(|c| c.is_empty());
    if silent
        && columns.empty_dirs.is_empty()
        && columns.texts.is_empty()
        && columns.prefix.is_none()
        && !columns.root
    {
        return None;
    }
    let mut w = Writer::new();
    let column = |w: &mut Writer, key: &[u8], bytes: &[u8]| {
        if !bytes.is_empty() {
            w.key(key).bytes(bytes);
        }
    };
    w.dict(|w| {
        if !columns.empty_dirs.is_empty() {
            w.key(b"dirs").list(|l| columns.empty_dirs.iter().for_each(|path| l.bytes(path)));
        }
        column(w, b"holes", &holes);
        column(w, b"links", &links);
        column(w, b"modes", &modes);
        column(w, b"mtimes", &mtimes);
        column(w, b"nanos", &nanos);
        column(w, b"prefix", columns.prefix.unwrap_or_default());
        if columns.root {
            w.key(b"root").int(1);
        }
        if !sets.is_empty() {
            w.key(b"sets").list(|l| {
                for set in &sets {
                    l.dict(|d| set.iter().for_each(|(name, value)| d.key(name).bytes(value)));
                }
            });
        }
        if !columns.texts.is_empty() {
            w.key(b"symlinks").list(|l| {
                for (file, text) in &columns.texts {
                    l.int((*file).into());
                    l.bytes(text);
                }
            });
        }
        w.key(b"v").int(VERSION);
        column(w, b"xattrs", &xattrs);
    });
    Some(w.into_bytes())
}
