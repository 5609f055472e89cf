//! The sending front: files and directories of this host.
//!
//! One thread walks and makes jobs; readers open, read and hash. Only the jobs in progress are kept in
//! memory; the first names of hard links are kept in a file.

mod attributes;
mod large_file;
mod links;
mod list;
mod location;
mod null;
mod overlay;
mod read;
mod remove;
mod state;
mod walk;

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tidecast_text::{escaped, escaped_bytes};

use crate::batches::Claims;
use crate::block::Block;
use crate::error::Error;
use crate::filter::Filter;
use crate::flags::Keep;
use crate::job::{Problem, Source, Walked, Want, Wanted, Written};
use crate::overlap::SourceLocations;
use crate::part::BLOCK;
use crate::sink::WINDOW;
use crate::spec::{Follow, Offer, SendSpec};

use attributes::Owners;
use large_file::LargeFile;
use location::{Dest, Top};
pub use null::Null;
use overlay::Overlay;
use remove::Removal;
use state::Seen;

/// Most problems that are reported singly.
const PROBLEMS: usize = 100;
/// Directories of which only the name is sent.
const APART: usize = 1000;
/// Most entries of one block.
const ENTRIES: usize = 1024;
/// Blocks that one of several senders has in progress when it begins a further batch: no other sender will
/// take its batches.
const OPEN: u64 = 8;
/// A table that is longer ends its block.
const TABLE: usize = 1 << 20;

/// Files and directories to be sent.
#[derive(Debug)]
pub struct Tree {
    tops: Vec<Top>,
    overlay: Option<Overlay>,
    filter: Filter,
    checksum: bool,
    keep: Keep,
    follow: Follow,
    one_file_system: u8,
    /// Directories above names of a list are copied.
    implied: bool,
    /// See [`SendSpec::in_order`].
    in_order: bool,
    /// It is a server's: links lead nowhere but below their source.
    is_served: bool,
    /// Whether this user sees all extended attributes.
    is_root: bool,
    offer: Offer,
    /// Where it goes, if that is on this host.
    dest: Option<Dest>,
    /// Files that the receiver has are removed.
    removal: Option<Removal>,
    /// Files are taken in batches, if others send the same tree.
    claims: Option<OnceLock<Claims>>,
    /// The next job is the first of a batch.
    begins: AtomicBool,
    owners: Owners,
    entries: AtomicU64,
    files: AtomicU64,
    bytes: AtomicU64,
    /// Bytes of these that need not be sent.
    spared: AtomicU64,
    /// Files, and their bytes, of batches of a sender that broke, which had finished them.
    redone: (AtomicU64, AtomicU64),
    said: Mutex<Walked>,
}

/// A directory below which entries lie.
#[derive(Debug)]
struct Dir {
    top: usize,
    /// Its path below the top; empty: the top itself.
    path: Vec<u8>,
    /// Its path in the copy.
    inside: Vec<u8>,
}

/// A name that was seen.
#[derive(Clone, Debug)]
struct Item {
    file: u64,
    dir: Arc<Dir>,
    /// Empty: the directory itself.
    name: Box<[u8]>,
    seen: Seen,
    kind: Is,
    /// A directory whose contents are not sent.
    apart: bool,
    /// Another sender had begun with it, and broke.
    again: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Is {
    /// `linked`: other names of it become hard links, so it must be that very file.
    File {
        sparse: bool,
        linked: bool,
    },
    Dir,
    Symlink,
    HardLink(Box<[u8]>),
    Fifo,
    Socket,
    Device {
        character: bool,
        number: u64,
    },
}

/// The contents of a block.
#[derive(Debug)]
pub struct Job(Work);

#[derive(Debug)]
enum Work {
    /// Entries, each as a whole.
    Gather(Vec<Item>),
    /// The same, to be asked about.
    Ask(Vec<Item>),
    /// A stretch of a longer file.
    Cut { whole: Arc<LargeFile>, offset: u64 },
    /// The same, which the receiver may have: it is asked.
    Prove { whole: Arc<LargeFile>, offset: u64 },
    /// Blocks of it that are holes.
    Hole { whole: Arc<LargeFile>, offset: u64, len: u64 },
}

impl Item {
    fn inside(&self) -> Vec<u8> {
        join(&self.dir.inside, &self.name)
    }

    fn is_cut(&self) -> bool {
        matches!(self.kind, Is::File { .. }) && self.seen.len > BLOCK as u64
    }
}

/// A path and a name below it; either may be empty.
fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(path.len() + 1 + name.len());
    all.extend_from_slice(path);
    if !path.is_empty() && !name.is_empty() {
        all.push(b'/');
    }
    all.extend_from_slice(name);
    all
}

