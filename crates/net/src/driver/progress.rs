//! What a run reports while it goes and when it ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidecast_identity::NodeId;

use super::{Conn, Driver};
use crate::cpu::Cpu;

/// A snapshot of one swarm as this node sees it.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Bytes that are wanted, in all.
    pub wanted_bytes: u64,
    /// Bytes of them verified.
    pub verified_bytes: u64,
    /// Pieces in all.
    pub pieces: u32,
    /// Pieces verified here.
    pub verified_pieces: u32,
    /// Pieces from an earlier run, or of a seed's own files, that are still to be hashed.
    pub unchecked_pieces: u32,
    /// Connected peers.
    pub peers: usize,
    /// Payload received, bytes.
    pub received_bytes: u64,
    /// Payload sent, bytes.
    pub sent_bytes: u64,
    /// Payload received that was there already, bytes.
    pub duplicate_bytes: u64,
    /// Payload received that did not match its hash, bytes.
    pub corrupt_bytes: u64,
    /// We have a part in a plan.
    pub planned: bool,
    /// Whether there is a plan to take part in is not known yet.
    pub gathering: bool,
    /// Something is on its way from here to a peer, or is to be passed on.
    pub serving: bool,
    /// Every wanted piece is verified; of a draft, the seal is there too.
    pub complete: bool,
}

/// What was exchanged with one peer over the whole run.
#[derive(Clone, Debug)]
pub struct PeerReport {
    /// Its address.
    pub addr: SocketAddr,
    /// Its key, if it showed one.
    pub node: Option<NodeId>,
    /// Its client, as it calls itself.
    pub client: String,
    /// Payload bytes from it.
    pub received_bytes: u64,
    /// Payload bytes to it.
    pub sent_bytes: u64,
}

impl PeerReport {
    pub(crate) fn add(&mut self, other: &PeerReport) {
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
    }
}

/// The end of a run.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The last state.
    pub progress: Progress,
    /// Everyone with whom payload was exchanged, and who is still connected.
    pub peers: Vec<PeerReport>,
    /// How long the swarm ran.
    pub elapsed: Duration,
    /// CPU time by stage.
    pub cpu: Arc<Cpu>,
}

/// Something a person should hear of while the swarm runs.
#[derive(Clone, Debug)]
pub enum Notice {
    /// A peer was banned.
    Banned {
        /// Its address.
        addr: SocketAddr,
        /// Its key, if it showed one.
        node: Option<NodeId>,
        /// What it did.
        why: String,
    },
    /// A peer refused us, or a handshake failed for a reason that the user can mend.
    Refused {
        /// Its address.
        addr: SocketAddr,
        /// What it said.
        why: String,
    },
    /// On the owner of a private swarm: a node was not enrolled, or not let in.
    TurnedAway {
        /// Its address.
        addr: SocketAddr,
        /// Why; the node is told the same.
        why: String,
    },
    /// A peer no longer has a piece that is wanted: its copy changed, or cannot be read. Told once for each connection.
    Withdrew {
        /// Its address.
        addr: SocketAddr,
    },
    /// A piece of the seed's own files does not match the manifest.
    Damaged {
        /// The piece.
        piece: u32,
    },
    /// The store failed; the swarm goes on only if it can.
    Store {
        /// What happened.
        error: Arc<tidecast_store::Error>,
    },
}

impl Driver {
    /// What was exchanged with each peer, those that are gone included.
    pub(super) fn reports(&self) -> Vec<PeerReport> {
        let mut peers: Vec<PeerReport> = Vec::new();
        for report in self.ended.iter().cloned().chain(self.conns.values().map(Conn::report)) {
            // A peer that came back is still one peer.
            match peers.iter_mut().find(|p| p.addr == report.addr && p.node == report.node) {
                Some(known) => known.add(&report),
                None => peers.push(report),
            }
        }
        peers
    }
}

impl Conn {
    pub(super) fn report(&self) -> PeerReport {
        PeerReport {
            addr: self.listens.unwrap_or(self.addr),
            node: self.node,
            client: self.client.clone(),
            received_bytes: self.received,
            sent_bytes: self.sent,
        }
    }
}
