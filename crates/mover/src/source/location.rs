//! The location of sources: patterns, the meaning of a trailing slash, and the directory handle below which
//! all of a source is opened.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use globset::GlobBuilder;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat, statat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use tidecast_hash::sha256;
use tidecast_paths::openat2_again;
use tidecast_text::{escaped, escaped_bytes};

use crate::error::Error;
use crate::job::Problem;
use crate::overlap::{SourceLocation, above};
use crate::spec::Follow;

use super::list;
use super::walk::PASSAGE;

/// Most names for which one pattern may stand.
const MAX_MATCHES: usize = 1_000_000;
/// Most names sent to a receiver in one message.
const MAX_MIXED: usize = 1000;
/// Most sources of a server whose links are followed: each keeps a directory open.
const MAX_FOLLOWED: usize = 64;

/// A source, opened.
#[derive(Debug)]
pub(super) struct Top {
    /// A directory that many sources share: a pattern stands for more names than a process may have open files.
    pub(super) fd: Arc<OwnedFd>,
    /// The path from there, without links, to its own directory or the one in which it lies; empty: this is it.
    pub(super) below: Vec<u8>,
    /// The name in it, if it is not a directory.
    pub(super) single: Option<Vec<u8>>,
    /// Its path in the copy; empty if its content goes right into the destination.
    pub(super) inside: Vec<u8>,
    /// As it is called in messages.
    pub(super) shown: Vec<u8>,
    /// For its identity.
    pub(super) path: PathBuf,
    /// How many levels of its contents are copied.
    pub(super) depth: usize,
    /// It is not copied itself, but these names below it.
    pub(super) names: Option<list::Names>,
    /// It was not named itself, but lies above a name.
    pub(super) implied: bool,
}

impl Top {
    /// Of a directory with all that is in it, or a name in one.
    pub(super) fn new(
        fd: Arc<OwnedFd>,
        single: Option<Vec<u8>>,
        inside: Vec<u8>,
        shown: Vec<u8>,
        path: PathBuf,
    ) -> Self {
        let below = Vec::new();
        Self { fd, below, single, inside, shown, path, depth: list::WHOLE, names: None, implied: false }
    }

    /// The handle to open `path` below the source from, and the path from there.
    pub(super) fn at<'p>(&self, path: &'p [u8]) -> (&OwnedFd, Cow<'p, [u8]>) {
        let path = match (self.below.as_slice(), path) {
            (b"", b"") => Cow::Borrowed(b".".as_slice()),
            (b"", path) => Cow::Borrowed(path),
            (below, path) => Cow::Owned(super::join(below, path)),
        };
        (&self.fd, path)
    }

    /// Its directory, or the one in which it lies.
    pub(super) fn directory(&self) -> Result<OwnedFd, Errno> {
        if self.below.is_empty() {
            return fcntl_dupfd_cloexec(&self.fd, 0);
        }
        open_below(&self.fd, &self.below, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC)
    }

    /// Its own path in the copy.
    pub(super) fn own(&self) -> Vec<u8> {
        super::join(&self.inside, self.single.as_deref().unwrap_or_default())
    }
}

/// Finds all sources; missing ones are problems, and an error if there are no others.
pub(super) fn find(
    sources: &[OsString],
    follow: Follow,
    root: Option<&Path>,
) -> Result<(Vec<Top>, Vec<Problem>), Error> {
    let (mut tops, mut problems) = (Vec::new(), Vec::new());
    let mut opening = Opening::new(follow, root)?;
    for source in sources {
        for path in expand(source.as_bytes(), root)? {
            match opening.open(&path) {
                Ok(top) => tops.push(top),
                Err(e) => {
                    let what = match e.raw_os_error().map(Errno::from_raw_os_error) {
                        Some(Errno::XDEV) if root.is_some() => {
                            "not copied: outside of the served directory".to_owned()
                        }
                        _ => format!("not copied: {e}"),
                    };
                    problems.push(Problem::new(&path, what, true));
                }
            }
        }
    }
    if tops.is_empty() {
        let why = problems
            .first()
            .map_or_else(|| "nothing to copy".to_owned(), |p| format!("{}: {}", escaped(&p.path), p.what));
        return Err(Error::Nothing(why));
    }
    // Of directories of one name the contents come together, as with rsync; of files one would overwrite the other.
    let mut names = HashSet::new();
    for top in &tops {
        let name = top.single.as_ref().unwrap_or(&top.inside);
        if !name.is_empty() && !names.insert(name.clone()) && top.single.is_some() {
            let path = [top.shown.as_slice(), name].join(&b'/');
            problems.push(Problem::new(&path, "skipped: an earlier source has this name", false));
        }
    }
    Ok((tops, problems))
}

