//! `create_cache` and `get_cache`: named data that the daemon of this host keeps.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidecast_daemon::api::types::Create;
use tidecast_daemon::client::create::{self, Prepared};
use tidecast_daemon::client::fetch::{Fetch, FetchError, Ready, Waiting};
use tidecast_daemon::client::hand_out::{Link, hand_out};
use tidecast_daemon::client::{Client, ClientError};
use tidecast_daemon::materialize::{self, sees};
use tidecast_daemon::name::CacheName;
use tidecast_event::cache::{Created, Got, Refused};
use tidecast_event::{Context as _, Error, Kind, PartialResult, Progress, Stage, Warning};
use tidecast_node::{Message, MessageSink as _};
use tidecast_paths::Root;

use crate::operation::{Operation, Work, start};

/// The operation of [`get_cache`].
pub type GetCache = Operation<(), Got>;

/// The operation of [`create_cache`].
pub type CreateCache = Operation<(), Created>;

/// After this time without data the reason is reported.
const UNTOLD: Duration = Duration::from_secs(3);

/// How to get a cache; the default waits without limit, and gives the place where the daemon keeps it.
#[derive(Debug, Clone, Default)]
pub struct GetCacheOptions {
    /// Have it in this directory too, under its own name.
    pub to: Option<PathBuf>,
    /// The form of the delivered files.
    pub link: Link,
    /// Replace an existing file or directory of that name, in one step.
    pub force: bool,
    /// Give up when it is not here after this long ([`Kind::Interrupted`](crate::Kind::Interrupted)).
    pub wait: Option<Duration>,
    /// Give the newest version that is here, without asking the origin for a newer one.
    pub offline: bool,
    /// Keep it while this process of the caller's user runs. Default: as the daemon decides by the caller.
    pub pid: Option<i32>,
    /// Have progress each second, not every 4 s.
    pub often: bool,
}

/// Has a cache on this host, brought from others if need be, by the daemon that listens at `socket`.
///
/// ```no_run
/// use tidecast::{GetCacheOptions, get_cache};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let options = GetCacheOptions { to: Some("/scratch".into()), ..Default::default() };
/// let got = get_cache("/run/tidecast/daemon.sock", "head/nt".parse()?, options).wait_blocking()?;
/// println!("{} is at {}", got.info.name, got.made.display());
/// # Ok(())
/// # }
/// ```
pub fn get_cache(socket: impl AsRef<Path>, name: CacheName, options: GetCacheOptions) -> GetCache {
    let client = Client::new(socket.as_ref());
    start(0, async move |work| {
        work.started(());
        let make = |dir: &PathBuf| {
            let made = Root::make(dir).and_then(|made| made.real_path());
            made.with_context(|| format!("cannot use {}", dir.display()))
        };
        let dir = options.to.as_ref().map(make).transpose()?;
        let why = RefCell::new(None);
        let ready = tokio::select! {
            ready = fetch(&client, &name, &options, &why, work) => ready?,
            () = work.stop.wait() => {
                let why = why.take().map_or(String::new(), |why| format!(": {why}"));
                let text = format!("interrupted before {name} arrived{why}; run the same command again to resume");
                return Err(Error::interrupted(text));
            }
        };
        tokio::select! {
            // A request that has ended at the same moment counts as done.
            biased;
            given = give(&client, ready, dir.as_deref(), &options, work) => given,
            () = work.stop.wait() => Err(Error::interrupted("interrupted")),
        }
    })
}

/// Asks until the cache is here; `reason`: why it waits, by the last answer.
async fn fetch(
    client: &Client,
    name: &CacheName,
    options: &GetCacheOptions,
    reason: &RefCell<Option<String>>,
    work: &Work<(), Got>,
) -> Result<Ready, Error> {
    let began = Instant::now();
    let GetCacheOptions { wait, pid, offline, often, .. } = *options;
    let what = Fetch { name: name.to_string(), wait, pid, offline, often };
    let told = |waiting| match waiting {
        Waiting::Away(why) => drop(reason.replace(Some(why))),
        Waiting::Receiving { why, bytes, total } => {
            reason.replace(Some(why.clone()).filter(|why| !why.is_empty()));
            if bytes == 0 && began.elapsed() >= UNTOLD {
                work.send(Message::Warning(Warning::nothing_of(&name.to_string(), &why)));
            }
            work.progress(Progress { stage: Stage::Get, bytes, total, ..Progress::default() });
        }
    };
    client.fetch(&what, told).await.map_err(|error| match error {
        FetchError::Client(error) => refusal(error),
        late @ FetchError::Late { .. } => Error::interrupted(late),
    })
}

