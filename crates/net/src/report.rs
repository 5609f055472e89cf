//! Reports of a swarm, while it runs and when it ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidecast_identity::NodeId;

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
    /// Connected web seeds.
    pub web_seeds: usize,
    /// Payload received, bytes.
    pub received_bytes: u64,
    /// Payload of them from web seeds, bytes.
    pub web_bytes: u64,
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
    /// Every wanted piece is verified; of a draft, the seal is there too.
    pub complete: bool,
    /// Some of the connected peers, those with the most data first.
    pub connected: Vec<Connected>,
}

/// A connected peer.
#[derive(Clone, Debug)]
pub struct Connected {
    /// Its identity, and the statistics of this connection.
    pub report: PeerReport,
    /// How long no byte has moved, if one ever has.
    pub quiet: Option<Duration>,
}

/// Statistics of one peer over the whole run.
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
    /// All peers that sent or received payload, and those still connected.
    pub peers: Vec<PeerReport>,
    /// The web seeds.
    pub web_seeds: Vec<WebReport>,
    /// How long the swarm ran.
    pub elapsed: Duration,
    /// CPU time by stage.
    pub cpu: Arc<Cpu>,
}

/// A notice for the user while the swarm runs.
#[derive(Clone, Debug)]
pub enum Notice {
    /// A peer was banned.
    Banned {
        /// Its address.
        addr: SocketAddr,
        /// Its key, if it showed one.
        node: Option<NodeId>,
        /// The reason.
        why: String,
    },
    /// A peer refused us, or a handshake failed for a reason that the user can mend.
    Refused {
        /// Its address.
        addr: SocketAddr,
        /// Its message.
        why: String,
    },
    /// A connection to a peer failed, or got no answer. Reported for each try.
    Unreachable {
        /// The address.
        addr: SocketAddr,
        /// Why.
        why: String,
        /// The user or a ticket has named the address.
        told: bool,
    },
    /// Peers are connected, and no payload has moved for a while. Told once, until some moves again.
    Stalled {
        /// Some of them.
        addrs: Vec<SocketAddr>,
        /// How long nothing has moved.
        silent: Duration,
        /// It is this node that sends.
        sending: bool,
        /// Pieces that it needs and no connected peer has.
        missing: u32,
    },
    /// Payload moves again after this long.
    Resumed {
        /// How long nothing has moved.
        silent: Duration,
        /// It is this node that sends.
        sending: bool,
    },
    /// On the owner of a private swarm: a node was not enrolled, or not let in.
    Rejected {
        /// Its address.
        addr: SocketAddr,
        /// The reason; the node receives it too.
        why: String,
    },
    /// A peer no longer has a piece that is wanted: its copy changed, or cannot be read. Told once for each connection.
    Withdrew {
        /// Its address.
        addr: SocketAddr,
    },
    /// A web seed gives nothing, or not all.
    WebSeed {
        /// Its URL, from the manifest.
        url: String,
        /// Why.
        why: String,
    },
    /// A piece of the seed's own files does not match the manifest.
    Damaged {
        /// The piece.
        piece: u32,
    },
    /// The store failed; the swarm continues only if it can.
    Store {
        /// The error.
        error: Arc<tidecast_store::Error>,
    },
}

/// Statistics of one web seed.
#[derive(Clone, Debug)]
pub struct WebReport {
    /// Its URL, from the manifest.
    pub url: String,
    /// Payload bytes from it.
    pub received_bytes: u64,
    /// Why it gave nothing, or not all, the last time.
    pub error: Option<String>,
}
