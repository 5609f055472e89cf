//! `seed`: serves published data.

pub(crate) mod many;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidecast_event::seed::{Done, Started};
use tidecast_event::{Context as _, Error, Phase, Reached, Stage};
use tidecast_identity::Terms;
use tidecast_metainfo::Manifest;
use tidecast_net::{Notice, Security};
use tidecast_node::{
    Choices, Part, Running, SwarmOptions, Teller, named, now, plain, read_manifest, right, totals,
};
use tidecast_store::{Opened, SeedOptions as OpenOptions, Store};

use crate::operation::{Operation, Work, start};
use crate::{begun, state};

/// The operation of [`seed`] and [`share`](crate::share()).
pub type Seed = Operation<Started, Done>;
pub(crate) type Doing = Work<Started, Done>;

/// For how long and for how many nodes a new ticket is good. Default: for all, until it is revoked.
#[derive(Debug, Clone, Copy, Default)]
pub struct TicketOptions {
    /// It expires after this time.
    pub expires: Option<Duration>,
    /// How many nodes may enrol with it.
    pub uses: Option<u32>,
}

impl TicketOptions {
    /// The limits of the ticket, from now on.
    ///
    /// # Errors
    /// Usage errors: it would end at once, or there is no ticket to limit.
    pub(crate) fn terms(self, makes_ticket: bool) -> Result<Terms, Error> {
        if self.expires.is_some_and(|time| time.as_secs() == 0) {
            return Err(Error::usage("--expires must be at least 1 s"));
        }
        let expires = self.expires.map(|time| now().saturating_add(time.as_secs()));
        let terms = Terms { expires, uses: self.uses };
        if !makes_ticket && terms != Terms::default() {
            let why = "--expires and --uses need a private swarm; anyone may join this one";
            return Err(Error::usage(why));
        }
        Ok(terms)
    }
}

/// How to serve.
#[derive(Debug, Clone, Default)]
pub struct SeedOptions {
    /// The ticket that is made for a private manifest.
    pub ticket: TicketOptions,
    /// How to take part in the swarm.
    pub swarm: SwarmOptions,
    /// Where this node keeps its key, and its record of verified data. Default:
    /// [`default_state_dir`](crate::default_state_dir).
    pub state_dir: Option<PathBuf>,
    /// Threads to work with. Default: one for each core.
    pub threads: Option<usize>,
}

/// Serves the file or directory `path`, which the manifest file describes, until it is stopped.
///
/// Every piece is verified before it is offered; data that an earlier call verified and that has not changed
/// since is not verified again. For a manifest that was published as private, `started` has a new ticket.
///
/// ```
/// use tidecast::{GetOptions, PublishOptions, SeedOptions, Source, SwarmOptions, get, publish, seed};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let (data, torrent) = (dir.path().join("data"), dir.path().join("data.torrent"));
/// # std::fs::write(&data, "the same bytes")?;
/// # let state_dir = Some(dir.path().join("state"));
/// let (output, state) = (Some(torrent.clone()), state_dir.clone());
/// publish(&data, PublishOptions { output, state_dir: state, ..Default::default() }).wait_blocking()?;
///
/// let swarm = SwarmOptions::loopback();
/// let seeding = seed(&torrent, &data, SeedOptions { swarm, state_dir: state_dir.clone(), ..Default::default() });
/// let at = seeding.ready_blocking()?.listen;
///
/// let swarm = SwarmOptions { peers: vec![at[0].to_string()], ..SwarmOptions::loopback() };
/// let source = Source::read(&torrent.to_string_lossy())?;
/// get(source, dir.path().join("to"), GetOptions { swarm, state_dir, ..Default::default() }).wait_blocking()?;
///
/// seeding.stop();
/// assert_eq!(seeding.wait_blocking()?.totals.sent, 14);
/// # Ok(())
/// # }
/// ```
pub fn seed(manifest: impl AsRef<Path>, path: impl AsRef<Path>, options: SeedOptions) -> Seed {
    let (manifest, path) = (manifest.as_ref().to_owned(), path.as_ref().to_owned());
    start(options.threads.unwrap_or(0), async move |work| run(&manifest, &path, &options, work).await)
}

