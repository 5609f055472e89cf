//! Compares a tree on disk with a manifest and reports damaged, missing and additional files.
//!
//! Promise: every finding is reported, without a panic or an early end; every byte that the manifest
//! describes is read and hashed, once, on all cores.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::num::NonZero;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;
use tidecast_hash::Digest;
use tidecast_metainfo::{Manifest, Version, merkle};
use tidecast_paths::{Meta, OTHERS_WRITE, acl};

use crate::base::Base;
use crate::engine;
use crate::exclude::Exclude;
use crate::job::{Job, Piece, Target};
use crate::report::{Kind, Problem, ProblemKind, Report};
use crate::scan::leads_out;
use crate::{Error, Progress};

/// Compares the file or directory at `path`, which is the published file or the directory itself, with the
/// manifest: names, kinds, sizes, contents, link targets and permission bits. Times and attributes are not
/// compared.
///
/// # Errors
/// When the caller cancelled, or this host is short of descriptors or memory: everything else is in the report.
pub fn verify(
    manifest: &Manifest,
    path: &Path,
    threads: Option<NonZero<usize>>,
    progress: &Progress,
) -> Result<Report, Error> {
    // Only here is a link followed, as `scan` does.
    let root = path.canonicalize().or_else(|_| std::path::absolute(path)).map_err(Error::io("find", path))?;
    let base = match Base::of(&root).map_err(Error::io("open", &root)) {
        Err(error) if error.is_exhausted() => return Err(error),
        base => base.ok(),
    };
    let mut check = Check::new(manifest, root, base);
    check.dirs();
    check.files(progress)?;
    check.extras(progress)?;
    if let Some(trouble) = check.trouble.lock().take() {
        return Err(trouble);
    }
    progress.start(check.mark_unusable());
    let complete = manifest.missing_layers().is_empty();
    let version = match manifest.version() {
        // The v2 trees suffice; without all of them both versions are checked.
        Version::Hybrid if complete => Version::V2,
        version => version,
    };
    let job = Job { layout: manifest.layout(), version, leaves: false, threads, progress };
    engine::run(job, &check)?;
    Ok(check.report())
}

/// A verification under way.
struct Check<'a> {
    manifest: &'a Manifest,
    root: PathBuf,
    /// None if the directory above is not there.
    base: Option<Base>,
    problems: Mutex<Problems>,
    left_out: Mutex<Vec<PathBuf>>,
    /// Errors of this host for lack of descriptors or memory: not a problem of the tree.
    trouble: Mutex<Option<Error>>,
    /// Files whose bytes cannot be read or need not be, by index.
    unusable: Vec<bool>,
    /// Pieces of each file with a wrong hash.
    damaged: Vec<AtomicU32>,
    /// Pieces of each file that could not be checked because of another file in them.
    unchecked: Vec<AtomicU32>,
    /// Files that were there but could not be read.
    unreadable: Mutex<HashSet<u32>>,
    /// Piece layers, as found, of files whose layer the manifest lacks.
    layers: Mutex<HashMap<u32, Vec<Digest>>>,
}

/// Bytes of the paths of the problems that are listed: those of a manifest may be long together.
const LISTED: usize = 32 << 20;

#[derive(Default)]
struct Problems {
    list: Vec<Problem>,
    /// Bytes of the paths.
    bytes: usize,
    /// Problems that are not listed.
    more: u64,
}

impl Problems {
    fn add(&mut self, problem: Problem) {
        if self.bytes >= LISTED {
            self.more += 1;
            return;
        }
        self.bytes += problem.path.as_os_str().len() + size_of::<Problem>();
        self.list.push(problem);
    }
}

impl<'a> Check<'a> {
    fn new(manifest: &'a Manifest, root: PathBuf, base: Option<Base>) -> Self {
        let files = manifest.file_count() as usize;
        let counters = || (0..files).map(|_| AtomicU32::new(0)).collect();
        let missing = manifest.missing_layers();
        // One is listed for each content; every file of that content is checked.
        let roots: HashSet<Digest> = missing.iter().map(|m| m.pieces_root).collect();
        let layers = manifest
            .files()
            .filter(|f| f.pieces_root().is_some_and(|root| roots.contains(&root)))
            .filter(|_| manifest.version() == Version::V2)
            .map(|f| (f.index(), vec![[0; 32]; f.pieces().len()]))
            .collect();
        Self {
            manifest,
            root,
            base,
            problems: Mutex::default(),
            left_out: Mutex::default(),
            trouble: Mutex::default(),
            unusable: vec![false; files],
            damaged: counters(),
            unchecked: counters(),
            unreadable: Mutex::default(),
            layers: Mutex::new(layers),
        }
    }