/// Delivers the present cache to the caller, with the rights of this process.
async fn give(
    client: &Client,
    ready: Ready,
    dir: Option<&Path>,
    options: &GetCacheOptions,
    work: &Work<(), Got>,
) -> Result<Got, Error> {
    ready.older.iter().for_each(|why| work.warning(why));
    let unseen = sees(&ready.info).err();
    let (made, copied) = match dir {
        None => (ready.info.path.clone().context("the daemon reported no path")?, None),
        Some(dir) => {
            let out = hand_out(client, &ready.info, dir, options.link, options.force).await;
            let out = out.map_err(|error| match error {
                materialize::Error::Client(error) => refusal(error),
                other => Error::fault(other),
            })?;
            (out.path, out.made)
        }
    };
    Ok(Got {
        seconds: work.seconds(),
        info: ready.info,
        fetched_seconds: ready.seconds,
        method: ready.method,
        older: ready.older,
        made,
        copies: copied.as_ref().map_or(0, |made| made.copies),
        copied: copied.as_ref().map_or(0, |made| made.copied),
        unseen: unseen.filter(|_| dir.is_none() || options.link == Link::Symlink),
    })
}

/// Makes a cache of a directory's content, or of files of one directory, as the daemon that listens at `socket` keeps it from
/// then on. The files are read by this process. `wait`: how long room is waited for, if at all.
///
/// ```no_run
/// use tidecast::{NewCache, create_cache};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let new = NewCache { name: "nt".into(), lease: Some(30 * 86_400), ..Default::default() };
/// let created = create_cache("/run/tidecast/daemon.sock", vec!["/data/blast/nt".into()], new, None);
/// println!("{}", created.wait_blocking()?.info.name);
/// # Ok(())
/// # }
/// ```
pub fn create_cache(
    socket: impl AsRef<Path>,
    paths: Vec<PathBuf>,
    new: Create,
    wait: Option<Duration>,
) -> CreateCache {
    let client = Client::new(socket.as_ref());
    start(0, async move |work| {
        work.started(());
        if let Some(why) = new.contradiction() {
            return Err(Error::usage(why));
        }
        tokio::select! {
            biased;
            created = create(&client, paths, new, wait, work) => created,
            () = work.stop.wait() => Err(Error::interrupted("interrupted")),
        }
    })
}

async fn create(
    client: &Client,
    paths: Vec<PathBuf>,
    new: Create,
    wait: Option<Duration>,
    work: &Work<(), Created>,
) -> Result<Created, Error> {
    let counters = Arc::new(tidecast_publish::Progress::new());
    let (name, counted) = (new.name.clone(), counters.clone());
    let mut hashing = tokio::task::spawn_blocking(move || Prepared::of(&paths, &name, &counted));
    let prepared = loop {
        tokio::select! {
            done = &mut hashing => break done.context("a thread of Tidecast failed")?.map_err(not_made)?,
            () = tokio::time::sleep(Duration::from_millis(100)) => {
                let (bytes, total) = (counters.bytes(), counters.total());
                work.progress(Progress { stage: Stage::Hash, bytes, total, ..Progress::default() });
            }
        }
    };
    prepared.warnings().iter().for_each(|warning| work.warning(warning));
    let made = prepared.make(client, new, wait).await.map_err(not_made)?;
    let reason = made.narrowed_by.map(|(path, mode)| format!("{} has mode {mode:o}", path.display()));
    Ok(Created { seconds: work.seconds(), info: made.info, mode_reason: reason, sent: made.sent })
}

fn not_made(error: create::Error) -> Error {
    let wait = || PartialResult::Cache(Refused { reason: "wait".into() });
    match error {
        create::Error::Client(error) => refusal(error),
        create::Error::NoRoom(_) => Error::fault(error).with(wait()),
        create::Error::Late { .. } => Error::interrupted(error).with(wait()),
        other => Error::fault(other),
    }
}

/// Why the daemon did not do it, as the error of an operation.
pub fn refusal(error: ClientError) -> Error {
    match &error {
        ClientError::Refused { kind, .. } => {
            let reason = kind.clone();
            let wrong = if reason == "malformed" { Kind::Usage } else { Kind::Fault };
            Error::new(wrong, error).with(PartialResult::Cache(Refused { reason }))
        }
        _ => Error::fault(error),
    }
}
