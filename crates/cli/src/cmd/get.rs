//! `tidecast get TICKET|MANIFEST|MAGNET --to DIR`: fetches what was published, and serves others meanwhile.

mod older;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use serde_json::{Map, Value, json};
use tidecast_group::Found;
use tidecast_metainfo::{Manifest, Warning};
use tidecast_net::{Compared, Security, Summary};
use tidecast_store::{DownloadOptions, Durability, Opened, Replace, Store, open_bases};
use tokio::time::Instant;

use super::describe::open_notice;
use super::find::{Finders, Wanted};
use super::seed::started;
use super::source::{Origin, Source, right, unanswered};
use super::swarm::{Choices, Part, Running, bound, snapshot, totals};
use super::{Context, RECORDS, dest, member, select, show};
use crate::cli::SwarmArgs;
use crate::failure::{Code, Failure, Outcome};
use crate::names;
use crate::report::{Reporter, object, round};
use crate::stop::{Stop, block_on};
use crate::units::{Size, Span, bytes_per_second, count};

/// A wait for another process is told of when it takes longer.
const WAIT_UNSAID: Duration = Duration::from_secs(2);

/// Peers named one by one in the summary.
const NAMED: usize = 8;

const EXAMPLES: &str = "\
Examples:
  tidecast get @ticket --to /scratch
  tidecast get genomes.torrent --to /scratch --file '*.fa' --timeout 10m --seed-for 1h";

const AFTER: &str = concat!(
    "\
Examples:
  tidecast get @ticket --to /scratch
  tidecast get genomes.torrent --to /scratch --file '*.fa' --timeout 10m

",
    dest::standing!(),
    "

Events with --json, one a line:
  started   command, name, listen, total (bytes), magnet
  check     what is there already is being hashed; fields as of progress
  progress  seconds, stage, bytes, total, pieces (verified), pieces_total,
            rate (bytes a second), peers, received, sent, rate_in, rate_out
  warning   message; of a peer that does not answer also peer and reason (this
            may come before started); where connected peers move no byte also
            peers, silent_seconds, sending
  resumed   silent_seconds, sending: bytes move again
  done      seconds, path, files, bytes, action (delivered, replaced,
            unchanged), files_kept, files_replaced, files_stale (files_foreign:
            of them, not delivered by tidecast), files_deleted, pieces, received, sent, duplicate, corrupt, peers
            [addr, node, client, received, sent], web_seeds [url, received,
            error], cpu_seconds
            [socket, tls, hash, disk, engine, process], get_seconds; where the
            link's rate is known, link_rate_from (told, driver), bound_seconds
            and efficiency
  error     seconds, code (as the exit code), kind, message; totals as of done"
);

