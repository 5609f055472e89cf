//! What a run reports while it goes and when it ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidecast_identity::NodeId;

use super::{Conn, Driver, Out};
use crate::cpu::Cpu;
use crate::web::WebReport;

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
    /// Some of the connected peers, those first with which most was exchanged.
    pub connected: Vec<Connected>,
}

/// A connected peer.
#[derive(Clone, Debug)]
pub struct Connected {
    /// Who it is, and what was exchanged on this connection.
    pub report: PeerReport,
    /// How long no byte has moved, if one ever has.
    pub quiet: Option<Duration>,
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
    /// The web seeds.
    pub web_seeds: Vec<WebReport>,
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
    /// A connection to a peer could not be made, or nothing was heard on it. Told for each try.
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
    },
    /// Payload moves again after so long.
    Resumed {
        /// How long nothing has moved.
        silent: Duration,
        /// It is this node that sends.
        sending: bool,
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
    /// A web seed gives nothing, or not all.
    WebSeed {
        /// Its URL, as the manifest has it.
        url: String,
        /// Why.
        why: String,
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

/// Peers that are named in [`Progress`].
const CONNECTED: usize = 16;

impl Driver {
    /// The peers that people may see of those that are connected.
    pub(super) fn connected(&self) -> Vec<Connected> {
        let mut conns: Vec<&Conn> = self.conns.values().collect();
        if conns.len() > CONNECTED {
            conns.sort_by_key(|conn| std::cmp::Reverse(conn.received.saturating_add(conn.sent)));
            conns.truncate(CONNECTED);
        }
        let quiet = |conn: &Conn| conn.moved.last().map(|at| at.elapsed());
        conns.into_iter().map(|conn| Connected { report: conn.report(), quiet: quiet(conn) }).collect()
    }

    /// Says how far it is.
    pub(super) fn publish(&mut self) {
        self.published = Instant::now();
        let progress = self.snapshot();
        self.progress.send_replace(progress);
        self.watch_for_stalls();
    }

    fn snapshot(&self) -> Progress {
        let stats = self.engine.stats();
        Progress {
            wanted_bytes: self.wanted_bytes,
            verified_bytes: self.verified_bytes,
            pieces: self.manifest.piece_count(),
            verified_pieces: stats.verified,
            unchecked_pieces: self.unchecked.len() as u32,
            peers: self.conns.values().filter(|c| c.web.is_none()).count(),
            web_seeds: self.conns.values().filter(|c| c.web.is_some()).count(),
            // What comes from a connection that has just ended counts too.
            received_bytes: stats.received,
            sent_bytes: self.sent,
            duplicate_bytes: stats.duplicate,
            corrupt_bytes: self.corrupt,
            planned: self.role.is_some(),
            gathering: self.is_gathering(),
            complete: self.is_complete(),
            connected: self.connected(),
        }
    }

    /// Closes all connections, and says how it went.
    pub(super) fn stop(mut self) {
        for conn in self.conns.values() {
            let _ = conn.outbox.try_send(Out::Close);
        }
        let progress = self.snapshot();
        let peers = self.reports();
        let elapsed = self.start.elapsed();
        let web_seeds = self.book.web_seeds().map(|seed| seed.report()).collect();
        let cpu = self.shared.cpu.clone();
        let summary = Summary { progress: progress.clone(), peers, web_seeds, elapsed, cpu };
        self.progress.send_replace(progress);
        if let Some(reply) = self.stopping.take() {
            let _ = reply.send(summary);
        }
    }

    /// What was exchanged with each peer, those that are gone included.
    pub(super) fn reports(&self) -> Vec<PeerReport> {
        let mut peers: Vec<PeerReport> = Vec::new();
        for report in self
            .ended
            .iter()
            .cloned()
            .chain(self.conns.values().filter(|c| c.web.is_none()).map(Conn::report))
        {
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
