//! The source of a `get`: a ticket, a magnet link or a manifest file; and how the first two become a manifest.

use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidecast_discovery::{DiscoveredPeers, peers};
use tidecast_event::{Error, Fault as _, Phase};
use tidecast_identity::{Access, ManifestId, Ticket};
use tidecast_metainfo::{Magnet, Manifest};
use tidecast_net::{FailedTry, Fetch, Security, fetch_manifest, local_addresses, order_for_dialling};
use tokio::sync::mpsc;

use crate::finders::{Finders, Wanted, named, peer_id};
use crate::manifest::{id_bytes, read_manifest};
use crate::messages::MessageSender;
use crate::settings::SwarmSettings;
use crate::stop::Stop;
use crate::unreachable::Unreachable;

/// Addresses remembered while the manifest is looked for.
const KNOWN: usize = 1024;
/// Interval of reports about peers that do not answer.
const TELL: Duration = Duration::from_millis(200);
/// Without `--timeout`, a manifest is looked for this long.
const LOOK: Duration = Duration::from_secs(24 * 3600);

/// Where the data is to come from.
pub enum Source {
    /// A ticket.
    Ticket(Box<Ticket>),
    /// A magnet link.
    Magnet(Box<Magnet>),
    /// A manifest.
    File(Box<Manifest>),
}

/// A manifest, and the right to its data.
pub struct Origin {
    /// The manifest.
    pub manifest: Manifest,
    /// Nodes, each by its addresses.
    pub peers: Vec<Vec<SocketAddr>>,
    /// Running searches, if the manifest had to be searched for.
    pub finders: Option<(Finders, mpsc::Receiver<DiscoveredPeers>)>,
}

/// A ticket, which may contain line breaks; or in the first line, followed by others.
///
/// # Errors
/// A usage error: it is not a ticket, or damaged.
pub fn read_ticket(text: &str) -> Result<Ticket, Error> {
    let first = || text.trim_start().lines().next().and_then(|line| line.parse::<Ticket>().ok());
    text.parse::<Ticket>().or_else(|error| first().ok_or(error)).map_err(Error::usage)
}

fn begins(text: &str, with: &str) -> bool {
    text.trim_start().get(..with.len()).is_some_and(|head| head.eq_ignore_ascii_case(with))
}

impl FromStr for Source {
    type Err = Error;

    /// A ticket or a magnet link.
    fn from_str(text: &str) -> Result<Self, Error> {
        if begins(text, "magnet:") {
            let magnet = text.trim().parse::<Magnet>();
            let bad = |error| Error::usage(error).context("invalid magnet link");
            return Ok(Self::Magnet(Box::new(magnet.map_err(bad)?)));
        }
        Ok(Self::Ticket(Box::new(read_ticket(text)?)))
    }
}

impl Source {
    /// The source named by `text`: an existing file, a ticket, a magnet link, or a missing file.
    ///
    /// # Errors
    /// A damaged ticket or magnet link is a usage error; an unreadable manifest, the data's fault.
    pub fn read(text: &str) -> Result<Self, Error> {
        if text.trim().is_empty() {
            return Err(Error::usage("an empty name: give a manifest, a ticket or a magnet link"));
        }
        let path = Path::new(text);
        match (begins(text, "tidecast1") || begins(text, "magnet:")) && !path.exists() {
            true => text.parse(),
            false => Ok(Self::File(Box::new(read_manifest(path)?))),
        }
    }

    /// The identifier of the tree: the hash of its manifest, of version 2 if it has one.
    pub fn id(&self) -> Vec<u8> {
        match self {
            Self::Ticket(ticket) => match ticket.manifest {
                ManifestId::V2(hash) => hash.to_vec(),
                ManifestId::V1(hash) => hash.to_vec(),
            },
            Self::Magnet(magnet) => match (magnet.v2, magnet.v1) {
                (Some(hash), _) => hash.to_vec(),
                (None, hash) => hash.map_or(Vec::new(), |hash| hash.to_vec()),
            },
            Self::File(manifest) => id_bytes(manifest),
        }
    }

    /// The ticket, if it is one for a private swarm.
    pub fn private_ticket(&self) -> Option<&Ticket> {
        match self {
            Self::Ticket(ticket) if matches!(ticket.access, Access::Private { .. }) => Some(ticket),
            _ => None,
        }
    }

    /// The publisher has allowed an open swarm.
    pub fn is_plain(&self) -> bool {
        matches!(self, Self::Ticket(ticket) if ticket.plain)
    }

    /// Files that the link selects, by number; none for all.
    pub fn selected(&self) -> &[std::ops::RangeInclusive<u32>] {
        match self {
            Self::Magnet(magnet) => &magnet.select,
            Self::Ticket(_) | Self::File(_) => &[],
        }
    }

