//! The receiving front: a directory of this host.
//!
//! Whatever a block contains, nothing outside of the destination is changed and no link is followed
//! ([`dirs`]). A small file is written in the staging directory and renamed, or below a root there that is
//! moved as a whole ([`root`]); a large one is assembled there from parts ([`part_files`], [`journal`]). Work that
//! must wait for the end (attributes of directories, hard links, deletion) is stored on disk ([`stage`]).

mod ask;
mod attributes;
mod backup;
mod closed_dirs;
mod cross_device;
mod delete;
mod destination;
mod dirs;
mod disk_full;
mod entry_error;
mod finish;
mod in_order;
mod inherit;
mod inplace;
mod itemize;
mod journal;
mod link_dest;
mod memory;
mod null;
mod numbers;
mod opened;
mod part_files;
mod plan;
mod private;
mod remove;
mod restrict;
mod root;
mod stage;
mod write;

#[cfg(test)]
mod root_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tree_tests;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use tidecast_text::escaped_bytes;

use crate::block::Block;
use crate::digest;
use crate::entry::Kind;
use crate::error::Error;
use crate::filter::Filter;
use crate::job::{Problem, Sink, Walked, Want, Written};
use crate::overlap::Inode;
use crate::part::{Data, Part, Parts};
use crate::spec::{Accept, ReceiveSpec};

use attributes::Owners;
use backup::Backups;
use destination::Destination;
use dirs::Dirs;
use entry_error::EntryError;
pub use in_order::{InOrder, WINDOW};
use itemize::Before;
use journal::{Id, Journal, Left};
pub use memory::{Arrived, Memory};
pub use null::Null;
use numbers::Numbers;
use opened::Opened;
use part_files::PartFiles;
use root::Target;
use stage::{Spool, Stage};

/// Most problems that are reported singly.
const PROBLEMS: usize = 100;
/// Most ranges of numbers that are reported as proved; unreported files stay at the sender.
const STRETCHES: usize = 1 << 20;

/// A directory that receives.
#[derive(Debug)]
pub struct Directory {
    spec: ReceiveSpec,
    place: Destination,
    filter: Filter,
    /// Directories of the source, if that is on this host: they are never deleted.
    sources: Vec<Inode>,
    owners: Owners,
    /// None: a dry run.
    staging: Option<Staging>,
    /// Of every name that the sender has, with `delete`.
    named: Option<Named>,
    /// Directories that were made, if it matters which were there before.
    made: Option<Named>,
    /// Held from the making of a directory until it is in `made`: a writer that finds it there must find it in both.
    making: Mutex<()>,
    backups: Option<Backups>,
    /// See [`ReceiveSpec::link_dest`].
    alternates: Vec<Arc<OwnedFd>>,
    /// If changes are to be reported in rsync's format.
    before: Option<Before>,
    told_bytes: Mutex<usize>,
    /// How many names may still be deleted, and how many more there were.
    budget: delete::Budget,
    /// Entries that are done.
    done: Mutex<Numbers>,
    /// Entries that are here under their names, if the sender is to be told.
    proved: Mutex<Numbers>,
    part_files: PartFiles,
    /// See [`inplace::Updated`].
    updated: Mutex<inplace::Updated>,
    closed_dirs: closed_dirs::ClosedDirs,
    others: cross_device::OtherDevices,
    idle: Mutex<Vec<Writer>>,
    writers: AtomicUsize,
    counts: Counts,
    said: Mutex<Written>,
    planned: plan::Planned,
    /// Files that were left out for their lengths: so are their further names.
    left_out: Named,
    /// Entries that could not be made: what has their names is older.
    failed: Named,
    accept: Accept,
    /// Entries whose dropped metadata was reported, and the number with another owner at the sender.
    told: Mutex<Numbers>,
    foreign: AtomicU64,
}

/// Work on disk that waits for the end.
#[derive(Debug)]
struct Staging {
    stage: Stage,
    /// The directory below which all is written.
    root: Arc<OwnedFd>,
    target: Target,
    /// The destination, when all that was below the root is there.
    filled: OnceLock<Arc<OwnedFd>>,
    /// A root that an earlier copy had begun to move here.
    whole: Option<Arc<OwnedFd>>,
    journal: Journal,
    left: Mutex<HashMap<Id, Left>>,
    /// Directories that came, and those that had to be made before.
    dirs: Spool,
    made: Spool,
    links: Spool,
    /// Whether room is reserved for files: not in memory.
    reserve: bool,
    removed: std::sync::atomic::AtomicBool,
    /// The destination, if its owner had closed it.
    opened: Option<Opened>,
}

