//! What a setting costs, as formulas. Rates are in bits per second, sizes in bytes, shares from 0 to 1.

use std::time::Duration;

/// The share of a receive buffer that the kernel offers as a window: the rest is for its own records of each packet. It
/// begins with a half (`tcp_adv_win_scale` is 1, tcp(7)) and learns; the lab's tuning study measured 0.53 to 0.65.
pub const WINDOW_OF_BUFFER: f64 = 0.58;
/// The share of a send buffer that is data on the way; the tuning study measured 0.68 to 0.71.
pub const FLIGHT_OF_BUFFER: f64 = 0.7;
/// How long a busy receiver's thread may not run: 4 MB fill a UDP buffer at 10 Gbit/s so (section 6.1 of the 100 Gbit/s
/// paper).
pub const THREAD_PAUSE: Duration = Duration::from_micros(3_200);

/// Seconds of one core for a packet that the stack merges with others (GRO) or gets merged (TSO).
const MERGED_PACKET: f64 = 0.25e-6;
/// Seconds of one core for a packet that goes through the whole stack alone.
const LONE_PACKET: f64 = 1.0e-6;
/// Seconds of one core for a byte: one copy between kernel and program, and what goes with it.
const BYTE: f64 = 0.16e-9;
/// Seconds of one core for a byte whose checksum the card does not compute.
const CHECKSUM: f64 = 0.06e-9;
/// Seconds of one core for an interrupt.
const INTERRUPT: f64 = 2.0e-6;
/// Seconds of one core to map a packet's memory for the card and to take that back (IOMMU).
const MAPPING: f64 = 0.3e-6;
/// What four streams gain if interrupts and threads share a core's cache and memory: 20% (figure 15 of the paper).
pub const PLACED: f64 = 1.2;

/// What one packet costs a core.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Packet {
    /// Bytes of the largest packet.
    pub mtu: u32,
    /// Packets that one interrupt brings.
    pub per_interrupt: f64,
    /// Whether packets are merged before they go through the stack.
    pub merged: bool,
    /// Whether the card computes checksums.
    pub checksums: bool,
    /// Whether the memory of each packet is mapped for the card.
    pub mapped: bool,
}

impl Packet {
    /// A packet as a well-tuned card brings it.
    #[must_use]
    pub fn tuned(mtu: u32) -> Self {
        Self { mtu, per_interrupt: 64.0, merged: true, checksums: true, mapped: false }
    }

    /// Bits per second that one core carries: it is full when a second of its time is used.
    #[must_use]
    pub fn core_rate(self) -> f64 {
        let payload = f64::from(self.mtu.saturating_sub(52).max(1));
        let mut packet = if self.merged { MERGED_PACKET } else { LONE_PACKET };
        packet += INTERRUPT / self.per_interrupt.max(1.0);
        packet += if self.mapped { MAPPING } else { 0.0 };
        let byte = BYTE + if self.checksums { 0.0 } else { CHECKSUM };
        8.0 / (packet / payload + byte)
    }
}

/// The share of the link's rate that is lost at a capacity of `now`, and not at one of `mended`.
#[must_use]
pub fn lost_between(now: f64, mended: f64, link: u64) -> f64 {
    let link = link as f64;
    if link <= 0.0 { 0.0 } else { ((mended.min(link) - now.min(link)) / link).clamp(0.0, 1.0) }
}

/// What a rate of `reached` costs of `wanted`.
#[must_use]
pub fn share_lost(reached: f64, wanted: f64) -> f64 {
    if wanted <= 0.0 || !reached.is_finite() { 0.0 } else { (1.0 - reached / wanted).clamp(0.0, 1.0) }
}

/// Bits per second of `streams` TCP streams whose window is `window` bytes each: a window a round trip.
#[must_use]
pub fn window_rate(window: f64, streams: u32, rtt: Duration) -> f64 {
    window * 8.0 * f64::from(streams) / rtt.as_secs_f64().max(1e-6)
}

/// Bytes on the way when a link is full: rate x round trip.
#[must_use]
pub fn bandwidth_delay(link: u64, rtt: Duration) -> u64 {
    (link as f64 / 8.0 * rtt.as_secs_f64()) as u64
}

/// Bits per second of one TCP stream with Reno-like congestion control at a loss of `loss` (Mathis et al. 1997):
/// segment / round trip x 1.22 / sqrt(loss).
#[must_use]
pub fn mathis_rate(mtu: u32, rtt: Duration, loss: f64) -> f64 {
    if loss <= 0.0 {
        return f64::INFINITY;
    }
    let segment = f64::from(mtu.saturating_sub(52).max(1));
    segment * 8.0 / rtt.as_secs_f64().max(1e-6) * 1.22 / loss.sqrt()
}

/// Packets per second of a full link.
#[must_use]
pub fn packet_rate(link: u64, mtu: u32) -> f64 {
    // Ethernet adds a header, a checksum, a preamble and a gap: 38 bytes.
    link as f64 / 8.0 / (f64::from(mtu.max(68)) + 38.0)
}

/// Bits per second of a PCIe slot: gigatransfers per second x lanes x coding, less an eighth for headers of its packets.
#[must_use]
pub fn pcie_rate(gigatransfers: f64, lanes: u32) -> f64 {
    let coding = if gigatransfers < 6.0 { 8.0 / 10.0 } else { 128.0 / 130.0 };
    gigatransfers * 1e9 * f64::from(lanes) * coding * 0.875
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_the_papers_come_out() {
        // Section 6.1: 10 Gbit/s over 46 ms need about 64 MB of window.
        let window = bandwidth_delay(10_000_000_000, Duration::from_millis(46));
        assert_eq!(window, 57_500_000);
        assert!((window_rate(window as f64, 1, Duration::from_millis(46)) - 1e10).abs() < 1.0);
        // Section 6: four 10 Gbit/s NICs reach 60 Gbit/s in both directions, the limit of PCIe 2.0 x8.
        let slot = pcie_rate(5.0, 8);
        assert!((26e9..30e9).contains(&slot), "{slot}");
        // 100 Gbit/s need a slot of PCIe 3.0 x16.
        assert!(pcie_rate(8.0, 16) > 100e9 && pcie_rate(8.0, 8) < 60e9);
        // 1.5 KB, 50 ms, one packet in a million lost: 283 Mbit/s.
        let rate = mathis_rate(1500, Duration::from_millis(50), 1e-6);
        assert!((280e6..286e6).contains(&rate), "{rate}");
        assert!((packet_rate(10_000_000_000, 1500) - 812_743.0).abs() < 1.0);
        // A core of today carries some 20 Gbit/s of 1500-byte packets in one stream, and twice that of 9000 bytes.
        let (small, large) = (Packet::tuned(1500).core_rate(), Packet::tuned(9000).core_rate());
        assert!((20e9..26e9).contains(&small) && (38e9..46e9).contains(&large), "{small} {large}");
        // Section 6.3: coalescing of interrupts brings TCP half more, and UDP, whose packets are not merged, more.
        let gain = |packet: Packet| packet.core_rate() / Packet { per_interrupt: 1.0, ..packet }.core_rate();
        assert!(gain(Packet::tuned(9000)) > 1.5);
        assert!((lost_between(5.0, 20.0, 10) - 0.5).abs() < 1e-9);
        assert!((share_lost(2.5, 10.0) - 0.75).abs() < 1e-9);
        assert!(share_lost(20.0, 10.0).abs() < 1e-9);
    }
}
