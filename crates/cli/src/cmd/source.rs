//! What `get` is given: a ticket, a magnet link or a manifest file; and how the first two become a manifest.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use tidecast_discovery::{Found, peers};
use tidecast_identity::{Access, ManifestId, Ticket};
use tidecast_metainfo::{Magnet, Manifest};
use tidecast_net::{Error, Fetch, Security, Vain, fetch_manifest, local_addresses, order_for_dialling};
use tokio::sync::mpsc;

use super::find::{Finders, Wanted};
use super::swarm::Choices;
use super::unreachable::Unreachable;
use super::{member, read_manifest};
use crate::failure::{Code, Failure};
use crate::report::Reporter;
use crate::secret::TICKET;
use crate::stop::Stop;

/// Addresses remembered while the manifest is looked for.
const KNOWN: usize = 1024;
/// How often peers that do not answer are told of.
const TELL: Duration = Duration::from_millis(200);
/// Without `--timeout`, a manifest is looked for this long.
const LOOK: Duration = Duration::from_secs(24 * 3600);

/// Where the data is to come from.
pub(crate) enum Source {
    Ticket(Box<Ticket>),
    Magnet(Box<Magnet>),
    File(Box<Manifest>),
}

/// A manifest, and who may have the data.
pub(crate) struct Origin {
    pub(crate) manifest: Manifest,
    /// Nodes, each by its addresses.
    pub(crate) peers: Vec<Vec<SocketAddr>>,
    /// Those who go on looking, if somebody had to look for the manifest.
    pub(crate) finders: Option<(Finders, mpsc::Receiver<Found>)>,
}

/// What a user has given as source, before it is understood.
#[derive(Debug, Clone)]
pub(crate) enum Given {
    /// A ticket or a magnet link.
    Text(String),
    /// The file of a manifest.
    Path(PathBuf),
}

impl Given {
    /// From an argument, which may also be the file of a ticket, or from the environment.
    ///
    /// # Errors
    /// Usage errors: there is none, or it cannot be read.
    pub(crate) fn read(word: Option<&str>) -> Result<Self, Failure> {
        let is_place = |word: &str| word == "-" || word.starts_with('@');
        if let Some(word) = word.filter(|word| !is_place(word)) {
            // A file may have any name: what is there is meant.
            let path = Path::new(word);
            let is_file = path.exists();
            return match (begins(word, "tidecast1") || begins(word, "magnet:")) && !is_file {
                true => Ok(Self::Text(word.to_owned())),
                false if is_file && is_ticket_file(path) => {
                    Ok(Self::Text(TICKET.file(path).map_err(Failure::usage)?))
                }
                false => Ok(Self::Path(path.to_owned())),
            };
        }
        let text = TICKET.given(word).map_err(Failure::usage)?;
        let text = text.ok_or_else(|| {
            Failure::usage(anyhow!(
                "no ticket, manifest or magnet link given; name one, or set {}",
                TICKET.variable
            ))
        })?;
        Ok(Self::Text(text))
    }

    /// # Errors
    /// A damaged ticket or magnet link is a usage error; an unreadable manifest, the data's fault.
    pub(crate) fn parse(&self) -> Result<Source, Failure> {
        let text = match self {
            Self::Path(path) => return Ok(Source::File(Box::new(read_manifest(path)?))),
            Self::Text(text) => text,
        };
        if begins(text, "magnet:") {
            let magnet = text.trim().parse::<Magnet>().context("the magnet link cannot be used");
            return Ok(Source::Magnet(Box::new(magnet.map_err(Failure::usage)?)));
        }
        Ok(Source::Ticket(Box::new(ticket(text)?)))
    }
}

/// A ticket, which may be broken over lines; or in the first line, where others follow.
pub(crate) fn ticket(text: &str) -> Result<Ticket, Failure> {
    let first = || text.trim_start().lines().next().and_then(|line| line.parse::<Ticket>().ok());
    text.parse::<Ticket>().or_else(|error| first().ok_or(error)).map_err(|e| Failure::usage(anyhow!("{e}")))
}

fn begins(text: &str, with: &str) -> bool {
    text.trim_start().get(..with.len()).is_some_and(|head| head.eq_ignore_ascii_case(with))
}

/// A regular file that begins as tickets do.
fn is_ticket_file(path: &Path) -> bool {
    let mut head = [0; 64];
    let read = || {
        let file =
            std::fs::File::open(path).ok().filter(|f| f.metadata().is_ok_and(|meta| meta.is_file()))?;
        std::io::Read::read(&mut &file, &mut head).ok()
    };
    let length = { read }().unwrap_or(0);
    String::from_utf8_lossy(head.get(..length).unwrap_or_default()).trim_start().starts_with("tidecast1")
}

impl Source {
    /// From an argument or the environment.
    ///
    /// # Errors
    /// Those of [`Given::read`] and [`Given::parse`].
    pub(crate) fn read(word: Option<&str>) -> Result<Self, Failure> {
        Given::read(word)?.parse()
    }

