//! Inputs of the driver, and its orders to connections.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tidecast_identity::NodeId;
use tidecast_swarm::plan::Role;
use tidecast_swarm::{Block, Candidate, Event, PeerId, Protocol};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::error::ConnError;
use crate::last_payload::LastPayload;
use crate::member::Member;
use crate::report::{Notice, PeerReport, Summary};
use crate::web_seed::Seed;

/// Messages that may wait for one connection; the engine's own limits keep well below it.
pub(crate) const OUTBOX: usize = 8192;
/// Notices in the queue; more are dropped.
pub(crate) const NOTICES: usize = 256;
/// Complaints in the queue; more are dropped, as the engine repeats those that stay true.
pub(crate) const COMPLAINTS: usize = 256;

/// Inputs of the driver.
pub(crate) enum Input {
    /// Goes to the engine as it is.
    Event(Event),
    /// The verdict on the last block of a piece, and that on the piece.
    Settled(Event, Event),
    /// A connection is established.
    Up(Box<NewPeer>),
    /// A stock client has introduced itself.
    Hello { peer: PeerId, client: Option<String>, port: Option<u16>, upload_only: bool },
    /// It has ended.
    Down { peer: PeerId, why: Option<ConnError> },
    /// A dial failed.
    DialFailed { candidate: Candidate, last: Option<(SocketAddr, ConnError)> },
    /// Addresses of one node were found.
    Found { addresses: Vec<SocketAddr>, told: bool },
    /// A web seed of the manifest.
    WebSeed(Arc<Seed>),
    /// A node with these addresses may be dialled now, whatever came of it before.
    Call { addresses: Vec<SocketAddr> },
    /// Our part in a new epoch of the plan, and its members.
    Plan { role: Arc<Role>, members: Vec<Member> },
    /// The plan of this node is joined, if it makes one.
    Follow { node: NodeId },
    /// About the plan of a group.
    PlanMessage { peer: PeerId, bytes: Bytes },
    /// These pieces are wanted from now on, or no longer.
    Want { pieces: Range<u32>, urgency: Urgency },
    /// A piece that might have been on disk has been hashed.
    Checked { piece: u32, read: bool },
    /// More of a draft's roots are known: pass them on.
    Roots,
    /// The store failed.
    StoreFailed(tidecast_store::Error),
    /// Something for people.
    Notice(Notice),
    /// Disconnect members whose right has ended (a ticket was revoked).
    Recheck,
    /// Report the statistics of each peer so far.
    Report(oneshot::Sender<Vec<PeerReport>>),
    /// Stop, and return the summary.
    Stop(oneshot::Sender<Summary>),
}

/// A connection that has just been established.
pub(crate) struct NewPeer {
    pub(crate) peer: PeerId,
    pub(crate) addr: SocketAddr,
    /// Its listening address, if it sent one.
    pub(crate) listens: Option<SocketAddr>,
    pub(crate) node: Option<NodeId>,
    pub(crate) client: String,
    pub(crate) protocol: Protocol,
    pub(crate) candidate: Option<Candidate>,
    /// Its self-chosen id (BEP 20), by which two connections to the same peer are recognised.
    pub(crate) remote_id: [u8; 20],
    /// We dialled it.
    pub(crate) outgoing: bool,
    /// It accepts pieces without a request, by a plan.
    pub(crate) takes_offers: bool,
    /// It makes plans for groups, or joins them.
    pub(crate) gathers: bool,
    /// It reads keys and peer ids in a part of a plan as hexadecimal digits.
    pub(crate) reads_hex: bool,
    /// It has just given this node its credential.
    pub(crate) enrolled: bool,
    /// It is a web seed.
    pub(crate) web: Option<Arc<Seed>>,
    /// To be sent right after the first announcement: stock clients want their bitfield first.
    pub(crate) greeting: Option<tidecast_wire::Message>,
    pub(crate) outbox: mpsc::Sender<Out>,
    /// Notified, it ends at once, whatever waits to be sent.
    pub(crate) cut: Arc<Notify>,
    pub(crate) last_payload: LastPayload,
}

/// Orders to a connection to send something.
pub(crate) enum Out {
    Message(tidecast_wire::Message),
    Serve(Block),
    /// The blocks of this piece follow unasked.
    Offer {
        piece: u32,
        stripe: u16,
    },
    /// There are roots that this peer may not know.
    Roots,
    /// A block that reaches into the padding behind a file (v1 peers of a hybrid). Asked by the
    /// connection itself: the engine knows real bytes only.
    ServePadded(Block),
    /// Send the queue, then close.
    Close,
}

/// Hears of each piece that is verified, on the engine's thread: it must not wait for anything.
pub type OnVerified = Box<dyn Fn(u32) + Send>;

/// How soon pieces are wanted. Those of one urgency are fetched rarest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Not any more.
    Never,
    /// Some time.
    Later,
    /// Before blocks for later.
    Soon,
    /// A reader waits: before all others, in the order in which they were asked for.
    Now,
}

impl Urgency {
    /// As the engine counts.
    pub(crate) fn priority(self) -> u8 {
        match self {
            Urgency::Never => 0,
            Urgency::Later => 1,
            Urgency::Soon => 2,
            Urgency::Now => 3,
        }
    }
}
