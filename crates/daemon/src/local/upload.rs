//! Uploads the bytes of a new cache over the socket. The client reads the files with its own rights: the
//! daemon opens no path of a client. The bytes are those of the files that `create` listed, one after the
//! other, without separators.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use bytes::Bytes;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tidecast_depot::{Admission, CacheId, Declare, Depot, Reader};
use tidecast_metainfo::Manifest;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::records::Records;
use crate::host::caller::Caller;
use crate::host::limits::HostLimits;
use crate::model::api_error::{ApiError, ErrorKind};
use crate::model::types::{CacheInfo, Created};
use crate::storage::upload::{CHUNKS, Upload, forget, write};

/// Of an upload that is refused, this much is read on, this long at most.
const MOST_DRAINED: usize = 256 << 20;
const LINGER: Duration = Duration::from_secs(10);
/// The content comes within this time after the declaration: it holds room that others may need.
const WAITING: Duration = Duration::from_mins(2);
/// In this time an upload brings at least these bytes, or its rest.
const PERIOD: Duration = Duration::from_mins(2);
const LEAST: usize = 1 << 20;
/// Declared caches of one user that may wait for their content.
const BEGUN: usize = 256;
/// Bytes of their manifests, which are kept in memory: one may be larger, if it is the only one.
const MANIFESTS: usize = 64 << 20;

/// Uploads that wait for their content.
pub(crate) struct Uploads {
    records: Arc<Records>,
    limits: Arc<HostLimits>,
    begun: Mutex<HashMap<CacheId, Begun>>,
}

/// A declared cache that waits for its content.
struct Begun {
    upload: Upload,
    owner: String,
    /// Bytes of its manifest.
    manifest: usize,
}

impl Uploads {
    pub(crate) fn new(records: Arc<Records>, limits: Arc<HostLimits>) -> Self {
        Self { records, limits, begun: Mutex::default() }
    }

    /// Takes out uploads that no client continues.
    fn stale(&self) -> Vec<(CacheId, Begun)> {
        self.begun.lock().extract_if(|_, begun| begun.upload.since.elapsed() >= WAITING).collect()
    }

    /// Releases the space of uploads that no client continues.
    pub(crate) async fn forget_stale(&self) {
        let stale = self.stale();
        if stale.is_empty() {
            return;
        }
        let forget_all = move |depot: &Depot| {
            for (id, begun) in stale {
                drop(begun);
                forget(depot, id);
            }
            Ok::<_, tidecast_depot::Error>(())
        };
        // Only a thread that failed has an error.
        let _ = self.records.store.on_disk(forget_all).await;
    }

