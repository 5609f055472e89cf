//! One published tree, ready to be mounted: the handle that the program uses.

use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tidecast_event::mount::{Hold, Status, Wait};
use tidecast_net::{Demand, OnVerified};
use tidecast_store::Store;

use crate::closure::{Closure, Environment};
use crate::error::Error;
use crate::fallback::Fallback;
use crate::files::{Files, Peers};
use crate::fs::Fs;
use crate::list::{List, ListError};
use crate::passthrough::{Before, OnBacking, Passthrough};
use crate::prefetch::Prefetch;
use crate::record::{self, Recorder};
use crate::session::Serving;
use crate::tree::Tree;
use crate::waits::Waits;
use crate::walk;

/// Files named in a status.
const NAMED: usize = 20;

/// The list that a tree brings along.
pub const OWN_LIST: &str = ".tidecast-prefetch";
const LONGEST_LIST: u64 = 64 << 20;

/// How to serve a tree.
pub struct Options {
    /// A request for data that no peer supplies fails after this time.
    pub timeout: Duration,
    /// Everything is fetched, beginning with the files of [`Service::fetch_list`].
    pub bulk: bool,
    /// Reads are recorded; see [`Service::save_record`].
    pub record: bool,
    /// The directory to read data from that no peer supplies.
    pub fallback: Option<Fallback>,
    /// How many peers are connected.
    pub connected: Box<dyn Fn() -> usize + Send + Sync>,
    /// The owner of the files: user, group.
    pub owner: (u32, u32),
}

/// Tells a [`Service`] which pieces have come; made before the swarm, which needs it to start.
#[derive(Clone, Default)]
pub struct Arrivals(Arc<OnceLock<Hooks>>);

struct Hooks {
    waits: Arc<Waits>,
    prefetch: Arc<Prefetch>,
}

impl Arrivals {
    /// The callbacks of the swarm.
    pub fn hook(&self) -> OnVerified {
        let hooks = self.0.clone();
        Box::new(move |piece| {
            if let Some(Hooks { waits, prefetch }) = hooks.get() {
                let again = waits.arrived(piece);
                if again {
                    prefetch.begin_again();
                }
                if prefetch.arrived(piece) || again {
                    let (prefetch, of) = (prefetch.clone(), waits.clone());
                    waits.later(move || prefetch.fill(&of));
                }
            }
        })
    }
}

/// See the head of the file.
pub struct Service {
    files: Arc<Files>,
    prefetch: Arc<Prefetch>,
}

impl Service {
    /// Begins to serve out of a store whose swarm fetches on demand and tells `arrivals`. Not from a task of tokio.
    ///
    /// # Errors
    /// No threads.
    pub fn start(
        store: Arc<Store>,
        demand: Demand,
        arrivals: &Arrivals,
        options: Options,
    ) -> Result<Service, Error> {
        let manifest = store.manifest().clone();
        let tree = Arc::new(Tree::new(manifest.clone(), options.owner));
        let contents: Vec<Range<u32>> =
            manifest.files().filter(|f| f.same_as() == f.index()).map(|f| f.pieces()).collect();
        let all = if options.bulk { contents.clone() } else { Vec::new() };
        let prefetch = Arc::new(Prefetch::new(manifest.clone(), all));
        let waits = Waits::start(store.clone(), demand.clone(), options.timeout).map_err(Error::Thread)?;
        if let Some(fallback) = options.fallback {
            fallback.start(manifest.clone(), &waits, demand).map_err(Error::Thread)?;
        }
        let (probing, of) = (prefetch.clone(), Arc::downgrade(&waits));
        waits.probe_with(move || {
            if let Some(waits) = of.upgrade() {
                probing.probe(&waits);
            }
        });
        let recorder = options.record.then(Recorder::new);
        let hooks = Hooks { waits: waits.clone(), prefetch: prefetch.clone() };
        // A second service of the same swarm would get no events; there is only one.
        let first = arrivals.0.set(hooks).is_ok();
        debug_assert!(first, "arrivals are told to one service only");
        let about = Peers { connected: options.connected, last: Mutex::default(), timeout: options.timeout };
        let files = Files::new(tree, store, waits, prefetch.clone(), recorder, contents, about);
        Ok(Service { files: Arc::new(files), prefetch })
    }

    /// Fetches ahead of reads: everything, or nothing until there is a list.
    pub fn fetch_ahead(&self) {
        let (prefetch, waits) = (self.prefetch.clone(), self.files.waits.clone());
        self.files.waits.later(move || prefetch.fill(&waits));
    }

    /// Fetches the files of a list, in its order and before all other data that no reader waits for. Returns
    /// the names that are not in this tree.
    ///
    /// # Errors
    /// Its patterns cannot be used together.
    pub fn fetch_list(&self, list: &List) -> Result<Vec<Vec<u8>>, ListError> {
        let tree = &self.files.tree;
        let files = tree.manifest().files().filter(|f| !f.is_symlink());
        let files: Vec<_> = files.map(|f| (f.index(), tree.path(f.index()), f.len())).collect();
        let resolved = list.resolve(files.iter().map(|(file, path, len)| (*file, path.as_slice(), *len)))?;
        let of_file = |(file, range)| self.files.pieces(self.files.content(file), range);
        self.prefetch.put_first(resolved.ranges.into_iter().map(of_file));
        self.fetch_ahead();
        Ok(resolved.missing)
    }