    /// What names the tree: the hash of its manifest, of version 2 if it has one.
    pub(crate) fn id(&self) -> Vec<u8> {
        match self {
            Self::Ticket(ticket) => match ticket.manifest {
                ManifestId::V2(hash) => hash.to_vec(),
                ManifestId::V1(hash) => hash.to_vec(),
            },
            Self::Magnet(magnet) => match (magnet.v2, magnet.v1) {
                (Some(hash), _) => hash.to_vec(),
                (None, hash) => hash.map_or(Vec::new(), |hash| hash.to_vec()),
            },
            Self::File(manifest) => manifest_id(manifest),
        }
    }

    /// The ticket, if it is one for a private swarm.
    pub(crate) fn private_ticket(&self) -> Option<&Ticket> {
        match self {
            Self::Ticket(ticket) if matches!(ticket.access, Access::Private { .. }) => Some(ticket),
            _ => None,
        }
    }

    /// The publisher has said that an open swarm is meant.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Self::Ticket(ticket) if ticket.plain)
    }

    /// Files that the link selects, by number; none for all.
    pub(crate) fn selected(&self) -> &[std::ops::RangeInclusive<u32>] {
        match self {
            Self::Magnet(magnet) => &magnet.select,
            Self::Ticket(_) | Self::File(_) => &[],
        }
    }

    /// Everything that is known without asking anyone.
    async fn known(&self, choices: &Choices, reporter: &Reporter) -> Result<Known, Failure> {
        let mut known =
            Known { peers: super::find::named(&choices.peers, reporter).await?, ..Known::default() };
        match self {
            Self::File(manifest) if lacks_hashes(manifest) => {
                known.v2 = manifest.hash_v2();
                known.trackers = manifest.trackers().to_vec();
            }
            Self::File(_) => {}
            Self::Ticket(ticket) => {
                let mut addrs = ticket.addrs.clone();
                order_for_dialling(&mut addrs, &local_addresses().unwrap_or_default());
                known.peers.push(addrs);
                known.v2 = match ticket.manifest {
                    ManifestId::V2(hash) => Some(hash),
                    ManifestId::V1(hash) => {
                        known.hashes.push(hash);
                        None
                    }
                };
            }
            Self::Magnet(magnet) => {
                known.hashes.extend(magnet.v1);
                known.v2 = magnet.v2;
                known.trackers = vec![magnet.trackers.clone()];
                for text in magnet.peers.iter().take(64) {
                    // Strangers' peers: what does not resolve is simply not one.
                    known.peers.extend(peers::resolve(text, Duration::from_secs(5)).await.ok());
                }
            }
        }
        // A v2 swarm goes by the first 20 bytes of its hash (BEP 52).
        known.hashes.extend(known.v2.as_ref().and_then(|hash| hash.first_chunk::<20>().copied()));
        known.peers.retain(|addrs| !addrs.is_empty());
        Ok(known)
    }

    /// The origin, with a manifest that is here already.
    ///
    /// # Errors
    /// A peer's name that cannot be resolved.
    pub(crate) async fn with(
        self,
        manifest: Manifest,
        choices: &Choices,
        reporter: &Reporter,
    ) -> Result<Origin, Failure> {
        let peers = self.known(choices, reporter).await?.peers;
        Ok(Origin { manifest, peers, finders: None })
    }

    /// The manifest, from the file or from peers.
    ///
    /// # Errors
    /// Nobody has it in time, the owner refuses us, Ctrl-C.
    pub(crate) async fn manifest(
        self,
        choices: &Choices,
        security: Arc<Security>,
        timeout: Option<Duration>,
        stop: &Stop,
        reporter: &mut Reporter,
    ) -> Result<Origin, Failure> {
        let known = self.known(choices, reporter).await?;
        let (mut web_seeds, mut trackers) = (Vec::new(), None);
        let private = match self {
            Self::File(manifest) if lacks_hashes(&manifest) => {
                trackers = Some(manifest.trackers().to_vec());
                web_seeds = manifest.web_seeds().to_vec();
                manifest.private()
            }
            Self::File(manifest) => {
                return Ok(Origin { manifest: *manifest, peers: known.peers, finders: None });
            }
            Self::Ticket(ticket) => matches!(ticket.access, Access::Private { .. }),
            Self::Magnet(magnet) => {
                web_seeds = magnet.web_seeds;
                false
            }
        };
        let wanted = Wanted {
            hashes: known.hashes.clone(),
            trackers: choices.all_trackers(&known.trackers),
            peer_id: peer_id(),
            port: choices.listen.port(),
            left: 1,
            private,
            lsd: choices.lsd,
            dht: choices.dht,
            network: choices.network.clone(),
        };
        let (finders, mut finds) = Finders::start(wanted, reporter).await;
        let within = timeout.unwrap_or(LOOK);
        let sources = choices.network.as_ref().map(|network| {
            let all = local_addresses().unwrap_or_default();
            all.into_iter().filter(|a| network.holds(a)).collect()
        });
        let (vain, vainly) = mpsc::channel(KNOWN);
        let fetch = Fetch {
            hashes: known.hashes,
            hash_v2: known.v2,
            security,
            sources: sources.unwrap_or_default(),
            timeout: within,
            vain,
        };
        let mut peers = known.peers;
        let mut manifest = look(fetch, &mut peers, (&mut finds, vainly), within, stop, reporter).await?;
        if !web_seeds.is_empty() {
            let all: Vec<String> = manifest.web_seeds().iter().chain(&web_seeds).cloned().collect();
            manifest = manifest.with_web_seeds(all);
        }
        if let Some(trackers) = trackers {
            manifest = manifest.with_trackers(trackers);
        }
        Ok(Origin { manifest, peers, finders: Some((finders, finds)) })
    }
}

