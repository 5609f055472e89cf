//! Scatter and ring allgather (van de Geijn), MPICH's broadcast of large messages: a binomial tree hands each
//! rank one N-th, then all pass their parts round a ring, N - 1 times. Every rank sends about 2S in all, S of
//! it round the ring.

use super::binomial::span;
use super::{Hop, Schedule, Sends};

/// How far each rank is.
pub(super) struct Scatter {
    ranks: Vec<Rank>,
}

#[derive(Clone, Copy, Default)]
struct Rank {
    /// Its part of the scattering is done.
    rings: bool,
    /// A block of its is on its way round the ring.
    busy: bool,
    /// Blocks that have left it for the ring.
    put: u32,
    /// Blocks received round the ring.
    got: u32,
}

impl Scatter {
    pub(super) fn new(ranks: u32) -> Scatter {
        Scatter { ranks: vec![Rank::default(); ranks as usize] }
    }

    fn count(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Hands the child at distance `step` its subtree's blocks, or the next smaller one; then rings.
    fn scatter(&mut self, rank: u32, mut step: u32, out: &mut Sends) {
        while step > 0 && rank + step >= self.count() {
            step /= 2;
        }
        if step > 0 {
            out.send(rank, rank + step, rank + step..(rank + 2 * step).min(self.count()));
        } else {
            self.ranks[rank as usize].rings = true;
            self.ring(rank, out);
        }
    }

    /// Sends the next block to the right if it is there: its own first, then each as it arrives.
    fn ring(&mut self, rank: u32, out: &mut Sends) {
        let count = self.count();
        let r = &mut self.ranks[rank as usize];
        if r.rings && !r.busy && r.put <= r.got && r.put + 1 < count {
            r.busy = true;
            let block = (rank + count - r.put) % count;
            out.send(rank, (rank + 1) % count, block..block + 1);
        }
    }

    /// Scattered blocks begin with the receiver's own; that one never comes round the ring.
    fn is_ring(hop: &Hop) -> bool {
        hop.parts.start != hop.to
    }
}

impl Schedule for Scatter {
    fn start(&mut self, out: &mut Sends) {
        self.scatter(0, span(0, self.count()) / 2, out);
    }

    fn arrived(&mut self, hop: &Hop, out: &mut Sends) {
        if Scatter::is_ring(hop) {
            self.ranks[hop.to as usize].got += 1;
            self.ring(hop.to, out);
        } else {
            self.scatter(hop.to, span(hop.to, self.count()) / 2, out);
        }
    }

    fn sent(&mut self, hop: &Hop, out: &mut Sends) {
        if Scatter::is_ring(hop) {
            let r = &mut self.ranks[hop.from as usize];
            (r.put, r.busy) = (r.put + 1, false);
            self.ring(hop.from, out);
        } else {
            self.scatter(hop.from, (hop.to - hop.from) / 2, out);
        }
    }
}