/// Names, each as a keyed digest.
#[derive(Debug, Default)]
struct Named {
    key: RandomState,
    names: Mutex<std::collections::HashSet<u64>>,
}

impl Named {
    fn add(&self, path: &[u8]) {
        let hash = self.key.hash_one(path);
        self.names.lock().insert(hash);
    }

    /// A name of the sender's; its directories are directories here, too.
    fn add_entry(&self, path: &[u8], part: &Part) {
        // If the destination itself is named, all of it was sent.
        if part.data != Data::Apart || !path.is_empty() {
            self.add(path);
        }
        if part.entry.kind == Kind::Dir {
            self.add(&[path, b"/"].concat());
        }
        if part.data == Data::Apart {
            self.add(&[path, b"/."].concat());
        }
    }

    /// Whether the contents of a directory were not sent.
    fn is_apart(&self, path: &[u8]) -> bool {
        self.has(&[path, b"/."].concat())
    }

    /// Whether the sender has a directory of that name.
    fn has_dir(&self, path: &[u8]) -> bool {
        self.has(&[path, b"/"].concat())
    }

    fn has(&self, path: &[u8]) -> bool {
        self.names.lock().contains(&self.key.hash_one(path))
    }
}

#[derive(Debug, Default)]
struct Counts {
    entries: AtomicU64,
    files: AtomicU64,
    bytes: AtomicU64,
    kept: AtomicU64,
    resumed: AtomicU64,
    deleted: AtomicU64,
    /// Of a kind that is not copied.
    left_out: AtomicU64,
}

/// The state of one thread that writes blocks.
#[derive(Debug)]
struct Writer {
    dirs: Dirs,
    alternates: Vec<Dirs>,
    /// Its own directory, and how many files it has begun there.
    stage: OwnedFd,
    begun: u64,
    part: Part,
}

impl Directory {
    /// Opens the destination, and makes it if it is missing. `root`: it is a name below that directory, and all that it leads to is.
    ///
    /// # Errors
    /// The destination does not fit the sources, cannot be written, or is in use by another copy of the same
    /// sources.
    pub fn open(spec: &ReceiveSpec, root: Option<&Path>) -> Result<Self, Error> {
        Self::open_for(spec, root, Accept::All)
    }

    /// The same for a sender from which not everything is taken.
    ///
    /// # Errors
    /// As [`Directory::open`].
    pub fn open_for(spec: &ReceiveSpec, root: Option<&Path>, accept: Accept) -> Result<Self, Error> {
        let mut place = Destination::open(spec, root)?;
        let filter = Filter::new(&spec.filter);
        // A client may not set owners; other restricted metadata is removed from each entry.
        let chowns = accept != Accept::All && (spec.alter.user.is_some() || spec.alter.group.is_some());
        let owners = Owners::new(spec, accept)?;
        let at = match &place.absent {
            Some(absent) => Some((&*absent.parent, false)),
            None => place.base.as_ref().map(|base| (base, true)),
        };
        if let Some(at) = at.filter(|_| !spec.discard) {
            spec.offer.lineage.check(at, spec.dest.as_bytes(), spec.delete, &filter)?;
        }
        place.fresh &= !spec.only.selects();
        let backups = Backups::new(spec, &place)?;
        let (alternates, missing) = link_dest::open(spec, &place)?;
        place.fresh &= alternates.is_empty();
        let before = (spec.itemize && !spec.dry_run).then(Before::default);
        if let (Some(before), Some(base)) = (&before, &place.base) {
            // A staging directory changes its time.
            let looked = ask::lookup_dirs(base).map(|mut dirs| before.note(&mut dirs, b""));
            looked.map_err(|t| t.at(place.shown.clone()))?;
        }
        let staging = Staging::begin(spec, &mut place, owners.umask)?;
        place.fresh &= staging.as_ref().is_some_and(|staging| !staging.stage.found);
        let made = (owners.keeps_old_mode() || before.is_some()).then(Named::default);
        made.iter().filter(|_| place.made).for_each(|made| made.add(b""));
        let directory = Self {
            place,
            filter,
            sources: spec.offer.lineage.here(),
            made,
            making: Mutex::default(),
            owners,
            before,
            told_bytes: Mutex::default(),
            backups,
            alternates,
            budget: delete::Budget::new(spec.max_delete),
            staging,
            named: spec.delete.then(Named::default),
            done: Mutex::default(),
            proved: Mutex::default(),
            part_files: PartFiles::default(),
            updated: Mutex::default(),
            closed_dirs: closed_dirs::ClosedDirs::default(),
            others: cross_device::OtherDevices::default(),
            idle: Mutex::default(),
            writers: AtomicUsize::new(0),
            counts: Counts::default(),
            said: Mutex::default(),
            planned: plan::Planned::default(),
            left_out: Named::default(),
            failed: Named::default(),
            accept,
            told: Mutex::default(),
            foreign: AtomicU64::new(0),
            spec: spec.clone(),
        };
        directory.resume_moving()?;
        directory.report_missing(&missing);
        if chowns {
            directory.report_dropped();
        }
        Ok(directory)
    }

