//! Block buffers, recycled and bounded: the one place where payload lives in memory.
//!
//! A reader waits for a buffer when all are in use, so that a slow disk slows the sockets instead
//! of filling memory. Nothing is allocated per block once the pool is warm.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::Mutex;
use tidecast_paths::PageBuffer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of a block buffer: the block between Tidecast peers, and a run of a stock client's.
pub(crate) const BUFFER: usize = 256 << 10;

/// A bounded set of buffers of one size.
#[derive(Clone)]
pub(crate) struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    free: Mutex<Vec<PageBuffer>>,
    permits: Arc<Semaphore>,
    size: usize,
}

/// One buffer; it goes back to its pool when dropped. Derefs to its whole capacity.
pub(crate) struct Buffer {
    data: PageBuffer,
    pool: Arc<Inner>,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    /// A pool of at most `count` buffers of `size` bytes each, allocated as they are first needed.
    pub(crate) fn new(count: usize, size: usize) -> Pool {
        let inner = Inner {
            free: Mutex::new(Vec::with_capacity(count)),
            permits: Arc::new(Semaphore::new(count)),
            size,
        };
        Pool { inner: Arc::new(inner) }
    }

    /// Bytes that one buffer holds.
    pub(crate) fn buffer_size(&self) -> usize {
        self.inner.size
    }

    /// A buffer, as soon as one is free. None only when the pool is closed, which never happens
    /// while the pool lives.
    pub(crate) async fn get(&self) -> Option<Buffer> {
        let permit = self.inner.permits.clone().acquire_owned().await.ok()?;
        let data = self.inner.free.lock().pop();
        let data = data.unwrap_or_else(|| PageBuffer::new(self.inner.size));
        Some(Buffer { data, pool: self.inner.clone(), _permit: permit })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.free.lock().push(std::mem::take(&mut self.data));
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.data
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn buffers_are_recycled_and_bounded() {
        let pool = Pool::new(2, 1024);
        let mut a = pool.get().await.unwrap();
        a[0] = 7;
        let b = pool.get().await.unwrap();
        let mut waiting = Box::pin(pool.get());
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("a third buffer came out of a pool of two"),
            () = std::future::ready(()) => {}
        }
        drop(a);
        let c = waiting.await.unwrap();
        assert_eq!(c[0], 7, "the same memory came back");
        drop((b, c));
        assert_eq!(pool.inner.free.lock().len(), 2);
    }
}
