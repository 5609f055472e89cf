//! The bytes of a new cache come over the socket, read by their owner with his own rights: the daemon opens no file on
//! anybody's word. They are the files that `create` named, one after the other, and nothing between.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tidecast_depot::{Admission, CacheId, Declare, Depot, Filter, Reader, Reservation, Size, State};
use tidecast_metainfo::Manifest;
use tokio::sync::mpsc;

use crate::assembly::Daemon;
use crate::host::caller::Caller;
use crate::model::api_error::ApiError;
use crate::model::types::{CacheInfo, Created};

/// Chunks of the body that may wait for the disk.
pub(crate) const CHUNKS: usize = 16;
/// Of an upload that is refused, so much is read on, so long at most.
const MOST_DRAINED: usize = 256 << 20;
const LINGER: Duration = Duration::from_secs(10);
/// The content comes within this time after the declaration.
const WAITING: Duration = Duration::from_mins(10);
/// Uploads that were begun and not gone on with.
const BEGUN: usize = 1024;

/// An upload that has room.
pub(crate) struct Upload {
    reservation: Reservation,
    manifest: Arc<Manifest>,
    files: Vec<u32>,
    begun: Instant,
}

impl Upload {
    /// These files of the manifest are to come.
    pub(crate) fn new(reservation: Reservation, manifest: Arc<Manifest>, files: Vec<u32>) -> Self {
        Self { reservation, manifest, files, begun: Instant::now() }
    }
}

/// Uploads that wait for their content.
#[derive(Default)]
pub(crate) struct Uploads(Mutex<HashMap<CacheId, Upload>>);

impl Uploads {
    /// Takes out those that nobody goes on with.
    fn stale(&self) -> Vec<(CacheId, Upload)> {
        self.0.lock().extract_if(|_, upload| upload.begun.elapsed() >= WAITING).collect()
    }
}

/// Removes what uploads left that a daemon before this one had begun: their clients have lost their connection, and begin
/// anew under another number. What is fetched is another's, and goes on where it was. Blocks on the disk.
pub(crate) fn forget_broken(depot: &Depot, origin: &str) {
    for state in [State::Uncommitted, State::Uploading] {
        let own = Filter { origin: Some(origin.to_owned()), state: Some(state), ..Filter::default() };
        depot.caches(&own).iter().for_each(|record| forget(depot, record.id));
    }
}

/// Removes a cache whose upload has failed, and all that came of it. One that is INVALID stays, to say so, without its bytes.
fn forget(depot: &Depot, id: CacheId) {
    if depot.cache(id).is_some_and(|record| record.state == State::Invalid) {
        return;
    }
    if let Err(error) = depot.remove(id, crate::now()) {
        tracing::warn!(%error, cache = %id, "cannot remove what a broken upload left");
    }
}

impl Daemon {
    /// Gives back the room of uploads that nobody goes on with.
    pub(crate) async fn forget_stale_uploads(&self) {
        let stale = self.uploads.stale();
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
        let _ = self.on_disk(forget_all).await;
    }

