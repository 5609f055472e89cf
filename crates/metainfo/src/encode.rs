//! The info dictionary of a [`Builder`], as canonical bencode.
//!
//! Promise: deterministic; the order of files is the same in the v1 list, the v2 tree and the
//! columns of Tidecast's key.

use crate::bencode::Writer;
use crate::builder::{Builder, Content, Entry};
use crate::error::printable;
use crate::extra::{self, Columns};
use crate::{Error, symlink};
use std::collections::BTreeMap;

/// BEP 47's name for the directory of pad files; the file is called by its length.
const PAD_DIR: &[u8] = b".pad";

/// The info dictionary. `links` are the hard links by index.
pub(crate) fn info(b: &Builder, links: Vec<(u32, u32)>) -> Result<Vec<u8>, Error> {
    let targets = symlink_targets(b)?;
    let extra = extra::write(&columns(b, links, &targets)?);
    let single = b.files.iter().any(|f| f.path.is_empty());
    let mut w = Writer::new();
    w.dict(|w| {
        if b.version.has_v1() && single && is_executable(b.files.first()) {
            w.key(b"attr").bytes(b"x");
        }
        if b.version.has_v2() {
            w.key(b"file tree");
            file_tree(w, b, &targets);
        }
        if b.version.has_v1() && !single {
            w.key(b"files").list(|l| v1_files(l, b, &targets));
        }
        if b.version.has_v1() && single {
            w.key(b"length").int(b.layout.total_len() as i64);
        }
        if b.version.has_v2() {
            w.key(b"meta version").int(2);
        }
        w.key(b"name").bytes(&b.name);
        w.key(b"piece length").int(b.layout.piece_length().into());
        if b.version.has_v1() {
            w.key(b"pieces").bytes(b.v1.as_flattened());
        }
        if b.private {
            w.key(b"private").int(1);
        }
        if let Some(pem) = &b.ssl_cert {
            w.key(b"ssl-cert").bytes(pem);
        }
        if let Some(extra) = &extra {
            w.key(b"tidecast").raw(extra);
        }
    });
    Ok(w.into_bytes())
}

fn is_executable(entry: Option<&Entry>) -> bool {
    let content = entry.map(|e| &e.content);
    matches!(content, Some(Content::File { executable: true, .. }))
}

fn components(path: &[u8]) -> Vec<&[u8]> {
    path.split(|b| *b == b'/').collect()
}

/// `symlink path` of each symbolic link, by index.
type Targets<'a> = BTreeMap<usize, Vec<&'a [u8]>>;

fn symlink_targets(b: &Builder) -> Result<Targets<'_>, Error> {
    let mut targets = BTreeMap::new();
    for (index, entry) in b.files.iter().enumerate() {
        let Content::Symlink(text) = &entry.content else {
            continue;
        };
        let path = components(&entry.path);
        let from = &path[..path.len() - 1];
        if let Some(why) = symlink::no_text(text) {
            return Err(Error::Symlink { path: printable(&entry.path), target: printable(text), why });
        }
        // To other clients a link that leads out has no target: they make an empty file of it, or a link to itself.
        targets.insert(index, symlink::resolve(from, text).unwrap_or_default());
    }
    Ok(targets)
}

