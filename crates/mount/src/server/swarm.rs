//! The swarm of a served tree, and the service over it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidecast_event::{Context as _, Error, Fault as _};
use tidecast_metainfo::Manifest;
use tidecast_node::{Choices, Origin, Part, Running, Source, Stop, Teller, right};
use tidecast_store::{DownloadOptions, Durability, Opened, Store};
use tidecast_text::Size;

use crate::fallback::Fallback;
use crate::home::Home;
use crate::options::{Mode, ServeOptions};
use crate::service::{Arrivals, Options, Service};

/// A read waits for its data at most so long, unless the user says otherwise.
const TIMEOUT: Duration = Duration::from_secs(600);
/// A group has so long to be given its plan before files are opened.
const GATHERING: Duration = Duration::from_secs(2);
/// A cache that another server is leaving is free within this.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often such a cache is looked at.
const MOMENT: Duration = Duration::from_millis(20);

/// A swarm, the service over it, and the addresses that the ticket or the user named: the origin's.
pub(super) type Begun = (Running, Arc<Service>, Vec<SocketAddr>);

/// Joins the swarm.
///
/// # Errors
/// No manifest, no right to take part, no room.
pub(super) async fn begin(
    source: Source,
    options: &ServeOptions,
    (state_dir, home): (&Path, &Home),
    choices: &Choices,
    (teller, stop): (&Teller<'_>, &Stop),
) -> Result<Begun, Error> {
    let timeout = options.timeout.unwrap_or(TIMEOUT);
    let (security, again) = (right::of_source(&source, state_dir)?, right::of_source(&source, state_dir)?);
    let (with_ticket, plain) = (source.private_ticket().is_some(), choices.plain || source.is_plain());
    let kept = if matches!(source, Source::File(_)) { None } else { home.manifest() };
    let Origin { manifest, peers, finders } = match kept {
        Some(manifest) => source.with(manifest, choices, teller).await?,
        None => {
            let origin = source.manifest(choices, Arc::new(security), Some(timeout), stop, teller).await?;
            home.keep(&origin.manifest)?;
            origin
        }
    };
    let security = if with_ticket {
        again
    } else {
        right::of_manifest(&manifest, choices.ssl.as_ref(), plain, state_dir)?
    };
    let manifest = Arc::new(manifest);
    let opened = cache(&manifest, &home.data(&manifest)?).await?;
    let arrivals = Arrivals::default();
    let group = options.group && has_room(&opened, teller);
    let mut running = Running::start(opened, security, choices, Part::OnDemand(arrivals.hook(), group))?;
    let service = serve(&running, arrivals, options, timeout).await?;
    let told = peers.iter().flatten().copied().collect();
    for peer in peers {
        running.swarm.add_peer(peer, true).await;
    }
    running.go_on_finding(finders, choices, teller).await;
    if group {
        // What is wanted before would be asked of the origin by each node for itself.
        let mut progress = running.swarm.progress();
        let _ = tokio::time::timeout(GATHERING, progress.wait_for(|now| now.planned)).await;
    }
    Ok((running, service, told))
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

/// What is here of the tree; the server before this one may need a moment to leave it.
async fn cache(manifest: &Arc<Manifest>, at: &Path) -> Result<Opened, Error> {
    let until = Instant::now() + PATIENCE;
    loop {
        let options = DownloadOptions { durability: Durability::None, on_demand: true, ..Default::default() };
        match open(manifest.clone(), at.to_owned(), options).await {
            Err(error) if Instant::now() < until && is_busy(&error) => tokio::time::sleep(MOMENT).await,
            opened => return opened,
        }
    }
}

async fn open(manifest: Arc<Manifest>, at: PathBuf, options: DownloadOptions) -> Result<Opened, Error> {
    let open = tokio::task::spawn_blocking(move || Store::download(manifest, &at, &options)).await;
    open.context("a thread of Tidecast failed")?.fault()
}

fn is_busy(error: &Error) -> bool {
    matches!(error.cause(), Some(tidecast_store::Error::Busy { .. }))
}

/// Whether all that the others may open fits into the cache: a plan brings it, wanted here or not, and would leave no
/// room for what is.
fn has_room(opened: &Opened, teller: &Teller<'_>) -> bool {
    let manifest = opened.store.manifest();
    let here = opened.have.iter().chain(&opened.to_check).flat_map(|pieces| pieces.clone());
    let here: u64 = here.map(|piece| u64::from(manifest.piece_len(piece))).sum();
    let missing = manifest.total_len().saturating_sub(here);
    let path = opened.store.path();
    let dir = path.ancestors().find(|dir| dir.is_dir()).unwrap_or(&path);
    let free = rustix::fs::statvfs(dir).map_or(u64::MAX, |of| of.f_bavail.saturating_mul(of.f_frsize));
    if missing > free {
        teller.warning(format!(
            "the cache has {} free and the files of the group need {}: this node ignores --group and fetches \
             only the files that it opens",
            Size(free),
            Size(missing)
        ));
    }
    missing <= free
}
