//! `open`: reads parts of published data, which are fetched when they are read.

mod data;
mod entries;
mod local;
mod reader;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tidecast_daemon::name::CacheName;
use tidecast_event::{Error, Event, Totals};
use tidecast_mount::reader::{ReadOptions, Reading};
use tidecast_node::{MessageSender, Source, SwarmOptions, totals};

use self::data::Data;
use self::local::Local;
use crate::caches::{GetCacheOptions, get_cache};
use crate::operation::{Operation, Work, start};
use crate::state;

pub use entries::{Entry, EntryKind};
pub use reader::{Fetching, Reader};

/// The operation of [`open`].
pub type Open = Operation<Opened, Closed>;
type Doing = Work<Opened, Closed>;

/// Default time limit for the directory of a cache: the time without arriving data.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The opened data.
pub enum ReadFrom {
    /// The data of a ticket, a magnet link or a manifest: only read parts are fetched.
    Swarm(Source),
    /// A cache of the daemon that listens at this socket. One that is not on this host is brought here first, whole.
    Cache(PathBuf, CacheName),
}

impl From<Source> for ReadFrom {
    fn from(source: Source) -> Self {
        Self::Swarm(source)
    }
}

/// How to read; the default is right for a node of a cluster.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// A directory where pieces are kept for the next process that reads the same. Default: this user's own below the
    /// directory for temporary files.
    pub cache: Option<PathBuf>,
    /// A read fails when nothing has come for it for this long ([`Kind::Interrupted`](crate::Kind::Interrupted)). Default: 2 minutes.
    pub timeout: Option<Duration>,
    /// How to take part in the swarm.
    pub swarm: SwarmOptions,
    /// Where this node keeps its key. Default: [`default_state_dir`](crate::default_state_dir).
    pub state_dir: Option<PathBuf>,
    /// Threads to work with. Default: one for each core.
    pub threads: Option<usize>,
}

/// It can be read.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The name of the published data, or of the cache.
    pub name: String,
    /// The addresses at which this node listens; none for a cache.
    pub listen: Vec<SocketAddr>,
    /// Where a cache lies.
    pub path: Option<PathBuf>,
    /// The handle that reads it.
    pub reader: Reader,
}

/// It was stopped, which is the normal end.
#[derive(Debug, Clone)]
pub struct Closed {
    /// Seconds since the start.
    pub seconds: f64,
    /// The totals of this node in the swarm; zero for a cache.
    pub totals: Option<Totals>,
}

/// Opens the data of `source` for reading. The first event has a [`Reader`], which fetches and verifies the
/// pieces of each read, and serves them to other nodes until the operation is stopped.
///
/// Pieces are kept in a directory of this user's, at most as many as there are, so that the next process finds them. While
/// another process reads the same tree, this one keeps its pieces apart, and removes them when it ends.
///
/// ```
/// use tidecast::{OpenOptions, ShareOptions, Source, SwarmOptions, open, share};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let data = dir.path().join("data");
/// # std::fs::write(&data, "the same bytes")?;
/// # let (state_dir, cache) = (Some(dir.path().join("state")), Some(dir.path().join("cache")));
/// let swarm = SwarmOptions::loopback();
/// let options = ShareOptions { swarm: swarm.clone(), state_dir: state_dir.clone(), ..Default::default() };
/// let sharing = share(&data, options);
/// let ticket = sharing.ready_blocking()?.ticket.unwrap_or_default();
///
/// let options = OpenOptions { swarm, state_dir, cache, ..Default::default() };
/// let opening = open(Source::read(&ticket)?, options);
/// let reader = opening.ready_blocking()?.reader;
/// let file = reader.find("data").ok_or("no such file")?;
/// let mut bytes = [0; 4];
/// assert_eq!(reader.read_at(file, 4, &mut bytes)?, 4);
/// assert_eq!(&bytes, b"same");
/// # Ok(())
/// # }
/// ```
pub fn open(source: impl Into<ReadFrom>, options: OpenOptions) -> Open {
    let source = source.into();
    start(options.threads.unwrap_or(0), async move |work| match source {
        ReadFrom::Swarm(source) => swarm(source, &options, work).await,
        ReadFrom::Cache(socket, name) => cache(&socket, name, &options, work).await,
    })
}

async fn swarm(source: Source, options: &OpenOptions, work: &Doing) -> Result<Closed, Error> {
    let state_dir = state::own(options.state_dir.as_deref())?;
    let messages = MessageSender::new(work);
    let OpenOptions { cache, timeout, swarm, .. } = options.clone();
    let how = ReadOptions { cache, timeout, swarm };
    let reading = Reading::begin(source, &how, &state_dir, (&messages, &work.stop)).await?;
    let reader = reading.reader();
    let name = reader.manifest().name().into_owned();
    let reader = Reader::new(entries::of_manifest(reader.manifest()), Data::Swarm(reader));
    work.started(Opened { name, listen: reading.listen(), path: None, reader });
    let summary = reading.go_on(&messages, &work.stop, |now| work.progress(now)).await?;
    Ok(Closed { seconds: work.seconds(), totals: Some(totals(&summary)) })
}

async fn cache(socket: &Path, name: CacheName, options: &OpenOptions, work: &Doing) -> Result<Closed, Error> {
    let path = brought(socket, &name, options.timeout.unwrap_or(TIMEOUT), work).await?;
    let at = path.clone();
    let looked = tokio::task::spawn_blocking(move || Local::open(&at)).await;
    let (entries, local) = looked.map_err(Error::fault)??;
    let reader = Reader::new(entries, Data::Local(local));
    work.started(Opened { name: name.to_string(), listen: Vec::new(), path: Some(path), reader });
    work.stop.wait().await;
    Ok(Closed { seconds: work.seconds(), totals: None })
}

/// Has the daemon bring a cache here, and keep it while this process runs: where it lies.
async fn brought(
    socket: &Path,
    name: &CacheName,
    patience: Duration,
    work: &Doing,
) -> Result<PathBuf, Error> {
    let pid = i32::try_from(std::process::id()).ok();
    let mut getting = get_cache(socket, name.clone(), GetCacheOptions { pid, ..GetCacheOptions::default() });
    let (mut came, mut last) = (0, Instant::now());
    loop {
        let left = patience.saturating_sub(last.elapsed());
        tokio::select! {
            event = getting.next() => match event {
                Some(Event::Progress(now)) => {
                    if now.bytes > came {
                        (came, last) = (now.bytes, Instant::now());
                    }
                    work.progress(now);
                }
                Some(Event::Warning(warning)) => work.warning(warning.message),
                Some(Event::Done(got)) => return Ok(got.made),
                Some(Event::Error(_)) | None => break,
                Some(_) => {}
            },
            () = tokio::time::sleep(left) => {
                let seconds = patience.as_secs();
                return Err(Error::interrupted(format!("{name} is not here, and nothing of it came within {seconds} s")));
            }
            () = work.stop.wait() => return Err(Error::interrupted(format!("interrupted before {name} was here"))),
        }
    }
    Ok(getting.wait().await?.made)
}
