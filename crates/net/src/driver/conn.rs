//! A live connection, seen from the driver.

use std::net::SocketAddr;
use std::sync::Arc;

use tidecast_identity::NodeId;
use tidecast_swarm::{Candidate, Protocol};
use tokio::sync::{Notify, mpsc};

use crate::input::Out;
use crate::last_payload::LastPayload;
use crate::report::PeerReport;
use crate::web_seed::Seed;

/// A live connection, seen from the driver.
pub(super) struct Conn {
    pub(super) addr: SocketAddr,
    pub(super) listens: Option<SocketAddr>,
    pub(super) node: Option<NodeId>,
    pub(super) client: String,
    pub(super) protocol: Protocol,
    pub(super) remote_id: [u8; 20],
    pub(super) outgoing: bool,
    pub(super) takes_offers: bool,
    pub(super) gathers: bool,
    pub(super) reads_hex: bool,
    pub(super) web: Option<Arc<Seed>>,
    /// Its member number in the plan, as given to the engine.
    pub(super) member: Option<u32>,
    pub(super) greeting: Option<tidecast_wire::Message>,
    pub(super) outbox: mpsc::Sender<Out>,
    pub(super) cut: Arc<Notify>,
    pub(super) received: u64,
    pub(super) sent: u64,
    pub(super) last_payload: LastPayload,
    /// Peers introduced to it so far: a position in `Driver::met`.
    pub(super) introduced: usize,
    /// Other candidates whose addresses lead to it too.
    pub(super) others: Vec<Candidate>,
    /// It no longer has a wanted piece, which was reported.
    pub(super) withdrew: bool,
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
