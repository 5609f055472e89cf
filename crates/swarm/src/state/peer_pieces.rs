//! The pieces that one peer claims, and how many of them we lack.
//!
//! Promise: `lacking` is the number of its pieces that we lack, for a peer that does not have all (`Engine::check`).

use crate::bitset::BitSet;
use crate::state::availability::Holding;

/// See the head of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeerPieces {
    have: Holding,
    /// Pieces it has that we lack; kept for peers that do not have all.
    lacking: u32,
    /// How often it had all and then lost one: each time costs a walk over all pieces.
    relapses: u32,
}

impl PeerPieces {
    pub(crate) fn has(&self, piece: u32) -> bool {
        self.have.has(piece)
    }

    pub(crate) fn is_all(&self) -> bool {
        self.have.is_all()
    }

    /// Pieces it has, of this many.
    pub(crate) fn count(&self, pieces: u32) -> u32 {
        self.have.count(pieces)
    }

    /// Its pieces.
    pub(crate) fn holding(&self) -> &Holding {
        &self.have
    }

    /// Pieces that it has and we lack; we lack `left` in all.
    pub(crate) fn lacking(&self, left: u32) -> u32 {
        if self.is_all() { left } else { self.lacking }
    }

    /// It has a piece; `lacked`: we lack it. True when that is new.
    pub(crate) fn add(&mut self, piece: u32, pieces: u32, lacked: bool) -> bool {
        let new = self.have.add(piece, pieces);
        self.lacking += u32::from(new && lacked);
        new
    }

    /// It has lost a piece; `lacked`: we lack it. True when it had it. Its set of pieces must be stored
    /// explicitly.
    pub(crate) fn remove(&mut self, piece: u32, lacked: bool) -> bool {
        let gone = self.have.remove(piece);
        self.lacking -= u32::from(gone && lacked);
        gone
    }

    /// It has everything; the set it had before.
    pub(crate) fn become_all(&mut self) -> BitSet {
        self.lacking = 0;
        self.have.become_all()
    }

    /// It has nothing; the set it had before, empty when it had all.
    pub(crate) fn become_none(&mut self) -> BitSet {
        self.lacking = 0;
        self.have.become_none()
    }

    /// It had all and is to lose one; how often that was so.
    pub(crate) fn relapse(&mut self) -> u32 {
        self.relapses += 1;
        self.relapses
    }

    /// It has had all and lost one.
    pub(crate) fn has_relapsed(&self) -> bool {
        self.relapses > 0
    }

    /// All becomes the set of all, so that single pieces can leave it; we lack `left` of them.
    pub(crate) fn expand(&mut self, pieces: u32, left: u32) {
        debug_assert!(self.is_all(), "what is spelled out already");
        self.have.expand(pieces);
        self.lacking = left;
    }

    /// We lack one of its pieces more, or one less; true when no such piece is left.
    pub(crate) fn lack(&mut self, more: bool) -> bool {
        if self.is_all() {
            return false;
        }
        self.lacking = if more { self.lacking + 1 } else { self.lacking - 1 };
        self.lacking == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_lack_follows_what_it_has() {
        let mut claims = PeerPieces::default();
        assert!(claims.add(1, 4, true) && claims.add(2, 4, false) && !claims.add(1, 4, true));
        assert_eq!((claims.lacking(9), claims.count(4)), (1, 2));
        assert!(claims.lack(false) && !claims.lack(true));
        assert!(claims.remove(1, true) && !claims.remove(1, true));
        assert_eq!(claims.lacking(9), 0);
        claims.become_all();
        assert!(claims.lacking(3) == 3 && !claims.lack(false) && !claims.has_relapsed());
        claims.expand(4, 3);
        assert_eq!((claims.relapse(), claims.lacking(9), claims.count(4)), (1, 3, 4));
        claims.become_none();
        assert_eq!((claims.lacking(3), claims.count(4)), (0, 0));
    }
}