/// Fetch what was published, and serve others meanwhile
///
/// It appears under DIR by its own name, whole and verified, or not at all; what is interrupted goes on where it
/// was when the same command is given again.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = AFTER)]
pub(crate) struct Args {
    /// A ticket, a manifest (.torrent), or a magnet link; @FILE has the ticket, - reads it from standard input [default: $TIDECAST_TICKET]
    #[arg(value_name = "TICKET|MANIFEST|MAGNET")]
    source: Option<String>,
    /// The directory to put it into
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Fetch only files that match: a name at any depth, or a path if it has a '/'; may be repeated [default: all, or those that a
    /// magnet link selects by so=]
    #[arg(long, value_name = "GLOB")]
    file: Vec<String>,
    /// Go on serving others for so long when all is there
    #[arg(long, value_name = "DURATION")]
    seed_for: Option<Span>,
    /// Give up when not all is there after so long (exit code 3)
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Span>,
    /// batched: a power cut costs a second of work; none: for RAM and scratch, nothing is synced
    #[arg(long, value_name = "batched|none", value_parser = ["batched", "none"], hide_possible_values = true)]
    durable: Option<String>,
    /// Replace what stands there though it is no former version by our own record
    #[arg(long)]
    force: bool,
    /// Remove from the tree what was delivered there and is not published any more; with --force all that was not published
    #[arg(long)]
    delete: bool,
    /// Take what an older version has that lies there, a directory or file, instead of fetching it, wherever in its files it
    /// is; may be repeated
    #[arg(long, value_name = "PATH")]
    base: Vec<PathBuf>,
    #[command(flatten)]
    swarm: SwarmArgs,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let choices = Choices::new(&args.swarm, context)?;
    let timeout = args.timeout.or(context.settings.timeout).map(|t| t.0);
    let bases = open_bases(&args.base).map_err(Failure::usage)?;
    let durability = durability(args, context)?;
    let source = Source::read(args.source.as_deref())?;
    let state_dir = context.own_state_dir()?;
    reporter.about(&object(json!({ "to": names::json(&args.to) })));
    block_on(context.threads(), async {
        let stop = Stop::listen()?;
        let deadline = timeout.map(|t| Instant::now() + t);
        let security = right(&source, &state_dir)?;
        let again = [right(&source, &state_dir)?, right(&source, &state_dir)?];
        let numbers = source.selected().to_vec();
        let (with_ticket, plain) = (source.private_ticket().is_some(), choices.plain || source.is_plain());
        let Origin { manifest, peers, finders } =
            source.manifest(&choices, Arc::new(security), timeout, &stop, reporter).await?;
        let by_manifest = || by_manifest(&manifest, &args.swarm, plain, &state_dir);
        let [security, asking] = if with_ticket { again } else { [by_manifest()?, by_manifest()?] };
        if !with_ticket {
            open_notice(&manifest, plain, reporter);
        }
        let place = std::path::absolute(args.to.join(OsStr::from_bytes(manifest.name_bytes())))?;
        let in_its_place = manifest.prefix() == Some(place.as_os_str().as_bytes());
        let told = |warning: &Warning| !(in_its_place && matches!(warning, Warning::LinksToPrefix { .. }));
        for warning in manifest.warnings().into_iter().filter(told) {
            reporter.warning(&warning.to_string());
        }
        let select = match args.file.is_empty() {
            true => select::by_number(&manifest, &numbers)?,
            false => select::select(&manifest, &args.file)?,
        };
        let records = Some(state_dir.join(RECORDS));
        let replace = Replace { force: args.force, delete: args.delete, records };
        let manifest = Arc::new(manifest);
        let comparing = older::compared(
            &manifest,
            &select,
            (bases.clone(), &args.to),
            (&peers, asking),
            &choices,
            reporter,
        );
        let compared = tokio::select! {
            compared = comparing => compared,
            () = until(deadline) => Compared { bases, received: 0 },
            () = stop.wait() => {
                let error = anyhow!("interrupted; the same command goes on from here");
                return Err(Failure::new(Code::Cut, error));
            }
        };
        let (bases, beforehand) = (compared.bases, compared.received);
        let options = DownloadOptions { select, durability, replace, bases, ..Default::default() };
        let opened = open(manifest, &args.to, options).await?;
        let mut running = Running::start(opened, security, &choices, Part::Get)?;
        reporter.started("get", started(&running.manifest, running.swarm.listen_addrs(), None));
        running.told = peers.iter().flatten().copied().collect();
        for peer in peers {
            running.swarm.add_peer(peer, true).await;
        }
        find(&mut running, finders, &choices, reporter).await;
        let fetched = fetch(&mut running, deadline, timeout, &stop, reporter).await;
        let got = match fetched {
            Ok(()) => finish(&running, (deadline, timeout), &stop, reporter).await,
            Err(failure) => Err(failure),
        };
        let got = match got {
            Ok(got) => got,
            Err(failure) => return Err(give_up(failure, running, reporter).await),
        };
        let seconds = reporter.seconds();
        serve_on(&mut running, args.seed_for.or(context.settings.seed_for), &stop, reporter).await;
        let mut summary = running.stop().await?;
        summary.progress.received_bytes += beforehand;
        Ok(report(&got, &summary, &choices, seconds, reporter))
    })
}

fn durability(args: &Args, context: &Context<'_>) -> Result<Durability, Failure> {
    match args.durable.as_deref().or(context.settings.durable.as_deref()) {
        None | Some("batched") => Ok(Durability::Batched),
        Some("none") => Ok(Durability::None),
        Some(other) => Err(Failure::usage(anyhow!("--durable is {other:?}: write batched or none"))),
    }
}

/// The right that a manifest by itself gives.
pub(crate) fn by_manifest(
    manifest: &Manifest,
    args: &SwarmArgs,
    plain: bool,
    state_dir: &Path,
) -> Result<Security, Failure> {
    if manifest.ssl_cert().is_some() {
        return Ok(member::ssl(manifest, args, state_dir)?);
    }
    if member::needs_ticket(manifest) && !plain {
        return Err(anyhow!(
            "{} was published for ticket holders only: ask whoever seeds it for a ticket (tidecast get TICKET)",
            show::plain(&manifest.name())
        )
        .into());
    }
    Ok(Security::Open)
}

/// Looks at what is there already; that may take a while on a slow disk.
pub(crate) async fn open(
    manifest: Arc<Manifest>,
    to: &Path,
    options: DownloadOptions,
) -> Result<Opened, Failure> {
    let to = to.to_owned();
    let open = tokio::task::spawn_blocking(move || Store::download(manifest, &to, &options)).await;
    Ok(open.context("a thread of Tidecast failed")??)
}

/// Goes on looking for peers, or begins to.
pub(crate) async fn find(
    running: &mut Running,
    finders: Option<(Finders, tokio::sync::mpsc::Receiver<tidecast_discovery::Found>)>,
    choices: &Choices,
    reporter: &Reporter,
) {
    let (finders, finds) = match finders {
        Some(both) => both,
        None => {
            let manifest = &running.manifest;
            let wanted = Wanted {
                hashes: manifest.swarm_hashes(),
                trackers: choices.all_trackers(manifest.trackers()),
                peer_id: running.swarm.peer_id(),
                port: running.port(),
                left: manifest.total_len().max(1),
                private: manifest.private(),
                lsd: choices.lsd,
                dht: choices.dht,
                network: choices.network.clone(),
            };
            Finders::start(wanted, reporter).await
        }
    };
    running.find(finders, finds);
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Until all is there and verified.
async fn fetch(
    running: &mut Running,
    deadline: Option<Instant>,
    timeout: Option<Duration>,
    stop: &Stop,
    reporter: &mut Reporter,
) -> Result<(), Failure> {
    let mut progress = running.swarm.progress();
    let late = until(deadline);
    let mut late = std::pin::pin!(late);
    loop {
        tokio::select! {
            complete = progress.wait_for(|p| p.complete) => {
                let now = complete.context("the swarm ended by itself")?.clone();
                reporter.progress_at_last(&snapshot("get", &now));
                return Ok(());
            }
            notice = running.notice() => {
                if let Some(error) = running.tell(notice, reporter) {
                    return Err(anyhow!("{error}").into());
                }
            }
            () = stop.wait() => {
                let error = anyhow!("interrupted; the same command goes on from here{}", hint(running, reporter));
                return Err(Failure::new(Code::Cut, error));
            }
            () = &mut late => {
                let seconds = Span(timeout.unwrap_or_default());
                let error = anyhow!("not all is there after {seconds}; the same command goes on from here{}", hint(running, reporter));
                return Err(Failure { code: crate::failure::Code::Cut, error, fields: Map::new() });
            }
            () = tokio::time::sleep(Duration::from_millis(50)) => {
                running.show("get", reporter);
                running.tell_troubles(reporter);
            }
        }
    }
}

/// Why it may have taken too long.
fn hint(running: &Running, reporter: &Reporter) -> String {
    let now = running.swarm.progress().borrow().clone();
    if let Some(why) = running.withdrawn().map(str::to_owned).or_else(|| reporter.why()) {
        return format!(" ({why})");
    }
    let hint = match (now.peers, now.received_bytes) {
        (0, 0) if !running.told.is_empty() => return unanswered(&running.told),
        (0, 0) => " (no peer was found: name one with --peer, or a tracker with --tracker)",
        (0, _) => " (no peer is left)",
        _ => "",
    };
    hint.to_owned()
}

/// Restores metadata and gives everything its final name.
///
/// Another process that writes to the same destination is waited for, until the user or the deadline ends that. What is
/// being put into place is not cut off.
async fn finish(
    running: &Running,
    (deadline, timeout): (Option<Instant>, Option<Duration>),
    stop: &Stop,
    reporter: &Reporter,
) -> Result<tidecast_store::Summary, Failure> {
    let store = running.swarm.store().clone();
    let finishing = store.clone();
    let mut finishing = tokio::task::spawn_blocking(move || finishing.finish());
    let (mut unsaid, mut cut) = (true, None);
    let done = loop {
        tokio::select! {
            done = &mut finishing => break done.context("a thread of Tidecast failed")?,
            () = stop.wait(), if cut.is_none() => {
                cut = Some(anyhow!("interrupted"));
                store.stop_waiting();
            }
            () = until(deadline), if cut.is_none() => {
                cut = Some(anyhow!("not in place after {}", Span(timeout.unwrap_or_default())));
                store.stop_waiting();
            }
            () = tokio::time::sleep(WAIT_UNSAID), if unsaid => {
                if let Some(lock) = store.waits_for() {
                    let (to, lock) = (store.path(), lock.display().to_string());
                    let to = to.display();
                    reporter.warning(&format!("another tidecast writes to {to}; waiting for its lock {lock}"));
                    unsaid = false;
                }
            }
        }
    };
    let done = match (done, cut) {
        (Err(error @ tidecast_store::Error::Waited { .. }), Some(cut)) => {
            return Err(Failure::new(Code::Cut, anyhow!("{cut}: {error}")));
        }
        (done, _) => done?,
    };
    done.warnings.iter().for_each(|warning| reporter.warning(warning));
    Ok(done)
}

/// Serves others for a while; Ctrl-C ends that, and all is well.
async fn serve_on(running: &mut Running, seed_for: Option<Span>, stop: &Stop, reporter: &mut Reporter) {
    let Some(Span(time)) = seed_for.filter(|span| !span.0.is_zero()) else { return };
    reporter.note(&format!("all is there; serving others for {}", Span(time)));
    let end = Instant::now() + time;
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(end) => return,
            () = stop.wait() => return,
            notice = running.notice() => {
                if let Some(error) = running.tell(notice, reporter) {
                    running.warn(error.to_string(), reporter);
                }
            }
            () = tokio::time::sleep(Duration::from_millis(100)) => {
                running.show("seed", reporter);
            }
        }
    }
}

