//! A destination that its owner has closed, as a copy of a tree without write permission is: open for the time of a copy.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fd::OwnedFd;
use rustix::fs;

use super::dirs::set_mode;

/// See the head of this file. When it is dropped, the directory has its mode again.
#[derive(Debug)]
pub(super) struct Opened {
    dir: Arc<OwnedFd>,
    /// Permission bits that it had.
    pub(super) mode: u32,
    is_settled: AtomicBool,
}

impl Opened {
    /// Opens a directory for its owner; None if it is open, or is another user's. Root needs none of it.
    pub(super) fn open(dir: &Arc<OwnedFd>) -> Option<Self> {
        let me = rustix::process::geteuid();
        let stat = fs::fstat(dir).ok().filter(|stat| stat.st_uid == me.as_raw() && !me.is_root())?;
        let mode = stat.st_mode & 0o7777;
        // If it fails, what needs the permission reports it.
        let opens = mode & 0o700 != 0o700 && set_mode(dir, mode | 0o700).is_ok();
        opens.then(|| Self { dir: dir.clone(), mode, is_settled: AtomicBool::new(false) })
    }

    /// The copy has given it the mode that it gets.
    pub(super) fn settle(&self) {
        self.is_settled.store(true, Relaxed);
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if !self.is_settled.load(Relaxed) {
            // It may have been removed.
            let _ = set_mode(&self.dir, self.mode);
        }
    }
}