    fn path(&self, file: u32) -> PathBuf {
        let file = self.manifest.file(file);
        file.map_or_else(|| self.root.clone(), |f| f.path().below(&self.root))
    }

    /// Notes a problem at `path` on disk.
    fn problem(&self, path: &Path, what: ProblemKind) {
        let path = path.strip_prefix(&self.root).unwrap_or(path).to_owned();
        self.problems.lock().add(Problem { path, what });
    }

    /// Notes that the system does not let something be read.
    fn unreadable(&self, path: &Path, action: &'static str, e: io::Error) {
        if tidecast_paths::is_exhausted(&e) {
            self.trouble.lock().get_or_insert(Error::io(action, path)(e));
            return;
        }
        self.problem(path, ProblemKind::Unreadable(e.to_string()));
    }

    /// Checks that directories exist and are directories. The contents of one that is not are not checked: a
    /// link in its place would lead elsewhere.
    fn dirs(&mut self) {
        let mut lost: HashSet<PathBuf> = HashSet::new();
        for dir in self.manifest.dirs() {
            let path = dir.path().below(&self.root);
            let inside_lost = path.parent().is_some_and(|above| lost.contains(above));
            if inside_lost {
                self.problem(&path, ProblemKind::Missing);
            } else if let Some(meta) = self.look(&path, Kind::Directory) {
                self.mode(&path, dir.mode(), &meta);
                continue;
            }
            lost.insert(path);
        }
        if lost.is_empty() {
            return;
        }
        for file in self.manifest.files() {
            let path = file.path().below(&self.root);
            if path.parent().is_some_and(|above| lost.contains(above)) {
                self.problem(&path, ProblemKind::Missing);
                if let Some(slot) = self.unusable.get_mut(file.index() as usize) {
                    *slot = true;
                }
            }
        }
    }