/// The path below a root: absolute paths begin there.
fn relative(path: &[u8]) -> &[u8] {
    let slashes = path.iter().take_while(|b| **b == b'/').count();
    path.get(slashes..).unwrap_or_default()
}

/// The path below `root` if there is one.
fn on_disk(path: &[u8], root: Option<&Path>) -> PathBuf {
    match root {
        Some(root) => root.join(OsStr::from_bytes(relative(path))),
        None => PathBuf::from(OsStr::from_bytes(path)),
    }
}

/// A path without links, for its identity.
pub(super) fn full(path: &[u8], root: Option<&Path>) -> io::Result<PathBuf> {
    fs::canonicalize(on_disk(path, root))
}

/// The directory in which a clean relative path is.
pub(super) fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|b| *b == b'/').map_or(&[], |at| &path[..at])
}

/// The last name of a clean relative path.
pub(super) fn last(path: &[u8]) -> &[u8] {
    path.iter().rposition(|b| *b == b'/').map_or(path, |at| &path[at + 1..])
}

/// The directory of a path, and its name there; a path ending in a slash, `.` or `..` has no name.
fn split(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    let (parent, name) = match path.iter().rposition(|b| *b == b'/') {
        Some(0) => (&b"/"[..], &path[1..]),
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&b"."[..], path),
    };
    (parent, Some(name).filter(|name| !matches!(*name, b"" | b"." | b"..")))
}

/// Opens one source after the other.
struct Opening<'r> {
    follow: Follow,
    root: Option<&'r Path>,
    /// Of a server: its root, and the path of that without links.
    served: Option<(Arc<OwnedFd>, PathBuf)>,
    /// The directory in which the last source lies.
    last: Option<(Vec<u8>, Arc<OwnedFd>)>,
    /// Sources of a server that keep a directory open.
    followed: usize,
}

impl<'r> Opening<'r> {
    fn new(follow: Follow, root: Option<&'r Path>) -> Result<Self, Error> {
        let served = match root {
            None => None,
            Some(path) => {
                let failed = |e| Error::io("open", path)(e);
                let fd = passage(b"", root).map_err(failed)?;
                Some((Arc::new(fd), full(b"", root).map_err(failed)?))
            }
        };
        Ok(Self { follow, root, served, last: None, followed: 0 })
    }

    fn open(&mut self, path: &[u8]) -> io::Result<Top> {
        let shown = |path: &[u8]| match path.iter().rposition(|b| *b != b'/') {
            None => b"/".to_vec(),
            Some(last) => path[..=last].to_vec(),
        };
        let root = self.root;
        let full = |path: &[u8]| full(path, root);
        // With a slash behind it, its content is meant.
        let contents = split(path).1.is_none();
        let bare = shown(path);
        let (parent, Some(name)) = split(&bare) else {
            let own = Arc::new(directory(path, root)?);
            return self.top(Top::new(own, None, Vec::new(), bare.clone(), full(path)?));
        };
        let fd = self.passage(parent)?;
        let kind = FileType::from_raw_mode(statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode);
        let is_dir = kind == FileType::Directory;
        let follows = kind == FileType::Symlink && self.follow != Follow::None;
        if is_dir || contents || follows {
            match directory(path, root) {
                Ok(own) => {
                    // Links that are followed may lead nowhere but below the source.
                    let shares = is_dir && root.is_none() && self.follow == Follow::None;
                    let (fd, below) = if shares { (fd, name.to_vec()) } else { (Arc::new(own), Vec::new()) };
                    let inside = if contents { Vec::new() } else { name.to_vec() };
                    let top = Top::new(fd, None, inside, bare.clone(), full(path)?);
                    return self.top(Top { below, ..top });
                }
                Err(e) if is_dir || contents => return Err(e),
                Err(_) => {}
            }
        }
        self.top(Top::new(fd, Some(name.to_vec()), Vec::new(), shown(parent), full(parent)?))
    }

    /// The directory in which a source lies: one handle for those that follow one another.
    fn passage(&mut self, parent: &[u8]) -> io::Result<Arc<OwnedFd>> {
        if let Some((last, fd)) = &self.last
            && last == parent
        {
            return Ok(Arc::clone(fd));
        }
        let fd = Arc::new(passage(parent, self.root)?);
        self.last = Some((parent.to_vec(), Arc::clone(&fd)));
        Ok(fd)
    }

