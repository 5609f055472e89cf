//! The sender's record of blocks that are not acknowledged yet.

use std::collections::HashMap;
use std::sync::Arc;

use crate::job::Written;

/// A block to be filled.
pub(super) struct Task<J> {
    pub(super) job: Arc<J>,
    /// It was sent before, under this number.
    pub(super) number: Option<u64>,
}

pub(super) struct State<J> {
    /// The receiver's announcement about it.
    pub(super) fresh: Option<bool>,
    /// Number of the next block.
    pub(super) next: u64,
    /// Tasks that are not done: waiting, being filled, or not acknowledged.
    pub(super) open: u64,
    /// The walk is over.
    pub(super) walked: bool,
    /// Blocks that are filled and not acknowledged.
    pub(super) sent: HashMap<u64, Sent<J>>,
    /// Of these, blocks that ask.
    pub(super) asked: usize,
    pub(super) finished: Option<Written>,
    /// Blocks that do not ask, each counted once.
    pub(super) blocks: u64,
    pub(super) last: Last,
    pub(super) again: u64,
    pub(super) acknowledged: u64,
}

/// Whether the receiver is told of the last block while it is in flight, so that the end costs no additional
/// round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last {
    /// As far as this end knows, the receiver does not support it.
    Unknown,
    /// Not yet.
    Open,
    /// All blocks are read and in flight: the next idle stream announces it.
    Due,
    /// The announcement was sent.
    Said,
}

impl<J> State<J> {
    /// The receiver knows of [`Forward::Last`].
    pub(super) fn knows_last(&mut self) {
        if self.last == Last::Unknown {
            self.last = Last::Open;
        }
    }

    /// Whether all has become read and under way, nothing of it for the second time, and no answer is missing that may ask for more.
    pub(super) fn is_last(&mut self) -> bool {
        let all = self.walked && self.asked == 0 && self.open > 0 && self.open == self.sent.len() as u64;
        if self.last != Last::Open || !all || self.again > 0 {
            return false;
        }
        self.last = Last::Due;
        true
    }
}

impl<J> Default for State<J> {
    fn default() -> Self {
        Self {
            fresh: None,
            next: 0,
            open: 0,
            walked: false,
            sent: HashMap::new(),
            asked: 0,
            finished: None,
            blocks: 0,
            last: Last::Unknown,
            again: 0,
            acknowledged: 0,
        }
    }
}

pub(super) struct Sent<J> {
    pub(super) job: Arc<J>,
    /// The stream on which it went; None while it waits for one.
    pub(super) via: Option<usize>,
    pub(super) asks: bool,
    /// It was read again.
    pub(super) again: bool,
    pub(super) bytes: usize,
}
