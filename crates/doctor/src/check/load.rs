//! The cores that carry an interface's packets, and what they carry.

use tidecast_text::count;

use crate::Facts;
use crate::facts::Interface;
use crate::model::Packet;

/// The cores of an interface.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// CPUs of the host.
    pub(super) cpus: u32,
    /// Those that receive its packets.
    pub(super) cores: u32,
    /// A packet as this interface brings it, well tuned but for its size.
    pub(super) packet: Packet,
}

impl Load {
    pub(super) fn of(facts: &Facts, interface: &Interface) -> Self {
        let cpus = u32::try_from(facts.cpus.online.len()).unwrap_or(u32::MAX).max(1);
        // Each queue has a core, and RPS spreads its packets over more.
        let mut spread: Vec<u32> = interface.receive_queues.iter().flatten().copied().collect();
        spread.sort_unstable();
        spread.dedup();
        let cores = interface.receive_queues.len().max(spread.len()).max(1);
        let cores = u32::try_from(cores).unwrap_or(u32::MAX).min(cpus);
        Self { cpus, cores, packet: Packet::tuned(interface.mtu.unwrap_or(1500)) }
    }

    /// Bits per second of all of its cores with such packets.
    pub(super) fn capacity(&self, packet: Packet) -> f64 {
        packet.core_rate() * f64::from(self.cores)
    }

    /// For people.
    pub(super) fn cores(&self) -> String {
        count(self.cores.into(), "core")
    }

    /// For people, before a rate: `16 cores carry`.
    pub(super) fn carry(&self) -> String {
        format!("{} {}", self.cores(), if self.cores == 1 { "carries" } else { "carry" })
    }
}
