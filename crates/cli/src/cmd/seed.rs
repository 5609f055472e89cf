//! `tidecast seed MANIFEST PATH`: serves what was published.

mod many;

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use serde_json::{Map, Value, json};
use tidecast_identity::Terms;
use tidecast_metainfo::Manifest;
use tidecast_net::{Notice, Security};
use tidecast_store::{Opened, SeedOptions, Store};

use super::describe::open_notice;
use super::find::{Finders, Wanted, named};
use super::swarm::{Choices, Part, Running, totals};
use super::{Context, member, read_manifest, show};
use crate::cli::SwarmArgs;
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, object};
use crate::stop::{Stop, block_on, hangups};
use crate::units::{Size, count};

/// Serve what was published
///
/// Every piece is verified before it is offered; what was verified by an earlier `seed` and has not changed
/// since is remembered. For a manifest made with --private, the first line on standard output is a new ticket.
/// With --data one process serves several manifests on one port. Ctrl-C stops it.
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "tidecast seed [OPTIONS] <MANIFEST> <PATH>\n       tidecast seed [OPTIONS] <MANIFEST>... --data <DIR>",
    after_help = "Examples:
  tidecast seed genomes.torrent /data/genomes --listen 10.0.0.1:6881
  tidecast seed torrents/*.torrent --data /data --data /scratch --upload-limit 50MB/s"
)]
pub(crate) struct Args {
    /// The manifest (.torrent) and the published file, or the directory itself; with --data, manifests
    #[arg(value_name = "MANIFEST", required = true)]
    paths: Vec<PathBuf>,
    /// Serve manifests whose data lies in DIR under their own names; may be repeated: the first DIR that has the name
    #[arg(long, value_name = "DIR")]
    data: Vec<PathBuf>,
    #[command(flatten)]
    ticket: member::TicketArgs,
    #[command(flatten)]
    swarm: SwarmArgs,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let choices = Choices::new(&args.swarm, context)?;
    match (args.paths.as_slice(), args.data.is_empty()) {
        ([manifest, path], true) => one(args, (manifest, path.clone()), &choices, context, reporter),
        ([manifest], false) => {
            let path = beside(&read_manifest(manifest)?, &args.data)?;
            one(args, (manifest, path), &choices, context, reporter)
        }
        (manifests, false) => many::run(manifests, args, choices, context, reporter),
        ([manifest], true) => {
            let shown = manifest.display();
            Err(Failure::usage(anyhow!(
                "no data given for {shown}: name its path, or the directory around it by --data"
            )))
        }
        (paths, true) => Err(Failure::usage(anyhow!(
            "{} paths given: write one MANIFEST and the PATH of its data, or MANIFEST... --data DIR",
            paths.len()
        ))),
    }
}

/// One manifest, on a port of its own.
fn one(
    args: &Args,
    (manifest, path): (&Path, PathBuf),
    choices: &Choices,
    context: &Context<'_>,
    reporter: &mut Reporter,
) -> Outcome {
    let manifest = Arc::new(read_manifest(manifest)?);
    let terms = args.ticket.terms(is_private(&manifest, choices))?;
    let state_dir = context.own_state_dir()?;
    block_on(context.threads(), async {
        let stop = Stop::listen()?;
        let _hangups = hangups()?;
        let (running, ticket) = start(&manifest, &path, (args, terms), choices, &state_dir, reporter)?;
        if let Some(ticket) = &ticket {
            reporter.result(ticket);
        }
        let listen = running.swarm.listen_addrs().to_vec();
        reporter.started("seed", started(&manifest, &listen, ticket));
        serve(running, choices, &stop, reporter).await
    })
}

/// Its swarm is for holders of tickets, which are made here.
fn is_private(manifest: &Manifest, choices: &Choices) -> bool {
    manifest.ssl_cert().is_none() && member::needs_ticket(manifest) && !choices.plain
}

/// Where the data of a manifest lies: in the first of the directories that has its name.
fn beside(manifest: &Manifest, dirs: &[PathBuf]) -> Result<PathBuf, Failure> {
    let name = Path::new(OsStr::from_bytes(manifest.name_bytes()));
    let mut found = dirs.iter().map(|dir| dir.join(name)).filter(|path| path.symlink_metadata().is_ok());
    let is_name = matches!(name.components().collect::<Vec<_>>().as_slice(), [Component::Normal(_)]);
    found.next().filter(|_| is_name).ok_or_else(|| {
        let dirs = dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", ");
        let name = show::plain(&manifest.name());
        anyhow!("no {name} in {dirs}; the data of a manifest lies below --data under its name").into()
    })
}

/// Starts to serve one manifest; a ticket, where it is for holders of one.
fn start(
    manifest: &Arc<Manifest>,
    path: &Path,
    (args, terms): (&Args, Terms),
    choices: &Choices,
    state_dir: &Path,
    reporter: &Reporter,
) -> Result<(Running, Option<String>), Failure> {
    let opened = open(manifest, path, state_dir)?;
    let (security, authority) = if manifest.ssl_cert().is_some() {
        (member::ssl(manifest, &args.swarm, state_dir)?, None)
    } else if is_private(manifest, choices) {
        let (security, authority) = member::owner(manifest, state_dir)?;
        (security, Some(authority))
    } else {
        (Security::Open, None)
    };
    open_notice(manifest, choices.plain, reporter);
    let running = Running::start(opened, security, choices, Part::Seed)?;
    let (listen, network) = (running.swarm.listen_addrs(), choices.network.as_ref());
    let ticket = |owner| member::ticket(manifest, Some(owner), terms, false, listen, network);
    let ticket = authority.as_ref().map(ticket).transpose()?.map(|ticket| ticket.to_string());
    Ok((running, ticket))
}

/// The data on disk, what was verified before remembered in the state directory.
pub(crate) fn open(manifest: &Arc<Manifest>, path: &Path, state_dir: &Path) -> Result<Opened, Failure> {
    let options = SeedOptions { state: Some(state_dir.join("seed")) };
    let opened = Store::seed(manifest.clone(), path, &options);
    Ok(opened.with_context(|| format!("cannot seed {}", path.display()))?)
}

/// Fields of the event `started`. (No `pieces`: that is what progress counts.)
pub(crate) fn started(
    manifest: &Manifest,
    listen: &[SocketAddr],
    ticket: Option<String>,
) -> Map<String, Value> {
    let listen: Vec<String> = listen.iter().map(ToString::to_string).collect();
    let mut fields = object(json!({
        "name": manifest.name(), "listen": listen, "total": manifest.total_len(), "magnet": show::magnet(manifest),
    }));
    fields.extend(ticket.map(|t| ("ticket".to_owned(), t.into())));
    fields
}

/// Looks for peers from now on.
async fn find(running: &mut Running, choices: &Choices, reporter: &Reporter) -> Result<(), Failure> {
    let manifest = running.manifest.clone();
    let wanted = Wanted {
        hashes: manifest.swarm_hashes(),
        trackers: choices.all_trackers(manifest.trackers()),
        peer_id: running.swarm.peer_id(),
        port: running.port(),
        left: 0,
        private: manifest.private(),
        lsd: choices.lsd,
        dht: choices.dht,
        network: choices.network.clone(),
    };
    let (finders, finds) = Finders::start(wanted, reporter).await;
    running.find(finders, finds);
    for peer in named(&choices.peers, reporter).await? {
        running.swarm.add_peer(peer, true).await;
    }
    Ok(())
}

/// Serves until told to stop.
pub(crate) async fn serve(
    mut running: Running,
    choices: &Choices,
    stop: &Stop,
    reporter: &mut Reporter,
) -> Outcome {
    find(&mut running, choices, reporter).await?;
    let manifest = running.manifest.clone();
    let listen: Vec<String> = running.swarm.listen_addrs().iter().map(ToString::to_string).collect();
    reporter.note(&format!(
        "seeding {} at {}; Ctrl-C stops",
        show::plain(&manifest.name()),
        listen.join(", ")
    ));
    let mut changed = None;
    loop {
        tokio::select! {
            () = stop.wait() => break,
            notice = running.notice() => {
                if heard(&mut running, notice, &mut changed, reporter).await {
                    break;
                }
            }
            () = tokio::time::sleep(Duration::from_millis(100)) => {
                running.show("seed", reporter);
                running.tell_troubles(reporter);
            }
        }
    }
    reporter.clear();
    let damaged = running.damaged();
    let summary = running.stop().await?;
    let takers = summary.peers.iter().filter(|p| p.sent_bytes > 0).count();
    let sent = Size(summary.progress.sent_bytes);
    reporter.note(&format!("stopped; {sent} sent to {}", count(takers as u64, "peer")));
    let mut fields = totals(&summary);
    fields.insert("damaged_pieces".to_owned(), damaged.into());
    match changed {
        Some(why) => Err(Failure::from(anyhow!(why)).with(fields)),
        // For a seed, being told to stop is the normal end.
        None => Ok(fields),
    }
}

/// Tells a notice. One file that is gone or changed does not stop the others from being served; true when none is left.
async fn heard(
    running: &mut Running,
    notice: Notice,
    changed: &mut Option<String>,
    reporter: &Reporter,
) -> bool {
    let Some(error) = running.tell(notice, reporter) else { return false };
    if error.is_source_changed() {
        changed.get_or_insert(error.to_string());
    }
    running.warn(error.to_string(), reporter);
    let store = running.swarm.store().clone();
    let looked = tokio::task::spawn_blocking(move || store.sources_left()).await;
    error.is_source_changed() && looked.is_ok_and(|(left, _)| left == 0)
}