async fn run(from: &Path, path: &Path, options: &SeedOptions, work: &Doing) -> Result<Done, Error> {
    let choices = Choices::new(&options.swarm)?;
    let manifest = Arc::new(read_manifest(from)?);
    let terms = options.ticket.terms(is_private(&manifest, &choices))?;
    let state_dir = state::own(options.state_dir.as_deref())?;
    let teller = Teller::new(work);
    let (running, ticket) = begin(&manifest, path, terms, &choices, &state_dir)?;
    work.started(begun("seed", &running, ticket, right::is_open(&manifest, choices.plain)));
    serve(running, &choices, work, &teller).await
}

/// Its swarm is for holders of tickets, which are made here.
fn is_private(manifest: &Manifest, choices: &Choices) -> bool {
    manifest.ssl_cert().is_none() && right::needs_ticket(manifest) && !choices.plain
}

/// Starts to serve one manifest; a ticket, where it is for holders of one.
fn begin(
    manifest: &Arc<Manifest>,
    path: &Path,
    terms: Terms,
    choices: &Choices,
    state_dir: &Path,
) -> Result<(Running, Option<String>), Error> {
    let opened = open(manifest, path, state_dir)?;
    let (security, authority) = if manifest.ssl_cert().is_some() {
        (right::ssl(manifest, choices.ssl.as_ref(), state_dir)?, None)
    } else if is_private(manifest, choices) {
        let (security, authority) = right::owner(manifest, state_dir)?;
        (security, Some(authority))
    } else {
        (Security::Open, None)
    };
    let running = Running::start(opened, security, choices, Part::Seed)?;
    let (listen, network) = (running.swarm.listen_addrs(), choices.network.as_ref());
    let ticket = |owner| right::ticket(manifest, Some(owner), terms, false, listen, network);
    let ticket = authority.as_ref().map(ticket).transpose()?.map(|ticket| ticket.to_string());
    Ok((running, ticket))
}

/// The data on disk; earlier verifications are recorded in the state directory.
pub(crate) fn open(manifest: &Arc<Manifest>, path: &Path, state_dir: &Path) -> Result<Opened, Error> {
    let options = OpenOptions { state: Some(state_dir.join("seed")) };
    let opened = Store::seed(manifest.clone(), path, &options);
    opened.with_context(|| format!("cannot seed {}", path.display()))
}

/// Looks for peers from now on.
async fn find(running: &mut Running, choices: &Choices, teller: &Teller<'_>) -> Result<(), Error> {
    running.find_more(choices, 0, teller).await;
    for peer in named(&choices.peers, teller).await? {
        running.swarm.add_peer(peer, true).await;
    }
    Ok(())
}

/// Serves until stopped, which is the normal end.
pub(crate) async fn serve(
    mut running: Running,
    choices: &Choices,
    work: &Doing,
    teller: &Teller<'_>,
) -> Result<Done, Error> {
    find(&mut running, choices, teller).await?;
    let (name, listen) = (plain(&running.manifest.name()), running.swarm.listen_addrs().to_vec());
    teller.phase(Phase::Serving { name, listen });
    let mut changed = None;
    loop {
        tokio::select! {
            () = work.stop.wait() => break,
            notice = running.notice() => {
                if heard(&mut running, notice, &mut changed, teller).await {
                    break;
                }
            }
            () = tokio::time::sleep(Duration::from_millis(100)) => {
                running.look(Stage::Seed).into_iter().for_each(|now| work.progress(now));
                running.tell_troubles(teller);
            }
        }
    }
    let damaged_pieces = running.damaged();
    let totals = totals(&running.stop().await?);
    let done = Done { seconds: work.seconds(), totals, damaged_pieces };
    match changed {
        Some(why) => Err(Error::fault(why).with(Reached::Seed(Box::new(done)))),
        None => Ok(done),
    }
}

/// Reports a notice. One missing or changed file does not stop the others from being served; true when none
/// is left.
async fn heard(
    running: &mut Running,
    notice: Notice,
    changed: &mut Option<String>,
    teller: &Teller<'_>,
) -> bool {
    let Some(error) = running.tell(notice, teller) else { return false };
    if error.is_source_changed() {
        changed.get_or_insert(error.to_string());
    }
    running.warn(error.to_string(), teller);
    let store = running.swarm.store().clone();
    let looked = tokio::task::spawn_blocking(move || store.sources_left()).await;
    error.is_source_changed() && looked.is_ok_and(|(left, _)| left == 0)
}
