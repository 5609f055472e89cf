//! Where sources are: patterns, what a slash at the end means, and the directory handle below which all of a source is opened.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use globset::GlobBuilder;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use tidecast_hash::sha256;

use crate::error::Error;
use crate::job::Problem;

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

fn open(path: &str, root: Option<&Path>) -> io::Result<Top> {
    let disk = on_disk(path, root);
    let slash = path.ends_with('/')
        || matches!(
            Path::new(path).components().next_back(),
            None | Some(Component::CurDir | Component::ParentDir)
        );
    let meta = if slash { fs::metadata(&disk) } else { fs::symlink_metadata(&disk) }?;
    let name = disk.file_name().filter(|_| !slash).map(|name| name.as_bytes().to_vec());
    let shown = path.trim_end_matches('/');
    let shown = if shown.is_empty() { "/" } else { shown };
    let full = fs::canonicalize(if meta.is_symlink() { disk.parent().unwrap_or(&disk) } else { &disk })?;
    if meta.is_dir() {
        let fd = directory(path, root)?;
        return Ok(Top {
            fd,
            single: None,
            inside: name.unwrap_or_default(),
            shown: shown.into(),
            path: full,
        });
    }
    let name = name.ok_or_else(|| io::Error::other("not a directory"))?;
    let parent = Path::new(path).parent().unwrap_or(Path::new("")).to_string_lossy().into_owned();
    let parent = if parent.is_empty() { ".".into() } else { parent };
    let shown =
        shown.rsplit_once('/').map_or(".", |(parent, _)| if parent.is_empty() { "/" } else { parent });
    Ok(Top {
        fd: directory(&parent, root)?,
        single: Some(name),
        inside: Vec::new(),
        shown: shown.into(),
        path: full,
    })
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
    if !is_pattern || fs::symlink_metadata(on_disk(source, root)).is_ok() {
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
        return Ok(there.filter(|path| fs::symlink_metadata(on_disk(path, root)).is_ok()).collect());
    }
    let pattern = GlobBuilder::new(part).literal_separator(true).build();
    let pattern = pattern.map_err(|e| Error::Usage(format!("{part}: {}", e.kind())))?.compile_matcher();
    let mut found = Vec::new();
    for dir in from {
        let disk = on_disk(if dir.is_empty() { "." } else { dir }, root);
        let Ok(names) = fs::read_dir(disk) else { continue };
        for name in names.flatten().map(|entry| entry.file_name()) {
            let hidden = name.as_bytes().starts_with(b".") && !part.starts_with('.');
            if !hidden
                && pattern.is_match(Path::new(&name))
                && let Ok(name) = String::from_utf8(name.into_vec())
            {
                found.push(below(dir, &name));
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
