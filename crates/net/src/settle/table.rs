//! The pieces that are being received: which 16 KiB leaves are being written, their senders, and their hashes.
//!
//! The invariant: a leaf of an unverified piece is free, being written, or stored; it moves from
//! free to writing once, so that two copies of a block never race to the disk. A verified piece
//! has no entry and admits nothing.
//!
//! A piece fails only when the engine was notified of each verdict on its blocks: after the failure it would take a late
//! one for data that is on disk, and wait for the rest of the piece without end ([`Table::last`], [`Table::failed`]).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidecast_hash::{Digest, LEAF};
use tidecast_swarm::{Block, PeerId};

/// Locks over the table; pieces are spread over them so that threads seldom meet.
const LOCKS: usize = 64;
/// Failed attempts at one piece that are remembered for blame.
const ATTEMPTS: usize = 4;
/// Pieces per lock that may have leaf hashes and no data yet; a peer that sends more is ignored.
const KNOWN_AHEAD: usize = 256;

/// The decision about a block.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    /// All of it is new. `proven`: it was compared with known leaf hashes.
    Write { proven: bool },
    /// All of it is stored, or being written.
    Duplicate,
    /// It contradicts a known leaf hash.
    Bad,
    /// Some of it is new (true): its parts in order.
    Partly { parts: Vec<(Block, bool)>, proven: bool },
}

/// A piece whose leaves are all stored: the sender of each, and their hashes (none for v1).
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    pub(super) senders: Vec<PeerId>,
    pub(super) digests: Vec<Digest>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaf {
    Free,
    Writing,
    Stored,
    /// Stored, and compared with a known leaf hash before.
    Proven,
}

/// Whether a block may be sent to other peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// Its piece is whole and verified.
    Whole,
    /// The piece is not, but the block is stored and each leaf of it is proven.
    Proven,
    /// Neither.
    No,
}

#[derive(Default)]
struct Entry {
    leaves: Vec<Leaf>,
    stored: usize,
    /// Verdicts on blocks that the engine has not heard yet.
    unsaid: usize,
    /// The piece is being compared with the manifest.
    settling: bool,
    settled: Settled,
    /// Leaf hashes proven against the piece's root before the data came.
    known: Option<Vec<Digest>>,
    /// Earlier tries that failed.
    attempts: Vec<Settled>,
}

pub(super) struct Table {
    entries: Vec<Mutex<HashMap<u32, Entry>>>,
    verified: Vec<AtomicU64>,
}

