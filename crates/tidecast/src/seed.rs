//! `seed`: serves published data.

pub(crate) mod many;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidecast_event::seed::{Done, Started};
use tidecast_event::{Context as _, Error, PartialResult, Phase, Stage};
use tidecast_identity::{MAX_USES, Terms};
use tidecast_metainfo::Manifest;
use tidecast_net::{Notice, Security};
use tidecast_node::{
    MessageSender, Part, Running, SwarmOptions, SwarmSettings, access, named, now, plain, totals,
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
    /// How many nodes may enrol with it, from 1 to 10,000.
    pub uses: Option<u32>,
}

impl TicketOptions {
    /// The limits of the ticket, from now on.
    ///
    /// # Errors
    /// Usage errors: it would end at once, the number of nodes is out of range, or there is no ticket to limit.
    pub(crate) fn terms(self, makes_ticket: bool) -> Result<Terms, Error> {
        if self.expires.is_some_and(|time| time.as_secs() == 0) {
            return Err(Error::usage("--expires must be at least 1 s"));
        }
        if self.uses.is_some_and(|uses| !(1..=MAX_USES).contains(&uses)) {
            return Err(Error::usage(format!("--uses must be from 1 to {MAX_USES}")));
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
    let settings = SwarmSettings::new(&options.swarm)?;
    let manifest = Arc::new(work.manifest(from).await?);
    let terms = options.ticket.terms(is_private(&manifest, &settings))?;
    let state_dir = state::own(options.state_dir.as_deref())?;
    let messages = MessageSender::new(work);
    let (running, ticket) = begin(&manifest, path, terms, &settings, &state_dir)?;
    work.started(begun("seed", &running, ticket, access::is_open(&manifest, settings.plain)));
    serve(running, &settings, work, &messages).await
}

/// Its swarm is for holders of tickets, which are made here.
fn is_private(manifest: &Manifest, settings: &SwarmSettings) -> bool {
    manifest.ssl_cert().is_none() && access::needs_ticket(manifest) && !settings.plain
}

/// Starts to serve one manifest; a ticket, where it is for holders of one.
fn begin(
    manifest: &Arc<Manifest>,
    path: &Path,
    terms: Terms,
    settings: &SwarmSettings,
    state_dir: &Path,
) -> Result<(Running, Option<String>), Error> {
    let opened = open(manifest, path, state_dir)?;
    let (security, authority) = if manifest.ssl_cert().is_some() {
        (access::ssl(manifest, settings.ssl.as_ref(), state_dir)?, None)
    } else if is_private(manifest, settings) {
        let (security, authority) = access::owner(manifest, state_dir)?;
        (security, Some(authority))
    } else {
        (Security::Open, None)
    };
    let running = Running::start(opened, security, settings, Part::Seed)?;
    let (listen, network) = (running.swarm.listen_addrs(), settings.network.as_ref());
    let ticket = |owner| access::ticket(manifest, Some(owner), terms, false, listen, network);
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
async fn find(
    running: &mut Running,
    settings: &SwarmSettings,
    messages: &MessageSender<'_>,
) -> Result<(), Error> {
    running.find_more(settings, 0, messages).await;
    for peer in named(&settings.peers, messages).await? {
        running.swarm.add_peer(peer, true).await;
    }
    Ok(())
}

/// Serves until stopped, which is the normal end.
pub(crate) async fn serve(
    mut running: Running,
    settings: &SwarmSettings,
    work: &Doing,
    messages: &MessageSender<'_>,
) -> Result<Done, Error> {
    find(&mut running, settings, messages).await?;
    let (name, listen) = (plain(&running.manifest.name()), running.swarm.listen_addrs().to_vec());
    messages.phase(Phase::Serving { name, listen });
    let mut changed = None;
    loop {
        tokio::select! {
            () = work.stop.wait() => break,
            notice = running.notice() => {
                if heard(&mut running, notice, &mut changed, messages).await {
                    break;
                }
            }
            () = tokio::time::sleep(Duration::from_millis(100)) => {
                running.look(Stage::Seed).into_iter().for_each(|now| work.progress(now));
                running.report_finder_errors(messages);
            }
        }
    }
    let damaged_pieces = running.damaged();
    let totals = totals(&running.stop().await?);
    let done = Done { seconds: work.seconds(), totals, damaged_pieces };
    match changed {
        Some(why) => Err(Error::fault(why).with(PartialResult::Seed(Box::new(done)))),
        None => Ok(done),
    }
}

/// Reports a notice. One missing or changed file does not stop the others from being served; true when none
/// is left.
async fn heard(
    running: &mut Running,
    notice: Notice,
    changed: &mut Option<String>,
    messages: &MessageSender<'_>,
) -> bool {
    let Some(error) = running.handle_notice(notice, messages) else { return false };
    if error.is_source_changed() {
        changed.get_or_insert(error.to_string());
    }
    running.warn(error.to_string(), messages);
    let store = running.swarm.store().clone();
    let looked = tokio::task::spawn_blocking(move || store.sources_left()).await;
    error.is_source_changed() && looked.is_ok_and(|(left, _)| left == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_for_one_node_at_least_and_ten_thousand_at_most() {
        for (uses, is_valid) in [(0, false), (1, true), (MAX_USES, true), (MAX_USES + 1, false)] {
            let terms = TicketOptions { expires: None, uses: Some(uses) }.terms(true);
            assert_eq!(terms.is_ok(), is_valid, "{uses}");
        }
    }
}