/// Ends a swarm that did not reach its goal, and adds what it did reach.
async fn give_up(failure: Failure, running: Running, reporter: &mut Reporter) -> Failure {
    reporter.clear();
    let store = running.swarm.store().clone();
    let stopped = running.stop().await;
    store.abandon();
    match stopped {
        Ok(summary) => failure.with(totals(&summary)),
        Err(_) => failure,
    }
}

/// Says what was done.
fn report(
    got: &tidecast_store::Summary,
    summary: &Summary,
    choices: &Choices,
    seconds: f64,
    reporter: &Reporter,
) -> Map<String, Value> {
    reporter.clear();
    let now = &summary.progress;
    let took = Span(Duration::from_secs_f64(seconds));
    let files = count(got.files, "file");
    let rate = bytes_per_second(now.received_bytes as f64 / seconds);
    let path = got.path.display();
    reporter.result(&format!("{path}: {files}, {}, every piece verified, in {took}", Size(got.bytes)));
    let unchanged = got.kept == got.files && got.deleted == 0;
    let place = path.to_string();
    let found =
        Found { replaced: got.replaced, stale: got.stale, foreign: got.foreign, deleted: got.deleted };
    dest::lines(|of| (of(&found), place.clone())).iter().for_each(|line| reporter.result(line));
    if now.received_bytes > 0 {
        let mut from: Vec<_> = summary.peers.iter().filter(|p| p.received_bytes > 0).collect();
        from.sort_by_key(|p| std::cmp::Reverse(p.received_bytes));
        let webs: Vec<_> = summary.web_seeds.iter().filter(|s| s.received_bytes > 0).collect();
        let mut sources = vec![count(from.len() as u64, "peer")];
        sources.extend((!webs.is_empty()).then(|| count(webs.len() as u64, "web seed")));
        let sources = sources.join(" and ");
        reporter.result(&format!("received {} from {sources} ({rate})", Size(now.received_bytes)));
        for peer in from.iter().take(NAMED) {
            let client = show::plain(&peer.client);
            reporter.result(&format!("  {} from {} {client}", Size(peer.received_bytes), peer.addr));
        }
        for web in webs.iter().take(NAMED) {
            reporter.result(&format!("  {} from {}", Size(web.received_bytes), show::plain(&web.url)));
        }
    } else {
        reporter.result("nothing had to be fetched");
    }
    if now.sent_bytes > 0 {
        let to = summary.peers.iter().filter(|p| p.sent_bytes > 0).count();
        reporter.result(&format!("sent {} to {}", Size(now.sent_bytes), count(to as u64, "peer")));
    }
    let mut fields = totals(summary);
    fields.extend([
        ("path".to_owned(), names::json(&got.path)),
        ("files".to_owned(), got.files.into()),
        ("action".to_owned(), dest::action(got.fresh, unchanged).into()),
        ("files_kept".to_owned(), got.kept.into()),
        ("files_replaced".to_owned(), got.replaced.into()),
        ("files_stale".to_owned(), got.stale.into()),
        ("files_foreign".to_owned(), got.foreign.into()),
        ("files_deleted".to_owned(), got.deleted.into()),
        ("get_seconds".to_owned(), round(seconds).into()),
    ]);
    let bound = bound(now.received_bytes, summary, choices).filter(|_| now.received_bytes > 0);
    if let Some((bound, from)) = bound {
        let efficiency = bound.as_secs_f64() / seconds;
        reporter.result(&format!(
            "efficiency {:.0}%: this node's link (rate {}) could have brought it in {}",
            efficiency * 100.0,
            from.words(),
            Span(bound)
        ));
        fields.insert("link_rate_from".to_owned(), from.name().into());
        fields.insert("bound_seconds".to_owned(), round(bound.as_secs_f64()).into());
        fields.insert("efficiency".to_owned(), round(efficiency).into());
    }
    fields
}