impl Table {
    pub(super) fn new(pieces: u32) -> Table {
        let words = (pieces as usize).div_ceil(64);
        Table {
            entries: (0..LOCKS).map(|_| Mutex::default()).collect(),
            verified: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(super) fn is_verified(&self, piece: u32) -> bool {
        let word = self.verified.get(piece as usize / 64);
        word.is_some_and(|w| w.load(Ordering::Acquire) >> (piece % 64) & 1 == 1)
    }

    pub(super) fn mark_verified(&self, piece: u32) {
        if let Some(word) = self.verified.get(piece as usize / 64) {
            word.fetch_or(1 << (piece % 64), Ordering::Release);
        }
    }

    /// Claims the leaves of `block` for writing. `digests` are the block's leaf hashes, empty for v1. Except for a bad block,
    /// [`Table::last`] or [`Table::said`] has to follow.
    pub(super) fn admit(&self, peer: PeerId, block: Block, piece_len: u32, digests: &[Digest]) -> Admitted {
        let mut entries = self.lock(block.piece);
        if self.is_verified(block.piece) {
            return Admitted::Duplicate;
        }
        let entry = entries.entry(block.piece).or_default();
        entry.open(piece_len, !digests.is_empty());
        let span = leaf_span(block);
        debug_assert!(span.end <= entry.leaves.len());
        if let Some(known) = &entry.known
            && known.get(span.clone()) != Some(digests)
        {
            return Admitted::Bad;
        }
        let free = entry.leaves[span.clone()].iter().filter(|l| **l == Leaf::Free).count();
        let proven = entry.known.is_some();
        entry.unsaid += 1;
        let verdict = match free {
            0 => return Admitted::Duplicate,
            n if n == span.len() => Admitted::Write { proven },
            _ => Admitted::Partly { parts: entry.parts(block), proven },
        };
        for (leaf, at) in span.enumerate() {
            if entry.leaves[at] == Leaf::Free {
                entry.leaves[at] = Leaf::Writing;
                entry.settled.senders[at] = peer;
                if let Some(digest) = digests.get(leaf) {
                    entry.settled.digests[at] = *digest;
                }
            }
        }
        verdict
    }

    /// The block is on disk.
    pub(super) fn stored(&self, block: Block, proven: bool) {
        let mut entries = self.lock(block.piece);
        let Some(entry) = entries.get_mut(&block.piece) else { return };
        let span = leaf_span(block);
        debug_assert!(entry.leaves[span.clone()].iter().all(|l| *l == Leaf::Writing));
        entry.stored += span.len();
        entry.leaves[span].fill(if proven { Leaf::Proven } else { Leaf::Stored });
    }

    /// Gives the whole piece if all is stored and the caller's verdict is the only one that the engine has not heard: the
    /// caller settles it, and sends its verdict before that of the piece.
    pub(super) fn last(&self, piece: u32) -> Option<Settled> {
        self.lock(piece).get_mut(&piece)?.last()
    }

    /// The engine has heard the caller's verdict on a block. Gives the whole piece if that was the last.
    pub(super) fn said(&self, piece: u32) -> Option<Settled> {
        let mut entries = self.lock(piece);
        let entry = entries.get_mut(&piece)?;
        let whole = entry.last();
        if whole.is_none() {
            debug_assert!(entry.unsaid > 0);
            entry.unsaid = entry.unsaid.saturating_sub(1);
        }
        whole
    }

    /// The block could not be written: its leaves are free again.
    pub(super) fn forget(&self, block: Block) {
        if let Some(entry) = self.lock(block.piece).get_mut(&block.piece) {
            entry.leaves[leaf_span(block)].fill(Leaf::Free);
        }
    }

    /// Keeps leaf hashes that are proven against the piece's root.
    pub(super) fn know(&self, piece: u32, leaves: Vec<Digest>) {
        let mut entries = self.lock(piece);
        if self.is_verified(piece) || (entries.len() >= KNOWN_AHEAD && !entries.contains_key(&piece)) {
            return;
        }
        entries.entry(piece).or_default().known = Some(leaves);
    }

    /// Whether the leaf hashes of the piece are unknown.
    pub(super) fn lacks_leaves(&self, piece: u32) -> bool {
        !self.is_verified(piece) && self.lock(piece).get(&piece).is_none_or(|e| e.known.is_none())
    }

    /// The proven leaf hashes of a piece that is not whole yet.
    pub(super) fn known(&self, piece: u32) -> Option<Vec<Digest>> {
        self.lock(piece).get(&piece)?.known.clone()
    }

    /// Whether the block may be passed on.
    pub(super) fn held(&self, block: Block) -> Held {
        // A piece is marked as verified under the lock, with the removal of its entry.
        let entries = self.lock(block.piece);
        if self.is_verified(block.piece) {
            return Held::Whole;
        }
        let leaves = entries.get(&block.piece).and_then(|e| e.leaves.get(leaf_span(block)));
        match leaves {
            Some(leaves) if leaves.iter().all(|l| *l == Leaf::Proven) => Held::Proven,
            _ => Held::No,
        }
    }

    /// The piece does not match: it starts again, and the attempt is kept for blame. False if a verdict on a copy of a block
    /// is still to be said: the last to call `said`, as this caller still has to, gets the piece again.
    pub(super) fn failed(&self, piece: u32, attempt: Settled) -> bool {
        let mut entries = self.lock(piece);
        let Some(entry) = entries.get_mut(&piece) else { return true };
        let Some(attempt) = entry.restart(attempt) else { return false };
        if entry.attempts.len() < ATTEMPTS {
            entry.attempts.push(attempt);
        }
        true
    }

    /// The piece could not be stored: it starts again, and no peer is blamed. False as with `failed`.
    pub(super) fn dropped(&self, piece: u32, attempt: Settled) -> bool {
        let mut entries = self.lock(piece);
        entries.get_mut(&piece).is_none_or(|entry| entry.restart(attempt).is_some())
    }

    pub(super) fn has_suspects(&self, piece: u32) -> bool {
        self.lock(piece).get(&piece).is_some_and(|e| !e.attempts.is_empty())
    }

    /// The piece matches. Returns the blocks of earlier attempts that are now proven wrong.
    pub(super) fn verified(&self, piece: u32, digests: &[Digest]) -> Vec<(PeerId, Block)> {
        let mut entries = self.lock(piece);
        self.mark_verified(piece);
        let Some(entry) = entries.remove(&piece) else { return Vec::new() };
        let mut liars = Vec::new();
        for attempt in entry.attempts {
            let pairs = attempt.digests.iter().zip(digests).zip(&attempt.senders).enumerate();
            for (leaf, ((was, is), peer)) in pairs {
                if was != is && !liars.iter().any(|(p, _)| p == peer) {
                    let begin = u32::try_from(leaf * LEAF).unwrap_or(0);
                    liars.push((*peer, Block { piece, begin, len: LEAF as u32 }));
                }
            }
        }
        liars
    }

    fn lock(&self, piece: u32) -> parking_lot::MutexGuard<'_, HashMap<u32, Entry>> {
        self.entries[piece as usize % LOCKS].lock()
    }
}

impl Entry {
    /// Makes room for the piece's leaves at its first block.
    fn open(&mut self, piece_len: u32, hashed: bool) {
        if !self.leaves.is_empty() {
            return;
        }
        let count = piece_len.div_ceil(LEAF as u32) as usize;
        self.leaves.resize(count, Leaf::Free);
        self.settled.senders = vec![PeerId(u32::MAX); count];
        self.settled.digests = if hashed { vec![[0; 32]; count] } else { Vec::new() };
    }

