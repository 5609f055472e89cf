//! Slurm's `sbcast`: stop and wait. Every block goes down a tree, store and forward, and the next one
//! starts when all nodes have acknowledged it.
//!
//! The tree is the one that Slurm 22.05 was measured to build: `--fanout` (8 at most) shapes the first level
//! only; below it each slurmd splits its list by its own `TreeWidth`, 50 by default. With 16 nodes that puts
//! 15 copies on the sender's link, as its own slurmd serves the first subtree.

use super::{Hop, Schedule, Sends};

/// `TreeWidth` of slurm.conf before 23.11.
pub(super) const TREE_WIDTH: u32 = 50;

/// The tree and the waits.
pub(super) struct Sbcast {
    blocks: u32,
    block: u32,
    ranks: Vec<Rank>,
}

#[derive(Clone, Default)]
struct Rank {
    parent: u32,
    children: Vec<u32>,
    /// Children that have not acknowledged the current block.
    waits: usize,
}

impl Sbcast {
    pub(super) fn new(ranks: u32, blocks: u32, fanout: u32) -> Sbcast {
        let mut tree = Sbcast { blocks, block: 0, ranks: vec![Rank::default(); ranks as usize] };
        tree.split(0, (0..ranks).collect(), fanout.max(1));
        tree
    }

    /// Gives `list` to children of `parent`, after Slurm's `set_span`: each in turn takes itself and
    /// `width` more, the rest are leaves.
    fn split(&mut self, parent: u32, list: Vec<u32>, width: u32) {
        let mut spans = vec![0; width as usize];
        let mut left = list.len() as u32;
        let small = left <= width;
        while left > 0 && !small {
            for (i, span) in (0..).zip(&mut spans) {
                if width - i >= left {
                    *span += if *span == 0 { 0 } else { left };
                    left = 0;
                    break;
                }
                left -= u32::from(*span == 0);
                let more = left.min(width);
                (*span, left) = (*span + more, left - more);
                if left == 0 {
                    break;
                }
            }
        }
        let mut list = list.into_iter();
        let mut spans = spans.into_iter();
        while let Some(child) = list.next() {
            let below: Vec<u32> = list.by_ref().take(spans.next().unwrap_or(0) as usize).collect();
            if child != parent {
                self.ranks[child as usize].parent = parent;
                self.ranks[parent as usize].children.push(child);
            }
            self.split(child, below, TREE_WIDTH);
        }
    }

    /// Forwards the current block, or reports upward that all ranks below have it.
    fn pass(&mut self, rank: u32, out: &mut Sends) {
        let r = &mut self.ranks[rank as usize];
        r.waits = r.children.len();
        for &child in &r.children {
            out.send(rank, child, self.block..self.block + 1);
        }
        if r.waits == 0 && rank > 0 {
            out.note(rank, r.parent);
        }
    }
}

impl Schedule for Sbcast {
    fn start(&mut self, out: &mut Sends) {
        self.pass(0, out);
    }

    fn arrived(&mut self, hop: &Hop, out: &mut Sends) {
        self.pass(hop.to, out);
    }

    fn sent(&mut self, _hop: &Hop, _out: &mut Sends) {}

    fn noted(&mut self, _from: u32, to: u32, out: &mut Sends) {
        let r = &mut self.ranks[to as usize];
        r.waits -= 1;
        if r.waits > 0 {
            return;
        }
        if to > 0 {
            out.note(to, r.parent);
        } else if self.block + 1 < self.blocks {
            self.block += 1;
            self.pass(0, out);
        }
    }
}
