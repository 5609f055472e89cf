//! Where the next request to a peer goes.

/// Of one connection.
#[derive(Debug, Default)]
pub(crate) struct NextRequest {
    cursor: Option<u32>,
    current: Option<u32>,
    dry: Option<u64>,
}

impl NextRequest {
    /// Where the last run asked of it ended.
    pub(crate) fn cursor(&self) -> Option<u32> {
        self.cursor
    }

    /// A piece that is being asked of it in parts.
    pub(crate) fn current(&self) -> Option<u32> {
        self.current
    }

    /// Nothing to ask of it was found at this count of changes.
    pub(crate) fn dry(&self) -> Option<u64> {
        self.dry
    }

    /// Whole pieces up to this one were asked of it.
    pub(crate) fn asked_up_to(&mut self, end: u32) {
        self.cursor = Some(end);
    }

    /// A part of this piece was requested from it; `more`: it has parts that are not requested from any peer.
    pub(crate) fn asked_part_of(&mut self, piece: u32, more: bool) {
        self.current = more.then_some(piece);
        self.cursor = Some(piece + 1);
    }

    /// There is nothing to ask of it at this count of changes.
    pub(crate) fn found_nothing(&mut self, epoch: u64) {
        self.dry = Some(epoch);
        self.current = None;
    }

    /// There may be something to ask of it after all.
    pub(crate) fn look_again(&mut self) {
        self.dry = None;
    }

    /// The rest of the piece that is asked of it in parts is not asked next.
    pub(crate) fn leave_piece(&mut self) {
        self.current = None;
    }

    /// The next run begins anywhere, not where the last one ended.
    pub(crate) fn walk_elsewhere(&mut self) {
        self.cursor = None;
    }
}
