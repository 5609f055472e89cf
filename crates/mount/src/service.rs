//! One published tree, ready to be mounted: what the program holds in its hand.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidecast_net::{Demand, OnVerified};
use tidecast_store::Store;

use crate::closure::{Closure, Environment};
use crate::error::Error;
use crate::fallback::Fallback;
use crate::files::{Files, pieces};
use crate::passthrough::OnBacking;
use crate::prefetch::Prefetch;
use crate::record::{self, Recorder};
use crate::session::Serving;
use crate::status::{Hold, Status, Wait};
use crate::tree::Tree;
use crate::waits::Waits;

/// Files named in a status.
const NAMED: usize = 20;

/// How to serve a tree.
pub struct Options {
    /// After so long a request for data that nobody gives fails.
    pub timeout: Duration,
    /// Parts of files to fetch before they are asked for, in their order: files by their place in the manifest, bytes.
    pub prefetch: Vec<(u32, Range<u64>)>,
    /// Everything is fetched, what was named above first.
    pub bulk: bool,
    /// What is read is recorded; see [`Service::save_record`].
    pub record: bool,
    /// Where to read what no peer gives.
    pub fallback: Option<Fallback>,
    /// Whom the files belong to: user, group.
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
    /// What the swarm calls.
    pub fn hook(&self) -> OnVerified {
        let hooks = self.0.clone();
        Box::new(move |piece| {
            if let Some(Hooks { waits, prefetch }) = hooks.get() {
                waits.arrived(piece);
                if prefetch.arrived(piece) {
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
        let of_file = |(file, range): (u32, Range<u64>)| {
            let content = manifest.file(file).map_or(file, |f| f.same_as());
            let len = manifest.layout().file_len(content);
            pieces(&manifest, content, range.start.min(len)..range.end.min(len))
        };
        let listed: Vec<Range<u32>> = options.prefetch.into_iter().map(of_file).collect();
        let contents: Vec<Range<u32>> =
            manifest.files().filter(|f| f.same_as() == f.index()).map(|f| f.pieces()).collect();
        let rest = if options.bulk { contents.clone() } else { Vec::new() };
        let prefetch = Arc::new(Prefetch::new(manifest.clone(), listed.into_iter().chain(rest)));
        let waits = Waits::start(store.clone(), demand.clone(), options.timeout).map_err(Error::Thread)?;
        if let Some(fallback) = options.fallback {
            fallback.start(manifest.clone(), &waits, demand).map_err(Error::Thread)?;
        }
        let recorder = options.record.then(Recorder::new);
        let hooks = Hooks { waits: waits.clone(), prefetch: prefetch.clone() };
        // A second service of the same swarm would hear nothing; there is none.
        let first = arrivals.0.set(hooks).is_ok();
        debug_assert!(first, "arrivals are told to one service only");
        let files = Files::new(tree, store, waits.clone(), prefetch.clone(), recorder, contents);
        let (list, of) = (prefetch.clone(), waits.clone());
        waits.later(move || list.fill(&of));
        Ok(Service { files: Arc::new(files), prefetch })
    }

    /// The tree that is served.
    pub fn tree(&self) -> &Arc<Tree> {
        &self.files.tree
    }

    /// Serves a new mount until it is gone; from a thread of its own. `tell` hears what whoever goes on with the mount
    /// will have to know.
    ///
    /// # Errors
    /// The kernel is not understood, or ends the conversation.
    pub fn serve(&self, device: OwnedFd, tell: OnBacking) -> Result<(), Error> {
        Serving::begin(device, self.files.clone(), tell)?.run().map_err(Error::Device)
    }

    /// Goes on with a mount that another process has served before, and what that process has told.
    ///
    /// # Errors
    /// As [`Service::serve`].
    pub fn serve_on(&self, device: OwnedFd, told: Vec<(u64, u32)>) -> Result<(), Error> {
        Serving::go_on(device, self.files.clone(), told)?.run().map_err(Error::Device)
    }

    /// The cache can take no more: whoever needs what is not here gets an error from now on.
    pub fn fail_all(&self) {
        self.files.waits.fail_all();
    }

    /// Ends all waiting, for good.
    pub fn stop(&self) {
        self.files.waits.stop();
    }

    /// Fetches what programs of the tree need to start: them, and their libraries and interpreters, found as ld.so would.
    /// Takes as long as all that takes to come; what is not in the tree is returned.
    pub fn fetch_programs(&self, environment: Environment, programs: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let mut closure = Closure::new(&*self.files.tree, environment, programs);
        loop {
            let wanted = closure.wanted();
            if wanted.is_empty() {
                return closure.outside().to_vec();
            }
            // All are under way while the first is waited for.
            let coming: Vec<_> = wanted.into_iter().map(|file| (file, self.files.fetch(file))).collect();
            for (file, came) in coming {
                match came.recv() {
                    Ok(Some(bytes)) => closure.give(file, &bytes),
                    _ => closure.lost(file),
                }
            }
        }
    }

    /// Writes down what was read so far, as a prefetch list.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save_record(&self, path: &Path, manifest: String) -> io::Result<()> {
        let Some(recorder) = &self.files.recorder else { return Ok(()) };
        let tree = &self.files.tree;
        let list = recorder.finish(Some(manifest), |file| {
            let len = tree.manifest().file(file)?.len();
            Some((tree.path(file), len))
        });
        record::save(&list, path)
    }

    /// How it goes.
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
        }
    }
}
