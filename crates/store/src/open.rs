//! Opening a download: existing data, which of it counts, and whether the rest will fit.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use tidecast_metainfo::Manifest;
use tidecast_paths::Root;

use crate::base::Base;
use crate::bits::{Bits, ranges};
use crate::disk::{Disk, DiskFile, How, Kind, Meta};
use crate::error::{Context, Error};
use crate::existing;
use crate::fds::Fds;
use crate::flush::Flush;
use crate::journal::{Journal, Named, SPILL};
use crate::leaves::Leaves;
use crate::map::{Map, Place, whole_blocks};
use crate::opened::Opened;
use crate::os::OsDisk;
use crate::record::Record;
use crate::stage::{self, Stage};
use crate::store::{Download, Mode, Store};

/// Bytes kept free beyond the data, for directories and the file system's own needs.
const SLACK: u64 = 64 << 10;

/// Which files to bring in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Select {
    /// All of them.
    #[default]
    All,
    /// These, by their index in the manifest.
    Files(Vec<u32>),
}

/// Durability of received data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Data is synced in batches, then journalled: a power cut costs a second or 256 MiB.
    #[default]
    Batched,
    /// Nothing is synced, for RAM and scratch. A killed process still resumes; after a reboot the journal is
    /// ignored, and existing data is hashed again.
    None,
}

/// How to download.
#[derive(Clone, Debug, Default)]
pub struct DownloadOptions {
    /// Which files.
    pub select: Select,
    /// How durably.
    pub durability: Durability,
    /// Only parts of it may ever come: it need not all fit.
    pub on_demand: bool,
    /// Its name in the directory, instead of its name in the manifest: one part of a path.
    pub name: Option<OsString>,
    /// Rules for existing files.
    pub replace: Replace,
    /// Older versions that lie elsewhere, the best first.
    pub bases: Vec<Base>,
    /// Permissions that files and directories do not get, whatever the manifest says.
    pub withheld: u32,
}

/// Rules for existing files at the destination. A former version by our own record is replaced, and identical files
/// stay; anything else is rejected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replace {
    /// Files and links that are no former version are replaced too, and so are directories in the tree.
    pub force: bool,
    /// Regular files that the record does not know are replaced by regular files too, and counted in
    /// [`Summary::replaced_foreign`](crate::Summary::replaced_foreign): for data whose names the user chose. A file that was
    /// delivered and has changed since is not replaced.
    pub unknown: bool,
    /// Files of the tree that the manifest lacks are removed.
    pub delete: bool,
    /// The directory of the records; without it nothing is known to be a former version.
    pub records: Option<PathBuf>,
}

/// Why the directory of a destination cannot be created: names the part of its path that is not a directory.
fn unmade(dir: &Path, e: io::Error) -> Error {
    let blocks = tidecast_paths::last_there(dir);
    let why = match (e.kind(), blocks) {
        (ErrorKind::NotFound, Some((_, true))) => "it is a dangling symbolic link",
        (ErrorKind::NotADirectory | ErrorKind::AlreadyExists, _) => "found a file instead of a directory",
        _ if tidecast_paths::is_link(&e) => "too many symbolic links in the path",
        _ => return Error::io("create", dir, e),
    };
    Error::Conflict { path: blocks.map_or(dir, |(at, _)| at).to_path_buf(), why }
}

impl Store {
    /// Opens a download of `manifest` to `dir`/NAME, continuing an earlier one. Creates `dir` if need be. Existing
    /// data at `dir`/NAME is used as far as it verifies.
    ///
    /// # Errors
    /// Not enough space, no permission, another download of the same data in progress, or an obstacle.
    pub fn download(manifest: Arc<Manifest>, dir: &Path, options: &DownloadOptions) -> Result<Opened, Error> {
        let root = Root::make(dir).map_err(|e| unmade(dir, e))?;
        Self::download_beneath(root, manifest, options)
    }

    /// As [`Store::download`], to a directory that is open: nothing leads out of it, whatever becomes of it meanwhile.
    ///
    /// # Errors
    /// As there.
    pub fn download_beneath(
        root: Root,
        manifest: Arc<Manifest>,
        options: &DownloadOptions,
    ) -> Result<Opened, Error> {
        Self::download_on(Arc::new(OsDisk::from(root)), manifest, options)
    }

