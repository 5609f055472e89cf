//! From staged files to objects, and from objects to a view.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Timespec, Timestamps, UTIME_OMIT, XattrFlags};
use tidecast_hash::Digest;
use tidecast_metainfo::{FileRef, Manifest, Mtime};

use crate::db::Objects;
use crate::error::{Context, Error};
use crate::layout::Layout;
use crate::object::{self, ObjectKey};
use crate::open_dir::OpenDir;
use crate::os::{self, Unsynced};
use crate::reserve::Held;
use crate::root::root_of;

/// Makes the view of one manifest.
pub(crate) struct Placing<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) objects: Objects,
    pub(crate) manifest: &'a Manifest,
    /// Where the published file or directory was staged.
    pub(crate) staged: PathBuf,
    /// Content that is reused from the store instead of staged.
    pub(crate) reused: BTreeMap<Digest, Held>,
    /// Objects that were verified, and their inodes.
    pub(crate) proven: HashMap<ObjectKey, u64>,
    /// Staged files may have other names, by which no process writes.
    pub(crate) links: bool,
    /// Where copies are made before they get their names.
    pub(crate) scratch: PathBuf,
    pub(crate) unsynced: Unsynced,
    /// The directories in use: of staged files, of objects, and of the view.
    pub(crate) sources: OpenDir<'a>,
    pub(crate) stored: OpenDir<'a>,
    pub(crate) placed: OpenDir<'a>,
    /// Inodes made beyond the first, by object.
    pub(crate) extra: BTreeMap<ObjectKey, u32>,
    /// Files that needed no inode of their own.
    pub(crate) linked: u64,
}

impl Placing<'_> {
    /// Makes an object of every content, and links or makes everything else below `view`.
    pub(crate) fn all(&mut self, view: &Path) -> Result<(), Error> {
        let manifest = self.manifest;
        let siblings = siblings(manifest);
        let mut ready = std::collections::HashSet::new();
        for dir in manifest.dirs() {
            let path = dir.path().below(view);
            self.layout.make_dir(&path)?;
        }
        for file in manifest.files() {
            let to = file.path().below(view);
            if let Some(parent) = to.parent() {
                self.unsynced.dir(parent);
            }
            match ObjectKey::of(file).filter(|_| !file.is_empty()) {
                Some(key) => {
                    if ready.insert(key) {
                        let names = siblings.get(&key.root).copied().unwrap_or(1);
                        self.object(file, &key, names)?;
                    } else {
                        self.linked += 1;
                    }
                    self.link(&key, &to)?;
                }
                None => {
                    empty(&mut self.placed, file, &to)?;
                    if !file.is_symlink() {
                        self.unsynced.file(&to);
                    }
                }
            }
        }
        // Children first: to make an entry changes the time of its directory, and is not allowed any more.
        for dir in manifest.dirs().collect::<Vec<_>>().into_iter().rev() {
            let path = dir.path().below(view);
            self.unsynced.dir(&path);
            self.layout.chmod(&path, 0o555)?;
            set_time(self.layout, &path, dir.mtime())?;
        }
        Ok(())
    }

    /// Sees to it that there is an inode for a key. `names`: how many files of the manifest have the content.
    fn object(&mut self, file: FileRef<'_>, key: &ObjectKey, names: u64) -> Result<(), Error> {
        let at = self.layout.object(key);
        let known = self.objects.get(key)?.is_some_and(|o| o.len == file.len());
        if let Some(there) = known.then(|| self.stored.look(&at).ok()).flatten() {
            let trusted = self.reused.contains_key(&key.root) || self.proven.get(key) == Some(&there.id.1);
            if there.is_file() && there.len == file.len() && (trusted || self.is_right(file, &at)) {
                self.linked += 1;
                return Ok(());
            }
            // Caches with the old inode keep it, until a check repairs them.
            *self.extra.entry(*key).or_default() += 1;
        }
        let source = match self.reused.get(&key.root) {
            // The inode itself; its caches have gone meanwhile.
            Some(held) if held.variant == key.variant => {
                self.linked += 1;
                held.path.clone()
            }
            Some(held) => self.copy(&held.path, false)?,
            None => {
                // Of equal files only the first has been verified, and need be there.
                let first = self.manifest.file(file.same_as()).unwrap_or(file);
                let staged = first.path().below(&self.staged);
                let meta = self.sources.look(&staged).at("stat", &staged)?;
                // The file has another name, by which it could be written: it must be copied.
                let shared = !self.links && meta.links > names || !meta.is_mine();
                let another = first.index() != file.index() && ObjectKey::of(first).as_ref() != Some(key);
                if shared || another { self.copy(&staged, false)? } else { staged }
            }
        };
        set_attributes(&self.sources.open(&source).at("open", &source)?, file, &source)?;
        if let Some(dir) = at.parent() {
            if self.stored.find(&at).is_err() {
                self.layout.make_dir(dir)?;
            }
            self.unsynced.dir(dir);
            self.unsynced.dir(&self.layout.objects());
        }
        self.unsynced.file(&source);
        let linked = match self.sources.link(&source, &mut self.stored, &at) {
            // A commit that a crash ended left it, or it is damaged.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                self.stored.remove_file(&at)?;
                self.sources.link(&source, &mut self.stored, &at)
            }
            other => other,
        };
        match linked {
            Err(e) if os::unlinkable(&e) => {
                self.stored.remove_file(&at)?;
                self.layout.duplicate(&source, &at, true).at("copy", &at)?;
            }
            other => other.at("link", &at)?,
        }
        self.unsynced.file(&at);
        Ok(())
    }

    /// Whether an object that was added since is undamaged.
    fn is_right(&mut self, file: FileRef<'_>, at: &Path) -> bool {
        self.stored
            .open(at)
            .and_then(|f| root_of(&f, file.len()))
            .is_ok_and(|root| Some(root) == file.pieces_root())
    }

    /// A copy of a file, for ourselves; with its time and attributes if it is to be `alike`.
    fn copy(&self, from: &Path, alike: bool) -> Result<PathBuf, Error> {
        self.layout.remove_file(&self.scratch)?;
        self.layout.duplicate(from, &self.scratch, alike).at("copy", from)?;
        Ok(self.scratch.clone())
    }

    /// Another name for an object.
    fn link(&mut self, key: &ObjectKey, to: &Path) -> Result<(), Error> {
        let at = self.layout.object(key);
        match self.stored.link(&at, &mut self.placed, to) {
            Err(e) if os::unlinkable(&e) => {}
            other => return other.at("link", to),
        }
        // The link count of this inode is at its maximum: from here on another one is the object. Existing links
        // stay.
        let next = self.copy(&at, true)?;
        self.unsynced.file(&next);
        self.layout.rename(&next, &at)?;
        self.unsynced.file(&at);
        *self.extra.entry(*key).or_default() += 1;
        match self.stored.link(&at, &mut self.placed, to) {
            // It is not their number: links cannot be made here.
            Err(e) if os::unlinkable(&e) => {
                self.layout.duplicate(&at, to, true).at("copy", to)?;
                self.unsynced.file(to);
                Ok(())
            }
            other => other.at("link", to),
        }
    }
}