impl Tree {
    /// The sources of `spec`: on this host, or of a server below its root.
    ///
    /// # Errors
    /// No source exists, or one would be written over itself.
    pub fn new(spec: &SendSpec, root: Option<&Path>) -> Result<Self, Error> {
        let (tops, problems) = match &spec.relative {
            Some(relative) => list::find(&spec.sources, relative, spec.follow, root)?,
            None => location::find(&spec.sources, spec.follow, root)?,
        };
        let dest = spec.dest.as_deref().map(|dest| Dest::new(dest, root));
        if let Some(dest) = &dest
            && let Some(top) = tops.iter().find(|top| top.is_at(dest))
        {
            let (top, dest) = (escaped_bytes(&top.shown), escaped_bytes(dest.shown()));
            return Err(Error::Usage(format!(
                "{top} and {dest} are the same: a source cannot be copied onto itself"
            )));
        }
        let single = match tops.as_slice() {
            [top] if spec.relative.is_none() => top.single.clone(),
            _ => None,
        };
        let offer = Offer {
            identity: location::identity(&tops),
            single,
            mixed: location::mixed(&tops),
            lineage: SourceLocations::new(tops.iter().map(Top::line), dest.is_some()).into(),
        };
        let tree = Self {
            overlay: if spec.relative.is_some() { None } else { Overlay::new(&tops) },
            tops,
            filter: Filter::new(&spec.filter),
            checksum: spec.checksum,
            keep: spec.keep,
            follow: spec.follow,
            one_file_system: spec.one_file_system,
            implied: !spec.relative.as_ref().is_some_and(|relative| relative.no_implied),
            in_order: spec.in_order,
            is_served: root.is_some(),
            is_root: rustix::process::geteuid().is_root(),
            removal: spec.remove.then(Removal::default),
            claims: spec.share.then(OnceLock::new),
            begins: AtomicBool::new(false),
            offer,
            dest,
            owners: Owners::default(),
            entries: AtomicU64::new(0),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            spared: AtomicU64::new(0),
            redone: Default::default(),
            said: Mutex::default(),
        };
        problems.into_iter().for_each(|p| tree.problem(p));
        Ok(tree)
    }

    /// The offer to a receiver.
    #[must_use]
    pub fn offer(&self) -> &Offer {
        &self.offer
    }

    /// The board that it asks before it sends a batch.
    pub(crate) fn share(&self, claims: impl FnOnce() -> Claims) {
        if let Some(place) = &self.claims {
            place.get_or_init(claims);
        }
    }

    fn problem(&self, problem: Problem) {
        let mut said = self.said.lock();
        // A block that is made again, after a stream broke, finds the same.
        if said.problems.contains(&problem) {
            return;
        }
        said.failed += u64::from(problem.failed);
        if said.problems.len() < PROBLEMS {
            said.problems.push(problem);
        } else {
            said.more_problems += 1;
        }
    }

    /// Notes a directory of which only the name is sent.
    fn apart(&self, dir: &Dir) {
        let mut said = self.said.lock();
        if said.apart.len() < APART {
            said.apart.push(dir.inside.clone());
        } else if said.apart.len() == APART {
            drop(said);
            let what =
                format!("nothing is deleted: more than {APART} file systems are mounted below the source");
            self.trouble(dir, b"", what, true);
        }
    }

    /// Whether a further name of an entry is a link to the first one.
    fn keeps_links_of(&self, kind: &Is) -> bool {
        let Keep { hard_links, links, devices, specials, .. } = self.keep;
        hard_links
            && match kind {
                Is::Symlink => links,
                Is::Device { .. } => devices,
                Is::Fifo | Is::Socket => specials,
                Is::File { .. } | Is::Dir | Is::HardLink(_) => true,
            }
    }

    /// Something concerns this name.
    fn trouble(&self, dir: &Dir, name: &[u8], what: impl Into<String>, failed: bool) {
        let top = self.tops.get(dir.top).map(|top| top.shown.as_slice()).unwrap_or_default();
        let below = join(&dir.path, name);
        let path = if below.is_empty() { top.to_owned() } else { [top, &below].join(&b'/') };
        self.problem(Problem::new(&path, what, failed));
    }
}

impl Source for Tree {
    type Job = Job;

    fn walk(&self, fresh: bool, emit: &mut dyn FnMut(Job) -> bool) -> Result<(), Error> {
        let mut walk = walk::Walk::new(self, fresh, emit);
        let complete = walk.run()?;
        let mut said = self.said.lock();
        said.complete = complete && said.failed == 0;
        Ok(())
    }

    fn most_open(&self) -> u64 {
        match (self.in_order, self.begins.load(Relaxed)) {
            (true, _) => WINDOW as u64,
            (false, true) => OPEN,
            (false, false) => u64::MAX,
        }
    }

    fn asks(&self, job: &Job) -> bool {
        matches!(job.0, Work::Ask(_) | Work::Prove { .. })
    }

