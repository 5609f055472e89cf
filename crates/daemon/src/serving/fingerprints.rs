//! Sends fingerprints of a new version to daemons that have an older one: `transfer/delta.rs` is the other
//! side.

use std::fs::File;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use lru::LruCache;
use parking_lot::Mutex;
use tidecast_depot::{CacheId, CacheRecord};
use tidecast_hash::{Digest, Fingerprint, LEAF};
use tidecast_metainfo::Manifest;
use tidecast_paths::PageBuffer;
use tokio::sync::Semaphore;

use crate::host::limits::HostLimits;
use crate::links::link::Peer;
use crate::model::message::Answer;
use crate::storage::store::{Store, open_view};
use crate::transfer::delta::{GIVEN, LEN};
use crate::transfer::swarms::Swarms;

/// Files that are read at once.
const COMPARING: usize = 2;
/// Leaves that are read and hashed at once.
const AT_ONCE: usize = 64;
/// Leaves that one answer tells of: 64 MiB of a file, which the holder reads for it.
const TOLD: u32 = 4096;
/// Answers of [`TOLD`] leaves that are kept: 64 KiB each.
const KEPT: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
/// The root of a file, and a leaf of it.
type Key = (Digest, u32);

/// Reads files for daemons that compare versions.
pub(crate) struct FingerprintServer {
    store: Arc<Store>,
    swarms: Arc<Swarms>,
    limits: Arc<HostLimits>,
    /// Turns to read.
    comparing: Semaphore,
    /// Recent answers.
    told: Mutex<LruCache<Key, Bytes>>,
}

impl FingerprintServer {
    pub(crate) fn new(store: Arc<Store>, swarms: Arc<Swarms>, limits: Arc<HostLimits>) -> Self {
        Self {
            store,
            swarms,
            limits,
            comparing: Semaphore::new(COMPARING),
            told: Mutex::new(LruCache::new(KEPT)),
        }
    }

    /// Fingerprints of the leaves of a file, from one on.
    pub(crate) async fn fingerprints(
        &self,
        peer: &Peer,
        cache: &str,
        file: u32,
        first: u32,
    ) -> (Answer, Bytes) {
        let nothing = (Answer::Absent, Bytes::new());
        let Some((record, manifest)) = self.given_to(peer, cache) else { return nothing };
        let Some(len) = manifest.file(file).filter(|f| !f.is_symlink()).map(|f| f.len()) else {
            return nothing;
        };
        let leaves = u32::try_from(len.div_ceil(LEN)).unwrap_or(u32::MAX);
        let last = first.saturating_add(TOLD).min(leaves);
        if first >= last {
            return nothing;
        }
        // Many ask for the same at the same time: only the first reads it.
        let Ok(turn) = self.comparing.acquire().await else { return nothing };
        let key = manifest.file(file).and_then(|f| f.pieces_root()).map(|root| (root, first));
        if let Some(told) = key.and_then(|key| self.told.lock().get(&key).cloned()) {
            drop(turn);
            return self.give(Ok(told)).await;
        }
        let told = self.read(&record, &manifest, file, move |source| {
            let (mut all, mut buffer) = (Vec::new(), PageBuffer::new(AT_ONCE * LEAF));
            for part in (first..last).step_by(AT_ONCE) {
                let offset = u64::from(part) * LEN;
                let leaves = u64::from(last - part).min(AT_ONCE as u64);
                let data = buffer.get_mut(..(len - offset).min(leaves * LEN) as usize).unwrap_or_default();
                source.read_exact_at(data, offset)?;
                all.extend(Fingerprint::of_leaves(data).flat_map(Fingerprint::to_bytes));
            }
            Ok(all)
        });
        let told = told.await.map(Bytes::from);
        drop(turn);
        if let (Some(key), Ok(told)) = (key, &told) {
            self.told.lock().put(key, told.clone());
        }
        self.give(told).await
    }

    /// Parts of a file.
    pub(crate) async fn leaves(
        &self,
        peer: &Peer,
        cache: &str,
        file: u32,
        ranges: Vec<(u64, u64)>,
    ) -> (Answer, Bytes) {
        let nothing = (Answer::Absent, Bytes::new());
        let Some((record, manifest)) = self.given_to(peer, cache) else { return nothing };
        let Some(len) = manifest.file(file).filter(|f| !f.is_symlink()).map(|f| f.len()) else {
            return nothing;
        };
        let within =
            |(offset, n): &(u64, u64)| *n > 0 && offset.checked_add(*n).is_some_and(|end| end <= len);
        let total = ranges.iter().try_fold(0u64, |sum, (_, n)| sum.checked_add(*n));
        if !ranges.iter().all(within) || total.is_none_or(|total| total == 0 || total > GIVEN) {
            return nothing;
        }
        let Ok(turn) = self.comparing.acquire().await else { return nothing };
        let told = self.read(&record, &manifest, file, move |source| {
            let mut all = Vec::new();
            for (offset, n) in ranges {
                let from = all.len();
                all.resize(from + n as usize, 0);
                source.read_exact_at(all.get_mut(from..).unwrap_or_default(), offset)?;
            }
            Ok(all)
        });
        let told = told.await.map(Bytes::from);
        drop(turn);
        self.give(told).await
    }

    /// A cache that is here, for a node that it was granted to.
    pub(crate) fn given_to(&self, peer: &Peer, cache: &str) -> Option<(Arc<CacheRecord>, Arc<Manifest>)> {
        let record = cache.parse::<CacheId>().ok().and_then(|id| self.store.depot.cache(id))?;
        let content = record.content.filter(|content| self.swarms.admits(content, peer.node))?;
        let manifest =
            record.is_committed().then(|| self.store.manifest(record.id, content).ok()).flatten()?;
        Some((record, manifest))
    }

    /// Reads a file of a cache.
    async fn read(
        &self,
        record: &CacheRecord,
        manifest: &Arc<Manifest>,
        file: u32,
        work: impl FnOnce(&File) -> std::io::Result<Vec<u8>> + Send + 'static,
    ) -> Result<Vec<u8>, String> {
        let (depot, id, manifest) = (self.store.depot.clone(), record.id, manifest.clone());
        let reading = tokio::task::spawn_blocking(move || {
            let (root, home) = open_view(&depot, id, &manifest).map_err(|e| e.to_string())?;
            let file = manifest.file(file).ok_or("no such file")?;
            let source = root.open_file(file.path().below(&home)).map_err(|e| e.to_string())?;
            work(&source).map_err(|e| e.to_string())
        });
        reading.await.map_err(|e| e.to_string())?
    }

    async fn give(&self, told: Result<Bytes, String>) -> (Answer, Bytes) {
        match told {
            Ok(bytes) => {
                self.limits.throttle.send(bytes.len() as u64).await;
                (Answer::Ok, bytes)
            }
            Err(why) => (Answer::Rejected { why }, Bytes::new()),
        }
    }
}