    /// All that was stored, for the one that settles it.
    fn last(&mut self) -> Option<Settled> {
        let whole = !self.leaves.is_empty() && self.stored == self.leaves.len();
        if !whole || self.settling || self.unsaid != 1 {
            return None;
        }
        self.settling = true;
        Some(std::mem::take(&mut self.settled))
    }

    /// Frees all leaves; unless others than the caller have a verdict to say: then the attempt is put back.
    fn restart(&mut self, attempt: Settled) -> Option<Settled> {
        self.settling = false;
        if self.unsaid > 1 {
            self.settled = attempt;
            return None;
        }
        self.leaves.clear();
        (self.stored, self.unsaid) = (0, 0);
        Some(attempt)
    }

    /// Cuts a block where free leaves meet taken ones.
    fn parts(&self, block: Block) -> Vec<(Block, bool)> {
        let mut parts: Vec<(Block, bool)> = Vec::new();
        let end = block.begin + block.len;
        for leaf in leaf_span(block) {
            let begin = (leaf * LEAF) as u32;
            let len = (end - begin).min(LEAF as u32);
            let free = self.leaves[leaf] == Leaf::Free;
            match parts.last_mut().filter(|(_, f)| *f == free) {
                Some((part, _)) => part.len += len,
                None => parts.push((Block { piece: block.piece, begin, len }, free)),
            }
        }
        parts
    }
}

fn leaf_span(block: Block) -> std::ops::Range<usize> {
    let first = block.begin as usize / LEAF;
    first..first + (block.len as usize).div_ceil(LEAF)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PeerId = PeerId(1);
    const B: PeerId = PeerId(2);
    const LEN: u32 = 3 * LEAF as u32;
    const WRITE: Admitted = Admitted::Write { proven: false };

    fn block(leaf: u32, leaves: u32) -> Block {
        Block { piece: 5, begin: leaf * LEAF as u32, len: leaves * LEAF as u32 }
    }

    #[test]
    fn a_leaf_is_written_once() {
        let table = Table::new(10);
        assert_eq!(table.admit(A, block(0, 2), LEN, &[[1; 32]; 2]), WRITE);
        assert_eq!(table.admit(B, block(0, 1), LEN, &[[1; 32]; 1]), Admitted::Duplicate);
        table.stored(block(0, 2), false);
        let parts = vec![(block(1, 1), false), (block(2, 1), true)];
        let partly = Admitted::Partly { parts, proven: false };
        assert_eq!(table.admit(B, block(1, 2), LEN, &[[1; 32], [2; 32]]), partly);
        table.stored(block(2, 1), false);
        assert_eq!(
            (table.last(5), table.said(5), table.said(5)),
            (None, None, None),
            "two of three are said"
        );
        assert_eq!(table.last(5).map(|s| s.senders), Some(vec![A, A, B]));
        assert!(table.verified(5, &[]).is_empty());
        assert_eq!(table.admit(B, block(0, 1), LEN, &[[1; 32]; 1]), Admitted::Duplicate);
    }

    #[test]
    fn known_leaves_refuse_a_bad_block_before_it_is_written() {
        let table = Table::new(10);
        table.know(5, vec![[1; 32], [2; 32], [3; 32]]);
        assert_eq!(table.admit(A, block(1, 1), LEN, &[[9; 32]]), Admitted::Bad);
        assert_eq!(table.admit(B, block(1, 1), LEN, &[[2; 32]]), Admitted::Write { proven: true });
    }

    #[test]
    fn a_proven_block_may_be_passed_on_before_its_piece_is_whole() {
        let table = Table::new(10);
        assert_eq!(table.admit(A, block(0, 1), LEN, &[[1; 32]]), WRITE);
        table.stored(block(0, 1), false);
        assert!(table.lacks_leaves(5));
        table.know(5, vec![[1; 32], [2; 32], [3; 32]]);
        assert!(!table.lacks_leaves(5));
        assert_eq!(table.known(5).map(|l| l.len()), Some(3));
        assert_eq!(table.admit(B, block(1, 1), LEN, &[[2; 32]]), Admitted::Write { proven: true });
        assert_eq!(table.held(block(1, 1)), Held::No, "it is being written");
        table.stored(block(1, 1), true);
        assert_eq!(table.held(block(1, 1)), Held::Proven);
        assert_eq!(table.held(block(0, 2)), Held::No, "the leaves became known after the first was stored");
        assert_eq!(table.held(block(1, 2)), Held::No, "the last is not there");
        assert_eq!(table.held(block(1, 9)), Held::No, "beyond the piece");
        table.verified(5, &[]);
        assert_eq!(table.held(block(0, 3)), Held::Whole);
        assert_eq!(table.known(5), None);
    }

    #[test]
    fn blame_falls_on_the_sender_of_the_wrong_leaf_only() {
        let table = Table::new(10);
        assert_eq!(table.admit(A, block(0, 1), LEN, &[[1; 32]]), WRITE);
        assert_eq!(table.admit(B, block(1, 2), LEN, &[[9; 32], [3; 32]]), WRITE);
        table.stored(block(0, 1), false);
        table.stored(block(1, 2), false);
        assert_eq!(table.said(5), None);
        let attempt = table.said(5).unwrap_or_default();
        assert!(table.failed(5, attempt));
        assert!(table.has_suspects(5));
        assert_eq!(table.admit(A, block(0, 3), LEN, &[[1; 32], [2; 32], [3; 32]]), WRITE);
        table.stored(block(0, 3), false);
        let settled = table.last(5).unwrap_or_default();
        assert_eq!(table.verified(5, &settled.digests), vec![(B, block(1, 1))]);
    }

    #[test]
    fn a_piece_does_not_fail_while_a_verdict_on_a_copy_is_to_be_said() {
        let table = Table::new(10);
        assert_eq!(table.admit(A, block(0, 3), LEN, &[[1; 32]; 3]), WRITE);
        table.stored(block(0, 3), false);
        let attempt = table.last(5).unwrap_or_default();
        assert_eq!(table.admit(B, block(1, 1), LEN, &[[1; 32]]), Admitted::Duplicate);
        assert!(!table.failed(5, attempt), "B's copy came meanwhile");
        assert_eq!(table.said(5), None, "the one that found it");
        let attempt = table.said(5).unwrap_or_default();
        assert_eq!(attempt.senders, [A, A, A]);
        assert!(table.dropped(5, attempt));
        assert_eq!(table.admit(B, block(1, 1), LEN, &[[2; 32]]), WRITE);
    }
}
