//! Blocks and their pool: the one place where payload lives in memory (the paper's virtual object).

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tidecast_hash::Digest;
use tidecast_paths::PageBuffer;

use crate::part::BLOCK;

/// A buffer for one block: a table of parts and up to [`BLOCK`] bytes of payload.
#[derive(Debug)]
pub struct Block {
    /// Its number in the session; the same when it is sent again.
    pub number: u64,
    /// The table of its parts.
    pub table: Vec<u8>,
    /// Bytes of payload.
    pub len: usize,
    /// The digest of all of the payload, if it was taken as it came.
    pub digest: Option<Digest>,
    memory: PageBuffer,
}

impl Block {
    fn new() -> Self {
        Self { number: 0, table: Vec::new(), len: 0, digest: None, memory: PageBuffer::new(BLOCK) }
    }

    /// The contents of a block.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.memory[..self.len]
    }

    /// All of the buffer: [`BLOCK`] bytes.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}

/// A bounded set of blocks. Taking one waits until one is free: so a slow side slows the other instead of
/// filling memory.
#[derive(Clone, Debug)]
pub struct Pool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug)]
struct State {
    free: Vec<Block>,
    /// Blocks that are somewhere in use.
    out: usize,
    limit: usize,
    closed: bool,
}

impl Pool {
    /// A pool of at most `limit` blocks, each allocated when it is first needed.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let state = State { free: Vec::new(), out: 0, limit: limit.max(1), closed: false };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), freed: Condvar::new() }) }
    }

    /// An empty block, as soon as there is one; None when the pool was closed.
    #[must_use]
    pub fn take(&self) -> Option<Leased> {
        let mut state = self.shared.state.lock();
        while state.out >= state.limit && !state.closed {
            self.shared.freed.wait(&mut state);
        }
        if state.closed {
            return None;
        }
        state.out += 1;
        let block = state.free.pop();
        drop(state);
        let mut block = block.unwrap_or_else(Block::new);
        block.table.clear();
        block.len = 0;
        block.digest = None;
        Some(Leased { block: Some(block), shared: self.shared.clone() })
    }

    /// Blocks in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.shared.state.lock().out
    }

    /// How many there may be.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.shared.state.lock().limit
    }

    /// Changes the number of blocks; surplus blocks are dropped when they are returned.
    pub fn set_limit(&self, limit: usize) {
        let mut state = self.shared.state.lock();
        state.limit = limit.max(1);
        let keep = state.limit.saturating_sub(state.out);
        state.free.truncate(keep);
        self.shared.freed.notify_all();
    }

    /// All further requests for a block fail.
    pub fn close(&self) {
        self.shared.state.lock().closed = true;
        self.shared.freed.notify_all();
    }
}

/// A block in use; it goes back to its pool when dropped.
#[derive(Debug)]
pub struct Leased {
    /// None only while it is dropped.
    block: Option<Block>,
    shared: Arc<Shared>,
}

impl Deref for Leased {
    type Target = Block;

    #[allow(clippy::expect_used)] // only `drop` takes it
    fn deref(&self) -> &Block {
        self.block.as_ref().expect("a block in use")
    }
}

impl DerefMut for Leased {
    #[allow(clippy::expect_used)] // only `drop` takes it
    fn deref_mut(&mut self) -> &mut Block {
        self.block.as_mut().expect("a block in use")
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.out -= 1;
        if let Some(block) = self.block.take()
            && state.out + state.free.len() < state.limit
        {
            state.free.push(block);
        }
        drop(state);
        self.shared.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_bounded_and_used_again() {
        let pool = Pool::new(2);
        let (mut a, b) = (pool.take().unwrap(), pool.take().unwrap());
        assert_eq!(a.room().len(), BLOCK);
        let waiting = std::thread::scope(|s| {
            let taken = s.spawn(|| pool.take().is_some());
            drop(b);
            taken.join().unwrap()
        });
        assert!(waiting);
        assert_eq!(pool.used(), 1);
        pool.close();
        assert!(pool.take().is_none());
    }

    #[test]
    fn a_smaller_limit_takes_blocks_away() {
        let pool = Pool::new(3);
        let all: Vec<_> = (0..3).map(|_| pool.take().unwrap()).collect();
        pool.set_limit(1);
        drop(all);
        assert_eq!((pool.used(), pool.limit()), (0, 1));
        assert!(pool.shared.state.lock().free.len() <= 1);
    }
}
