//! Fetches requested pieces only, when they are requested, instead of everything.

use std::ops::Range;

use tokio::sync::{mpsc, oneshot};

use crate::error::Error;
use crate::input::Input;
use crate::input::Urgency;
use crate::report::PeerReport;
use crate::settle::Settler;

/// Asks for pieces of a swarm that was started with [`SwarmOptions::on_demand`](crate::SwarmOptions).
#[derive(Clone)]
pub struct Demand {
    pub(crate) inbox: mpsc::Sender<Input>,
    pub(crate) settler: Settler,
}

impl Demand {
    /// Asks for pieces, from a thread that may wait for the engine's queue (not from a task of tokio). False when the
    /// swarm has ended.
    pub fn want(&self, pieces: Range<u32>, urgency: Urgency) -> bool {
        self.inbox.blocking_send(Input::Want { pieces, urgency }).is_ok()
    }

    /// Stores a whole piece that did not come from a peer; it is served to other peers too. False if it does not
    /// match the manifest. Waits for the disk.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn supply(&self, piece: u32, bytes: &[u8]) -> Result<bool, Error> {
        Ok(self.settler.supply(piece, bytes)?)
    }

    /// Statistics of each peer so far, disconnected ones included; waits as [`Demand::want`] does.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn peers(&self) -> Result<Vec<PeerReport>, Error> {
        let (reply, reports) = oneshot::channel();
        self.inbox.blocking_send(Input::Report(reply)).map_err(|_| Error::Stopped)?;
        reports.blocking_recv().map_err(|_| Error::Stopped)
    }
}
