//! Standing queues: traffic that crosses a full port waits behind the data that the flows filling it keep
//! queued there.
//!
//! Measured in the lab (20 and 100 Mbit/s, 256 KiB queues, cubic, 6 to 11 s): a short message from an idle
//! stream waits 4.5 ms at a 20 Mbit/s port with 1 bulk stream, 10.5 ms with 2, 35 ms with 10 and 87 ms with
//! 30; at a sender's own port 7.5 ms with 1, 17.5 ms with 6. So each stream keeps about one unit of
//! segmentation offload there, and one more is being sent: slow start ends when delay rises (HyStart), long
//! before the queue overflows, and a sender's kernel holds its streams short (TCP small queues). Only tens
//! of streams fill a queue; then losses let it fall and it holds seven eighths.

use super::model::Model;
use super::shares::Shares;
use crate::topology::Topology;

/// Frames of a unit of segmentation offload (`gso_max_size` in the lab).
const UNIT: u64 = 5;

#[derive(Debug)]
pub(super) struct Queues {
    /// Bytes that each port's queue holds.
    sizes: Vec<u64>,
    /// Bytes that a stream keeps in a queue.
    unit: u64,
}

impl Queues {
    pub(super) fn new(topology: &Topology, model: &Model) -> Self {
        let nodes = 2 * topology.len();
        let size = |port: u32| {
            if model.queue == 0 {
                return 0;
            }
            let link = port.checked_sub(nodes).and_then(|of| topology.links.get(of as usize / 2));
            let Some(link) = link else { return model.queue };
            let twice = u128::from(link.rate / 8) * 2 * u128::from(link.delay) / 1_000_000_000;
            if link.queue > 0 { link.queue } else { model.queue.max(twice as u64) }
        };
        Queues { sizes: (0..topology.ports()).map(size).collect(), unit: UNIT * u64::from(model.frame) }
    }

    /// How long a byte that enters this port now waits in it, nanoseconds.
    pub(super) fn wait(&self, port: u32, shares: &Shares) -> u64 {
        let bound = u64::from(shares.bound(port));
        let capacity = shares.capacity(port);
        if bound == 0 || capacity == 0 {
            return 0;
        }
        let full = self.sizes[port as usize] / 8 * 7;
        full.min((bound + 1) * self.unit) * 1_000_000_000 / capacity
    }
}
