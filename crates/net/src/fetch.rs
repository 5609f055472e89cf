//! Gets a manifest from peers, for a ticket or a magnet link.
//!
//! From a Tidecast peer the whole metainfo file comes in large parts; from a stock client the info dictionary
//! (BEP 9) and then the piece layers (BEP 52 hash requests). The result is checked against the requested hash.

pub(crate) mod compare;
mod stock;
mod whole;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tidecast_metainfo::Manifest;
use tidecast_swarm::Protocol;
use tidecast_wire::Message;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::cpu::Cpu;
use crate::dial::{dial, with_silence_report};
use crate::error::{ConnError, Error};
use crate::handshake::{Established, Local};
use crate::handshake_kinds::HandshakeKinds;
use crate::iface::{LocalAddress, source_for};
use crate::security::Security;

/// Peers asked at the same time.
const ASKED_AT_ONCE: usize = 8;
/// Everything that one peer is asked must be here within this; the next is asked meanwhile.
const PER_PEER: Duration = Duration::from_secs(120);
/// An address that failed may be tried again after this: its owner may just be starting.
const AGAIN: Duration = Duration::from_secs(1);

/// The manifest to get, and options.
pub struct Fetch {
    /// 20-byte ids of the swarm, the one for handshakes first.
    pub hashes: Vec<[u8; 20]>,
    /// The full v2 hash, where it is known.
    pub hash_v2: Option<[u8; 32]>,
    /// How connections are protected.
    pub security: Arc<Security>,
    /// Local addresses to dial from; empty for any.
    pub sources: Vec<LocalAddress>,
    /// Give up after this.
    pub timeout: Duration,
    /// Receives each failed try; if it is full, tries are not reported.
    pub failed_tries: mpsc::Sender<FailedTry>,
}

/// An address that failed, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedTry {
    /// The address.
    pub addr: SocketAddr,
    /// Why.
    pub why: String,
}

impl Fetch {
    fn tell(&self, addr: SocketAddr, why: String) {
        let _ = self.failed_tries.try_send(FailedTry { addr, why });
    }
}

/// Asks peers as they are found until one gives the manifest. An address that failed is
/// tried again until time is up.
///
/// # Errors
/// [`Error::NoManifest`] when time is up; [`Error::Refused`] when the swarm's owner refuses us.
pub async fn fetch_manifest(
    what: Fetch,
    mut peers: mpsc::Receiver<SocketAddr>,
) -> Result<(Manifest, SocketAddr), Error> {
    let deadline = tokio::time::Instant::now() + what.timeout;
    let what = Arc::new(what);
    let mut known: Vec<SocketAddr> = Vec::new();
    let mut waiting: Vec<SocketAddr> = Vec::new();
    let mut asking = JoinSet::new();
    let (mut asked, mut last, mut open) = (0, String::new(), true);
    loop {
        while asking.len() < ASKED_AT_ONCE
            && let Some(addr) = waiting.pop()
        {
            asked += 1;
            asking.spawn(ask(what.clone(), addr));
        }
        tokio::select! {
            () = tokio::time::sleep_until(deadline) => {
                let seconds = what.timeout.as_secs();
                return Err(Error::NoManifest { seconds, asked, last });
            }
            found = peers.recv(), if open => match found {
                Some(addr) if !known.contains(&addr) => {
                    known.push(addr);
                    waiting.push(addr);
                }
                Some(_) => {}
                None => open = false,
            },
            Some(answer) = asking.join_next() => match answer {
                Ok((addr, Ok(manifest))) => return Ok((*manifest, addr)),
                Ok((addr, Err(ConnError::Denied(why)))) => return Err(Error::Refused { addr, why }),
                Ok((addr, Err(why))) => {
                    tracing::debug!(%addr, %why, "a peer sent no manifest");
                    let silent = matches!(why, ConnError::Late { .. });
                    let text = why.unreachable().unwrap_or_else(|| why.to_string());
                    last = format!("; last failure, {addr}: {text}");
                    // A silent peer was reported already.
                    if !silent {
                        what.tell(addr, text);
                    }
                    asking.spawn(again(what.clone(), addr));
                }
                Err(_) => {}
            },
        }
    }
}

