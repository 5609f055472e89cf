//! Serves existing data: sizes are checked at once, content piece by piece, and verified pieces may be remembered
//! for the next start.
//!
//! The memory is a file that lists each source file's stamp, its time of change, and the verified pieces. A piece is accepted
//! again only if every file of it still has both.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use tidecast_metainfo::Manifest;
use tidecast_paths::Root;

use crate::bits::{Bits, ranges};
use crate::disk::{Disk, DiskFile, Kind, Stamp};
use crate::error::{Context, Error};
use crate::fds::Fds;
use crate::leaves::Leaves;
use crate::map::Map;
use crate::open::Select;
use crate::opened::Opened;
use crate::os::{OsDisk, OsFile};
use crate::store::{Mode, Store};

const MAGIC: &[u8; 8] = b"TIDESEN2";
/// Bytes of a file in the memory.
const FILE: usize = 48;
/// Faulty source files named in an error.
const NAMED: usize = 10;
/// A file changed this shortly before it was checked may change again without its time showing it.
const SETTLED: Duration = Duration::from_secs(2);

/// How to seed.
#[derive(Clone, Debug, Default)]
pub struct SeedOptions {
    /// A directory in which to remember verified pieces, and to keep leaf digests; created if need be. Without it
    /// every start hashes everything, and leaves go to an unnamed temporary file.
    pub state: Option<PathBuf>,
}

/// Seconds and nanoseconds.
type Changed = (i64, u32);

/// The memory of a seeding store.
pub(crate) struct Memory {
    /// A directory, and the file in it.
    file: Option<(Root, String)>,
    id: [u8; 32],
    /// When each file was changed last, before anything of it was read.
    changed: Vec<Changed>,
    opened: SystemTime,
    /// How many pieces were missing when it was last saved.
    saved: AtomicU64,
}

impl Store {
    /// Opens the published file, or the published directory itself, for serving. Every piece is to be checked,
    /// except those remembered from an earlier start.
    ///
    /// A caller that has just hashed the data itself may instead state [`Store::set_leaves`] and
    /// [`Store::piece_done`] for each piece.
    ///
    /// # Errors
    /// Files missing or of another size, all of them found at once.
    pub fn seed(manifest: Arc<Manifest>, path: &Path, options: &SeedOptions) -> Result<Opened, Error> {
        let (disk, home) = locate(&manifest, path)?;
        Self::seed_on(disk, home, manifest, options)
    }

    /// As [`Store::seed`], beneath an open directory: no link leads out of it, even if it changes meanwhile. `home`
    /// is the published file in it, or the empty path for the directory itself.
    ///
    /// # Errors
    /// As [`Store::seed`].
    pub fn seed_beneath(
        root: Root,
        home: &Path,
        manifest: Arc<Manifest>,
        options: &SeedOptions,
    ) -> Result<Opened, Error> {
        Self::seed_on(OsDisk::from(root), home.to_path_buf(), manifest, options)
    }

    fn seed_on(
        disk: OsDisk,
        home: PathBuf,
        manifest: Arc<Manifest>,
        options: &SeedOptions,
    ) -> Result<Opened, Error> {
        let (stamps, changed) = survey(&disk, &manifest, &home)?;
        let map = Map::new(manifest.clone(), &Select::All)?;
        let id = identity(&manifest, &disk.root().join(&home));
        let (leaves, memory, remembered) = recall(&manifest, id, &stamps, changed, options)?;
        let pieces = manifest.piece_count();
        let store = Store {
            fds: Fds::new(),
            leaves: Leaves(leaves),
            done: Bits::new(pieces),
            missing: AtomicU64::new(map.wanted_count()),
            stamps: RwLock::new(stamps),
            moving: RwLock::new(()),
            mode: Mode::Seed(memory),
            disk: Arc::new(disk),
            manifest,
            map,
            home,
        };
        for piece in remembered.into_iter().flatten().filter(|p| *p < pieces) {
            store.piece_done(piece)?;
        }
        if let Mode::Seed(memory) = &store.mode {
            memory.saved.store(store.missing(), Ordering::Relaxed);
        }
        let to_check = ranges((0..pieces).filter(|p| !store.has(*p)));
        let (have, wanted) = (store.have(), ranges(0..pieces));
        Ok(Opened { have, to_check, hashed: Vec::new(), wanted, store })
    }
}

