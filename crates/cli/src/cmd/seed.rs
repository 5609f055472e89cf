//! `tidecast seed MANIFEST PATH`: serves what was published.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use serde_json::{Map, Value, json};
use tidecast_metainfo::Manifest;
use tidecast_net::Security;
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
/// Ctrl-C stops it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  tidecast seed genomes.torrent /data/genomes --listen 10.0.0.1:6881")]
pub(crate) struct Args {
    /// The manifest (.torrent)
    manifest: PathBuf,
    /// The published file, or the directory itself
    path: PathBuf,
    #[command(flatten)]
    ticket: member::TicketArgs,
    #[command(flatten)]
    swarm: SwarmArgs,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let choices = Choices::new(&args.swarm, context)?;
    let manifest = Arc::new(read_manifest(&args.manifest)?);
    let private = manifest.ssl_cert().is_none() && member::needs_ticket(&manifest) && !choices.plain;
    let terms = args.ticket.terms(private)?;
    let state_dir = context.own_state_dir()?;
    block_on(context.threads(), async {
        let stop = Stop::listen()?;
        let _hangups = hangups()?;
        let opened = open(&manifest, &args.path, &state_dir)?;
        let (security, authority) = if manifest.ssl_cert().is_some() {
            (member::ssl(&manifest, &args.swarm, &state_dir)?, None)
        } else if private {
            let (security, authority) = member::owner(&manifest, &state_dir)?;
            (security, Some(authority))
        } else {
            (Security::Open, None)
        };
        open_notice(&manifest, choices.plain, reporter);
        let running = Running::start(opened, security, &choices, Part::Seed)?;
        let listen = running.swarm.listen_addrs().to_vec();
        let ticket = match &authority {
            Some(owner) => {
                let ticket =
                    member::ticket(&manifest, Some(owner), terms, false, &listen, choices.network.as_ref())?;
                reporter.result(&ticket.to_string());
                Some(ticket.to_string())
            }
            None => None,
        };
        reporter.started("seed", started(&manifest, &listen, ticket));
        serve(running, &choices, &stop, reporter).await
    })
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

/// Serves until told to stop.
pub(crate) async fn serve(
    mut running: Running,
    choices: &Choices,
    stop: &Stop,
    reporter: &mut Reporter,
) -> Outcome {
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
                // One file that is gone or changed does not stop the others from being served.
                if let Some(error) = running.tell(notice, reporter) {
                    changed = changed.or(Some(error.to_string()).filter(|_| error.is_source_changed()));
                    running.warn(error.to_string(), reporter);
                    let store = running.swarm.store().clone();
                    let looked = tokio::task::spawn_blocking(move || store.sources_left()).await;
                    if error.is_source_changed() && looked.is_ok_and(|(left, _)| left == 0) {
                        break;
                    }
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