    /// Something that concerns one name.
    fn problem(&self, path: &[u8], what: String, failed: bool) {
        self.add_problem(Problem::new(&self.place.show(path), what, failed));
    }

    fn add_problem(&self, problem: Problem) {
        let mut said = self.said.lock();
        said.failed += u64::from(problem.failed);
        said.lost += u64::from(problem.lost);
        if said.problems.len() < PROBLEMS {
            said.problems.push(problem);
        } else {
            said.more_problems += 1;
        }
    }

    /// Something of one name that is not kept.
    fn lost(&self, path: &[u8], what: String) {
        self.add_problem(Problem { lost: true, ..Problem::new(&self.place.show(path), what, false) });
    }

    /// An entry is here under its name, as it was sent.
    fn prove(&self, number: u64) {
        if self.spec.prove {
            self.proved.lock().insert(number);
        }
    }

    /// Keeps the problem of one name for the end; an error if it concerns the whole copy.
    fn or_problem<T>(&self, path: &[u8], tried: Result<T, EntryError>) -> Result<Option<T>, Error> {
        match tried {
            Ok(done) => Ok(Some(done)),
            Err(trouble) if trouble.ends_all() => Err(self.fatal(trouble, path)),
            Err(trouble) => {
                self.problem(path, format!("cannot {} it: {}", trouble.doing, trouble.why()), true);
                Ok(None)
            }
        }
    }

    /// The error that ends the copy.
    fn fatal(&self, trouble: EntryError, path: &[u8]) -> Error {
        let error = trouble.at(self.place.path(path));
        match &self.staging {
            Some(staging) => {
                let (stage, shown) = (&staging.stage, staging.shown(&self.place));
                disk_full::explained(error, &stage.base, shown, Some(&stage.name))
            }
            None => error,
        }
    }

    fn writer(&self, staging: &Staging) -> Result<Writer, Error> {
        if let Some(writer) = self.idle.lock().pop() {
            return Ok(writer);
        }
        let stage = staging.stage.writer(self.writers.fetch_add(1, Relaxed));
        let stage = stage.map_err(|t| self.fatal(t, staging.stage.name.as_bytes()))?;
        let dirs = Dirs::new(staging.root.clone());
        let alternates = self.alternates().map_err(|t| self.fatal(t, b""))?;
        Ok(Writer { dirs, alternates, stage, begun: 0, part: Part::default() })
    }

    /// An entry's path here: unchanged, except for a single source that gets another name.
    fn named<'p>(&'p self, path: &'p [u8]) -> Result<&'p [u8], Error> {
        match &self.place.rename {
            None => Ok(path),
            Some((from, to)) if from == path => Ok(to),
            Some(_) => Err(Error::Damaged("entry was not announced".into())),
        }
    }
}

impl Staging {
    /// Takes the directory of a place; None for a dry run.
    fn begin(spec: &ReceiveSpec, place: &mut Destination, umask: u32) -> Result<Option<Self>, Error> {
        let (base, target) = match (place.absent.take(), place.base.take()) {
            (Some(absent), _) => (absent.parent.clone(), Target::Absent(absent)),
            (None, Some(base)) if !spec.dry_run => {
                let (fills, base) = (root::fills(&base, place, spec), Arc::new(base));
                (base.clone(), if fills { Target::Empty(base) } else { Target::Itself })
            }
            (None, base) => {
                place.base = base;
                return Ok(None);
            }
        };
        let shown = match &target {
            Target::Absent(absent) => absent.shown.clone(),
            Target::Empty(_) | Target::Itself => place.shown.clone(),
        };
        let staging = Self::open(base.clone(), target, spec, place, umask);
        let failed = |t: EntryError| disk_full::explained(t.at(place.shown.clone()), &base, &shown, None);
        staging.map(Some).map_err(failed)
    }