    /// As [`Store::download`], on any disk.
    ///
    /// # Errors
    /// As there.
    pub fn download_on(
        disk: Arc<dyn Disk>,
        manifest: Arc<Manifest>,
        options: &DownloadOptions,
    ) -> Result<Opened, Error> {
        let map = Map::new(manifest.clone(), &options.select)?;
        let durable = options.durability == Durability::Batched;
        let full = figures(&*disk, &map);
        let home = home(&manifest, options.name.as_deref()).at("create", disk.root())?;
        let stage = Stage::take(&*disk, home.as_os_str().as_bytes(), &identity(&manifest, &map));
        let stage = stage.map_err(&full)?;
        let fresh = !exists(&*disk, &stage.journal())?;
        let (store, mut named) =
            assemble(disk.clone(), manifest, map, stage, home, (durable, options)).map_err(&full)?;
        if store.manifest.is_draft() {
            // The earlier verification used roots that may no longer hold.
            named = Named::default();
        }
        match store.settle(&named, options) {
            Ok(to_check) => Ok(Opened {
                have: store.have(),
                to_check,
                hashed: Vec::new(),
                wanted: ranges((0..store.manifest.piece_count()).filter(|p| store.map.wanted(*p))),
                store,
            }),
            Err(e) => {
                if fresh {
                    store.abandon();
                }
                Err(e)
            }
        }
    }

    /// Removes the staging area if it never had any data: to be called when a download fails.
    pub fn abandon(&self) {
        let Mode::Download(dl) = &self.mode else { return };
        let tree = dl.stage.tree();
        let empty = match self.disk.stat(&tree) {
            Ok(meta) if meta.kind == Kind::Dir => self.disk.list(&tree).is_ok_and(|names| names.is_empty()),
            other => other.is_err(),
        };
        // A name that was exchanged with the new data may hold files that stay.
        let aside = self.absent(&dl.stage.aside()).unwrap_or(false);
        if empty && aside && !dl.finished.load(Ordering::Acquire) {
            let _ = dl.stage.remove(&*self.disk);
        }
    }

    /// Looks at everything on disk; returns the pieces to check.
    fn settle(&self, named: &Named, options: &DownloadOptions) -> Result<Vec<Range<u32>>, Error> {
        let dl = self.download_mode()?;
        // A crash may have left replaced files there.
        let aside = dl.stage.aside();
        self.disk.remove_tree(&aside).map_err(|e| self.fail("remove", &aside, e))?;
        existing::survey(self, dl)?;
        self.begin_by(dl, &options.bases);
        let staged = exists(&*self.disk, &dl.stage.tree())?;
        let touched = self.scan(dl, named, staged)?;
        if !options.on_demand {
            self.admit()?;
        }
        // A record without its bytes (an earlier finish moved them, or a user did) must not cover later data in
        // their place.
        if named.pieces.iter().cloned().flatten().any(|p| !self.done.get(p)) {
            let journal = dl.stage.journal();
            dl.flush.vouch_only_for(&self.have()).map_err(|e| self.fail("write", &journal, e))?;
        }
        if !self.manifest.is_single_file() {
            let tree = dl.stage.tree();
            stage::make_dir(&*self.disk, &tree).map_err(|e| self.fail("create", &tree, e))?;
        }
        if dl.flush.is_durable() {
            for dir in [dl.stage.dir(), PathBuf::new()] {
                self.disk.sync_dir(&dir).map_err(|e| self.fail("sync", &dir, e))?;
            }
        }
        Ok(touched)
    }

    /// Reads the staging area: pieces that are in the journal, in files that are as the journal says, count as done;
    /// others with any data are returned to be checked.
    fn scan(&self, dl: &Download, named: &Named, staged: bool) -> Result<Vec<Range<u32>>, Error> {
        let touched = Bits::new(self.manifest.piece_count());
        let unchanged = Bits::new(self.manifest.file_count());
        // Little of a large tree may exist: files in missing directories are skipped.
        let mut place: Option<(PathBuf, bool)> = None;
        let mut has_place = |path: &Path| {
            let dir = path.parent().unwrap_or(path);
            if place.as_ref().is_none_or(|(known, _)| known != dir) {
                place = Some((dir.to_owned(), exists(&*self.disk, dir)?));
            }
            Ok::<bool, Error>(place.as_ref().is_some_and(|(_, there)| *there))
        };
        for file in 0..self.manifest.file_count() {
            if dl.in_place.get(file) {
                for piece in self.map.file_pieces(file) {
                    touched.set(piece);
                }
            } else if staged
                && self.map.is_selected(file)
                && self.map.file_len(file) > 0
                && has_place(&self.file_path(file))?
            {
                let meta = self.scan_file(dl, file, &touched)?;
                if meta.is_some_and(|meta| named.is_unchanged(file, &meta)) {
                    unchanged.set(file);
                }
            }
        }
        let mut is_spill_unchanged = false;
        if let Some(spill) = &dl.spill {
            let path = dl.stage.spill();
            is_spill_unchanged = named.is_unchanged(SPILL, &spill.meta().at("stat", &path)?);
            dl.flush.spill_touched();
            let piece = |at| self.map.spill_piece(at).unwrap_or(u32::MAX);
            let next = |_, at| at / self.length() * self.length() + self.length();
            mark(&**spill, &touched, piece, next).at("search for data in", &path)?;
        }
        let is_there = |place, len: u32| match place {
            Place::Zeros => true,
            Place::Spill(_) => is_spill_unchanged,
            Place::File(file, offset) => {
                !dl.in_place.get(file)
                    && (unchanged.get(file) || self.map.in_hole(file, offset, u64::from(len)))
            }
        };
        for piece in named.pieces.iter().cloned().flatten() {
            if self.map.wanted(piece)
                && self.map.piece(piece).all(|(place, len)| is_there(place, len))
                && self.done.set(piece)
            {
                self.missing.fetch_sub(1, Ordering::AcqRel);
            }
        }
        let hollow = |piece| {
            self.map.piece(piece).all(|(place, len)| match place {
                Place::Zeros => true,
                Place::Spill(_) => false,
                Place::File(file, offset) => self.map.in_hole(file, offset, u64::from(len)),
            })
        };
        let all = 0..self.manifest.piece_count();
        Ok(ranges(
            all.filter(|p| self.map.wanted(*p) && !self.done.get(*p) && (touched.get(*p) || hollow(*p))),
        ))
    }