    /// Rejects a further upload of a user with too many unfinished ones. `manifest`: bytes of its manifest.
    fn check_share(all: &HashMap<CacheId, Begun>, owner: &str, manifest: usize) -> Result<(), ApiError> {
        let own = || all.values().filter(|begun| begun.owner == owner);
        let bytes: usize = own().map(|begun| begun.manifest).sum();
        let count = own().count();
        if count >= BEGUN || count > 0 && bytes + manifest > MANIFESTS {
            let why = format!("{count} unfinished uploads of {owner}; finish them first, or try again later");
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, ErrorKind::Wait, why));
        }
        Ok(())
    }

    /// Declares a cache and makes room for it. `len`: bytes of the manifest.
    pub(crate) async fn begin(
        &self,
        declare: Declare,
        manifest: Arc<Manifest>,
        len: usize,
        reader: Reader,
    ) -> Result<Created, ApiError> {
        let owner = declare.owner.clone();
        Self::check_share(&self.begun.lock(), &owner, len)?;
        let begun = manifest.clone();
        let (id, admitted, files) = self
            .records
            .store
            .on_disk(move |depot| {
                let now = crate::clock::now();
                let record = depot.declare(declare, now)?;
                let admission = depot.admit(record.id, Some(&begun), &reader, now)?;
                let (admission, files) = match admission {
                    Admission::Ok(reservation) => {
                        let reuse = reservation.reuse(&begun, &reader)?;
                        (Admission::Ok(reservation), crate::model::files::missing(&begun, &reuse.files))
                    }
                    other => {
                        // A rejected upload leaves nothing, and no claim to the name.
                        depot.remove(record.id, now)?;
                        (other, Vec::new())
                    }
                };
                Ok::<_, tidecast_depot::Error>((record.id, admission, files))
            })
            .await?;
        let reservation = match admitted {
            Admission::Ok(reservation) => reservation,
            Admission::Wait(reason) => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                return Err(ApiError::new(
                    status,
                    ErrorKind::Wait,
                    format!("no space in the store at present: {reason}"),
                ));
            }
            Admission::Denied(reason) => {
                let status = StatusCode::INSUFFICIENT_STORAGE;
                return Err(ApiError::new(
                    status,
                    ErrorKind::Denied,
                    format!("no space in the store: {reason}"),
                ));
            }
        };
        let upload = Upload::new(reservation, manifest, files.clone());
        let begun = Begun { upload, owner, manifest: len };
        if let Err(error) = self.insert(id, begun) {
            let forgotten = move |depot: &Depot| {
                forget(depot, id);
                Err::<Created, _>(error)
            };
            return self.records.store.on_disk(forgotten).await;
        }
        Ok(Created { cache: id.to_string(), files })
    }

    /// Rejects the upload if its user has begun too many since it was declared.
    fn insert(&self, id: CacheId, begun: Begun) -> Result<(), ApiError> {
        let mut all = self.begun.lock();
        Self::check_share(&all, &begun.owner, begun.manifest)?;
        all.insert(id, begun);
        Ok(())
    }

    /// Takes the content and commits the cache.
    pub(crate) async fn take(
        &self,
        caller: &Caller,
        id: CacheId,
        mut body: Body,
    ) -> Result<CacheInfo, ApiError> {
        let begun = self.records.owned(caller, id).map(|_| self.begun.lock().remove(&id))?;
        let upload = begun.ok_or_else(|| {
            ApiError::new(
                StatusCode::CONFLICT,
                ErrorKind::State,
                "no upload has begun for this cache: create it first",
            )
        });
        let taken = match upload {
            Ok(begun) => self.take_in(id, begun.upload, &mut body).await,
            Err(error) => Err(error),
        };
        if taken.is_err() {
            drain(body).await;
        }
        taken
    }

    async fn take_in(&self, id: CacheId, upload: Upload, body: &mut Body) -> Result<CacheInfo, ApiError> {
        let (chunks, queue) = mpsc::channel(CHUNKS);
        let depot = self.records.store.depot.clone();
        // A task of its own: it continues to here however this one ends (client disconnected, connection cut).
        let writing = tokio::spawn(async move {
            let written = write(upload, queue).await;
            if written.is_err() {
                let _ = tokio::task::spawn_blocking(move || forget(&depot, id)).await;
            }
            written
        });
        let sent = self.feed(body, chunks).await;
        let written = writing.await.map_err(ApiError::internal)?;
        let committed = sent.and(written)?;
        self.records.store.changed();
        Ok(self.records.info(&committed))
    }

    async fn feed(&self, body: &mut Body, chunks: mpsc::Sender<Option<Bytes>>) -> Result<(), ApiError> {
        let late = |_| ApiError::interrupted("upload interrupted: too few bytes before the timeout");
        let (mut until, mut came) = (Instant::now() + PERIOD, 0);
        while let Some(frame) = timeout_at(until, body.frame()).await.map_err(late)? {
            let frame = frame.map_err(|e| ApiError::interrupted(format!("upload interrupted: {e}")))?;
            let Ok(data) = frame.into_data() else { continue };
            came += data.len();
            self.limits.throttle.store(data.len() as u64).await;
            if came >= LEAST {
                (until, came) = (Instant::now() + PERIOD, 0);
            }
            if chunks.send(Some(data)).await.is_err() {
                // The writer has ended, and reports why.
                return Ok(());
            }
        }
        let _ = chunks.send(None).await;
        Ok(())
    }
}

/// Reads the rest of a rejected body for some seconds: a client that still sends would not receive the reason.
pub(crate) async fn drain(mut body: Body) {
    let all = async {
        let mut left = MOST_DRAINED;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    let _ = timeout(LINGER, all).await;
}
