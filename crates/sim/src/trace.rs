//! A fingerprint of a run: a 64-bit hash over everything that happened, in order.
//!
//! Two runs of one seed have the same fingerprint on any machine: every number is hashed as 64 bits,
//! whatever the width of the machine's words. It is no defence against a forger.

use std::hash::{Hash, Hasher};

use tidecast_swarm::{Action, Event, Time};

use crate::topology::NodeId;

/// See the head of the file.
#[derive(Clone, Debug, Default)]
pub struct Trace(Mixer);

impl Trace {
    /// An engine is told of an event.
    pub fn event(&mut self, at: Time, node: NodeId, event: &Event) {
        (at, node, event).hash(&mut self.0);
    }

    /// An engine wants something done.
    pub fn action(&mut self, node: NodeId, action: &Action) {
        (node, action).hash(&mut self.0);
    }

    /// An event of a run without engines.
    pub fn number(&mut self, at: Time, n: u64) {
        (at, n).hash(&mut self.0);
    }

    /// The fingerprint so far.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.finish()
    }
}

/// A hasher that sees numbers only: one multiplication each.
#[derive(Clone, Debug, Default)]
struct Mixer(u64);

impl Mixer {
    fn mix(&mut self, n: u64) {
        let h = (self.0 ^ n).wrapping_add(0xD6E8_FEB8_6659_FD93).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = h ^ (h >> 29);
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        let mut last = self.clone();
        last.mix(1);
        last.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.mix(u64::from(b)));
    }

    fn write_u8(&mut self, n: u8) {
        self.mix(u64::from(n));
    }

    fn write_u16(&mut self, n: u16) {
        self.mix(u64::from(n));
    }

    fn write_u32(&mut self, n: u32) {
        self.mix(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.mix(n);
    }

    fn write_usize(&mut self, n: usize) {
        self.mix(n as u64);
    }

    /// The number of an enum's variant comes here.
    fn write_isize(&mut self, n: isize) {
        self.mix(n as u64);
    }
}

#[cfg(test)]
mod tests {
    use tidecast_swarm::{Block, PeerId, Reason};

    use super::*;

    fn of(events: &[(u64, u32, Event)]) -> u64 {
        let mut trace = Trace::default();
        events.iter().for_each(|(at, node, event)| trace.event(Time(*at), NodeId(*node), event));
        trace.value()
    }

    #[test]
    fn everything_counts() {
        let peer = PeerId(1);
        let block = |begin| Block { piece: 0, begin, len: 1 };
        let runs = [
            of(&[]),
            of(&[(0, 0, Event::Tick)]),
            of(&[(0, 0, Event::Tick), (0, 0, Event::Tick)]),
            of(&[(1, 0, Event::Tick)]),
            of(&[(0, 1, Event::Tick)]),
            of(&[(0, 0, Event::HasAll { peer })]),
            of(&[(0, 0, Event::HasNone { peer })]),
            of(&[(0, 0, Event::Stored { peer, block: block(0), proven: true })]),
            of(&[(0, 0, Event::Stored { peer, block: block(1), proven: true })]),
            of(&[(0, 0, Event::Received { peer, block: block(1) })]),
        ];
        for (i, a) in runs.iter().enumerate() {
            assert!(runs.iter().skip(i + 1).all(|b| a != b), "{i}: {runs:x?}");
        }
    }

    /// A change of this number means that printed fingerprints have another meaning from now on.
    #[test]
    fn the_same_on_every_machine() {
        let mut trace = Trace::default();
        trace.event(
            Time(1 << 40),
            NodeId(3),
            &Event::HasExactly { peer: PeerId(7), pieces: vec![1..2, 4..9] },
        );
        let reason = Reason::Protocol("nonsense");
        trace.action(NodeId(3), &Action::Disconnect { peer: PeerId(7), reason });
        assert_eq!(trace.value(), 8_644_968_758_724_033_975);
    }
}
