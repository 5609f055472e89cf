//! The depot, for callers that must not block; parsed manifests of its caches; and notification of changes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tidecast_depot::{CacheId, CacheRecord, Depot, Filter, Reader, State};
use tidecast_metainfo::Manifest;
use tidecast_paths::Root;
use tokio::sync::Notify;

use crate::model::api_error::ApiError;
use crate::model::error::Error;
use crate::model::name::CacheName;

/// Manifests kept parsed, and most files and pieces in all of them: some 200 MB.
const PARSED: usize = 64;
const ENTRIES: u64 = 1 << 20;

/// A manifest, and when it was used last.
type Parsed = (Arc<Manifest>, Instant);

/// The depot of this host.
pub(crate) struct Store {
    pub(crate) depot: Depot,
    /// The origin of caches that are made here.
    origin: String,
    manifests: Mutex<HashMap<[u8; 32], Parsed>>,
    changed: Notify,
}

impl Store {
    pub(crate) fn new(depot: Depot, origin: String) -> Self {
        Self { depot, origin, manifests: Mutex::default(), changed: Notify::new() }
    }

    /// Does something that waits for the disk.
    pub(crate) async fn on_disk<T: Send + 'static, E: Into<ApiError> + Send + 'static>(
        &self,
        work: impl FnOnce(&Depot) -> Result<T, E> + Send + 'static,
    ) -> Result<T, ApiError> {
        let depot = self.depot.clone();
        tokio::task::spawn_blocking(move || work(&depot))
            .await
            .map_err(ApiError::internal)?
            .map_err(Into::into)
    }

    /// The manifest of a cache that is here. Blocks on the disk.
    pub(crate) fn manifest(&self, id: CacheId, content: [u8; 32]) -> Result<Arc<Manifest>, Error> {
        if let Some((manifest, used)) = self.manifests.lock().get_mut(&content) {
            *used = Instant::now();
            return Ok(manifest.clone());
        }
        let manifest = Arc::new(self.depot.manifest(id)?);
        let mut parsed = self.manifests.lock();
        let mut left = ENTRIES.saturating_sub(entries(&manifest));
        let mut by_use: Vec<_> =
            parsed.iter().map(|(key, (kept, used))| (*used, *key, entries(kept))).collect();
        by_use.sort_unstable();
        for (place, (_, key, entries)) in by_use.into_iter().rev().enumerate() {
            match left.checked_sub(entries) {
                Some(rest) if place + 1 < PARSED => left = rest,
                _ => drop(parsed.remove(&key)),
            }
        }
        parsed.insert(content, (manifest.clone(), Instant::now()));
        Ok(manifest)
    }

    /// A committed cache of this name that is here and that `reader` may read. Without an origin, this host's comes first.
    pub(crate) fn here(&self, name: &CacheName, reader: &Reader) -> Option<Arc<CacheRecord>> {
        let readable = |origin: &str| {
            let found = self.depot.find(origin, &name.name, name.version)?;
            (found.is_committed() && found.readable_by(reader)).then_some(found)
        };
        if let Some(origin) = &name.origin {
            return readable(origin);
        }
        readable(&self.origin).or_else(|| {
            let filter = Filter {
                name: Some(name.name.clone()),
                state: Some(State::Committed),
                reader: Some(reader.clone()),
                ..Default::default()
            };
            let mut all = self.depot.caches(&filter);
            all.retain(|r| name.version.is_none_or(|v| r.version == Some(v)));
            all.into_iter().max_by_key(|r| (r.committed, r.version))
        })
    }

    /// Something has come or gone: wakes [`Store::has_changed`].
    pub(crate) fn changed(&self) {
        self.changed.notify_one();
    }

    /// Waits until a cache was added or removed. For one waiter at a time.
    pub(crate) async fn has_changed(&self) {
        self.changed.notified().await;
    }
}

/// Its files and pieces.
fn entries(manifest: &Manifest) -> u64 {
    u64::from(manifest.file_count()) + manifest.total_len() / u64::from(manifest.piece_length())
}

/// The directory of a cache's view, and the path of the tree or file in it.
///
/// # Errors
/// The system's error.
pub(crate) fn open_view(depot: &Depot, id: CacheId, manifest: &Manifest) -> Result<(Root, PathBuf), Error> {
    let path = depot.view(id)?;
    let (dir, home) = match path.parent().zip(path.file_name()) {
        Some((above, name)) if manifest.is_single_file() => (above, Path::new(name)),
        _ => (path.as_path(), Path::new("")),
    };
    Ok((depot.open_dir(dir)?, home.to_owned()))
}