    /// Everything that is known without asking anyone.
    async fn known(&self, settings: &SwarmSettings, messages: &MessageSender<'_>) -> Result<Known, Error> {
        let mut known = Known { peers: named(&settings.peers, messages).await?, ..Known::default() };
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
                    // Peers of untrusted origin: a name that does not resolve is skipped.
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
    pub async fn with(
        self,
        manifest: Manifest,
        settings: &SwarmSettings,
        messages: &MessageSender<'_>,
    ) -> Result<Origin, Error> {
        let peers = self.known(settings, messages).await?.peers;
        Ok(Origin { manifest, peers, finders: None })
    }

    /// The manifest, from the file or from peers.
    ///
    /// # Errors
    /// No peer has it in time, the owner rejects this node, interrupted.
    pub async fn manifest(
        self,
        settings: &SwarmSettings,
        security: Arc<Security>,
        timeout: Option<Duration>,
        stop: &Stop,
        messages: &MessageSender<'_>,
    ) -> Result<Origin, Error> {
        let known = self.known(settings, messages).await?;
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
            trackers: settings.all_trackers(&known.trackers),
            peer_id: peer_id(),
            port: settings.listen.port(),
            left: 1,
            private,
            lsd: settings.lsd,
            dht: settings.dht,
            network: settings.network.clone(),
        };
        let (finders, mut finds) = Finders::start(wanted, messages).await;
        let within = timeout.unwrap_or(LOOK);
        let sources = settings.network.as_ref().map(|network| {
            let all = local_addresses().unwrap_or_default();
            all.into_iter().filter(|a| network.holds(a)).collect()
        });
        let (failed_tries, failures) = mpsc::channel(KNOWN);
        let fetch = Fetch {
            hashes: known.hashes,
            hash_v2: known.v2,
            security,
            sources: sources.unwrap_or_default(),
            timeout: within,
            failed_tries,
        };
        let mut peers = known.peers;
        let mut manifest = look(fetch, &mut peers, (&mut finds, failures), within, stop, messages).await?;
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

#[derive(Default)]
struct Known {
    peers: Vec<Vec<SocketAddr>>,
    hashes: Vec<[u8; 20]>,
    v2: Option<[u8; 32]>,
    trackers: Vec<Vec<String>>,
}

/// Asks all known and found peers until one sends the manifest.
async fn look(
    fetch: Fetch,
    peers: &mut Vec<Vec<SocketAddr>>,
    (finds, mut failures): (&mut mpsc::Receiver<DiscoveredPeers>, mpsc::Receiver<FailedTry>),
    within: Duration,
    stop: &Stop,
    messages: &MessageSender<'_>,
) -> Result<Manifest, Error> {
    let (ask, asked) = mpsc::channel(KNOWN);
    for addr in peers.iter().flatten().take(KNOWN) {
        // There is room for as many.
        let _ = ask.try_send(*addr);
    }
    let began = Instant::now();
    let mut fetching = std::pin::pin!(fetch_manifest(fetch, asked));
    messages.phase(Phase::AskingForManifest);
    let told: Vec<SocketAddr> = peers.iter().flatten().copied().collect();
    let mut unreachable = Unreachable::default();
    loop {
        tokio::select! {
            answer = &mut fetching => return match answer {
                Ok((manifest, from)) => {
                    tracing::info!(%from, seconds = began.elapsed().as_secs_f64(), "manifest received");
                    Ok(manifest)
                }
                Err(error @ tidecast_net::Error::NoManifest { .. }) => {
                    unreachable.report(false, messages);
                    let within = within.as_secs();
                    let known = messages.silence_reason().is_some() || !told.is_empty();
                    let why = messages.silence_reason().map_or_else(|| unanswered(&told), |why| format!(" ({why})"));
                    let why = format!("no peer sent the manifest within {within} s{why}");
                    Err(if known { Error::interrupted(why) } else { Error::interrupted(error) })
                }
                Err(error) => Err(error).fault(),
            },
            Some(found) = finds.recv() => for addr in found.peers {
                if peers.len() < KNOWN && !peers.iter().any(|p| p.contains(&addr)) {
                    peers.push(vec![addr]);
                    // Full means that there is enough to do already.
                    let _ = ask.try_send(addr);
                }
            },
            Some(FailedTry { addr, why }) = failures.recv() => unreachable.failed(addr, &why, told.contains(&addr)),
            () = tokio::time::sleep(TELL) => unreachable.report(false, messages),
            () = stop.wait() => {
                unreachable.report(false, messages);
                let why = messages.silence_reason().map_or_else(|| unanswered(&told), |why| format!(" ({why})"));
                return Err(Error::interrupted(format!("interrupted before any peer sent the manifest{why}")));
            }
        }
    }
}

/// Of addresses of which nothing is known yet.
pub fn unanswered(told: &[SocketAddr]) -> String {
    match told {
        [] => String::new(),
        [first] => format!(" (peer {first} did not answer)"),
        [first, more @ ..] => format!(" (peer {first} and {} more did not answer)", more.len()),
    }
}

impl From<Ticket> for Source {
    fn from(ticket: Ticket) -> Self {
        Self::Ticket(Box::new(ticket))
    }
}

impl From<Magnet> for Source {
    fn from(magnet: Magnet) -> Self {
        Self::Magnet(Box::new(magnet))
    }
}

impl From<Manifest> for Source {
    fn from(manifest: Manifest) -> Self {
        Self::File(Box::new(manifest))
    }
}