    /// Marks the pieces that a staged file may hold something of; returns the state it had. A size
    /// that a crash left wrong is put right.
    ///
    /// An earlier run that was killed may have left bytes and names that only memory holds, so the
    /// next sync is to make all of the file last.
    fn scan_file(&self, dl: &Download, file: u32, touched: &Bits) -> Result<Option<Meta>, Error> {
        let path = self.file_path(file);
        let at = || self.disk.root().join(&path);
        let open = match self.disk.open(&path, How::Write) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            // A finish that was interrupted may have taken the right to write away.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                self.disk.open(&path, How::Read).at("open", &at())?
            }
            other => other.at("open", &at())?,
        };
        let meta = open.meta().at("stat", &at())?;
        let start = self.manifest.layout().file_start(file);
        let piece = |offset| self.map.file_piece(file, offset);
        let next = |piece: u32, _| (u64::from(piece) + 1) * self.length() - start;
        mark(&*open, touched, piece, next).at("search for data in", &at())?;
        for hole in self.map.holes(file).iter().map(whole_blocks).filter(|h| !h.is_empty()) {
            let data = open.next_data(hole.start).at("search for data in", &at())?;
            if data.is_some_and(|d| d.start < hole.end) {
                self.map.mark_holes_used(file);
                break;
            }
        }
        let len = self.map.file_len(file);
        if meta.stamp.size != len {
            open.set_len(len).map_err(|e| self.fail("resize", &path, e))?;
        }
        dl.flush.created(file);
        dl.flush.touched(file);
        Ok(Some(meta))
    }

    fn length(&self) -> u64 {
        u64::from(self.manifest.piece_length())
    }

    /// Rejects a download that cannot fit.
    fn admit(&self) -> Result<(), Error> {
        let shortage = self.shortage("not enough space");
        match &shortage {
            Error::NoSpace { needed, free, inodes, free_inodes, .. }
                if needed > free || free_inodes.is_some_and(|f| *inodes > f) =>
            {
                Err(shortage)
            }
            Error::NoSpace { .. } => Ok(()),
            _ => Err(shortage),
        }
    }

    /// The remaining and the free space, as an error.
    pub(crate) fn shortage(&self, what: &'static str) -> Error {
        let path = self.disk.root().to_path_buf();
        let room = match self.disk.room() {
            Ok(room) => room,
            Err(e) => return Error::io("determine the free space of", &path, e),
        };
        let Mode::Download(dl) = &self.mode else {
            let (needed, inodes) = (0, 0);
            return Error::NoSpace { what, path, needed, free: room.bytes, inodes, free_inodes: room.inodes };
        };
        let leaves = self.manifest.total_len() / (tidecast_hash::LEAF as u64 / 32);
        let (mut needed, mut inodes) = (leaves + SLACK, 0);
        let tree = dl.stage.tree();
        let staged = self.disk.stat(&tree).is_ok();
        for file in self.map.files().filter(|f| !dl.in_place.get(*f)) {
            let whole = self.map.data_len(file).next_multiple_of(room.block);
            let path = self.map.file_path(&tree, file);
            match staged.then(|| self.disk.stat(&path)) {
                Some(Ok(meta)) => needed += whole.saturating_sub(meta.allocated),
                _ => (needed, inodes) = (needed + whole, inodes + 1),
            }
        }
        if self.map.is_whole() {
            let made = |d: &Path| staged && self.disk.stat(d).is_ok();
            inodes += self.manifest.dirs().filter(|d| !made(&d.path().below(&tree))).count() as u64;
        }
        Error::NoSpace { what, path, needed, free: room.bytes, inodes, free_inodes: room.inodes }
    }
}

