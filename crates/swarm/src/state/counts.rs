//! Bytes moved, by their fate: of one peer, or of all together.

/// See the head of the file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    received: u64,
    stored: u64,
    duplicate: u64,
    bad: u64,
    served: u64,
}

/// The fate of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// They were received, whatever happened to them after.
    Received,
    /// ... on disk.
    Stored,
    /// ... there already.
    Duplicate,
    /// ... wrong.
    Bad,
    /// They went out.
    Served,
}

impl Counts {
    pub(crate) fn add(&mut self, fate: Fate, bytes: u64) {
        *match fate {
            Fate::Received => &mut self.received,
            Fate::Stored => &mut self.stored,
            Fate::Duplicate => &mut self.duplicate,
            Fate::Bad => &mut self.bad,
            Fate::Served => &mut self.served,
        } += bytes;
    }

    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    pub(crate) fn stored(&self) -> u64 {
        self.stored
    }

    pub(crate) fn duplicate(&self) -> u64 {
        self.duplicate
    }

    pub(crate) fn bad(&self) -> u64 {
        self.bad
    }

    pub(crate) fn served(&self) -> u64 {
        self.served
    }
}