/// The contents of Tidecast's key. Directories come in the order in which a reader of the file list finds
/// them: parents first, at the first file below them, then the empty ones.
fn columns<'a>(b: &'a Builder, links: Vec<(u32, u32)>, targets: &Targets<'_>) -> Result<Columns<'a>, Error> {
    let single = b.files.iter().any(|f| f.path.is_empty());
    let given: BTreeMap<&[u8], &Entry> = b.dirs.iter().map(|d| (&*d.path, d)).collect();
    let mut seen: BTreeMap<&[u8], ()> = BTreeMap::new();
    let mut dirs = Vec::new();
    let mut empty_dirs = Vec::new();
    if !single {
        dirs.push(given.get(&b""[..]).copied());
    }
    let mut add = |path: &'a [u8], with_self: bool| {
        let slashes = path.iter().enumerate().filter(|(_, c)| **c == b'/');
        let ends = slashes.map(|(i, _)| i).chain(with_self.then_some(path.len()));
        let mut new = false;
        for dir in ends.map(|end| &path[..end]) {
            new = seen.insert(dir, ()).is_none();
            if new {
                dirs.push(given.get(dir).copied());
            }
        }
        new
    };
    for file in &b.files {
        add(&file.path, false);
    }
    for dir in b.dirs.iter().filter(|d| !d.path.is_empty()) {
        if add(&dir.path, true) {
            empty_dirs.push(&*dir.path);
        }
    }
    let mut texts = Vec::new();
    for (index, target) in targets {
        let Some((entry, Content::Symlink(text))) = b.files.get(*index).map(|e| (e, &e.content)) else {
            continue;
        };
        if symlink::relative(components(&entry.path), target) != *text {
            texts.push((*index as u32, &**text));
        }
    }
    // A directory that holds one file of its own name looks like that file to a reader of v2.
    let looks_single = match b.files.as_slice() {
        [only] => !single && !b.version.has_v1() && only.path == b.name,
        _ => false,
    };
    Ok(Columns {
        files: &b.files,
        dirs,
        empty_dirs,
        links,
        texts,
        prefix: b.prefix.as_deref(),
        root: looks_single,
    })
}

fn attr(entry: &Entry) -> Option<&'static [u8]> {
    match entry.content {
        Content::Symlink(_) => Some(b"l"),
        Content::File { executable: true, .. } => Some(b"x"),
        _ => None,
    }
}

fn write_target(w: &mut Writer, target: Option<&Vec<&[u8]>>) {
    if let Some(parts) = target {
        let list = |l: &mut Writer| parts.iter().for_each(|part| l.bytes(part));
        w.key(b"symlink path").list(list);
    }
}

fn v1_files(w: &mut Writer, b: &Builder, targets: &Targets<'_>) {
    let mut end = 0;
    for (index, entry) in b.files.iter().enumerate() {
        let start = b.layout.file_start(index as u32);
        // Padding stands right before the next file that has content.
        if !entry.is_empty() && start > end {
            pad(w, start - end);
        }
        w.dict(|d| {
            if let Some(letters) = attr(entry) {
                d.key(b"attr").bytes(letters);
            }
            d.key(b"length").int(entry.len() as i64);
            d.key(b"path").list(|l| components(&entry.path).iter().for_each(|p| l.bytes(p)));
            write_target(d, targets.get(&index));
        });
        if !entry.is_empty() {
            end = start + entry.len();
        }
    }
}

fn pad(w: &mut Writer, len: u64) {
    w.dict(|d| {
        d.key(b"attr").bytes(b"p");
        d.key(b"length").int(len as i64);
        d.key(b"path").list(|l| {
            l.bytes(PAD_DIR);
            l.bytes(len.to_string().as_bytes());
        });
    });
}

fn file_tree(w: &mut Writer, b: &Builder, targets: &Targets<'_>) {
    let mut open: Vec<&[u8]> = Vec::new();
    w.begin_dict();
    for (index, entry) in b.files.iter().enumerate() {
        let whole: &[u8] = if entry.path.is_empty() { &b.name } else { &entry.path };
        let path = components(whole);
        let (name, dirs) = match path.split_last() {
            Some((name, dirs)) => (*name, dirs),
            None => continue,
        };
        let common = open.iter().zip(dirs).take_while(|(a, b)| a == b).count();
        for _ in common..open.len() {
            w.end_dict();
        }
        open.truncate(common);
        for dir in &dirs[common..] {
            w.key(dir).begin_dict();
            open.push(dir);
        }
        w.key(name).dict(|d| {
            d.key(b"").dict(|d| {
                if let Some(letters) = attr(entry) {
                    d.key(b"attr").bytes(letters);
                }
                d.key(b"length").int(entry.len() as i64);
                if let Some(Some((root, _))) = b.hashes.get(index).filter(|_| !entry.is_empty()) {
                    d.key(b"pieces root").bytes(root);
                }
                write_target(d, targets.get(&index));
            });
        });
    }
    for _ in 0..open.len() {
        w.end_dict();
    }
    w.end_dict();
}
