//! Reads within one process, without a mount: data is fetched, verified and kept when it is read.
//!
//! Pieces are kept in the tree's [`Home`], in the directory `read`, for the next process. While one process has it, others
//! keep theirs in `read-1`, `read-2` and so on, which are emptied when they end. The cache of a mount is another one:
//! a mount that starts must not wait for a reader to end.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};
use tidecast_event::{Error, Fault as _, Progress, Stage};
use tidecast_metainfo::Manifest;
use tidecast_net::{Progress as Swarming, Summary};
use tidecast_node::{MessageSender, Running, Source, Stop, SwarmOptions, SwarmSettings, progress};
use tidecast_paths::{Lock, Root};
use tidecast_store::{Opened, Store};
use tokio::sync::watch;

use crate::error::home;
use crate::files::Files;
use crate::home::Home;
use crate::join;
use crate::options::{Mode, Prefetch, ServeOptions};
use crate::service::Service;

/// A read fails after this time without data for it, unless the user sets another.
const TIMEOUT: Duration = Duration::from_secs(120);
/// How often troubles of trackers and the like are looked for.
const LOOK: Duration = Duration::from_millis(200);
/// Processes of a user that read one tree at the same time.
const MOST: u32 = 4096;

/// How a tree is read.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Where pieces are kept for the next process. Default: the directory for temporary files.
    pub cache: Option<std::path::PathBuf>,
    /// A read fails when nothing has come for it for this long. Default: 2 minutes.
    pub timeout: Option<Duration>,
    /// How to take part in the swarm.
    pub swarm: SwarmOptions,
}

/// The swarm of a tree that this process reads.
pub struct Reading {
    running: Running,
    service: Arc<Service>,
    place: Arc<Place>,
}

impl Reading {
    /// Joins the swarm. `state_dir`: where this node keeps its key.
    ///
    /// # Errors
    /// No manifest, no right to take part, no room.
    pub async fn begin(
        source: Source,
        options: &ReadOptions,
        state_dir: &Path,
        (messages, stop): (&MessageSender<'_>, &Stop),
    ) -> Result<Reading, Error> {
        let settings = SwarmSettings::new(&options.swarm)?;
        let home = Home::of(&source, options.cache.as_deref())?;
        let serve = ServeOptions {
            mode: Mode::File,
            prefetch: Prefetch::None,
            timeout: Some(options.timeout.unwrap_or(TIMEOUT)),
            ..ServeOptions::default()
        };
        let mut taken = None;
        let open = async |manifest: &Arc<Manifest>| {
            let (opened, place) = Place::open(&home, manifest).await?;
            taken = Some(place);
            Ok(opened)
        };
        let begun = join::begin(source, &serve, (state_dir, &home), &settings, (messages, stop), open);
        let (running, service, _) = begun.await?;
        let place = taken.ok_or_else(|| Error::fault("no place for pieces was opened"))?;
        Ok(Reading { running, service, place: Arc::new(place) })
    }

    /// A handle that reads it, from any thread.
    #[must_use]
    pub fn reader(&self) -> Reader {
        let (service, progress) = (self.service.clone(), self.running.swarm.progress());
        Reader { service, progress, _place: self.place.clone() }
    }

    /// The addresses at which this node listens.
    #[must_use]
    pub fn listen(&self) -> Vec<std::net::SocketAddr> {
        self.running.swarm.listen_addrs().to_vec()
    }

    /// Runs as a member of the swarm until it is stopped. `told` receives its progress, without rates.
    ///
    /// # Errors
    /// If the swarm ended before.
    pub async fn go_on(
        mut self,
        messages: &MessageSender<'_>,
        stop: &Stop,
        told: impl Fn(Progress),
    ) -> Result<Summary, Error> {
        let mut look = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                notice = self.running.notice() => join::handle_notice(notice, &self.service, &mut self.running, messages),
                () = stop.wait() => break,
                _ = look.tick() => {
                    let now = self.running.swarm.progress().borrow().clone();
                    told(progress(Stage::Mount, &now));
                    self.running.report_finder_errors(messages);
                }
            }
        }
        self.service.stop();
        self.running.stop().await
    }
}

/// Reads files of a tree, by their place in the manifest. Its methods may wait for the engine: not for tasks of tokio.
#[derive(Clone)]
pub struct Reader {
    service: Arc<Service>,
    progress: watch::Receiver<Swarming>,
    /// Keeps the pieces in place while this reader exists.
    _place: Arc<Place>,
}

impl Reader {
    fn files(&self) -> &Arc<Files> {
        self.service.parts().0
    }

    /// The tree that it reads.
    #[must_use]
    pub fn manifest(&self) -> &Arc<Manifest> {
        self.service.tree().manifest()
    }

    /// Has ranges of bytes of files brought here, all at once, and nothing else.
    #[must_use]
    pub fn bring(&self, ranges: impl IntoIterator<Item = (u32, Range<u64>)>) -> Coming {
        self.begin(ranges, false)
    }

