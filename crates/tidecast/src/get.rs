//! `get`: fetches published data, and serves other nodes meanwhile.

mod deadline;
mod finish;
mod older;
mod select;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidecast_event::get::{Done, Started};
use tidecast_event::{Context as _, Error, Fault as _, Phase, Stage};
use tidecast_metainfo::{Manifest, Warning};
use tidecast_net::{Compared, Security};
use tidecast_node::{
    MessageSender, Origin, Part, RECORDS, Running, Source, SwarmOptions, SwarmSettings, access, totals,
    unanswered,
};
use tidecast_store::{DownloadOptions, Durability, Opened, Replace, Store, open_bases};
use tidecast_text::{Size, Span};
use tokio::time::Instant;

use self::deadline::Deadline;
use self::older::Peers;
use crate::operation::{Operation, Work, start};
use crate::{begun, state};

/// The operation of [`get`].
pub type Get = Operation<Started, Done>;
type Doing = Work<Started, Done>;

/// How to fetch; the default fetches all, and ends when it is there.
#[derive(Debug, Clone, Default)]
pub struct GetOptions {
    /// Fetch only files that match: a name at any depth, or a path if it has a `/`. Default: all, or those that a magnet link
    /// selects.
    pub files: Vec<OsString>,
    /// Keep serving other nodes for this time when all data is there.
    pub seed_for: Option<Duration>,
    /// Give up when not all is there after this long ([`Kind::Interrupted`](crate::Kind::Interrupted)).
    pub timeout: Option<Duration>,
    /// When received data is synced to disk.
    pub durability: Durability,
    /// Replace existing files even if they are not a former version by this node's own record.
    pub force: bool,
    /// Remove delivered files that are no longer published; with `force` all files that are not published.
    pub delete: bool,
    /// Older versions on this host, directories or files: their content is not fetched again.
    pub base: Vec<PathBuf>,
    /// How to take part in the swarm.
    pub swarm: SwarmOptions,
    /// Where this node keeps its key and records. Default: [`default_state_dir`](crate::default_state_dir).
    pub state_dir: Option<PathBuf>,
    /// Threads to work with. Default: one for each core.
    pub threads: Option<usize>,
}

/// Fetches the data of `source` into the directory `to`, and serves other nodes meanwhile.
///
/// It appears below `to` under its own name, whole and verified, or not at all. The same call resumes an
/// interrupted one.
///
/// ```
/// use tidecast::{GetOptions, ShareOptions, Source, SwarmOptions, get, share};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let (data, to) = (dir.path().join("data"), dir.path().join("to"));
/// # std::fs::write(&data, "the same bytes")?;
/// # let state_dir = Some(dir.path().join("state"));
/// let swarm = SwarmOptions::loopback();
/// let options = ShareOptions { swarm: swarm.clone(), state_dir: state_dir.clone(), ..Default::default() };
/// let sharing = share(&data, options);
/// let ticket = sharing.ready_blocking()?.ticket.unwrap_or_default();
///
/// let options = GetOptions { swarm, state_dir, ..Default::default() };
/// let done = get(Source::read(&ticket)?, &to, options).wait_blocking()?;
/// assert_eq!(std::fs::read(done.path)?, b"the same bytes");
/// assert_eq!(done.totals.received, 14);
/// # Ok(())
/// # }
/// ```
pub fn get(source: impl Into<Source>, to: impl AsRef<Path>, options: GetOptions) -> Get {
    let (source, to) = (source.into(), to.as_ref().to_owned());
    start(options.threads.unwrap_or(0), async move |work| run(source, &to, &options, work).await)
}