type Answer = (SocketAddr, Result<Box<Manifest>, ConnError>);

async fn again(what: Arc<Fetch>, addr: SocketAddr) -> Answer {
    tokio::time::sleep(AGAIN).await;
    ask(what, addr).await
}

async fn ask(what: Arc<Fetch>, addr: SocketAddr) -> Answer {
    let late = ConnError::Late { what: "send the manifest", seconds: PER_PEER.as_secs() };
    let answer = tokio::time::timeout(PER_PEER, ask_one(&what, addr)).await;
    (addr, answer.unwrap_or(Err(late)))
}

async fn ask_one(what: &Fetch, addr: SocketAddr) -> Result<Box<Manifest>, ConnError> {
    let mut asking = Asking { peer: call(what, what.hashes.clone(), addr).await?, what };
    let (silent, asked) = (|why| what.tell(addr, why), " to the request for the manifest");
    if matches!(asking.peer.protocol, Protocol::Tidecast { .. }) {
        return Ok(Box::new(with_silence_report(asked, &silent, asking.whole()).await?));
    }
    let mut manifest = with_silence_report(asked, &silent, asking.stock()).await?;
    let short = manifest.hash_v2().and_then(|hash| hash.first_chunk::<20>().copied());
    let Some(short) = short.filter(|_| !manifest.missing_layers().is_empty()) else {
        return Ok(Box::new(manifest));
    };
    let layers = async {
        if !asking.peer.upgraded && what.hashes.first() != Some(&short) {
            // A stock client sends v2 hashes only to peers that connected by the v2 id, and accepts one connection
            // per host.
            let Asking { peer, .. } = asking;
            drop(peer);
            asking = Asking { peer: call(what, vec![short], addr).await?, what };
            asking.greet().await?;
        }
        asking.layers(&mut manifest).await
    };
    match tokio::time::timeout(PER_PEER / 2, layers).await {
        Ok(Ok(())) => {}
        // A manifest requested by its v1 hash is verified by its v1 hashes.
        failed if manifest.hash_v1().is_some_and(|hash| what.hashes.contains(&hash)) => {
            let why = failed.map_or_else(
                |_| "timeout".to_owned(),
                |why| why.err().map_or(String::new(), |e| e.to_string()),
            );
            tracing::debug!(%addr, why, "a peer sent no piece layers; verifying with v1 hashes");
        }
        Ok(Err(why)) => return Err(why),
        Err(_) => {
            return Err(ConnError::Late { what: "send the piece layers", seconds: PER_PEER.as_secs() / 2 });
        }
    }
    Ok(Box::new(manifest))
}

/// A connection to a peer that is asked for the manifest, by the first of `hashes`.
async fn call(what: &Fetch, hashes: Vec<[u8; 20]>, addr: SocketAddr) -> Result<Established, ConnError> {
    let local = Local::asking(hashes);
    let source = source_for(addr.ip(), &what.sources);
    let cpu = Arc::new(Cpu::default());
    let silent = |why| what.tell(addr, why);
    dial((&local, &what.security), (addr, source), &HandshakeKinds::default(), &cpu, &silent).await
}

/// A conversation about a manifest.
struct Asking<'a> {
    peer: Established,
    what: &'a Fetch,
}

impl Asking<'_> {
    async fn send(&mut self, message: &Message) -> Result<(), ConnError> {
        let mut out = BytesMut::new();
        message.encode(self.peer.input.codec.peer_ids(), &mut out)?;
        self.peer.writer.write_all(&out).await?;
        self.peer.writer.flush().await
    }

    /// The manifest must be the one that was asked for.
    fn check(&self, manifest: Manifest) -> Result<Manifest, ConnError> {
        let by_v2 = self.what.hash_v2.map(|h| manifest.hash_v2() == Some(h));
        let by_short = || self.what.hashes.iter().any(|h| manifest.swarm_hashes().contains(h));
        if by_v2.unwrap_or_else(by_short) {
            Ok(manifest)
        } else {
            Err(ConnError::Protocol("it sent a manifest with another hash"))
        }
    }
}
