//! Counters of one stream, since the start of the receiver.

use std::sync::atomic::{AtomicU64, Ordering};

use tidecast_event::field::receive::Total;

/// A count that several threads may raise.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// The counts of one stream; on a cache line of its own, for its thread raises them with every packet.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counts {
    pub(super) packets: Count,
    pub(super) bytes: Count,
    pub(super) lost: Count,
    pub(super) recovered: Count,
    pub(super) duplicate: Count,
    pub(super) stale: Count,
    pub(super) rejected: Count,
    pub(super) reordered: Count,
    pub(super) complete: Count,
    pub(super) incomplete: Count,
    /// The time of the last packet of values or parity, and of the last accepted packet of any kind; ns since
    /// 1970.
    pub(super) last_data: Count,
    pub(super) last: Count,
}

impl Counts {
    pub(super) fn total(&self) -> Total {
        Total {
            packets: self.packets.get(),
            bytes: self.bytes.get(),
            lost: self.lost.get(),
            recovered: self.recovered.get(),
            duplicate: self.duplicate.get(),
            stale: self.stale.get(),
            rejected: self.rejected.get(),
            reordered: self.reordered.get(),
            complete: self.complete.get(),
            incomplete: self.incomplete.get(),
        }
    }
}
