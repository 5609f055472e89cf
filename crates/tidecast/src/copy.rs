//! `copy`: any mix of files from host to host at line rate; and servers that others copy from and to.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidecast_event::copy::{
    Done, Ladder, Limit, Limits, News, Pair, Served, Serving, Started, Step, Working,
};
use tidecast_event::{Error, Fault as _, PartialResult, Progress, Stage};
use tidecast_mover::end::ServerOptions;
use tidecast_mover::server::{self, Keys};
use tidecast_mover::session::{self, Consumer, Copy, PORT, moved};
use tidecast_mover::spec::Accept;
use tidecast_mover::transfer;

use crate::operation::{Operation, Work, start};
use crate::state;

/// The operation of [`copy`].
pub type Copying = Operation<Started, Done, News>;

/// The operation of [`serve_copies`].
pub type CopyServer = Operation<Serving, Served>;

/// Copies files and directories, named as with rsync: paths of this host, `host:path`, or URLs of copy servers.
///
/// The fields of [`struct@Copy`] set whether files are kept, deleted, compared and so on. The same call
/// resumes an interrupted copy.
///
/// ```
/// use tidecast::{Copy, copy};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let (from, to) = (dir.path().join("a"), dir.path().join("b"));
/// # std::fs::write(&from, "bytes")?;
/// let mut job = Copy::new(&[from.into()], to.as_os_str())?;
/// job.receive.checksum = true;
/// let done = copy(job).wait_blocking()?;
/// assert_eq!((done.files_copied, done.bytes_copied), (1, 5));
/// # Ok(())
/// # }
/// ```
///
/// If names fail, the rest is copied, and the error has its result as [`PartialResult::Copy`].
pub fn copy(copy: Copy) -> Copying {
    start(1, async move |work| {
        let (started, dry_run) = (started(&copy), copy.receive.dry_run);
        let copying = copy.start().map_err(failed)?;
        work.started(started);
        follow(copying, dry_run, work)
    })
}

/// Copies into shared memory of this host, for the [`Consumer`], which receives each file and returns its
/// memory: a [`struct@Copy`] made by [`Copy::to_memory`].
///
/// # Errors
/// The options contradict each other, or there is not enough memory.
pub fn copy_to_memory(copy: Copy) -> Result<(Copying, Arc<Consumer>), Error> {
    let mut started = Started { to: None, ..started(&copy) };
    let copying = copy.start().map_err(failed)?;
    let consumer =
        copying.consumer().ok_or_else(|| Error::usage("the destination of this copy is not memory"))?;
    (started.memory, started.budget) = (Some(consumer.place().to_owned()), Some(consumer.budget()));
    let operation = start(1, async move |work| {
        work.started(started);
        follow(copying, false, work)
    });
    Ok((operation, consumer))
}

/// The part that is known before it begins.
fn started(copy: &Copy) -> Started {
    let (from, to) =
        copy.pairs().first().map(|(from, to)| (from.to_string(), to.to_string())).unwrap_or_default();
    let to =
        copy.stream().map_or(to, |path| match path.as_os_str() == "-" || tidecast_paths::is_stdout(&path) {
            true => "standard output".into(),
            false => path.display().to_string(),
        });
    let pairs = if copy.pairs().len() > 1 { copy.names() } else { Vec::new() };
    Started { command: "copy", from, to: Some(to), pairs, ..Started::default() }
}

/// Tells how it goes, until it is over.
fn follow(
    mut copying: session::Copying,
    dry_run: bool,
    work: &Work<Started, Done, News>,
) -> Result<Done, Error> {
    // A consumer receives each file.
    let shows = copying.consumer().is_none();
    while let Some(event) = copying.next_event() {
        if work.stop.is_asked() {
            copying.stop();
        }
        match event {
            session::Event::Warning(warning) => work.warning(warning.to_string()),
            session::Event::Progress(now) if shows => work.progress(progress(&now)),
            session::Event::Step(one) => work.news(News::Step(step(&one))),
            _ => {}
        }
    }
    let done = copying.wait().map_err(failed)?;
    let verdict = done.outcome.verdict();
    let done = figures(done, dry_run, work.seconds());
    match verdict {
        Ok(()) => Ok(done),
        Err(error) => Err(failed(error).with(PartialResult::Copy(Box::new(done)))),
    }
}

fn failed(error: tidecast_mover::Error) -> Error {
    match error {
        tidecast_mover::Error::Cancelled => {
            Error::interrupted("interrupted; run the same command again to resume")
        }
        other => Error::new(other.kind(), other),
    }
}

/// The state of a running copy. Its total is known only when all directories are walked.
fn progress(now: &transfer::Progress) -> Progress {
    let walked = &now.walked;
    let total = if walked.complete { walked.bytes.saturating_sub(walked.spared) } else { 0 };
    // The limiting part is known after the controller's first measurement.
    let copy = now.limit.map(|limit| Working {
        streams: now.here.streams,
        readers: now.here.fronts,
        writers: now.there.fronts,
        blocks: now.here.blocks + now.there.blocks,
        limit: match limit {
            _ if now.ending => Limit::Syncing,
            transfer::Limit::DiskIn => Limit::Reading,
            transfer::Limit::Network => Limit::Network,
            transfer::Limit::DiskOut => Limit::Writing,
            transfer::Limit::Rate => Limit::Rate,
        },
    });
    Progress { stage: Stage::Copy, bytes: moved(now, total), total, copy, ..Progress::default() }
}

