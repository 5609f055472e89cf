//! Open files, a bounded number of them: with 100,000 files there are far fewer descriptors.
//!
//! Sharded by file, least recently used out first. A file handed out stays open for as long as
//! its user holds it; no I/O happens under a lock here.

use std::sync::Arc;

use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};

use crate::disk::DiskFile;

const SHARDS: usize = 16;
/// Most files kept open.
const MOST: usize = 512;

#[derive(Default)]
struct Shard {
    slots: Vec<Slot>,
    clock: u64,
}

struct Slot {
    file: u32,
    used: u64,
    open: Arc<dyn DiskFile>,
}

/// The cache.
pub(crate) struct Fds {
    shards: [Mutex<Shard>; SHARDS],
    per_shard: usize,
}

impl Fds {
    /// A sensible number: 512, or a quarter of the process's limit.
    pub(crate) fn new() -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = usize::try_from(limit / 4).unwrap_or(MOST).clamp(SHARDS, MOST);
        Fds { shards: Default::default(), per_shard: most / SHARDS }
    }

    fn shard(&self, file: u32) -> &Mutex<Shard> {
        let [first, ..] = &self.shards;
        self.shards.get(file as usize % SHARDS).unwrap_or(first)
    }

    /// The open file, if it is here.
    pub(crate) fn get(&self, file: u32) -> Option<Arc<dyn DiskFile>> {
        let mut shard = self.shard(file).lock();
        shard.clock += 1;
        let now = shard.clock;
        let slot = shard.slots.iter_mut().find(|s| s.file == file)?;
        slot.used = now;
        Some(slot.open.clone())
    }

    /// Keeps an open file, replacing the least recently used one if full. If another thread was faster its
    /// descriptor stays, and is returned.
    pub(crate) fn put(&self, file: u32, open: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let mut shard = self.shard(file).lock();
        shard.clock += 1;
        let used = shard.clock;
        if let Some(slot) = shard.slots.iter().find(|s| s.file == file) {
            return slot.open.clone();
        }
        let slot = Slot { file, used, open: open.clone() };
        let evicted = if shard.slots.len() < self.per_shard {
            shard.slots.push(slot);
            None
        } else {
            let oldest = shard.slots.iter_mut().min_by_key(|s| s.used);
            oldest.map(|old| std::mem::replace(old, slot))
        };
        drop(shard);
        drop(evicted); // closes outside the lock
        open
    }

    /// Forgets one file.
    pub(crate) fn forget(&self, file: u32) {
        self.shard(file).lock().slots.retain(|s| s.file != file);
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            shard.lock().slots.clear();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use crate::disk::{Disk, How};
    use crate::os::OsDisk;
    use std::path::PathBuf;

    #[test]
    fn the_least_recently_used_goes() {
        let dir = tempfile::tempdir().unwrap();
        let disk = OsDisk::new(dir.path()).unwrap();
        let open = |n: u32| disk.open(&PathBuf::from(n.to_string()), How::Create).unwrap();
        let fds = Fds { shards: Default::default(), per_shard: 2 };
        for n in [0, 16, 32] {
            fds.put(n, open(n)); // the same shard
            fds.get(0).unwrap();
        }
        assert!(fds.get(0).is_some() && fds.get(16).is_none() && fds.get(32).is_some());
        let (a, b) = (fds.get(0).unwrap(), fds.put(0, open(0)));
        assert!(Arc::ptr_eq(&a, &b));
        fds.forget(0);
        assert!(fds.get(0).is_none());
        fds.clear();
        assert!(fds.get(32).is_none());
    }
}
