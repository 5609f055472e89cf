//! The queue of one child in one stripe.

use std::collections::VecDeque;
use std::ops::Range;

use crate::api::Block;
use crate::ranges::without;

/// Parts of a piece that a child may decline; if it declines more it gets the others.
const SKIPS: usize = 64;

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct ChildQueue {
    stripe: u16,
    /// Pieces of the stripe not yet offered, in order. The child may have some of them.
    pending: VecDeque<u32>,
    /// The piece that is being sent, and how many bytes of it are queued.
    open: Option<(u32, u32)>,
    /// Parts of that piece, bytes, that the child does not want: it has them.
    skip: Vec<Range<u32>>,
    /// The child is no longer ours: the open piece is ended, and no other is begun.
    last: bool,
}

impl ChildQueue {
    /// These pieces of a stripe, in this order.
    pub(crate) fn new(stripe: u16, pending: VecDeque<u32>) -> Self {
        ChildQueue { stripe, pending, open: None, skip: Vec::new(), last: false }
    }

    pub(crate) fn stripe(&self) -> u16 {
        self.stripe
    }

    /// Pieces not yet offered.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The child is no longer ours: the open piece is ended, and no other is begun.
    pub(crate) fn is_last(&self) -> bool {
        self.last
    }

    /// The child is ours, or no longer.
    pub(crate) fn set_last(&mut self, last: bool) {
        self.last = last;
    }

    /// Ends it with the open piece; whether there is one.
    pub(crate) fn end(&mut self) -> bool {
        self.pending.clear();
        self.last = true;
        self.open.is_some()
    }

    /// Nothing will be sent by it any more.
    pub(crate) fn is_over(&self) -> bool {
        self.last && self.open.is_none()
    }

    /// A child of ours that has been offered, and sent, all that it was to get.
    pub(crate) fn is_done(&self) -> bool {
        !self.last && self.pending.is_empty() && self.open.is_none()
    }

    /// The stripe has one more piece.
    pub(crate) fn add(&mut self, piece: u32) {
        let there = || self.open.is_some_and(|(p, _)| p == piece) || self.pending.contains(&piece);
        if !self.last && !there() {
            self.pending.push_back(piece);
        }
    }

    /// These are to be sent again, before the others if they are `urgent`.
    pub(crate) fn add_again(&mut self, pieces: &[u32], urgent: bool) {
        match urgent {
            true => pieces.iter().rev().for_each(|piece| self.pending.push_front(*piece)),
            false => self.pending.extend(pieces),
        }
    }

    /// The child fetches the piece itself: it is not sent it a second time.
    pub(crate) fn remove(&mut self, piece: u32) {
        self.pending.retain(|&p| p != piece);
    }

    /// The piece that is being sent, and how many bytes of it are queued.
    pub(crate) fn open(&self) -> Option<(u32, u32)> {
        self.open
    }

    /// Parts of the open piece within these bytes that the child wants, in order.
    pub(crate) fn wanted(&self, bytes: Range<u32>) -> Vec<Range<u32>> {
        without(bytes, &self.skip)
    }

    /// This many bytes of the piece, of `len` in all, are queued; true when it is open still.
    pub(crate) fn reach(&mut self, piece: u32, bytes: u32, len: u32) -> bool {
        self.open = (bytes < len).then_some((piece, bytes));
        self.open.is_some()
    }

    /// The piece has been offered, and is sent from its start.
    pub(crate) fn begin(&mut self, piece: u32) {
        debug_assert!(self.open.is_none(), "piece {piece} is begun before another is ended");
        self.open = Some((piece, 0));
        self.skip.clear();
    }

    /// Takes the first of the next few pieces that is `ready`; pieces at the front that the child has are
    /// dropped.
    pub(crate) fn next(
        &mut self,
        few: usize,
        has: impl Fn(u32) -> bool,
        ready: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        while self.pending.front().is_some_and(|&p| has(p)) {
            self.pending.pop_front();
        }
        let at = self.pending.iter().take(few).position(|&p| ready(p))?;
        self.pending.remove(at)
    }

    /// The child declines this part of a piece, or the rest of the `whole`.
    pub(crate) fn decline(&mut self, block: Block, whole: bool) {
        if self.open.is_none_or(|(piece, _)| piece != block.piece) {
            return;
        }
        if whole {
            self.open = None;
        } else if self.skip.len() < SKIPS {
            self.skip.push(block.begin..block.begin.saturating_add(block.len));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_piece_after_the_other_to_its_end() {
        let mut queue = ChildQueue::new(0, VecDeque::from([1, 2, 3, 4]));
        let next = |queue: &mut ChildQueue| queue.next(2, |p| p == 1, |p| p != 2);
        assert_eq!(next(&mut queue), Some(3));
        queue.begin(3);
        queue.add(3);
        queue.add(5);
        queue.decline(Block { piece: 2, begin: 0, len: 9 }, true);
        queue.decline(Block { piece: 3, begin: 2, len: 3 }, false);
        assert_eq!(queue.wanted(0..9), [0..2, 5..9]);
        assert!(queue.reach(3, 9, 10) && queue.end() && !queue.is_over() && queue.pending() == 0);
        assert!(!queue.reach(3, 10, 10) && queue.is_over() && !queue.is_done());
    }

    #[test]
    fn what_was_lost_goes_again_and_what_is_urgent_first() {
        let mut queue = ChildQueue::new(0, VecDeque::from([7]));
        queue.add_again(&[1, 2], true);
        queue.add_again(&[3], false);
        queue.remove(7);
        let all: Vec<u32> = std::iter::from_fn(|| queue.next(9, |_| false, |_| true)).collect();
        assert_eq!(all, [1, 2, 3]);
        assert!(queue.is_done());
    }
}
