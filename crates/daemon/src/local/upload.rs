//! Uploads the bytes of a new cache over the socket. The client reads the files with its own rights: the
//! daemon opens no path of a client. The bytes are those of the files that `create` listed, one after the
//! other, without separators.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tidecast_depot::{Admission, CacheId, Declare, Depot, Reader};
use tidecast_metainfo::Manifest;
use tokio::sync::mpsc;

use super::records::Records;
use crate::host::caller::Caller;
use crate::host::limits::HostLimits;
use crate::model::api_error::{ApiError, ErrorKind};
use crate::model::types::{CacheInfo, Created};
use crate::storage::upload::{CHUNKS, Upload, forget, write};

/// Of an upload that is refused, this much is read on, this long at most.
const MOST_DRAINED: usize = 256 << 20;
const LINGER: Duration = Duration::from_secs(10);
/// The content comes within this time after the declaration.
const WAITING: Duration = Duration::from_mins(10);
/// Uploads that were begun and not gone on with.
const BEGUN: usize = 1024;

/// Uploads that wait for their content.
pub(crate) struct Uploads {
    records: Arc<Records>,
    limits: Arc<HostLimits>,
    begun: Mutex<HashMap<CacheId, Upload>>,
}

impl Uploads {
    pub(crate) fn new(records: Arc<Records>, limits: Arc<HostLimits>) -> Self {
        Self { records, limits, begun: Mutex::default() }
    }

    /// Takes out uploads that no client continues.
    fn stale(&self) -> Vec<(CacheId, Upload)> {
        self.begun.lock().extract_if(|_, upload| upload.begun.elapsed() >= WAITING).collect()
    }

    /// Releases the space of uploads that no client continues.
    pub(crate) async fn forget_stale(&self) {
        let stale = self.stale();
        if stale.is_empty() {
            return;
        }
        let forget_all = move |depot: &Depot| {
            for (id, upload) in stale {
                drop(upload);
                forget(depot, id);
            }
            Ok::<_, tidecast_depot::Error>(())
        };
        // Only a thread that failed has an error.
        let _ = self.records.store.on_disk(forget_all).await;
    }

    /// Declares a cache and makes room for it.
    pub(crate) async fn begin(
        &self,
        declare: Declare,
        manifest: Arc<Manifest>,
        reader: Reader,
    ) -> Result<Created, ApiError> {
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
                let status = axum::http::StatusCode::SERVICE_UNAVAILABLE;
                return Err(ApiError::new(
                    status,
                    ErrorKind::Wait,
                    format!("no space in the store at present: {reason}"),
                ));
            }
            Admission::Denied(reason) => {
                let status = axum::http::StatusCode::INSUFFICIENT_STORAGE;
                return Err(ApiError::new(
                    status,
                    ErrorKind::Denied,
                    format!("no space in the store: {reason}"),
                ));
            }
        };
        let upload = Upload::new(reservation, manifest, files.clone());
        let mut uploads = self.begun.lock();
        if uploads.len() >= BEGUN {
            return Err(ApiError::new(
                axum::http::StatusCode::SERVICE_UNAVAILABLE,
                ErrorKind::Wait,
                "too many unfinished uploads; try again later",
            ));
        }
        uploads.insert(id, upload);
        Ok(Created { cache: id.to_string(), files })
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
                axum::http::StatusCode::CONFLICT,
                ErrorKind::State,
                "no upload has begun for this cache: create it first",
            )
        });
        let taken = match upload {
            Ok(upload) => self.take_in(id, upload, &mut body).await,
            Err(error) => Err(error),
        };
        if taken.is_err() {
            // A client that still sends would not receive the reason.
            let _ = tokio::time::timeout(LINGER, drain(body)).await;
        }
        taken
    }

    async fn take_in(&self, id: CacheId, upload: Upload, body: &mut Body) -> Result<CacheInfo, ApiError> {
        let (chunks, queue) = mpsc::channel(CHUNKS);
        let depot = self.records.store.depot.clone();
        // On the writing thread: it continues to here however this task ends (client disconnected, connection
        // cut).
        let writing = tokio::task::spawn_blocking(move || {
            let written = write(upload, queue);
            if written.is_err() {
                forget(&depot, id);
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
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| ApiError::malformed(format!("upload interrupted: {e}")))?;
            let Ok(data) = frame.into_data() else { continue };
            self.limits.throttle.store(data.len() as u64).await;
            if chunks.send(Some(data)).await.is_err() {
                // The writer has ended, and reports why.
                return Ok(());
            }
        }
        let _ = chunks.send(None).await;
        Ok(())
    }
}

/// Reads on, and throws it away.
async fn drain(mut body: Body) {
    let mut left = MOST_DRAINED;
    while let Some(Ok(frame)) = body.frame().await {
        left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        if left == 0 {
            return;
        }
    }
}
