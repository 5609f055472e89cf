//! A tree with segments, as Open MPI's broadcasts are: flat, chain, k-nomial and binary are one
//! mechanism and differ in the tree.
//!
//! A rank sends a segment to all its children at once when it has all of it, and the next one when all
//! those have left (`ompi_coll_base_bcast_intra_generic`: `isend` to each child, then `wait_all`).

use super::{Hop, Schedule, Sends};

/// A tree and how far each rank is.
pub(super) struct Tree {
    segments: u32,
    ranks: Vec<Rank>,
}

#[derive(Clone, Default)]
struct Rank {
    children: Vec<u32>,
    /// Segments that it has: they come in order.
    has: u32,
    /// Segments that all children have been sent.
    passed: u32,
    /// Children to which segment `passed` has not left yet.
    busy: usize,
}

impl Tree {
    fn new(ranks: u32, segments: u32, parent: impl Fn(u32) -> u32) -> Tree {
        let mut tree = Tree { segments, ranks: vec![Rank::default(); ranks as usize] };
        for rank in 1..ranks {
            tree.ranks[parent(rank) as usize].children.push(rank);
        }
        tree
    }

    /// The origin sends all to each receiver: a loop of `scp`, a web server, `MPI_Bcast` basic linear.
    pub(super) fn flat(ranks: u32) -> Tree {
        Tree::new(ranks, 1, |_| 0)
    }

    /// Each rank sends to the next: Open MPI's pipeline, Kascade, dolly.
    pub(super) fn chain(ranks: u32, segments: u32) -> Tree {
        Tree::new(ranks, segments, |rank| rank - 1)
    }

    /// Two children each.
    pub(super) fn binary(ranks: u32, segments: u32) -> Tree {
        Tree::new(ranks, segments, |rank| (rank - 1) / 2)
    }

    /// A rank's parent has the rank's lowest digit to the base `radix` that is not 0 set to 0. Open MPI 4.1
    /// chooses radix 4 with one segment for 64 ranks; radix 2 is the binomial tree.
    pub(super) fn knomial(ranks: u32, segments: u32, radix: u32) -> Tree {
        let parent = |rank: u32| {
            let mut digit = 1;
            while (rank / digit).is_multiple_of(radix) {
                digit *= radix;
            }
            rank - rank / digit % radix * digit
        };
        let mut tree = Tree::new(ranks, segments, parent);
        for rank in &mut tree.ranks {
            rank.children.reverse(); // the largest subtree first
        }
        tree
    }

    fn pass(&mut self, rank: u32, out: &mut Sends) {
        let r = &mut self.ranks[rank as usize];
        if r.busy == 0 && r.passed < r.has {
            r.busy = r.children.len();
            for &child in &r.children {
                out.send(rank, child, r.passed..r.passed + 1);
            }
        }
    }
}

impl Schedule for Tree {
    fn start(&mut self, out: &mut Sends) {
        self.ranks[0].has = self.segments;
        self.pass(0, out);
    }

    fn arrived(&mut self, hop: &Hop, out: &mut Sends) {
        self.ranks[hop.to as usize].has = hop.parts.end;
        self.pass(hop.to, out);
    }

    fn sent(&mut self, hop: &Hop, out: &mut Sends) {
        let r = &mut self.ranks[hop.from as usize];
        r.busy -= 1;
        if r.busy == 0 {
            r.passed += 1;
            self.pass(hop.from, out);
        }
    }
}