/// Marks the piece of each run of data in a file. `piece` maps an offset to its piece, `next` a piece (and offset)
/// to the offset where the following one begins: a file of many runs is checked once per piece.
fn mark(
    file: &dyn DiskFile,
    touched: &Bits,
    piece: impl Fn(u64) -> u32,
    next: impl Fn(u32, u64) -> u64,
) -> io::Result<()> {
    let mut from = 0;
    while let Some(run) = file.next_data(from)? {
        from = run.start;
        while from < run.end {
            let here = piece(from);
            touched.set(here);
            from = next(here, from).max(from + 1);
        }
    }
    Ok(())
}

/// The name of the data below the root of the disk.
fn home(manifest: &Manifest, name: Option<&OsStr>) -> io::Result<PathBuf> {
    let home = PathBuf::from(name.unwrap_or(OsStr::from_bytes(manifest.name_bytes())));
    // The manifest's own name was checked when it was read.
    match (home.components().next(), home.components().count()) {
        (Some(std::path::Component::Normal(part)), 1) if part == home.as_os_str() => Ok(home),
        _ => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a file name", home.display())))
        }
    }
}

/// The files of the staging area, opened, and the store over them.
fn assemble(
    disk: Arc<dyn Disk>,
    manifest: Arc<Manifest>,
    map: Map,
    stage: Stage,
    home: PathBuf,
    (durable, DownloadOptions { replace, withheld, .. }): (bool, &DownloadOptions),
) -> Result<(Store, Named), Error> {
    let create = |path: PathBuf| {
        let open = stage.create(&*disk, &path);
        open.at("create", &disk.root().join(path))
    };
    let mut id = identity(&manifest, &map);
    if !durable {
        id = this_boot(&id);
    }
    let at = disk.root().join(stage.journal());
    let journal = create(stage.journal())?;
    let files = manifest.file_count();
    let opened = Journal::open(journal, &id, (manifest.piece_count(), files), durable);
    let (journal, named) = opened.at("read", &at)?;
    let leaves = Leaves(create(stage.leaves())?);
    let spill = (map.spill_len() > 0).then(|| create(stage.spill())).transpose()?;
    let download = Download {
        flush: Flush::new(journal, files, durable),
        spill,
        reserve: disk.room().at("stat", disk.root())?.reserve,
        in_place: Bits::new(files),
        foreign: Bits::new(files),
        ours: Bits::new(files),
        our_dirs: Bits::new(manifest.dirs().len() as u32),
        wait: Mutex::default(),
        record: RwLock::new(Record::open(replace.records.as_deref(), &*disk, &home)),
        replace: replace.clone(),
        promoting: Mutex::new(()),
        sizing: Mutex::new(()),
        finished: AtomicBool::new(false),
        withheld: *withheld,
        stage,
    };
    let store = Store {
        home,
        fds: Fds::new(),
        leaves,
        done: Bits::new(manifest.piece_count()),
        missing: AtomicU64::new(map.wanted_count()),
        stamps: RwLock::new(vec![None; files as usize]),
        moving: RwLock::new(()),
        mode: Mode::Download(Box::new(download)),
        manifest,
        map,
        disk,
    };
    Ok((store, named))
}

/// The journal's key: the manifest and the selection.
fn identity(manifest: &Manifest, map: &Map) -> [u8; 32] {
    let mut all = b"tidecast store 1".to_vec();
    all.extend(manifest.hash_v1().iter().flatten());
    all.extend(manifest.hash_v2().iter().flatten());
    if !map.is_whole() {
        all.extend(map.files().flat_map(u32::to_le_bytes));
    }
    tidecast_hash::sha256(&all)
}

/// The key of a journal whose data is never synced: it changes at a reboot.
fn this_boot(id: &[u8; 32]) -> [u8; 32] {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    // Without a boot id no other run accepts it.
    let boot = boot.unwrap_or_else(|_| format!("{:?}", std::time::SystemTime::now()));
    tidecast_hash::sha256(&[id.as_slice(), boot.as_bytes()].concat())
}

/// Adds the size of all data to the error of a disk that is full before anything could be checked.
fn figures(disk: &dyn Disk, map: &Map) -> impl Fn(Error) -> Error + use<> {
    let needed = map.files().map(|f| map.data_len(f)).sum();
    let inodes = map.files().count() as u64;
    let room = disk.room();
    move |e| match (e, &room) {
        (Error::NoSpace { what, path, .. }, Ok(room)) => {
            Error::NoSpace { what, path, needed, free: room.bytes, inodes, free_inodes: room.inodes }
        }
        (e, _) => e,
    }
}

fn exists(disk: &dyn Disk, path: &Path) -> Result<bool, Error> {
    match disk.stat(path) {
        Ok(meta) => Ok(matches!(meta.kind, Kind::File | Kind::Dir)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::io("stat", &disk.root().join(path), e)),
    }
}
