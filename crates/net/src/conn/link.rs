//! State shared by the two tasks of a connection.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;
use tidecast_swarm::PeerId;
use tidecast_wire::ExtIds;
use tokio::sync::mpsc;

use crate::input::Out;
use crate::last_payload::LastPayload;
use crate::shared::Shared;

/// State shared by the two tasks of a connection.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) shared: Arc<Shared>,
    pub(crate) peer: PeerId,
    pub(crate) outbox: mpsc::Sender<Out>,
    /// The ids under which the peer takes extension messages now.
    pub(crate) ids: Arc<Mutex<ExtIds>>,
    /// Messages of roots that the peer knows, as it has sent them itself.
    pub(crate) roots_heard: Arc<AtomicU32>,
    /// When payload moved last.
    pub(crate) last_payload: LastPayload,
}