    /// Fetches the bytes of a file that are read now, and those that its reads so far suggest as next.
    #[must_use]
    pub fn bring_on(&self, file: u32, range: Range<u64>) -> Coming {
        self.begin([(file, range)], true)
    }

    fn begin(&self, ranges: impl IntoIterator<Item = (u32, Range<u64>)>, ahead: bool) -> Coming {
        let (send, came) = unbounded();
        let mut left = 0;
        for (file, range) in ranges {
            left += 1;
            let send = send.clone();
            // The receiver may be gone.
            self.files().bring(file, range, ahead, move |result| drop(send.send(result)));
        }
        Coming { came, left }
    }

    /// Requests ranges of bytes in this order: before earlier requests of this kind, and after the bytes that reads wait for.
    /// Does not wait until they come.
    pub fn bring_later(&self, ranges: impl IntoIterator<Item = (u32, Range<u64>)>) {
        let (files, prefetch) = self.service.parts();
        let len = |file| files.tree.manifest().layout().file_len(file);
        let pieces = |(file, range): (u32, Range<u64>)| {
            let content = files.content(file);
            files.pieces(content, range.start.min(len(content))..range.end.min(len(content)))
        };
        prefetch.put_first(ranges.into_iter().map(pieces));
        self.service.fetch_ahead();
    }

    /// Reads bytes that are here; fewer at the end of the file.
    ///
    /// # Errors
    /// They are not here, or the disk fails.
    pub fn copy(&self, file: u32, offset: u64, bytes: &mut [u8]) -> Result<usize, Error> {
        self.files().copy(file, offset, bytes).fault()
    }

    /// The file that holds all of a file's content, if all of it is here.
    #[must_use]
    pub fn whole(&self, file: u32) -> Option<Arc<std::fs::File>> {
        self.files().whole(file)
    }

    /// The local file with the present data of a file, at the same offsets; the content of absent ranges is
    /// undefined. `None` before any data has arrived, and for a file that is a hole.
    #[must_use]
    pub fn descriptor(&self, file: u32) -> Option<Arc<std::fs::File>> {
        self.files().backing(file)
    }

    /// Payload received from peers since it began, bytes.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.progress.borrow().received_bytes
    }
}

/// Bytes in transit.
pub struct Coming {
    came: Receiver<Result<(), (bool, String)>>,
    left: usize,
}

impl Coming {
    /// Waits until all are here, at most this long. It ends at the latest when nothing has come for the timeout of the options.
    ///
    /// # Errors
    /// Why they do not come; of kind [`Interrupted`](tidecast_event::Kind::Interrupted) if no peer gave them in time.
    pub fn wait(&mut self, most: Duration) -> Poll<Result<(), Error>> {
        let until = Instant::now() + most;
        while self.left > 0 {
            match self.came.recv_deadline(until) {
                Ok(Ok(())) => self.left -= 1,
                Ok(Err((true, why))) => return Poll::Ready(Err(Error::interrupted(why))),
                Ok(Err((false, why))) => return Poll::Ready(Err(Error::fault(why))),
                Err(RecvTimeoutError::Timeout) => return Poll::Pending,
                Err(RecvTimeoutError::Disconnected) => {
                    return Poll::Ready(Err(Error::fault("the swarm has ended")));
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// The store of one reading process. Its lock is held as long as the process runs.
struct Place {
    root: Root,
    name: String,
    /// It is for the next process too.
    kept: bool,
    process: u32,
    _lock: Lock,
}

impl Place {
    async fn open(at: &Home, manifest: &Arc<Manifest>) -> Result<(Opened, Place), Error> {
        let place = Place::take(at)?;
        let (root, manifest) = (Arc::new(place.dir(at)?), manifest.clone());
        let open = move || {
            let again = root.again().map_err(home("open", root.path()))?;
            Store::download_beneath(again, manifest.clone(), &join::on_demand()).fault()
        };
        Ok((join::opened(open).await?, place))
    }

    /// The first place that no other process has.
    fn take(at: &Home) -> Result<Place, Error> {
        let process = std::process::id();
        for number in 0..MOST {
            let root = at.root()?;
            let name = if number == 0 { "read".to_owned() } else { format!("read-{number}") };
            let lock = root.lock(format!("{name}.lock")).map_err(home("lock", at.path()))?;
            if let Some(lock) = lock {
                return Ok(Place { root, name, kept: number == 0, process, _lock: lock });
            }
        }
        Err(Error::fault(format!("{MOST} processes read this tree already")))
    }

    fn dir(&self, at: &Home) -> Result<Root, Error> {
        let full = at.path().join(&self.name);
        if !self.kept {
            // The remains of a killed process.
            self.root.remove_all(&self.name).map_err(home("empty", &full))?;
        }
        self.root.ensure_dir(&self.name, 0o700).map_err(home("make", &full))?;
        Ok(self.root.sub(&self.name).map_err(home("use", full))?)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A child that was forked has a copy of this, and no right to end it.
        if !self.kept && self.process == std::process::id() {
            let _ = self.root.remove_all(&self.name);
        }
    }
}
