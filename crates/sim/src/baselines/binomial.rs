//! The textbook binomial tree, as MPICH runs it: the whole message, to one child after the other, the
//! largest subtree first. After each round twice as many ranks have it: `ceil(log2 N)` rounds.

use super::{Hop, Schedule, Sends};

/// Its only state is the position of a rank in its list of children, which the last message contains.
pub(super) struct Binomial {
    ranks: u32,
}

impl Binomial {
    pub(super) fn new(ranks: u32) -> Binomial {
        Binomial { ranks }
    }

    /// Sends to the child at distance `step` or, if it does not exist, at the next smaller one.
    fn pass(&self, rank: u32, mut step: u32, out: &mut Sends) {
        while step > 0 && rank + step >= self.ranks {
            step /= 2;
        }
        if step > 0 {
            out.send(rank, rank + step, 0..1);
        }
    }
}

/// Size of the subtree of a rank with room: the distance to the parent, for the origin that of all.
pub(super) fn span(rank: u32, ranks: u32) -> u32 {
    if rank == 0 { ranks.next_power_of_two() } else { rank & rank.wrapping_neg() }
}

impl Schedule for Binomial {
    fn start(&mut self, out: &mut Sends) {
        self.pass(0, span(0, self.ranks) / 2, out);
    }

    fn arrived(&mut self, hop: &Hop, out: &mut Sends) {
        self.pass(hop.to, span(hop.to, self.ranks) / 2, out);
    }

    fn sent(&mut self, hop: &Hop, out: &mut Sends) {
        self.pass(hop.from, (hop.to - hop.from) / 2, out);
    }
}