    fn fill(&self, job: &Job, block: &mut Block) -> Result<Option<Job>, Error> {
        let rest = match &job.0 {
            Work::Gather(items) => self.gather(items, block).map(|rest| Job(Work::Gather(rest))),
            Work::Ask(items) => self.ask(items, block).map(|rest| Job(Work::Ask(rest))),
            Work::Cut { whole, offset } => {
                self.cut(whole, *offset, true, block);
                None
            }
            Work::Prove { whole, offset } => {
                self.cut(whole, *offset, false, block);
                None
            }
            Work::Hole { whole, offset, len } => {
                self.hole(whole, *offset, *len, block);
                None
            }
        };
        // The following blocks would wait for ever.
        if self.in_order && block.table.is_empty() {
            let said = self.said.lock();
            let why = said.problems.first().map(|p| format!("{}: {}", escaped(&p.path), p.what));
            return Err(Error::Nothing(why.unwrap_or_else(|| "nothing to copy".into())));
        }
        Ok(rest)
    }

    fn wanted(&self, job: &Job, want: &Want) -> Vec<Job> {
        let items = match &job.0 {
            Work::Ask(items) => items,
            Work::Prove { whole, offset } if want.files.is_empty() => {
                self.spared.fetch_add(whole.part(*offset) as u64, Relaxed);
                return Vec::new();
            }
            Work::Prove { whole, offset } => {
                return vec![Job(Work::Cut { whole: whole.clone(), offset: *offset })];
            }
            _ => return Vec::new(),
        };
        let mut gathered = walk::Gathered::default();
        let mut jobs = Vec::new();
        let (mut there, mut redone) = ((0, 0), (0, 0));
        let count = |to: &mut (u64, u64), item: &Item| *to = (to.0 + 1, to.1 + item.seen.len);
        if let Some(removal) = &self.removal {
            // Wanted files are recorded in the state in which they are read.
            let lacks: HashSet<u64> = want.files.iter().map(|wanted| wanted.file).collect();
            items
                .iter()
                .filter(|item| !lacks.contains(&item.file))
                .for_each(|item| removal.note(item, &item.seen));
        }
        for item in items {
            count(&mut there, item);
            if item.again {
                count(&mut redone, item);
            }
        }
        for wanted in &want.files {
            let Ok(at) = items.binary_search_by_key(&wanted.file, |item| item.file) else { continue };
            let Some(item) = items.get(at) else { continue };
            there.1 = there.1.saturating_sub(item.seen.len);
            if item.again {
                redone = (redone.0.saturating_sub(1), redone.1.saturating_sub(item.seen.len));
            }
            if item.is_cut() {
                jobs.extend(self.cuts(item.clone(), wanted));
            } else {
                jobs.extend(gathered.add(item.clone()));
            }
        }
        jobs.extend(gathered.take());
        self.spared.fetch_add(there.1, Relaxed);
        self.redone.0.fetch_add(redone.0, Relaxed);
        self.redone.1.fetch_add(redone.1, Relaxed);
        jobs
    }

    fn finished(&self, written: &Written, alive: &dyn Fn()) {
        self.remove(&written.proved, alive);
    }

    fn sharers(&self) -> u64 {
        self.claims.as_ref().and_then(OnceLock::get).map_or(1, Claims::pairs)
    }

    fn walked(&self) -> Walked {
        let said = self.said.lock();
        Walked {
            entries: self.entries.load(Relaxed),
            files: self.files.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            spared: self.spared.load(Relaxed),
            redone: self.redone.0.load(Relaxed),
            redone_bytes: self.redone.1.load(Relaxed),
            ..said.clone()
        }
    }
}

impl Tree {
    /// Jobs for a file that is longer than a block. The receiver is asked whether the data that it has is the
    /// same.
    fn cuts(&self, item: Item, wanted: &Wanted) -> Vec<Job> {
        let len = item.seen.len;
        let holes = self.holes(&item);
        let spared: u64 = holes.iter().map(|hole| hole.end - hole.start).sum();
        self.spared.fetch_add(spared, Relaxed);
        let have: HashSet<u64> = wanted.have.iter().copied().collect();
        let whole = Arc::new(LargeFile::new(item, holes));
        let (mut jobs, mut holes) = (Vec::new(), whole.holes.iter().peekable());
        let mut offset = wanted.skip.saturating_mul(BLOCK as u64);
        while holes.next_if(|hole| hole.end <= offset).is_some() {}
        while offset < len {
            if let Some(hole) = holes.next_if(|hole| hole.start <= offset) {
                jobs.push(Job(Work::Hole { whole: whole.clone(), offset, len: hole.end - offset }));
                offset = hole.end;
                continue;
            }
            let whole = whole.clone();
            let part = offset / BLOCK as u64;
            let there = part < wanted.prove || have.contains(&part);
            jobs.push(Job(if there { Work::Prove { whole, offset } } else { Work::Cut { whole, offset } }));
            offset += BLOCK as u64;
        }
        jobs
    }
}

#[cfg(test)]
mod change_tests;
#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod tests;