/// Makes an empty file or a symbolic link: not worth sharing.
pub(crate) fn empty(open_dir: &mut OpenDir<'_>, file: FileRef<'_>, to: &Path) -> Result<(), Error> {
    let (dir, name) = open_dir.find(to).at("create", to)?;
    if let Some(target) = file.symlink() {
        dir.symlink(OsStr::from_bytes(&target), name).at("create", to)?;
        let Some(time) = file.mtime() else { return Ok(()) };
        return dir.set_time(name, (time.secs, time.nanos)).at("set the time of", to);
    }
    set_attributes(&dir.create(name, 0o600).at("create", to)?, file, to)
}

/// How many files have each content.
fn siblings(manifest: &Manifest) -> HashMap<Digest, u64> {
    let mut all = HashMap::new();
    for root in manifest.files().filter_map(|f| f.pieces_root()) {
        *all.entry(root).or_default() += 1;
    }
    all
}

/// Sets a file's metadata by its variant, and makes it read-only.
pub(crate) fn set_attributes(file: &File, of: FileRef<'_>, path: &Path) -> Result<(), Error> {
    for (name, value) in object::xattrs(of) {
        match rustix::fs::fsetxattr(file, name, value, XattrFlags::empty()) {
            // Not every file system has them, or room for them.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSPC) => {}
            Err(e) => return Err(e).at("set an attribute of", path),
        }
    }
    file.set_permissions(Permissions::from_mode(object::mode(of))).at("set the mode of", path)?;
    match of.mtime() {
        Some(time) => rustix::fs::futimens(file, &times(time)).at("set the time of", path),
        None => Ok(()),
    }
}

fn times(mtime: Mtime) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ },
        last_modification: Timespec { tv_sec: mtime.secs, tv_nsec: i64::from(mtime.nanos) as _ },
    }
}

/// Sets the time of a directory.
pub(crate) fn set_time(layout: &Layout, path: &Path, mtime: Option<Mtime>) -> Result<(), Error> {
    let Some(time) = mtime else { return Ok(()) };
    layout.set_time(path, (time.secs, time.nanos))
}

/// Whether every content of the manifest that is not reused is staged correctly; its bytes too, if `hash`.
pub(crate) fn check(
    layout: &Layout,
    manifest: &Manifest,
    staged: &Path,
    reused: &BTreeMap<Digest, Held>,
    hash: bool,
) -> Result<(), Error> {
    let files: Vec<FileRef<'_>> = manifest
        .files()
        .filter(|f| !f.is_empty() && f.same_as() == f.index())
        .filter(|f| f.pieces_root().is_some_and(|r| !reused.contains_key(&r)))
        .collect();
    let one = |open_dir: &mut OpenDir<'_>, file: &FileRef<'_>| -> Result<(), Error> {
        let path = file.path().below(staged);
        let wrong = |why| Error::Wrong { path: path.clone(), why };
        let open = match open_dir.open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(wrong("the file is missing")),
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => return Err(wrong("not a regular file")),
            other => other.at("open", &path)?,
        };
        if open.metadata().at("stat", &path)?.len() != file.len() {
            return Err(wrong("length differs from the manifest"));
        }
        if hash && Some(root_of(&open, file.len()).at("read", &path)?) != file.pieces_root() {
            return Err(wrong("content differs from the manifest"));
        }
        Ok(())
    };
    if !hash || files.len() < 2 {
        let mut open_dir = OpenDir::new(layout);
        return files.iter().try_for_each(|file| one(&mut open_dir, file));
    }
    let next = std::sync::atomic::AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(files.len());
    let work = || {
        let mut open_dir = OpenDir::new(layout);
        while let Some(file) = files.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            one(&mut open_dir, file)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mine = work();
        let joined =
            others.into_iter().map(|t| t.join().unwrap_or(Err(Error::Unfit("a thread of the store failed"))));
        joined.chain([mine]).collect()
    })
}
