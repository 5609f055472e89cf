//! Pieces not yet announced to Tidecast peers, and the cost of the announcements.

use std::ops::Range;

use crate::api::Time;

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Announcer {
    waiting: Vec<u32>,
    /// One of them is not common.
    rare: bool,
    last: Option<Time>,
    /// The cost of batches, bytes on the wire.
    spent: u64,
    /// Pieces below it are here or not; others may turn out to be.
    judged: u32,
}

impl Announcer {
    pub(crate) fn new() -> Self {
        Announcer { waiting: Vec::new(), rare: false, last: None, spent: 0, judged: u32::MAX }
    }

    /// Pieces that wait to be told.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// A piece is to be told; few have it where it is `rare`.
    pub(crate) fn add(&mut self, piece: u32, rare: bool) {
        self.waiting.push(piece);
        self.rare |= rare;
    }

    /// The piece is not to be told any more; whether it had been told already.
    pub(crate) fn withdraw(&mut self, piece: u32) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|&p| p != piece);
        self.waiting.len() == before
    }

    /// One of those that wait is not common.
    pub(crate) fn is_rare(&self) -> bool {
        self.rare
    }

    /// When the last batch went out.
    pub(crate) fn last(&self) -> Option<Time> {
        self.last
    }

    /// Begins a batch at `now` with all that wait, ascending, each once; none if nothing waits.
    pub(crate) fn take(&mut self, now: Time) -> Vec<u32> {
        let mut news = std::mem::take(&mut self.waiting);
        if news.is_empty() {
            return news;
        }
        (self.last, self.rare) = (Some(now), false);
        news.sort_unstable();
        news.dedup();
        news
    }

    /// Bytes that batches have cost.
    pub(crate) fn spent(&self) -> u64 {
        self.spent
    }

    /// A message that tells of these pieces goes out.
    pub(crate) fn pay(&mut self, pieces: &[Range<u32>]) {
        self.spent += cost(pieces);
    }

    /// Pieces below it are here or not; others may turn out to be.
    pub(crate) fn judged(&self) -> u32 {
        self.judged
    }

    pub(crate) fn judge(&mut self, below: u32) {
        self.judged = below;
    }
}

/// Bytes of a message that tells of these pieces: a head, and ranges or bits (docs/wire-extension.md).
fn cost(pieces: &[Range<u32>]) -> u64 {
    let span = pieces.last().map_or(0, |r| r.end) - pieces.first().map_or(0, |r| r.start);
    14 + (8 * pieces.len() as u64).min(u64::from(span) / 8)
}