/// A manifest of v2 alone that came without its piece layers, as some clients save it: nothing in it verifies a piece.
fn lacks_hashes(manifest: &Manifest) -> bool {
    !manifest.version().has_v1() && !manifest.missing_layers().is_empty()
}

/// What names a tree; see [`Source::id`].
pub(crate) fn manifest_id(manifest: &Manifest) -> Vec<u8> {
    match (manifest.hash_v2(), manifest.hash_v1()) {
        (Some(hash), _) => hash.to_vec(),
        (None, hash) => hash.map_or(Vec::new(), |hash| hash.to_vec()),
    }
}

#[derive(Default)]
struct Known {
    peers: Vec<Vec<SocketAddr>>,
    hashes: Vec<[u8; 20]>,
    v2: Option<[u8; 32]>,
    trackers: Vec<Vec<String>>,
}

/// Asks all who are known and found until one gives the manifest.
async fn look(
    fetch: Fetch,
    peers: &mut Vec<Vec<SocketAddr>>,
    (finds, mut vainly): (&mut mpsc::Receiver<Found>, mpsc::Receiver<Vain>),
    within: Duration,
    stop: &Stop,
    reporter: &Reporter,
) -> Result<Manifest, Failure> {
    let (ask, asked) = mpsc::channel(KNOWN);
    for addr in peers.iter().flatten().take(KNOWN) {
        // There is room for as many.
        let _ = ask.try_send(*addr);
    }
    let began = Instant::now();
    let mut fetching = std::pin::pin!(fetch_manifest(fetch, asked));
    reporter.note("asking for the manifest");
    let told: Vec<SocketAddr> = peers.iter().flatten().copied().collect();
    let mut unreachable = Unreachable::default();
    loop {
        tokio::select! {
            answer = &mut fetching => return match answer {
                Ok((manifest, from)) => {
                    tracing::info!(%from, seconds = began.elapsed().as_secs_f64(), "manifest received");
                    Ok(manifest)
                }
                Err(error @ Error::NoManifest { .. }) => {
                    unreachable.tell(false, reporter);
                    let within = within.as_secs();
                    let known = reporter.why().is_some() || !told.is_empty();
                    let why = reporter.why().map_or_else(|| unanswered(&told), |why| format!(" ({why})"));
                    let why = anyhow!("no peer gave the manifest within {within} s{why}");
                    Err(Failure::new(Code::Cut, if known { why } else { error.into() }))
                }
                Err(error) => Err(error.into()),
            },
            Some(found) = finds.recv() => for addr in found.peers {
                if peers.len() < KNOWN && !peers.iter().any(|p| p.contains(&addr)) {
                    peers.push(vec![addr]);
                    // Full means that there is enough to do already.
                    let _ = ask.try_send(addr);
                }
            },
            Some(Vain { addr, why }) = vainly.recv() => unreachable.failed(addr, &why, told.contains(&addr)),
            () = tokio::time::sleep(TELL) => unreachable.tell(false, reporter),
            () = stop.wait() => {
                unreachable.tell(false, reporter);
                let why = reporter.why().map_or_else(|| unanswered(&told), |why| format!(" ({why})"));
                let error = anyhow!("interrupted before any peer gave the manifest{why}");
                return Err(Failure::new(Code::Cut, error));
            }
        }
    }
}

/// How we call ourselves to trackers before the swarm has begun (BEP 20).
fn peer_id() -> [u8; 20] {
    let mut id = *b"-TC0100-000000000000";
    if let Some(tail) = id.last_chunk_mut::<12>() {
        rand::fill(tail);
    }
    id
}

/// By what right, for this source.
///
/// # Errors
/// Keys cannot be read or made.
pub(crate) fn right(source: &Source, state_dir: &Path) -> anyhow::Result<Security> {
    match source.private_ticket() {
        Some(ticket) => member::holder(ticket, state_dir),
        None => Ok(Security::Open),
    }
}

/// Of addresses of which nothing is known yet.
pub(crate) fn unanswered(told: &[SocketAddr]) -> String {
    match told {
        [] => String::new(),
        [first] => format!(" (peer {first} has not answered)"),
        [first, more @ ..] => format!(" (peer {first} and {} more have not answered)", more.len()),
    }
}