    /// The list that was published with the tree, if there is one: a file [`OWN_LIST`]. Waits until it has come; a list
    /// that cannot be had or read is not there.
    pub fn own_list(&self) -> Option<List> {
        let path = [b"/", OWN_LIST.as_bytes()].concat();
        let file = walk::find(&*self.files.tree, b"/", &path)?.file;
        self.files.tree.manifest().file(file).filter(|f| f.len() <= LONGEST_LIST)?;
        let text = self.files.fetch(file).recv().ok()??;
        List::parse(&text).inspect_err(|error| tracing::warn!(%error, "cannot use {OWN_LIST}")).ok()
    }

    /// Data of the files, and the list of files to fetch ahead.
    pub(crate) fn parts(&self) -> (&Arc<Files>, &Arc<Prefetch>) {
        (&self.files, &self.prefetch)
    }

    /// The tree that is served.
    pub fn tree(&self) -> &Arc<Tree> {
        &self.files.tree
    }

    /// Serves a mount until it is removed; from a thread of its own. `before`: the state of the process that
    /// served it before, if any. `opens` records the open files ([`opens()`](crate::opens)); it and the
    /// values given to `tell` are for the process that continues the mount.
    ///
    /// # Errors
    /// A malformed message of the kernel, or the end of the connection.
    pub fn serve(
        &self,
        device: OwnedFd,
        before: Option<Before>,
        opens: OwnedFd,
        tell: OnBacking,
    ) -> Result<(), Error> {
        let is_new = before.is_none();
        let passthrough = Passthrough::new(before, opens, tell).map_err(Error::Device)?;
        let fs = Fs::new(self.files.clone(), passthrough);
        let begin = if is_new { Serving::begin } else { Serving::go_on };
        begin(device, fs)?.run().map_err(Error::Device)
    }

    /// The cache rejected received data: requests that wait for it fail. Later requests try again.
    pub fn fail_all(&self, why: String) {
        self.files.waits.fail_all(why);
    }

    /// A peer was refused, or refused this node: for the reason of a read that fails later.
    pub fn heard_of_peer(&self, why: String) {
        self.files.heard_of_peer(why);
    }

    /// The last report of a peer that was refused, or refused this node, or did not answer.
    pub fn heard(&self) -> Option<String> {
        self.files.heard()
    }

    /// Ends all waits, permanently.
    pub fn stop(&self) {
        self.files.waits.stop();
    }

    /// Fetches the files that programs of the tree need to start: the programs, their libraries and
    /// interpreters, found as ld.so finds them. Returns when all have arrived, with the names that are not in
    /// the tree. A program may lie outside the tree and need libraries in it.
    pub fn fetch_programs(&self, environment: Environment, programs: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let tree = &*self.files.tree;
        let on_host = |program: &Vec<u8>| {
            let path = Path::new(OsStr::from_bytes(program)).canonicalize().ok()?;
            let is_ours = walk::find(tree, &environment.prefix, program).is_some();
            let bytes = if is_ours || !program.starts_with(b"/") { None } else { std::fs::read(&path).ok() };
            Some((path, bytes?))
        };
        let hosts: Vec<_> = programs.iter().filter_map(on_host).collect();
        let mut closure = Closure::new(tree, environment, programs);
        for (path, bytes) in hosts {
            closure.add_host_program(path.as_os_str().as_bytes(), &bytes);
        }
        loop {
            let wanted = closure.wanted();
            if wanted.is_empty() {
                return closure.outside().to_vec();
            }
            // All are in flight while the first is awaited.
            let coming: Vec<_> = wanted.into_iter().map(|file| (file, self.files.fetch(file))).collect();
            for (file, came) in coming {
                match came.recv() {
                    Ok(Some(bytes)) => closure.give(file, &bytes),
                    _ => closure.lost(file),
                }
            }
        }
    }

    /// Writes the reads so far as a prefetch list. Returns how many reads are not in it because there were
    /// too many.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save_record(&self, path: &Path, manifest: String) -> io::Result<u64> {
        let Some(recorder) = &self.files.recorder else { return Ok(0) };
        let tree = &self.files.tree;
        let list = recorder.finish(Some(manifest), |file| {
            let len = tree.manifest().file(file)?.len();
            Some((tree.path(file), len))
        });
        record::save(&list, path)?;
        Ok(recorder.left_out())
    }

    /// Whether a process waits for data.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.files.waits.waiting().is_empty()
    }

    /// The status, except the figures of the swarm and the process.
    pub fn status(&self) -> Status {
        let (files, counters) = (&self.files, &self.files.counters);
        let manifest = files.tree.manifest();
        let path = |file| String::from_utf8_lossy(&files.tree.path(file)).into_owned();
        let waiting = files.waits.waiting();
        let holds = waiting.iter().take(NAMED).map(|w| Hold {
            path: path(w.asker.file),
            pid: w.asker.pid,
            seconds: w.since.elapsed().as_secs_f64(),
            pieces: w.pieces,
        });
        let slowest = counters.slowest(NAMED).into_iter().map(|(file, waited)| Wait {
            path: path(file),
            times: waited.times,
            seconds: waited.total.as_secs_f64(),
            longest: waited.longest.as_secs_f64(),
        });
        let (hits, misses, errors) = counters.outcome();
        let (pieces, pieces_missing) = files.pieces_missing();
        Status {
            name: manifest.name().into_owned(),
            files: manifest.file_count(),
            bytes: manifest.total_len(),
            pieces,
            pieces_missing,
            requests: counters.requests().into_iter().map(|(kind, n)| (kind.to_owned(), n)).collect(),
            hits,
            misses,
            errors,
            given: counters.bytes(),
            listed_pieces: self.prefetch.len(),
            waiting: waiting.len(),
            waits: holds.collect(),
            slowest: slowest.collect(),
            trouble: files.waits.trouble(),
            failures: counters.failures().into_iter().map(|(why, of)| of.told(why, path(of.file))).collect(),
            ..Status::default()
        }
    }
}