    fn base(&self) -> io::Result<&Base> {
        self.base.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Looks at one entry; notes and returns `None` if it is not there or not of its kind.
    fn look(&self, path: &Path, expected: Kind) -> Option<Meta> {
        match self.base().and_then(|base| base.look(path)) {
            Ok(meta) if Kind::of(meta.kind) == expected => return Some(meta),
            Ok(meta) => {
                let found = Kind::of(meta.kind);
                self.problem(path, ProblemKind::Kind { expected, found });
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => self.problem(path, ProblemKind::Missing),
            Err(e) => self.unreadable(path, "stat", e),
        }
        None
    }

    /// Compares permission bits. Set-id bits are not compared: not every user may set them. Rights of others to write may be
    /// missing: the umask of the user who got the data decides on them.
    fn mode(&self, path: &Path, expected: Option<u32>, found: &Meta) {
        let is_same = |expected: u32, found: u32| found & 0o777 | expected & OTHERS_WRITE == expected;
        let Some(expected) = expected.map(|m| m & 0o777).filter(|expected| !is_same(*expected, found.mode))
        else {
            return;
        };
        // It was published without its access list.
        let list = self.base().and_then(|base| base.access_list(path, found.is_dir()));
        let list = list.ok().flatten();
        let found = list.map_or(found.mode, |list| acl::mode_without(&list, found.mode)) & 0o777;
        if !is_same(expected, found) {
            self.problem(path, ProblemKind::Mode { expected, found });
        }
    }

    /// Files and links: kind, size, target and mode, before any content is read.
    fn files(&mut self, progress: &Progress) -> Result<(), Error> {
        let manifest = self.manifest;
        for file in manifest.files() {
            if progress.is_cancelled() {
                return Err(Error::Cancelled);
            }
            progress.add_file();
            let index = file.index() as usize;
            if self.unusable.get(index).copied().unwrap_or(false) {
                continue;
            }
            let path = file.path().below(&self.root);
            let usable = if let Some(target) = file.symlink() {
                self.link(&path, &target);
                false
            } else {
                self.size(&path, file.len(), file.mode(), file.is_executable())
            };
            if let Some(slot) = self.unusable.get_mut(index) {
                *slot = !usable;
            }
        }
        Ok(())
    }

    fn link(&self, path: &Path, expected: &[u8]) {
        if self.look(path, Kind::Symlink).is_none() {
            return;
        }
        match self.base().and_then(|base| base.read_link(path)) {
            Ok(found) if found.as_os_str().as_bytes() == expected => {}
            Ok(found) => {
                let expected = PathBuf::from(OsStr::from_bytes(expected));
                self.problem(path, ProblemKind::Target { expected, found });
            }
            Err(e) => self.unreadable(path, "read the link", e),
        }
    }

    /// Whether a regular file is there in the right size, so that its content can be hashed.
    fn size(&self, path: &Path, expected: u64, mode: Option<u32>, executable: bool) -> bool {
        let Some(meta) = self.look(path, Kind::File) else {
            return false;
        };
        // Without recorded modes, all that is known is that a file is to be executable.
        let with_x = meta.mode & 0o777 | 0o100;
        self.mode(path, mode.or(executable.then_some(with_x)), &meta);
        let found = meta.len;
        if found != expected {
            self.problem(path, ProblemKind::Size { expected, found });
        }
        found == expected
    }

    /// Whether the name at `path`, which is not in the manifest, was excluded by the publisher.
    fn is_left_out(&self, exclude: &Exclude, path: &Path) -> bool {
        let below = path.strip_prefix(&self.root).unwrap_or(path);
        let Ok(meta) = self.base().and_then(|base| base.look(path)) else { return false };
        let links = self.manifest.left_out().outside_links && meta.is_symlink();
        let outside =
            || self.base().and_then(|base| base.read_link(path)).is_ok_and(|to| leads_out(below, &to));
        exclude.matches(below, meta.is_dir()) || Kind::of(meta.kind) == Kind::Special || links && outside()
    }

    /// Names on disk that are not in the manifest. Such a directory is named, not its contents.
    fn extras(&self, progress: &Progress) -> Result<(), Error> {
        if self.manifest.is_single_file() || !self.is_dir(&self.root) {
            return Ok(());
        }
        let root = &self.root;
        // Patterns that a stranger has damaged leave nothing out.
        let exclude = Exclude::new(&self.manifest.left_out().exclude).unwrap_or_default();
        let files: HashSet<PathBuf> = self.manifest.files().map(|f| f.path().below(root)).collect();
        let dirs: HashSet<PathBuf> = self.manifest.dirs().map(|d| d.path().below(root)).collect();
        let mut stack = vec![root.clone()];
        while let Some(dir) = stack.pop() {
            let listing = match self.base().and_then(|base| base.names(&dir)) {
                Ok(names) => names,
                Err(e) => {
                    self.unreadable(&dir, "list the directory", e);
                    continue;
                }
            };
            for path in listing.into_iter().map(|name| dir.join(name)) {
                if progress.is_cancelled() {
                    return Err(Error::Cancelled);
                }
                if dirs.contains(&path) {
                    if self.is_dir(&path) {
                        stack.push(path);
                    }
                } else if !files.contains(&path) {
                    if self.is_left_out(&exclude, &path) {
                        let below = path.strip_prefix(root).unwrap_or(&path).to_owned();
                        self.left_out.lock().push(below);
                    } else {
                        self.problem(&path, ProblemKind::Extra);
                    }
                }
            }
        }
        Ok(())
    }

    fn is_dir(&self, path: &Path) -> bool {
        self.base().and_then(|base| base.look(path)).is_ok_and(|m| m.is_dir())
    }

    /// The files with a part in a piece.
    fn owners(&self, piece: u32) -> impl Iterator<Item = u32> {
        let mut last = None;
        self.manifest
            .spans(piece, 0, self.manifest.piece_len(piece))
            .filter(|span| !span.pad)
            .filter_map(move |span| (last.replace(span.file) != Some(span.file)).then_some(span.file))
    }

    fn is_unusable(&self, file: u32) -> bool {
        self.unusable.get(file as usize).copied().unwrap_or(true)
    }

    fn count(counters: &[AtomicU32], file: u32) {
        if let Some(counter) = counters.get(file as usize) {
            counter.fetch_add(1, Relaxed);
        }
    }

    /// Counts pieces that cannot be checked, for every file in them.
    fn uncheck(&self, pieces: Range<u32>) {
        for file in pieces.flat_map(|piece| self.owners(piece)) {
            Self::count(&self.unchecked, file);
        }
    }

    /// Before any content is read: marks the pieces that an unusable file makes uncheckable. Returns how many
    /// bytes are left to read.
    fn mark_unusable(&self) -> u64 {
        let (mut next, mut bytes) = (0, 0);
        for file in self.manifest.files() {
            if !self.is_unusable(file.index()) {
                bytes += file.len();
                continue;
            }
            // In v1 files share pieces: count each once.
            let pieces = file.pieces();
            let fresh = pieces.start.max(next)..pieces.end;
            next = next.max(pieces.end);
            self.uncheck(fresh);
        }
        bytes
    }

    /// Keeps the digest of a piece whose layer the manifest lacks.
    fn keep(&self, piece: u32, found: Digest) {
        let Some(file) = self.owners(piece).next() else {
            return;
        };
        let from = self.manifest.file_pieces(file).start;
        let mut layers = self.layers.lock();
        let layer = layers.get_mut(&file);
        if let Some(slot) = layer.and_then(|l| l.get_mut((piece - from) as usize)) {
            *slot = found;
        }
    }

    /// Combines the findings.
    fn report(self) -> Report {
        for (file, layer) in std::mem::take(&mut *self.layers.lock()) {
            let Some(found) = self.manifest.file(file) else {
                continue;
            };
            let root = merkle::root_of_layer(&layer, self.manifest.piece_length());
            let unread = self.is_unusable(file) || self.unreadable.lock().contains(&file);
            if !unread && found.pieces_root() != Some(root) {
                // Which of its pieces is at fault cannot be told without the layer.
                found.pieces().for_each(|_| Self::count(&self.damaged, file));
            }
        }
        for file in self.manifest.files() {
            let of = file.pieces().len() as u32;
            let count = |counters: &[AtomicU32]| {
                let counter = counters.get(file.index() as usize);
                counter.map_or(0, |c| c.load(Relaxed))
            };
            let path = self.path(file.index());
            match count(&self.damaged) {
                0 => {}
                pieces => self.problem(&path, ProblemKind::Content { pieces, of }),
            }
            match count(&self.unchecked) {
                0 => {}
                _ if self.is_unusable(file.index()) => {}
                _ if self.unreadable.lock().contains(&file.index()) => {}
                pieces => self.problem(&path, ProblemKind::Unchecked { pieces, of }),
            }
        }
        let Problems { list: mut problems, more, .. } = self.problems.into_inner();
        problems.sort_by(|a, b| a.path.cmp(&b.path));
        let mut left_out = self.left_out.into_inner();
        left_out.sort();
        Report {
            problems,
            more,
            left_out,
            files: self.manifest.file_count(),
            bytes: self.manifest.total_len(),
        }
    }
}

impl Kind {
    fn of(kind: tidecast_paths::Kind) -> Self {
        match kind {
            tidecast_paths::Kind::File => Self::File,
            tidecast_paths::Kind::Dir => Self::Directory,
            tidecast_paths::Kind::Symlink => Self::Symlink,
            tidecast_paths::Kind::Other => Self::Special,
        }
    }
}

impl Target for Check<'_> {
    fn wants(&self, piece: u32) -> bool {
        self.owners(piece).all(|file| !self.is_unusable(file))
    }

    fn open(&self, file: u32) -> Result<File, Error> {
        let path = self.path(file);
        self.base().map_err(Error::io("open", &path))?.open(&path)
    }

    fn check_unchanged(&self, _file: u32, _handle: &File) -> Result<(), Error> {
        Ok(())
    }

    fn read_error(&self, file: u32, error: io::Error) -> Error {
        let path = self.path(file);
        if error.kind() == io::ErrorKind::UnexpectedEof {
            let what = "size";
            return Error::Changed { path, what };
        }
        Error::io("read", &path)(error)
    }

    fn piece(&self, piece: Piece<'_>) -> Result<(), Error> {
        let expected = self.manifest.expected(piece.index);
        let good = match (expected.v2, piece.v2, expected.v1, piece.v1) {
            (Some(expected), Some(found), ..) => expected == found,
            (_, _, Some(expected), Some(found)) => expected == found,
            (None, Some(found), ..) => {
                self.keep(piece.index, found);
                true
            }
            _ => false,
        };
        if !good {
            self.owners(piece.index).for_each(|file| Self::count(&self.damaged, file));
        }
        Ok(())
    }

    fn trouble(&self, file: u32, pieces: Range<u32>, error: Error) -> Result<(), Error> {
        if error.is_exhausted() {
            return Err(error);
        }
        if self.unreadable.lock().insert(file) {
            let what = if error.is_missing() {
                ProblemKind::Missing
            } else {
                ProblemKind::Unreadable(error.to_string())
            };
            self.problem(&self.path(file), what);
        }
        self.uncheck(pieces);
        Ok(())
    }
}
