//! Several senders that see the same tree divide it while they walk it.
//!
//! Each walks all of it and takes a batch of files when it has little left to do, if no other has taken it: so a quick one takes more. A batch
//! is known by the digest of its names. Should two walks differ, a file may be sent twice or not at all; a last copy of the
//! usual kind settles that, as it does all but files.

use std::collections::HashMap;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Who has taken what.
#[derive(Debug, Default)]
pub struct Board(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    by: HashMap<u64, usize>,
    /// In the order in which they were taken.
    all: Vec<u64>,
}

/// The answer to a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// It is the asker's.
    pub mine: bool,
    /// What was taken by anybody since the asker has last heard, so that it need not ask for each.
    pub taken: Vec<u64>,
}

impl Board {
    /// Sender `who`, which has heard of the first `known` batches that were taken, would like this one.
    #[must_use]
    pub fn claim(&self, who: usize, batch: u64, known: usize) -> Claimed {
        let mut taken = self.0.lock();
        let mine = !taken.by.contains_key(&batch);
        if mine {
            taken.by.insert(batch, who);
            taken.all.push(batch);
        }
        Claimed { mine, taken: taken.all.get(known..).unwrap_or_default().to_vec() }
    }

    /// Whatever this one has taken others may have, when they walk again. How many batches that were.
    pub fn release(&self, who: usize) -> usize {
        let mut taken = self.0.lock();
        let Taken { by, all } = &mut *taken;
        all.retain(|batch| by.get(batch) != Some(&who));
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

/// Asks a board, wherever it is: batch and how many are known. None: nobody answers.
pub(crate) type Ask = Box<dyn Fn(u64, usize) -> Option<Claimed> + Send + Sync>;

/// A sender's view of a board.
pub(crate) struct Claims {
    ask: Ask,
    heard: Mutex<Heard>,
}

#[derive(Default)]
struct Heard {
    taken: std::collections::HashSet<u64>,
    known: usize,
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

    /// Whether this sender has the batch. If nobody can say, it has: to send it twice does no harm.
    pub(crate) fn claim(&self, batch: u64) -> bool {
        let mut heard = self.heard.lock();
        if heard.taken.contains(&batch) {
            return false;
        }
        let Some(Claimed { mine, taken }) = (self.ask)(batch, heard.known) else { return true };
        heard.known += taken.len();
        heard.taken.extend(taken);
        mine
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_batch_is_one_senders_until_that_breaks() {
        let board = Arc::new(Board::default());
        let claims = |who| {
            let board = board.clone();
            Claims::new(Box::new(move |batch, known| Some(board.claim(who, batch, known))))
        };
        let (one, two) = (claims(1), claims(2));
        assert!(one.claim(7) && !two.claim(7) && two.claim(8) && one.claim(9));
        assert_eq!((board.count(1), board.count(2)), (2, 1));
        assert!(!one.claim(8) && !two.claim(9));
        assert_eq!(board.release(1), 2);
        assert!(!claims(3).claim(8) && claims(3).claim(7));
        assert!(Claims::new(Box::new(|_, _| None)).claim(7));
    }
}