async fn run(source: Source, to: &Path, options: &GetOptions, work: &Doing) -> Result<Done, Error> {
    let settings = SwarmSettings::new(&options.swarm)?;
    let bases = open_bases(&options.base).map_err(Error::usage)?;
    let state_dir = state::own(options.state_dir.as_deref())?;
    let (deadline, messages) = (Deadline::new(options.timeout), MessageSender::new(work));
    let asking = access::of_source(&source, &state_dir)?;
    let by_ticket = match source.private_ticket() {
        Some(ticket) => Some([access::holder(ticket, &state_dir)?, access::holder(ticket, &state_dir)?]),
        None => None,
    };
    let (numbers, plain) = (source.selected().to_vec(), settings.plain || source.is_plain());
    let found = source.manifest(&settings, Arc::new(asking), options.timeout, &work.stop, &messages);
    let Origin { manifest, peers, finders: finding } = found.await?;
    let mut peers = Peers { peers, finding };
    let with_ticket = by_ticket.is_some();
    let [security, asking] = match by_ticket {
        Some(rights) => rights,
        None => {
            let right = || access::of_manifest(&manifest, settings.ssl.as_ref(), plain, &state_dir);
            [right()?, right()?]
        }
    };
    warn(&manifest, to, &messages)?;
    let select = match options.files.is_empty() {
        true => select::by_number(&manifest, &numbers)?,
        false => select::select(&manifest, &options.files)?,
    };
    let manifest = Arc::new(manifest);
    let comparing =
        older::compared(&manifest, &select, (bases.clone(), to), (&mut peers, asking), &settings, &messages);
    let compared = tokio::select! {
        compared = comparing => compared,
        () = deadline.wait() => Compared { bases, received: 0 },
        () = work.stop.wait() => return Err(Error::interrupted("interrupted; run the same command again to resume")),
    };
    let (bases, beforehand) = (compared.bases, compared.received);
    let replace = Replace {
        force: options.force,
        // Their names are others' choice.
        unknown: false,
        delete: options.delete,
        records: Some(state_dir.join(RECORDS)),
    };
    // Who may change the files is this user's choice, not the publisher's.
    let withheld = tidecast_paths::umask() & tidecast_paths::OTHERS_WRITE;
    let durability = options.durability;
    let download = DownloadOptions { select, durability, replace, bases, withheld, ..Default::default() };
    let opened = open(manifest, to, download).await?;
    let mut running = begin(opened, security, peers, &settings, &messages, |running| {
        let open = !with_ticket && access::is_open(&running.manifest, plain);
        work.started(begun("get", running, None, open));
    })
    .await?;
    let got = match fetch(&mut running, deadline, work, &messages).await {
        Ok(()) => finish::finish(&running, deadline, &work.stop, &messages).await,
        Err(error) => Err(error),
    };
    let got = match got {
        Ok(got) => got,
        Err(error) => return Err(give_up(error, running).await),
    };
    let seconds = work.seconds();
    serve_on(&mut running, options.seed_for, work, &messages).await;
    let mut summary = running.stop().await?;
    summary.progress.received_bytes += beforehand;
    Ok(finish::done(got, &summary, &settings, (seconds, work.seconds())))
}

/// Warns of unusual properties of the manifest. Links to the place that the tree was built for are correct if
/// it is delivered there.
fn warn(manifest: &Manifest, to: &Path, messages: &MessageSender<'_>) -> Result<(), Error> {
    let place = std::path::absolute(to.join(OsStr::from_bytes(manifest.name_bytes()))).fault()?;
    let in_its_place = manifest.prefix() == Some(place.as_os_str().as_bytes());
    let told = |warning: &Warning| !(in_its_place && matches!(warning, Warning::LinksToPrefix { .. }));
    let told = manifest.warnings().into_iter().filter(told);
    told.for_each(|warning| messages.warning(warning.to_string()));
    Ok(())
}

/// Checks the existing data; that may take a while on a slow disk.
async fn open(manifest: Arc<Manifest>, to: &Path, options: DownloadOptions) -> Result<Opened, Error> {
    let to = to.to_owned();
    let open = tokio::task::spawn_blocking(move || Store::download(manifest, &to, &options)).await;
    open.context("a thread of Tidecast failed")?.fault()
}

