//! Counters of a long operation, readable at any time, and the flag that stops it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Shared between the caller and the threads that hash: put it in an `Arc` and poll it.
#[derive(Debug, Default)]
pub struct Progress {
    bytes: AtomicU64,
    reused: AtomicU64,
    total: AtomicU64,
    files: AtomicU64,
    cancelled: AtomicBool,
}

impl Progress {
    /// Nothing done yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of files done so far, including those taken from an earlier, interrupted run.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Of these, bytes that an earlier run had done and that were not read again.
    pub fn reused(&self) -> u64 {
        self.reused.load(Relaxed)
    }

    /// Bytes to do altogether; 0 until the work starts.
    pub fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// Entries (files, links, directories) that a scan has seen so far.
    pub fn files(&self) -> u64 {
        self.files.load(Relaxed)
    }

    /// Asks the operation to stop soon, with [`Error::Cancelled`](crate::Error::Cancelled).
    pub fn cancel(&self) {
        self.cancelled.store(true, Relaxed);
    }

    /// Whether the caller asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }

    pub(crate) fn start(&self, total: u64) {
        self.bytes.store(0, Relaxed);
        self.reused.store(0, Relaxed);
        self.total.store(total, Relaxed);
    }

    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn add_reused(&self, bytes: u64) {
        self.reused.fetch_add(bytes, Relaxed);
        self.add_bytes(bytes);
    }

    pub(crate) fn add_file(&self) {
        self.files.fetch_add(1, Relaxed);
    }
}
