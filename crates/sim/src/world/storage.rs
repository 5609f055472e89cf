//! The handling of received payload: hashing, writing, the verdict on blocks and pieces.
//!
//! The rules are those of the driver's settling threads: a block gets one verdict, a leaf that is
//! there already is a duplicate, a piece whose leaves are all there is good or is dropped.

use tidecast_swarm::{Block, Event, PeerId, Time};

use super::node::Partial;
use super::{NodeEvent, World};
use crate::topology::NodeId;

/// The chunk in which a piece is written, bytes.
const LEAF: u32 = 16 << 10;
const SECOND: u64 = 1_000_000_000;

impl World {
    /// A block has come off the socket.
    pub(super) fn received(&mut self, id: NodeId, peer: PeerId, block: Block, good: bool) {
        self.give(id, Event::Received { peer, block });
        let now = self.now;
        let takes = u64::from(block.len) * SECOND / self.job.host.settle.max(1);
        let node = self.node(id);
        node.settled = Time(node.settled.max(now).0 + takes);
        let at = node.settled;
        self.later(at, id, NodeEvent::Verdict(peer, block, good));
    }

    /// A block was hashed and, where it is new and good, written.
    pub(super) fn verdict(&mut self, id: NodeId, peer: PeerId, block: Block, good: bool) {
        let leaves = self.job.leaves;
        let node = self.node(id);
        if node.engine.is_none() {
            return;
        }
        if !good && leaves {
            return self.give(id, Event::BlockBad { peer, block });
        }
        if node.truth.has(block.piece) || !node.partial.entry(block.piece).or_default().add(peer, block, good)
        {
            self.tally.duplicate += u64::from(block.len);
            return self.give(id, Event::Duplicate { peer, block });
        }
        if node.partial.get(&block.piece).is_some_and(|p| p.bytes == node.setup.lengths[block.piece as usize])
        {
            self.later(self.now, id, NodeEvent::Settle(block.piece));
        }
        let planned = self.planning.is_some() || self.joinable.is_some();
        if planned && leaves && self.node(id).partial.get(&block.piece).is_some_and(|p| p.holds(block)) {
            self.checks.proven(id, block);
        }
        self.give(id, Event::Stored { peer, block, proven: leaves });
    }

    /// A piece whose blocks are all there is good or is dropped.
    pub(super) fn settle(&mut self, id: NodeId, piece: u32) {
        let node = self.node(id);
        let Some(partial) = node.partial.remove(&piece) else { return };
        let bad = partial.blocks.iter().filter(|(_, b)| !b.2);
        let bad: Vec<_> = bad.map(|(&begin, &(len, peer, _))| (peer, Block { piece, begin, len })).collect();
        self.checks.settled(id, piece, bad.is_empty());
        let node = self.node(id);
        if !bad.is_empty() {
            node.wrong.entry(piece).or_default().extend(bad);
            return self.give(id, Event::PieceFailed { piece });
        }
        node.truth.insert(piece);
        self.tally.verified += 1;
        let node = self.node(id);
        let culprits = node.wrong.remove(&piece).unwrap_or_default();
        self.give(id, Event::PieceVerified { piece });
        self.read_on(id);
        for (peer, block) in culprits {
            self.give(id, Event::BlockBad { peer, block });
        }
    }
}

impl Partial {
    /// Whether all of a block is there and good.
    pub(super) fn holds(&self, block: Block) -> bool {
        let end = block.begin + block.len;
        let mut at = block.begin;
        while at < end {
            match self.blocks.range(..=at).next_back() {
                Some((&begin, &(len, _, true))) if at < begin + len => at = begin + len,
                _ => return false,
            }
        }
        true
    }

    /// Writes the new parts of a block; false when there are none.
    fn add(&mut self, peer: PeerId, block: Block, good: bool) -> bool {
        let end = block.begin + block.len;
        let touches =
            self.blocks.range(..end).next_back().is_some_and(|(&b, &(len, ..))| b + len > block.begin);
        if !touches {
            self.blocks.insert(block.begin, (block.len, peer, good));
            self.bytes += block.len;
            return true;
        }
        let before = self.bytes;
        for begin in (block.begin..end).step_by(LEAF as usize) {
            let there =
                self.blocks.range(..=begin).next_back().is_some_and(|(&b, &(len, ..))| begin < b + len);
            if !there {
                let len = LEAF.min(end - begin);
                self.blocks.insert(begin, (len, peer, good));
                self.bytes += len;
            }
        }
        self.bytes > before
    }
}