/// Joins the swarm.
async fn begin(
    opened: Opened,
    security: Security,
    Peers { peers, finding }: Peers,
    settings: &SwarmSettings,
    messages: &MessageSender<'_>,
    started: impl FnOnce(&Running),
) -> Result<Running, Error> {
    let mut running = Running::start(opened, security, settings, Part::Get)?;
    started(&running);
    running.told = peers.iter().flatten().copied().collect();
    for peer in peers {
        running.swarm.add_peer(peer, true).await;
    }
    running.continue_finding(finding, settings, messages).await;
    Ok(running)
}

/// Until all is there and verified.
async fn fetch(
    running: &mut Running,
    deadline: Deadline,
    work: &Doing,
    messages: &MessageSender<'_>,
) -> Result<(), Error> {
    let mut progress = running.swarm.progress();
    let mut late = std::pin::pin!(deadline.wait());
    loop {
        tokio::select! {
            complete = progress.wait_for(|p| p.complete) => {
                let now = complete.context("the swarm ended unexpectedly")?.clone();
                work.progress(tidecast_node::progress(Stage::Get, &now));
                return Ok(());
            }
            notice = running.notice() => {
                if let Some(error) = running.handle_notice(notice, messages) {
                    return Err(Error::fault(error.to_string()));
                }
            }
            () = work.stop.wait() => {
                let hint = hint(running, messages);
                return Err(Error::interrupted(format!("interrupted; run the same command again to resume{hint}")));
            }
            () = &mut late => {
                let (seconds, hint) = (Span(deadline.after), hint(running, messages));
                let text = format!("not complete within {seconds}; run the same command again to resume{hint}");
                return Err(Error::interrupted(text));
            }
            () = tokio::time::sleep(Duration::from_millis(50)) => {
                running.look(Stage::Get).into_iter().for_each(|now| work.progress(now));
                running.report_finder_errors(messages);
            }
        }
    }
}

/// Why it may have taken too long.
fn hint(running: &Running, messages: &MessageSender<'_>) -> String {
    let now = running.swarm.progress().borrow().clone();
    if let Some(why) = running.withdrawn().map(str::to_owned).or_else(|| messages.silence_reason()) {
        return format!(" ({why})");
    }
    let hint = match (now.peers, now.received_bytes) {
        (0, 0) if !running.told.is_empty() => return unanswered(&running.told),
        (0, _) if !running.web_seeds.is_empty() => return slow(&running.web_seeds, now.web_bytes),
        (0, 0) => " (no peer was found: name one with --peer, or a tracker with --tracker)",
        (0, _) => " (no peer is left)",
        _ => "",
    };
    hint.to_owned()
}

/// Why it has taken too long where only web seeds were connected.
fn slow(web_seeds: &[String], bytes: u64) -> String {
    let sent = match bytes {
        0 => "sent no complete block".to_owned(),
        bytes => format!("sent {}", Size(bytes)),
    };
    match web_seeds {
        [] => String::new(),
        [one] => format!(" (web seed {one} {sent}; no peer is connected)"),
        [first, more @ ..] => {
            format!(" (web seed {first} and {} more {sent}; no peer is connected)", more.len())
        }
    }
}

/// Serves others for a while; to be stopped ends that, and all is well.
async fn serve_on(
    running: &mut Running,
    seed_for: Option<Duration>,
    work: &Doing,
    messages: &MessageSender<'_>,
) {
    let Some(time) = seed_for.filter(|time| !time.is_zero()) else { return };
    messages.phase(Phase::ServingFor(time));
    let end = Instant::now() + time;
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(end) => return,
            () = work.stop.wait() => return,
            notice = running.notice() => {
                if let Some(error) = running.handle_notice(notice, messages) {
                    running.warn(error.to_string(), messages);
                }
            }
            () = tokio::time::sleep(Duration::from_millis(100)) => {
                running.look(Stage::Seed).into_iter().for_each(|now| work.progress(now));
            }
        }
    }
}

/// Ends a swarm that did not reach its goal, and adds its partial result.
async fn give_up(error: Error, running: Running) -> Error {
    let store = running.swarm.store().clone();
    let stopped = running.stop().await;
    store.abandon();
    match stopped {
        Ok(summary) => error.with(totals(&summary).into()),
        Err(_) => error,
    }
}