    /// A source of a server keeps nothing open: a client can name as many as it likes. Its path begins at the root.
    fn top(&mut self, top: Top) -> io::Result<Top> {
        let Some((root, path)) = &self.served else { return Ok(top) };
        if self.follow != Follow::None {
            self.followed += 1;
            return if self.followed > MAX_FOLLOWED { Err(Errno::MFILE.into()) } else { Ok(top) };
        }
        let below = top.path.strip_prefix(path).map_err(|_| Errno::XDEV)?.as_os_str().as_bytes().to_vec();
        let inode = |fd: &OwnedFd| fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
        let there = inode(&top.fd)?;
        let top = Top { fd: Arc::clone(root), below, ..top };
        // The path was looked up a second time.
        if inode(&top.directory()?)? != there {
            return Err(Errno::STALE.into());
        }
        Ok(top)
    }
}

/// Whether the name exists. Below a root nothing outside of it is revealed.
fn is_there(path: &[u8], root: Option<&Path>) -> bool {
    let (parent, name) = split(path);
    match name {
        None => directory(path, root).is_ok(),
        Some(name) => {
            passage(parent, root).is_ok_and(|fd| statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok())
        }
    }
}

/// Opens a directory; below a root no link leads out of it.
pub(super) fn directory(path: &[u8], root: Option<&Path>) -> io::Result<OwnedFd> {
    open_directory(path, root, OFlags::RDONLY)
}

/// Opens a directory to reach what is in it: it need not be readable.
pub(super) fn passage(path: &[u8], root: Option<&Path>) -> io::Result<OwnedFd> {
    open_directory(path, root, OFlags::PATH)
}

fn open_directory(path: &[u8], root: Option<&Path>, access: OFlags) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Some(root) = root else { return Ok(openat(CWD, path, access | flags, Mode::empty())?) };
    let root = openat(CWD, root, OFlags::RDONLY | flags, Mode::empty())?;
    let below = relative(path);
    let below = if below.is_empty() { b"." } else { below };
    Ok(openat2_again(&root, below, access | flags, ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS)?)
}

/// Opens a path below a directory, through no link.
pub(super) fn open_below(at: &OwnedFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    match openat2_again(at, path, flags, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS) {
        // EPERM is how some sandboxes filter calls they do not know.
        Err(Errno::NOSYS | Errno::PERM) => open_by_steps(at, path, flags),
        other => other,
    }
}

/// Opens a path where the kernel does not do it in one call: each directory by the handle of the one before.
fn open_by_steps(top: &OwnedFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut names = path.split(|b| *b == b'/');
    let last = names.next_back().unwrap_or(b".");
    let mut at: Option<OwnedFd> = None;
    for name in names {
        at = Some(openat(at.as_ref().unwrap_or(top), name, PASSAGE, Mode::empty())?);
    }
    openat(at.as_ref().unwrap_or(top), last, flags, Mode::empty())
}

fn is_pattern(path: &[u8]) -> bool {
    path.iter().any(|b| b"*?[{".contains(b))
}

/// The names for which a source stands: itself, unless it is a pattern and there is nothing with that very name.
pub(super) fn expand(source: &[u8], root: Option<&Path>) -> Result<Vec<Vec<u8>>, Error> {
    if !is_pattern(source) || is_there(source, root) {
        return Ok(vec![source.to_vec()]);
    }
    let (slash, absolute) = (source.ends_with(b"/"), source.starts_with(b"/"));
    let mut found = vec![if absolute { b"/".to_vec() } else { Vec::new() }];
    for part in source.split(|b| *b == b'/').filter(|part| !part.is_empty()) {
        found = step(&found, part, root)?;
    }
    if slash {
        found.retain(|path| passage(path, root).is_ok());
    }
    if found.is_empty() {
        return Err(Error::Nothing(format!("nothing matches {}", escaped_bytes(source))));
    }
    found.sort();
    if slash {
        found.iter_mut().for_each(|path| path.push(b'/'));
    }
    Ok(found)
}

