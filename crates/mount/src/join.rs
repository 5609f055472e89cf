//! The swarm of a tree that is read on demand, and the service over it: for mounts and for readers.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidecast_event::{Context as _, Error};
use tidecast_metainfo::Manifest;
use tidecast_net::Notice;
use tidecast_node::{MessageSender, Origin, Part, Running, Source, Stop, SwarmSettings, about_peer, access};
use tidecast_store::{DownloadOptions, Durability, Opened};
use tidecast_text::Size;

use crate::fallback::Fallback;
use crate::home::Home;
use crate::options::{Mode, ServeOptions};
use crate::service::{Arrivals, Options, Service};

/// Longest wait of a read for its data, unless the user sets another.
const TIMEOUT: Duration = Duration::from_secs(600);
/// A group has this long to be given its plan before files are opened.
const GATHERING: Duration = Duration::from_secs(2);
/// A cache that another server is leaving is free within this.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often such a cache is looked at.
const MOMENT: Duration = Duration::from_millis(20);

/// A swarm, the service over it, and the addresses that the ticket or the user named: the origin's.
pub(crate) type Begun = (Running, Arc<Service>, Vec<SocketAddr>);

/// Joins the swarm; `open` opens the store of the pieces.
///
/// # Errors
/// No manifest, no right to take part, no room.
pub(crate) async fn begin(
    source: Source,
    options: &ServeOptions,
    (state_dir, home): (&Path, &Home),
    settings: &SwarmSettings,
    (messages, stop): (&MessageSender<'_>, &Stop),
    open: impl AsyncFnOnce(&Arc<Manifest>) -> Result<Opened, Error>,
) -> Result<Begun, Error> {
    let timeout = options.timeout.unwrap_or(TIMEOUT);
    let (security, again) = (access::of_source(&source, state_dir)?, access::of_source(&source, state_dir)?);
    let (with_ticket, plain) = (source.private_ticket().is_some(), settings.plain || source.is_plain());
    let kept = if matches!(source, Source::File(_)) { None } else { home.manifest() };
    let Origin { manifest, peers, finders } = match kept {
        Some(manifest) => source.with(manifest, settings, messages).await?,
        None => {
            let origin = source.manifest(settings, Arc::new(security), Some(timeout), stop, messages).await?;
            home.keep(&origin.manifest)?;
            origin
        }
    };
    let security = if with_ticket {
        again
    } else {
        access::of_manifest(&manifest, settings.ssl.as_ref(), plain, state_dir)?
    };
    let manifest = Arc::new(manifest);
    let opened = open(&manifest).await?;
    let arrivals = Arrivals::default();
    let group = options.group && has_room(&opened, messages);
    let mut running = Running::start(opened, security, settings, Part::OnDemand(arrivals.hook(), group))?;
    let service = serve(&running, arrivals, options, timeout).await?;
    let told = peers.iter().flatten().copied().collect();
    for peer in peers {
        running.swarm.add_peer(peer, true).await;
    }
    running.continue_finding(finders, settings, messages).await;
    if group {
        // Before that, each node would request the wanted pieces from the origin separately.
        let mut progress = running.swarm.progress();
        let _ = tokio::time::timeout(GATHERING, progress.wait_for(|now| now.planned)).await;
    }
    Ok((running, service, told))
}

/// Tells a notice, and notes it for reads that wait or fail.
pub(crate) fn handle_notice(
    notice: Notice,
    service: &Service,
    running: &mut Running,
    messages: &MessageSender<'_>,
) {
    // Of addresses that do not answer, only where no other does.
    let harmless =
        matches!(notice, Notice::Unreachable { .. }) && running.swarm.progress().borrow().peers > 0;
    if let Some(why) = about_peer(&notice).filter(|_| !harmless) {
        service.heard_of_peer(why);
    }
    if let Some(error) = running.handle_notice(notice, messages) {
        let cache = running.swarm.store().path();
        service.fail_all(format!("the cache {} does not take data: {error}", cache.display()));
        running.warn(format!("{error}; reads are tried again"), messages);
    }
}

/// The service over a swarm.
async fn serve(
    running: &Running,
    arrivals: Arrivals,
    options: &ServeOptions,
    timeout: Duration,
) -> Result<Arc<Service>, Error> {
    let (alone, connected) = (running.swarm.progress(), running.swarm.progress());
    let fallback = options.fallback.clone();
    let options = Options {
        timeout,
        connected: Box::new(move || connected.borrow().peers),
        fallback: fallback.map(|dir| Fallback { dir, alone: Box::new(move || alone.borrow().peers == 0) }),
        bulk: options.mode == Mode::Bulk,
        record: options.record.is_some(),
        owner: (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
    };
    let (store, demand) = (running.swarm.store().clone(), running.swarm.demand());
    let service =
        tokio::task::spawn_blocking(move || Service::start(store, demand, &arrivals, options)).await;
    Ok(Arc::new(service.context("a thread of Tidecast failed")??))
}

/// Opens the local part of the tree; the previous process may need a moment to release it.
pub(crate) async fn opened(
    open: impl Fn() -> Result<Opened, Error> + Clone + Send + 'static,
) -> Result<Opened, Error> {
    let until = Instant::now() + PATIENCE;
    loop {
        let open = tokio::task::spawn_blocking(open.clone()).await;
        match open.context("a thread of Tidecast failed")? {
            Err(error) if Instant::now() < until && is_busy(&error) => tokio::time::sleep(MOMENT).await,
            opened => return opened,
        }
    }
}

/// Pieces are kept as they come, and not all need ever come.
pub(crate) fn on_demand() -> DownloadOptions {
    DownloadOptions { durability: Durability::None, on_demand: true, ..Default::default() }
}

fn is_busy(error: &Error) -> bool {
    matches!(error.cause(), Some(tidecast_store::Error::Busy { .. }))
}

/// Whether all data that the other members may open fits into the cache: a plan brings it all, wanted here or
/// not, and could leave no room for data that this node needs.
fn has_room(opened: &Opened, messages: &MessageSender<'_>) -> bool {
    let manifest = opened.store.manifest();
    let here = opened.have.iter().chain(&opened.to_check).flat_map(|pieces| pieces.clone());
    let here: u64 = here.map(|piece| u64::from(manifest.piece_len(piece))).sum();
    let missing = manifest.total_len().saturating_sub(here);
    let path = opened.store.path();
    let dir = path.ancestors().find(|dir| dir.is_dir()).unwrap_or(&path);
    let free = rustix::fs::statvfs(dir).map_or(u64::MAX, |of| of.f_bavail.saturating_mul(of.f_frsize));
    if missing > free {
        messages.warning(format!(
            "the cache has {} free and the files of the group need {}: this node ignores --group and fetches \
             only the files that it opens",
            Size(free),
            Size(missing)
        ));
    }
    missing <= free
}
