//! Blocks requested from a web seed and not fetched yet. No I/O.

use std::collections::VecDeque;

use tidecast_hash::LEAF;
use tidecast_swarm::Block;

use crate::pool::BUFFER;

/// Bytes of one run: of one request to the server.
const RUN: u64 = 8 << 20;
const LEAST: u64 = 256 << 10;

/// See the head of the file.
pub(super) struct Work {
    /// In the order in which they were asked for, each at most a buffer long.
    queue: VecDeque<Block>,
    /// The remaining blocks of each lane.
    runs: Vec<VecDeque<Block>>,
}

impl Work {
    pub(super) fn new(lanes: usize) -> Self {
        Self { queue: VecDeque::new(), runs: vec![VecDeque::new(); lanes] }
    }

    /// Enters a block, in parts of a buffer.
    pub(super) fn push(&mut self, block: Block) {
        let end = block.begin.saturating_add(block.len);
        for begin in (block.begin..end).step_by(BUFFER) {
            let len = (end - begin).min(BUFFER as u32);
            self.queue.push_back(Block { begin, len, ..block });
        }
    }

    /// The data within this block is no longer wanted.
    pub(super) fn cancel(&mut self, gone: Block) {
        for list in self.runs.iter_mut().chain([&mut self.queue]) {
            if list.iter().any(|b| b.piece == gone.piece) {
                *list = list.iter().flat_map(|b| without(*b, gone)).collect();
            }
        }
    }

    /// Gives a lane its next run: contiguous blocks, so many that the lanes share the work. `whole`: all blocks, in
    /// order, for a server that starts at the beginning of a file each time. False if there is nothing.
    pub(super) fn take(
        &mut self,
        lane: usize,
        whole: bool,
        follows: impl Fn(&Block, &Block) -> bool,
    ) -> bool {
        let queued: u64 = self.queue.iter().map(|b| u64::from(b.len)).sum();
        let most = (queued / self.runs.len().max(1) as u64).clamp(LEAST, RUN);
        let Some(run) = self.runs.get_mut(lane) else { return false };
        if whole {
            run.extend(self.queue.drain(..));
            run.make_contiguous().sort_unstable();
            return !run.is_empty();
        }
        let mut bytes = 0;
        while let Some(next) = self.queue.front().copied() {
            let goes_on = run.back().is_none_or(|last| follows(last, &next) && bytes < most);
            if !goes_on {
                break;
            }
            bytes += u64::from(next.len);
            run.push_back(next);
            self.queue.pop_front();
        }
        !run.is_empty()
    }

    /// The next block of a lane's run.
    pub(super) fn next(&mut self, lane: usize) -> Option<Block> {
        self.runs.get_mut(lane)?.pop_front()
    }

    /// The blocks after it in the run.
    pub(super) fn ahead(&self, lane: usize) -> impl Iterator<Item = Block> {
        self.runs.get(lane).into_iter().flatten().copied()
    }

    /// A block that was not fetched, and the rest of its run, are to be fetched later, as far as they are to be kept.
    pub(super) fn give_back(&mut self, lane: usize, block: Block, keep: impl Fn(u32) -> bool) {
        let Some(run) = self.runs.get_mut(lane) else { return };
        run.push_front(block);
        let run = std::mem::take(run);
        run.into_iter().filter(|b| keep(b.piece)).rev().for_each(|b| self.queue.push_front(b));
        self.queue.retain(|b| keep(b.piece));
    }
}

/// The remaining parts of a block; removed parts are whole leaves, or reach its end.
fn without(block: Block, gone: Block) -> impl Iterator<Item = Block> {
    let (start, end) = (block.begin, block.begin + block.len);
    let (from, to) = (gone.begin.clamp(start, end), gone.begin.saturating_add(gone.len).clamp(start, end));
    debug_assert!(block.piece != gone.piece || gone.begin.is_multiple_of(LEAF as u32));
    let parts = if block.piece == gone.piece && from < to {
        [(start, from), (to, end)]
    } else {
        [(start, end), (end, end)]
    };
    let parts = parts.into_iter().filter(|(from, to)| from < to);
    parts.map(move |(begin, to)| Block { begin, len: to - begin, ..block })
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u32 = 1 << 10;

    fn block(piece: u32, begin: u32, len: u32) -> Block {
        Block { piece, begin: begin * K, len: len * K }
    }

    fn follows(a: &Block, b: &Block) -> bool {
        a.piece == b.piece && a.begin + a.len == b.begin || a.piece + 1 == b.piece && b.begin == 0
    }

    fn run(work: &mut Work, lane: usize) -> Vec<Block> {
        std::iter::from_fn(|| work.next(lane)).collect()
    }

    #[test]
    fn lanes_share_what_there_is_in_runs() {
        let mut work = Work::new(2);
        (4..12).for_each(|piece| work.push(block(piece, 0, 256)));
        work.push(block(20, 0, 600));
        assert!(work.take(0, false, follows) && work.take(1, false, follows));
        let (first, second) = (run(&mut work, 0), run(&mut work, 1));
        assert_eq!((first[0], second[0]), (block(4, 0, 256), block(4 + first.len() as u32, 0, 256)));
        assert!(work.take(0, false, follows));
        let mut last = run(&mut work, 0);
        while work.take(0, false, follows) {
            last.extend(run(&mut work, 0));
        }
        assert_eq!(first.len() + second.len() + last.len(), 8 + 3);
        assert_eq!(last.last(), Some(&block(20, 512, 88)));
        assert!(!work.take(0, false, follows));
    }

    #[test]
    fn what_is_cancelled_is_not_fetched() {
        let mut work = Work::new(1);
        (0..3).for_each(|piece| work.push(block(piece, 0, 64)));
        work.push(block(9, 0, 64));
        assert!(work.take(0, false, follows));
        work.cancel(block(1, 16, 16));
        work.cancel(block(2, 0, 64));
        work.cancel(block(9, 48, 64));
        let left = [block(0, 0, 64), block(1, 0, 16), block(1, 32, 32)];
        assert_eq!(run(&mut work, 0), left);
        assert!(work.take(0, false, follows));
        assert_eq!(run(&mut work, 0), [block(9, 0, 48)]);
    }

    #[test]
    fn what_failed_comes_again_unless_it_is_not_there() {
        let mut work = Work::new(1);
        (0..4).for_each(|piece| work.push(block(piece, 0, 64)));
        assert!(work.take(0, false, follows));
        let first = work.next(0).unwrap_or(block(9, 9, 9));
        work.give_back(0, first, |piece| piece != 2);
        assert!(work.take(0, true, follows));
        assert_eq!(run(&mut work, 0), [block(0, 0, 64), block(1, 0, 64), block(3, 0, 64)]);
    }
}