/// One component further.
fn step(from: &[Vec<u8>], part: &[u8], root: Option<&Path>) -> Result<Vec<Vec<u8>>, Error> {
    let below = |dir: &[u8], name: &[u8]| {
        let slash: &[u8] = if dir.is_empty() || dir.ends_with(b"/") { b"" } else { b"/" };
        [dir, slash, name].concat()
    };
    if !is_pattern(part) {
        let there = from.iter().map(|dir| below(dir, part));
        return Ok(there.filter(|path| is_there(path, root)).collect());
    }
    let refused = |why: &str| Error::Usage(format!("{}: {why}", escaped_bytes(part)));
    let text = std::str::from_utf8(part).map_err(|_| refused("a pattern must be UTF-8"))?;
    let pattern = GlobBuilder::new(text).literal_separator(true).build();
    let pattern = pattern.map_err(|e| refused(&e.kind().to_string()))?.compile_matcher();
    let mut found = Vec::new();
    for dir in from {
        let opened = directory(if dir.is_empty() { b"." } else { dir }, root);
        let Ok(names) = opened.and_then(|fd| Ok(Dir::new(fd)?)) else { continue };
        for entry in names.flatten() {
            let name = entry.file_name().to_bytes();
            let is_hidden = name.starts_with(b".") && !part.starts_with(b".");
            if !is_hidden && !matches!(name, b"." | b"..") && pattern.is_match(OsStr::from_bytes(name)) {
                found.push(below(dir, name));
            }
        }
        if found.len() > MAX_MATCHES {
            return Err(refused(&format!("pattern matches more than {MAX_MATCHES} names")));
        }
    }
    Ok(found)
}

/// A destination on the host of the source; of a server, below its root, and nothing outside of it is
/// revealed.
#[derive(Debug)]
pub(super) struct Dest {
    path: Vec<u8>,
    root: Option<PathBuf>,
}

impl Dest {
    pub(super) fn new(path: &OsStr, root: Option<&Path>) -> Self {
        Self { path: path.as_bytes().to_vec(), root: root.map(Path::to_owned) }
    }

    pub(super) fn shown(&self) -> &[u8] {
        &self.path
    }

    /// Device and inode, if it is a directory.
    pub(super) fn inode(&self) -> Option<(u64, u64)> {
        self.inode_of(&self.path)
    }

    /// The inode of a path in the copy, if it exists.
    pub(super) fn inode_in(&self, inside: &[u8]) -> Option<(u64, u64)> {
        let look = |dir: &[u8], name: &[u8]| {
            let fd = directory(dir, self.root.as_deref()).ok()?;
            let stat = statat(fd, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            Some((stat.st_dev, stat.st_ino))
        };
        match look(&self.path, inside) {
            None if directory(&self.path, self.root.as_deref()).is_err() => {
                let (parent, name) = split(&self.path);
                look(parent, name?)
            }
            found => found,
        }
    }

    fn inode_of(&self, path: &[u8]) -> Option<(u64, u64)> {
        let stat = fstat(directory(path, self.root.as_deref()).ok()?).ok()?;
        Some((stat.st_dev, stat.st_ino))
    }
}

impl Top {
    /// Where it is, for a receiver.
    pub(super) fn line(&self) -> SourceLocation {
        let name = self.single.as_deref();
        let shown = name.map_or_else(|| self.shown.clone(), |name| [self.shown.as_slice(), name].join(&b'/'));
        let path = self.path.as_os_str().as_bytes();
        let above = self.directory().map(|dir| above(&dir, path, name.unwrap_or_default()));
        let above = above.unwrap_or_default();
        let listed = self.names.is_some() || self.depth != list::WHOLE;
        SourceLocation { shown, listed, inside: name.is_none().then(|| self.inside.clone()), above }
    }

    /// Whether a copy to `dest` would write it over itself.
    pub(super) fn is_at(&self, dest: &Dest) -> bool {
        let Ok(Ok(stat)) = self.directory().map(fstat) else { return false };
        let has = |path: &[u8]| dest.inode_of(path) == Some((stat.st_dev, stat.st_ino));
        match &self.single {
            Some(_) if dest.inode().is_some() => has(&dest.path),
            Some(name) => {
                let (parent, last) = split(&dest.path);
                last == Some(name) && has(parent)
            }
            None => has(&[&dest.path, &b"/"[..], &self.inside].concat()),
        }
    }
}

/// The names of directories that are merged with the contents of others.
pub(super) fn mixed(tops: &[Top]) -> Vec<Vec<u8>> {
    let dirs = || tops.iter().filter(|top| top.single.is_none() && top.names.is_none());
    if dirs().all(|top| !top.inside.is_empty()) {
        return Vec::new();
    }
    let names: BTreeSet<&Vec<u8>> = dirs().map(|top| &top.inside).filter(|name| !name.is_empty()).collect();
    names.into_iter().take(MAX_MIXED).cloned().collect()
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
        all.extend(top.names.iter().flat_map(list::listed_digest));
    }
    data_encoding::HEXLOWER.encode(&sha256(&all))
}