fn step(step: &session::Step) -> Step {
    Step { what: step.what, bytes_per_second: step.rate().round(), seconds: step.seconds }
}

/// The result, for programs.
fn figures(done: session::Done, dry_run: bool, seconds: f64) -> Done {
    let session::Done { outcome, ladder, pairs, .. } = done;
    let (walked, written, limits) = (outcome.walked, outcome.written, outcome.limits);
    let pair = |pair: session::PairDone| Pair {
        from: pair.from.to_string(),
        to: pair.to.to_string(),
        batches: pair.batches,
        files: pair.files,
        bytes: pair.bytes,
        seconds: pair.seconds,
        rate: pair.rate(),
        broke: pair.broke,
    };
    let ladder = ladder.map(|ladder| Ladder {
        steps: ladder.steps.iter().map(step).collect(),
        limit: ladder.limit,
        wire: ladder.wire,
    });
    Done {
        seconds,
        entries: walked.entries,
        files: walked.files,
        bytes: walked.bytes,
        files_copied: written.files,
        bytes_copied: written.bytes,
        files_kept: written.kept,
        bytes_resumed: written.resumed,
        deleted: written.deleted,
        blocks_again: outcome.again,
        transfer_seconds: outcome.seconds,
        dry_run,
        limits: Limits {
            reading: limits.disk_in,
            network: limits.network,
            writing: limits.disk_out,
            rate: limits.rate,
        },
        failed: walked.failed + written.failed,
        attributes_lost: written.lost,
        problems: walked.problems.into_iter().chain(written.problems).collect(),
        problems_more: walked.more_problems + written.more_problems,
        planned: written.planned,
        planned_more: written.more_planned,
        pairs: pairs.into_iter().map(pair).collect(),
        ladder,
    }
}

/// How to serve a directory; the default serves it for reading and writing, encrypted.
#[derive(Debug)]
pub struct ServeCopiesOptions {
    /// Where to listen. Default: any address, port 6870.
    pub listen: SocketAddr,
    /// Nothing can be written.
    pub read_only: bool,
    /// Data unencrypted; clients must still prove that they know the key.
    pub plain: bool,
    /// Keep set-id bits, capabilities, access lists, devices and owners that others send.
    pub trust_metadata: bool,
    /// Serve as root, if this process is root's: any holder of the writing key can then change every file of
    /// the directory.
    pub as_root: bool,
    /// The keys, if this process can no longer read them. Default: those of the state directory.
    pub keys: Option<Keys>,
    /// The confinement of this process to its files, for the event `started`.
    pub confined: Option<String>,
    /// Where this node keeps its keys. Default: [`default_state_dir`](crate::default_state_dir).
    pub state_dir: Option<PathBuf>,
}

impl Default for ServeCopiesOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), PORT),
            read_only: false,
            plain: false,
            trust_metadata: false,
            as_root: false,
            keys: None,
            confined: None,
            state_dir: None,
        }
    }
}

/// Serves the directory `root` to copies of others until stopped, which is its normal end. Nothing outside of it is reached.
///
/// ```
/// use tidecast::{Copy, ServeCopiesOptions, copy, serve_copies};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let (root, to) = (dir.path().join("root"), dir.path().join("to"));
/// # std::fs::create_dir(&root)?;
/// # std::fs::write(root.join("a"), "bytes")?;
/// # let (listen, state_dir, as_root) = (([127, 0, 0, 1], 0).into(), Some(dir.path().join("state")), true);
/// let options = ServeCopiesOptions { listen, as_root, state_dir, ..Default::default() };
/// let serving = serve_copies(&root, options);
/// let url = serving.ready_blocking()?.url;
///
/// let job = Copy::new(&[format!("{url}a").into()], to.as_os_str())?;
/// assert_eq!(copy(job).wait_blocking()?.files_copied, 1);
/// # Ok(())
/// # }
/// ```
pub fn serve_copies(root: impl AsRef<Path>, options: ServeCopiesOptions) -> CopyServer {
    let root = root.as_ref().to_owned();
    start(1, async move |work| {
        server::check_user(None, options.as_root, ["serving as another user", "as_root"])
            .map_err(Error::usage)?;
        let keys = match options.keys {
            Some(keys) => keys,
            None => Keys::load(&state::own(options.state_dir.as_deref())?).fault()?,
        };
        let accept = if options.trust_metadata { Accept::All } else { Accept::Restricted };
        let serves = ServerOptions { root, read_only: options.read_only, plain: options.plain, accept };
        let served = server::start(serves, options.listen, &keys).map_err(failed)?;
        work.started(Serving {
            command: "copy-server",
            url: served.url.clone(),
            url_read: served.url_read.clone(),
            address: served.at,
            read_only: options.read_only,
            confined: options.confined,
            bare: served.bare.clone(),
        });
        work.stop.wait().await;
        drop(served);
        Ok(Served { seconds: work.seconds() })
    })
}