    /// Declares a cache and makes room for it.
    pub(crate) async fn begin_upload(
        &self,
        declare: Declare,
        manifest: Arc<Manifest>,
        reader: Reader,
    ) -> Result<Created, ApiError> {
        let begun = manifest.clone();
        let (id, admitted, files) = self
            .on_disk(move |depot| {
                let now = crate::now();
                let record = depot.declare(declare, now)?;
                let admission = depot.admit(record.id, Some(&begun), &reader, now)?;
                let (admission, files) = match admission {
                    Admission::Ok(reservation) => {
                        let reuse = reservation.reuse(&begun, &reader)?;
                        (Admission::Ok(reservation), crate::model::files::missing(&begun, &reuse.files))
                    }
                    other => {
                        // What is refused leaves nothing, nor a claim to the name.
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
                return Err(ApiError::new(status, "wait", format!("there is no room now: {reason}")));
            }
            Admission::Denied(reason) => {
                let status = axum::http::StatusCode::INSUFFICIENT_STORAGE;
                return Err(ApiError::new(status, "denied", format!("there is no room for it: {reason}")));
            }
        };
        let upload = Upload::new(reservation, manifest, files.clone());
        let mut uploads = self.uploads.0.lock();
        if uploads.len() >= BEGUN {
            return Err(ApiError::new(
                axum::http::StatusCode::SERVICE_UNAVAILABLE,
                "wait",
                "too many uploads were begun and not ended",
            ));
        }
        uploads.insert(id, upload);
        Ok(Created { cache: id.to_string(), files })
    }
}

/// Takes the content and commits the cache.
pub(crate) async fn take(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    id: CacheId,
    mut body: Body,
) -> Result<CacheInfo, ApiError> {
    let begun = daemon.owned(caller, id).map(|_| daemon.uploads.0.lock().remove(&id))?;
    let upload = begun.ok_or_else(|| {
        ApiError::new(
            axum::http::StatusCode::CONFLICT,
            "state",
            "nothing was begun for this cache: create it first",
        )
    });
    let taken = match upload {
        Ok(upload) => take_in(daemon, id, upload, &mut body).await,
        Err(error) => Err(error),
    };
    if taken.is_err() {
        // Who still sends would not hear why.
        let _ = tokio::time::timeout(LINGER, drain(body)).await;
    }
    taken
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

async fn take_in(
    daemon: &Arc<Daemon>,
    id: CacheId,
    upload: Upload,
    body: &mut Body,
) -> Result<CacheInfo, ApiError> {
    let (chunks, queue) = mpsc::channel(CHUNKS);
    let depot = daemon.depot.clone();
    // On the thread that writes: whatever ends this task (the client is gone, the connection is cut), it goes on to here.
    let writing = tokio::task::spawn_blocking(move || {
        let written = write(upload, queue);
        if written.is_err() {
            forget(&depot, id);
        }
        written
    });
    let sent = feed(daemon, body, chunks).await;
    let written = writing.await.map_err(ApiError::internal)?;
    let committed = sent.and(written)?;
    daemon.changed.notify_one();
    Ok(daemon.info(&committed))
}

async fn feed(daemon: &Daemon, body: &mut Body, chunks: mpsc::Sender<Option<Bytes>>) -> Result<(), ApiError> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| ApiError::malformed(format!("the upload broke off: {e}")))?;
        let Ok(data) = frame.into_data() else { continue };
        daemon.limits.throttle.store(data.len() as u64).await;
        if chunks.send(Some(data)).await.is_err() {
            // The writer has ended, and says why.
            return Ok(());
        }
    }
    let _ = chunks.send(None).await;
    Ok(())
}

/// The bytes of an upload, in chunks as they come.
struct Incoming {
    queue: mpsc::Receiver<Option<Bytes>>,
    chunk: Bytes,
    /// The end was said, not merely reached.
    whole: bool,
}

impl Incoming {
    /// Some bytes, at most `most`; empty at the end.
    fn some(&mut self, most: u64) -> Bytes {
        while self.chunk.is_empty() && !self.whole {
            match self.queue.blocking_recv() {
                Some(Some(chunk)) => self.chunk = chunk,
                Some(None) => self.whole = true,
                None => return Bytes::new(),
            }
        }
        let len = usize::try_from(most).unwrap_or(usize::MAX).min(self.chunk.len());
        self.chunk.split_to(len)
    }
}

/// Writes the files and commits.
pub(crate) fn write(
    upload: Upload,
    queue: mpsc::Receiver<Option<Bytes>>,
) -> Result<Arc<tidecast_depot::CacheRecord>, ApiError> {
    let Upload { reservation, manifest, files, .. } = upload;
    let mut incoming = Incoming { queue, chunk: Bytes::new(), whole: false };
    let top = PathBuf::from(OsStr::from_bytes(manifest.name_bytes()));
    let root = reservation.dir().join(&top);
    let mut written = Size::ZERO;
    for index in files {
        let Some(file) = manifest.file(index) else { continue };
        let path = file.path().below(&root);
        let full = |source| tidecast_depot::Error::io("write", &path, source);
        let mut to = reservation.create(&file.path().below(&top))?;
        let mut left = file.len();
        while left > 0 {
            let some = incoming.some(left);
            if some.is_empty() {
                // A single file is called as the whole.
                let path =
                    if manifest.is_single_file() { top.clone() } else { file.path().below(Path::new("")) };
                let (came, len) = (file.len() - left, file.len());
                let why = format!(
                    "the upload ends in the midst of {}, of which {came} of {len} bytes came",
                    path.display()
                );
                return Err(ApiError::malformed(why));
            }
            to.write_all(&some).map_err(full)?;
            left -= some.len() as u64;
            written.bytes += some.len() as u64;
        }
        written.inodes += 1;
        reservation.grown(written)?;
    }
    if !incoming.some(1).is_empty() {
        // More than the manifest names is more than was declared: the cache is INVALID from here on.
        match reservation.grown(Size { bytes: manifest.total_len() + 1, ..written }) {
            Ok(()) | Err(tidecast_depot::Error::Exceeded { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let why = match written.bytes {
            0 => "nothing was to come, all of it is here already; the cache is INVALID".into(),
            bytes => format!("more came than the {bytes} bytes that were to come; the cache is INVALID"),
        };
        return Err(ApiError::new(axum::http::StatusCode::PAYLOAD_TOO_LARGE, "exceeded", why));
    }
    if !incoming.whole {
        return Err(ApiError::malformed("the upload broke off"));
    }
    Ok(reservation.commit(&manifest, false, crate::now())?.record)
}
