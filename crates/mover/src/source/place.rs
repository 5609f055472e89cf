//! Where sources are: patterns, what a slash at the end means, and the directory handle below which all of a source is opened.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use globset::GlobBuilder;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, openat, openat2, statat};
use tidecast_hash::sha256;

use crate::error::Error;
use crate::job::Problem;

use super::walk::DIRECTORY;

/// Most names for which one pattern may stand.
const MAX_MATCHES: usize = 1_000_000;

/// A source, opened.
#[derive(Debug)]
pub(super) struct Top {
    /// Its directory, or the one in which it lies.
    pub(super) fd: OwnedFd,
    /// The name in it, if it is no directory.
    pub(super) single: Option<Vec<u8>>,
    /// Its path in the copy; empty if its content goes right into the destination.
    pub(super) inside: Vec<u8>,
    /// As it is called in messages.
    pub(super) shown: String,
    /// For its identity.
    path: PathBuf,
}

/// Finds all sources; those that are not there are problems, and an error if there are no others.
pub(super) fn find(sources: &[String], root: Option<&Path>) -> Result<(Vec<Top>, Vec<Problem>), Error> {
    let (mut tops, mut problems) = (Vec::new(), Vec::new());
    for source in sources {
        for path in expand(source, root)? {
            match open(&path, root) {
                Ok(top) => tops.push(top),
                Err(e) => {
                    let what = format!("not copied: {e}");
                    problems.push(Problem { path, what, failed: true });
                }
            }
        }
    }
    if tops.is_empty() {
        let why = problems
            .first()
            .map_or_else(|| "nothing to copy".to_owned(), |p| format!("{}: {}", p.path, p.what));
        return Err(Error::Nothing(why));
    }
    let mut names = HashSet::new();
    for top in &tops {
        let name = top.single.as_ref().unwrap_or(&top.inside);
        if !name.is_empty() && !names.insert(name.clone()) {
            let name = String::from_utf8_lossy(name);
            return Err(Error::Usage(format!(
                "two sources have the name {name}: one would overwrite the other"
            )));
        }
    }
    Ok((tops, problems))
}

/// What is below `root` if there is one: absolute paths begin there.
fn on_disk(path: &str, root: Option<&Path>) -> PathBuf {
    match root {
        Some(root) => root.join(path.trim_start_matches('/')),
        None => PathBuf::from(path),
    }
}

/// The directory in which a path is, and its name there; what is called by a slash, `.` or `..` has no name.
fn split(path: &str) -> (&str, Option<&str>) {
    let (parent, name) = match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some(both) => both,
        None => (".", path),
    };
    (parent, Some(name).filter(|name| !matches!(*name, "" | "." | "..")))
}

fn open(path: &str, root: Option<&Path>) -> io::Result<Top> {
    let (parent, name) = split(path);
    let shown = |path: &str| match path.trim_end_matches('/') {
        "" => "/".to_owned(),
        path => path.to_owned(),
    };
    let full = |path: &str| fs::canonicalize(on_disk(path, root));
    let Some(name) = name else {
        let fd = directory(path, root)?;
        return Ok(Top { fd, single: None, inside: Vec::new(), shown: shown(path), path: full(path)? });
    };
    let fd = directory(parent, root)?;
    let stat = statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let bytes = name.as_bytes().to_vec();
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        let fd = openat(&fd, name, DIRECTORY, Mode::empty())?;
        return Ok(Top { fd, single: None, inside: bytes, shown: shown(path), path: full(path)? });
    }
    Ok(Top { fd, single: Some(bytes), inside: Vec::new(), shown: shown(parent), path: full(parent)? })
}

/// Whether there is something of that name. Below a root nothing is told of what is outside.
fn is_there(path: &str, root: Option<&Path>) -> bool {
    let (parent, name) = split(path);
    match name {
        None => directory(path, root).is_ok(),
        Some(name) => {
            directory(parent, root).is_ok_and(|fd| statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok())
        }
    }
}

/// Opens a directory; below a root it can be nowhere else, whatever links say.
fn directory(path: &str, root: Option<&Path>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Some(root) = root else { return Ok(openat(CWD, path, flags, Mode::empty())?) };
    let root = openat(CWD, root, flags, Mode::empty())?;
    let below = path.trim_start_matches('/');
    let below = if below.is_empty() { "." } else { below };
    Ok(openat2(&root, below, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS)?)
}

/// The names for which a source stands: itself, unless it is a pattern and there is nothing with that very name.
fn expand(source: &str, root: Option<&Path>) -> Result<Vec<String>, Error> {
    let is_pattern = source.contains(['*', '?', '[', '{']);
    if !is_pattern || is_there(source, root) {
        return Ok(vec![source.to_owned()]);
    }
    let (slash, absolute) = (source.ends_with('/'), source.starts_with('/'));
    let mut found = vec![if absolute { "/".to_owned() } else { String::new() }];
    for part in source.split('/').filter(|part| !part.is_empty()) {
        found = step(&found, part, root)?;
    }
    if found.is_empty() {
        return Err(Error::Nothing(format!("nothing matches {source}")));
    }
    found.sort();
    Ok(found.into_iter().map(|path| if slash { path + "/" } else { path }).collect())
}

/// One component further.
fn step(from: &[String], part: &str, root: Option<&Path>) -> Result<Vec<String>, Error> {
    let below = |dir: &str, name: &str| {
        if dir.is_empty() || dir.ends_with('/') { format!("{dir}{name}") } else { format!("{dir}/{name}") }
    };
    if !part.contains(['*', '?', '[', '{']) {
        let there = from.iter().map(|dir| below(dir, part));
        return Ok(there.filter(|path| is_there(path, root)).collect());
    }
    let pattern = GlobBuilder::new(part).literal_separator(true).build();
    let pattern = pattern.map_err(|e| Error::Usage(format!("{part}: {}", e.kind())))?.compile_matcher();
    let mut found = Vec::new();
    for dir in from {
        let opened = directory(if dir.is_empty() { "." } else { dir }, root);
        let Ok(names) = opened.and_then(|fd| Ok(Dir::new(fd)?)) else { continue };
        for entry in names.flatten() {
            let Ok(name) = entry.file_name().to_str() else { continue };
            let is_hidden = name.starts_with('.') && !part.starts_with('.');
            if !is_hidden && !matches!(name, "." | "..") && pattern.is_match(name) {
                found.push(below(dir, name));
            }
        }
        if found.len() > MAX_MATCHES {
            return Err(Error::Usage(format!("{part} stands for more than {MAX_MATCHES} names")));
        }
    }
    Ok(found)
}

/// The same for the same sources of the same host.
pub(super) fn identity(tops: &[Top]) -> String {
    let mut all = rustix::system::uname().nodename().to_bytes().to_vec();
    for top in tops {
        let name = top.single.as_deref().unwrap_or_default();
        for text in [top.path.as_os_str(), OsStr::from_bytes(&top.inside), OsStr::from_bytes(name)] {
            all.push(0);
            all.extend_from_slice(text.as_bytes());
        }
    }
    data_encoding::HEXLOWER.encode(&sha256(&all))
}