    fn open(
        base: Arc<OwnedFd>,
        target: Target,
        spec: &ReceiveSpec,
        place: &Destination,
        umask: u32,
    ) -> Result<Self, EntryError> {
        let identity = &spec.offer.identity;
        let opened = if matches!(target, Target::Absent(_)) { None } else { Opened::open(&base) };
        let name = match &target {
            Target::Absent(absent) => absent.stage(identity),
            Target::Empty(_) | Target::Itself => {
                root::adopt(place, &base, identity)?;
                stage::name(identity, place)
            }
        };
        let stage = Stage::open(base.clone(), &name)?;
        let has_root = !matches!(target, Target::Itself);
        let whole = if spec.resume && !has_root { stage.whole_root()? } else { None };
        let is_root = |name: &[u8]| (has_root || whole.is_some()) && name == stage::ROOT.as_bytes();
        let is_kept = |name: &[u8]| name == b"journal" || whole.is_some() && name == stage::WHOLE.as_bytes();
        stage.clear(&|name| spec.resume && (is_kept(name) || name.starts_with(b"f") || is_root(name)))?;
        let (journal, left, is_old) = Journal::open(&stage)?;
        // Files that the journal does not name are of no use, nor is a root without one.
        stage.clear(&|name| {
            is_kept(name)
                || is_old && is_root(name)
                || left.keys().any(|id| journal::staged(id).as_bytes() == name)
        })?;
        let root = if has_root { Arc::new(stage.root(umask)?) } else { base.clone() };
        Ok(Self {
            journal,
            left: Mutex::new(left),
            dirs: Spool::new(&stage.dir, "dirs")?,
            made: Spool::new(&stage.dir, "made")?,
            links: Spool::new(&stage.dir, "links")?,
            reserve: !is_memory(&base),
            removed: false.into(),
            filled: OnceLock::new(),
            whole: whole.filter(|_| is_old),
            stage,
            root,
            target,
            opened,
        })
    }
}

/// Whether a part's bytes are those that were read.
fn check(block: &Block, data: &[u8], part: &Part) -> Result<(), Error> {
    let Data::Bytes { digest, .. } = &part.data else { return Ok(()) };
    let known = block.digest.filter(|_| data.len() == block.len);
    if known.unwrap_or_else(|| digest::part(data)) == *digest {
        return Ok(());
    }
    let path = escaped_bytes(&part.entry.path);
    Err(Error::Damaged(format!("digest mismatch in a part of {path}")))
}

/// tmpfs and ramfs, where reserving space means zeroing pages now.
fn is_memory(dir: &OwnedFd) -> bool {
    rustix::fs::fstatfs(dir).is_ok_and(|fs| matches!(fs.f_type, 0x0102_1994 | 0x8584_58f6))
}

impl Sink for Directory {
    fn fresh(&self) -> bool {
        self.place.fresh
    }

    fn write(&self, _: usize, block: &Block) -> Result<Option<Want>, Error> {
        let Some(staging) = &self.staging else { return self.plan(block) };
        let mut writer = self.writer(staging)?;
        let (mut part, mut want, mut at) = (std::mem::take(&mut writer.part), None, 0);
        let mut parts = Parts::new(&block.table, block.len);
        while parts.next(&mut part)? {
            let data = &block.payload()[at..at + part.data.payload()];
            at += data.len();
            check(block, data, &part)?;
            if matches!(part.data, Data::Ask { .. } | Data::Same { .. }) {
                want.get_or_insert_with(Want::default);
            }
            if self.admit(&mut part)? {
                self.take(staging, &mut writer, &part, data, &mut want)?;
            }
        }
        writer.part = part;
        self.idle.lock().push(writer);
        Ok(want)
    }

    fn finish(&self, walked: &Walked) -> Result<Written, Error> {
        self.finish_all(walked)?;
        let problems = self.said.lock().clone();
        let Written { entries, files, bytes, kept, resumed, deleted, .. } = self.written();
        let proved = self.proved.lock().stretches(STRETCHES);
        Ok(Written { entries, files, bytes, kept, resumed, deleted, proved, ..problems })
    }

    fn written(&self) -> Written {
        let counts = &self.counts;
        Written {
            entries: counts.entries.load(Relaxed),
            files: counts.files.load(Relaxed),
            bytes: counts.bytes.load(Relaxed),
            kept: counts.kept.load(Relaxed),
            resumed: counts.resumed.load(Relaxed),
            deleted: counts.deleted.load(Relaxed),
            ..Written::default()
        }
    }
}