impl Store {
    /// Whether every source file is unchanged since it was opened.
    ///
    /// # Errors
    /// [`Error::Changed`] or [`Error::Missing`], with its path.
    pub fn sources_unchanged(&self) -> Result<(), Error> {
        let stamps = self.stamps.read().clone();
        for (file, known) in (0..).zip(stamps).filter_map(|(file, stamp)| Some((file, stamp?))) {
            let path = self.map.file_path(&self.home, file);
            let at = || self.disk.root().join(&path);
            match self.disk.stat(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(Error::Missing { path: at() }),
                Err(e) => return Err(Error::io("stat", &at(), e)),
                Ok(meta) if meta.stamp != known => return Err(Error::Changed { path: at() }),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// The number of unchanged source files, and of those that have bytes.
    pub fn sources_left(&self) -> (usize, usize) {
        let stamps = self.stamps.read().clone();
        let sources = (0..).zip(stamps).filter_map(|(file, stamp)| Some((file, stamp?)));
        let same = |(file, known)| {
            let now = self.disk.stat(&self.map.file_path(&self.home, file));
            now.is_ok_and(|meta| meta.stamp == known)
        };
        sources.fold((0, 0), |(left, all), source| (left + usize::from(same(source)), all + 1))
    }
}

/// The disk and the place on it of the published data. Links in the user's own path are followed.
fn locate(manifest: &Manifest, path: &Path) -> Result<(OsDisk, PathBuf), Error> {
    let real = match path.canonicalize() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(Error::Missing { path: path.to_path_buf() });
        }
        other => other.at("find", path)?,
    };
    let wrong = |why| Error::WrongKind { path: path.to_path_buf(), why };
    match (manifest.is_single_file(), real.is_dir()) {
        (true, true) => Err(wrong("found a directory instead of a single file")),
        (false, false) => Err(wrong("found a file instead of a directory")),
        (false, true) => Ok((OsDisk::new(&real).at("open", path)?, PathBuf::new())),
        (true, false) => {
            let name = real.file_name().map(PathBuf::from).unwrap_or_default();
            let parent = real.parent().unwrap_or(Path::new("/"));
            Ok((OsDisk::new(parent).at("open", parent)?, name))
        }
    }
}

type Surveyed = (Vec<Option<Stamp>>, Vec<Changed>);

/// Stamps of all files and when they were changed last, or everything that is wrong with their presence and sizes.
fn survey(disk: &OsDisk, manifest: &Manifest, home: &Path) -> Result<Surveyed, Error> {
    let files = manifest.file_count() as usize;
    let (mut stamps, mut changed) = (vec![None; files], vec![Changed::default(); files]);
    let (mut count, mut first) = (0, Vec::new());
    for (file, (stamp, changed)) in manifest.files().zip(stamps.iter_mut().zip(&mut changed)) {
        if file.is_symlink() {
            continue;
        }
        let path = file.path().below(home);
        let at = disk.root().join(&path);
        let fault = match disk.stat(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Error::Missing { path: at },
            // A failure of this host tells nothing about the file.
            Err(e) => match Error::io("stat", &at, e) {
                trouble @ Error::Io { .. } => return Err(trouble),
                fault => fault,
            },
            Ok(meta) if meta.kind != Kind::File => Error::WrongKind { path: at, why: "not a regular file" },
            Ok(meta) if meta.stamp.size != file.len() => {
                Error::WrongSize { path: at, expected: file.len(), found: meta.stamp.size }
            }
            Ok(meta) => {
                (*stamp, *changed) = (Some(meta.stamp), meta.ctime);
                continue;
            }
        };
        count += 1;
        if first.len() < NAMED {
            first.push(fault);
        }
    }
    match (count, first.pop()) {
        (0, _) | (_, None) => Ok((stamps, changed)),
        (1, Some(only)) => Err(only),
        (count, Some(last)) => {
            first.push(last);
            Err(Error::Sources { count, first })
        }
    }
}

type Recalled = (Arc<dyn DiskFile>, Memory, Vec<Range<u32>>);

/// The leaf sidecar and the remembered pieces.
fn recall(
    manifest: &Manifest,
    id: [u8; 32],
    stamps: &[Option<Stamp>],
    changed: Vec<Changed>,
    options: &SeedOptions,
) -> Result<Recalled, Error> {
    let memory =
        |file, changed| Memory { file, id, changed, opened: SystemTime::now(), saved: AtomicU64::new(0) };
    let Some(dir) = &options.state else {
        let file = tempfile::tempfile().at("create a temporary file in", &std::env::temp_dir())?;
        return Ok((Arc::new(OsFile::new(file)), memory(None, changed), Vec::new()));
    };
    // Names and hashes of data that may be private.
    let root = Root::make_private(dir).at("create", dir)?;
    let name: String = id.iter().take(16).map(|b| format!("{b:02x}")).collect();
    let path = dir.join(format!("{name}.leaves"));
    let leaves = root.open_or_create(format!("{name}.leaves"), 0o600).at("open", &path)?;
    leaves.set_permissions(fs::Permissions::from_mode(0o600)).at("restrict access to", &path)?;
    let seen_name = format!("{name}.seen");
    let seen = read_bounded(&root, &seen_name, manifest).at("read", &root.full(&seen_name))?;
    let remembered = seen.and_then(|s| parse(&s, &id, manifest, (stamps, &changed))).unwrap_or_default();
    Ok((Arc::new(OsFile::new(leaves)), memory(Some((root, seen_name)), changed), remembered))
}

fn identity(manifest: &Manifest, path: &Path) -> [u8; 32] {
    use std::os::unix::ffi::OsStrExt;
    let mut all = b"tidecast seed 1".to_vec();
    all.extend(manifest.hash_v1().iter().flatten());
    all.extend(manifest.hash_v2().iter().flatten());
    all.extend(path.as_os_str().as_bytes());
    tidecast_hash::sha256(&all)
}

fn read_bounded(root: &Root, name: &str, manifest: &Manifest) -> io::Result<Option<Vec<u8>>> {
    let most = 128 + manifest.file_count() as usize * FILE + manifest.piece_count() as usize * 8;
    match root.look(name)? {
        Some(meta) if meta.len <= most as u64 => root.read(name).map(Some),
        _ => Ok(None),
    }
}

fn encode(stamp: &Stamp, changed: Changed) -> [u8; FILE] {
    let mut out = [0; FILE];
    let fields = stamp
        .dev
        .to_le_bytes()
        .into_iter()
        .chain(stamp.ino.to_le_bytes())
        .chain(stamp.size.to_le_bytes())
        .chain(stamp.mtime.to_le_bytes())
        .chain(stamp.nanos.to_le_bytes())
        .chain(changed.0.to_le_bytes())
        .chain(changed.1.to_le_bytes());
    out.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
    out
}

/// Verified pieces whose files are unchanged.
fn parse(
    seen: &[u8],
    id: &[u8; 32],
    manifest: &Manifest,
    (stamps, changed): (&[Option<Stamp>], &[Changed]),
) -> Option<Vec<Range<u32>>> {
    let (body, sum) = seen.split_last_chunk::<32>()?;
    let rest = body.strip_prefix(MAGIC)?.strip_prefix(id)?;
    if tidecast_hash::sha256(body) != *sum {
        return None;
    }
    let (old, rest) = rest.split_at_checked(stamps.len() * FILE)?;
    let same = |file: u32| {
        let file = file as usize;
        let old = old.get(file * FILE..(file + 1) * FILE);
        let now = stamps.get(file).copied().flatten().zip(changed.get(file).copied());
        now.is_some_and(|(stamp, changed)| old == Some(&encode(&stamp, changed)))
    };
    let mut pieces = Vec::new();
    for pair in rest.as_chunks::<4>().0.chunks_exact(2) {
        let [start, end] = pair else { return None };
        let end = u32::from_le_bytes(*end).min(manifest.piece_count());
        pieces.extend((u32::from_le_bytes(*start)..end).filter(|p| {
            let mut spans = manifest.spans(*p, 0, manifest.piece_len(*p));
            spans.all(|s| s.pad || same(s.file))
        }));
    }
    Some(ranges(pieces))
}

impl Memory {
    /// Saves newly verified pieces.
    pub(crate) fn save(&self, store: &Store) -> Result<(), Error> {
        let Some((root, name)) = &self.file else { return Ok(()) };
        let path = &root.full(name);
        let missing = store.missing();
        if self.saved.load(Ordering::Relaxed) == missing {
            return Ok(());
        }
        store.leaves.0.sync(false).at("sync the leaf hashes of", path)?;
        let settled = self.opened.checked_sub(SETTLED).unwrap_or(UNIX_EPOCH);
        let settled = settled.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut body = MAGIC.to_vec();
        body.extend_from_slice(&self.id);
        for (stamp, changed) in store.stamps.read().iter().zip(&self.changed) {
            // One that is too fresh is written as nothing, which no file is the same as.
            let stamp = stamp.filter(|s| u64::try_from(s.mtime).unwrap_or(0) < settled);
            body.extend_from_slice(&encode(&stamp.unwrap_or_default(), *changed));
        }
        for range in store.have() {
            body.extend_from_slice(&range.start.to_le_bytes());
            body.extend_from_slice(&range.end.to_le_bytes());
        }
        let sum = tidecast_hash::sha256(&body);
        body.extend_from_slice(&sum);
        root.write_whole(name, &body, 0o600).at("write", path)?;
        self.saved.store(missing, Ordering::Relaxed);
        Ok(())
    }
}
