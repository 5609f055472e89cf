//! Several senders that see the same tree divide it while they walk it.
//!
//! Each walks all of it and takes a batch of files when it has little work left, if no other has taken it: so
//! a faster pair takes more. A batch is identified by the digest of its names. Should two walks differ, a
//! file may be sent twice or not at all; a last copy of the usual kind corrects that, and copies everything
//! but files.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// The batches and their senders.
#[derive(Debug, Default)]
pub struct Batches(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    by: HashMap<u64, usize>,
    /// In the order in which they were taken.
    all: Vec<u64>,
    /// Given back by one that broke.
    released: HashSet<u64>,
    /// How many work.
    working: u64,
}

/// The answer to a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// It is the asker's.
    pub mine: bool,
    /// Batches taken by any sender since the asker was last told, so that it need not ask for each.
    pub taken: Vec<u64>,
    /// One that broke had it before.
    pub again: bool,
    /// How many senders work now.
    pub pairs: u64,
}

impl Batches {
    /// This many senders begin.
    pub fn begin(&self, senders: u64) {
        self.0.lock().working = senders;
    }

    /// One of them has ended, successfully or not.
    pub fn leave(&self) {
        let mut taken = self.0.lock();
        taken.working = taken.working.saturating_sub(1);
    }

    /// Sender `who`, which knows the first `known` batches that were taken, asks for this one.
    #[must_use]
    pub fn claim(&self, who: usize, batch: u64, known: usize) -> Claimed {
        let mut taken = self.0.lock();
        let mine = !taken.by.contains_key(&batch);
        if mine {
            taken.by.insert(batch, who);
            taken.all.push(batch);
        }
        let again = mine && taken.released.contains(&batch);
        let pairs = taken.working;
        Claimed { mine, taken: taken.all.get(known..).unwrap_or_default().to_vec(), again, pairs }
    }

    /// The batches of this sender become available to others, when they walk again. Returns their number.
    pub fn release(&self, who: usize) -> usize {
        let mut taken = self.0.lock();
        let Taken { by, all, released, .. } = &mut *taken;
        all.retain(|batch| by.get(batch) != Some(&who));
        released.extend(by.iter().filter(|(_, by)| **by == who).map(|(batch, _)| *batch));
        let before = by.len();
        by.retain(|_, by| *by != who);
        before - by.len()
    }

    /// Batches that this one has.
    #[must_use]
    pub fn count(&self, who: usize) -> usize {
        self.0.lock().by.values().filter(|by| **by == who).count()
    }
}

/// Asks a board, local or remote: the batch, and how many are known. None: no answer.
pub(crate) type Ask = Box<dyn Fn(u64, usize) -> Option<Claimed> + Send + Sync>;

/// A sender's view of a board.
pub(crate) struct Claims {
    ask: Ask,
    heard: Mutex<KnownBatches>,
}

#[derive(Default)]
struct KnownBatches {
    taken: HashSet<u64>,
    known: usize,
    pairs: u64,
}

impl std::fmt::Debug for Claims {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Claims(…)")
    }
}

impl Claims {
    pub(crate) fn new(ask: Ask) -> Self {
        Self { ask, heard: Mutex::default() }
    }

    /// Whether this sender has the batch, and then whether a failed sender had it before. Without an answer,
    /// it has: sending twice does no harm.
    pub(crate) fn claim(&self, batch: u64) -> Option<bool> {
        let mut heard = self.heard.lock();
        if heard.taken.contains(&batch) {
            return None;
        }
        let Some(claimed) = (self.ask)(batch, heard.known) else { return Some(false) };
        heard.known += claimed.taken.len();
        heard.taken.extend(claimed.taken);
        heard.pairs = claimed.pairs;
        claimed.mine.then_some(claimed.again)
    }

    /// The number of senders, as last reported.
    pub(crate) fn pairs(&self) -> u64 {
        self.heard.lock().pairs.max(1)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_batch_is_one_senders_until_that_breaks() {
        let board = Arc::new(Batches::default());
        let claims = |who| {
            let board = board.clone();
            Claims::new(Box::new(move |batch, known| Some(board.claim(who, batch, known))))
        };
        let (one, two) = (claims(1), claims(2));
        board.begin(2);
        let (had, new, again) = (None, Some(false), Some(true));
        assert_eq!([one.claim(7), two.claim(7), two.claim(8), one.claim(9)], [new, had, new, new]);
        assert_eq!((board.count(1), board.count(2)), (2, 1));
        assert_eq!([one.claim(8), two.claim(9)], [had, had]);
        assert_eq!((board.release(1), two.pairs()), (2, 2));
        board.leave();
        let three = claims(3);
        assert_eq!([three.claim(8), three.claim(7), three.claim(10)], [had, again, new]);
        assert_eq!((three.pairs(), Claims::new(Box::new(|_, _| None)).claim(7)), (1, new));
    }
}
