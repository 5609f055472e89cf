//! Writes the bytes of a cache from a stream: its files one after the other, without separators.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::http::StatusCode;
use bytes::Bytes;
use tidecast_depot::{CacheId, Depot, Filter, Reservation, Size, State};
use tidecast_metainfo::Manifest;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::model::api_error::{ApiError, ErrorKind};

/// Chunks of the stream that may wait for the disk.
pub(crate) const CHUNKS: usize = 16;

/// An upload that has room.
pub(crate) struct Upload {
    reservation: Reservation,
    manifest: Arc<Manifest>,
    files: Vec<u32>,
    pub(crate) begun: Instant,
}

impl Upload {
    /// These files of the manifest are to come.
    pub(crate) fn new(reservation: Reservation, manifest: Arc<Manifest>, files: Vec<u32>) -> Self {
        Self { reservation, manifest, files, begun: Instant::now() }
    }
}

/// Removes the files of uploads that an earlier daemon had begun: their clients have lost the connection, and
/// start again under another number. Fetches are kept, and continue. Blocks on the disk.
pub(crate) fn forget_broken(depot: &Depot, origin: &str) {
    for state in [State::Uncommitted, State::Uploading] {
        let own = Filter { origin: Some(origin.to_owned()), state: Some(state), ..Filter::default() };
        depot.caches(&own).iter().for_each(|record| forget(depot, record.id));
    }
}

/// Removes a cache whose upload has failed, with its files. An INVALID one stays as a record, without its
/// bytes.
pub(crate) fn forget(depot: &Depot, id: CacheId) {
    if depot.cache(id).is_some_and(|record| record.state == State::Invalid) {
        return;
    }
    if let Err(error) = depot.remove(id, crate::clock::now()) {
        tracing::warn!(%error, cache = %id, "cannot remove the files of an interrupted upload");
    }
}

/// The bytes of an upload, in chunks as they come.
struct Incoming {
    queue: mpsc::Receiver<Option<Bytes>>,
    chunk: Bytes,
    /// The end was marked, not merely reached.
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
                let why =
                    format!("the upload ended within {}: {came} of {len} bytes received", path.display());
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
            0 => "no data expected, the store has all files already; the cache is INVALID".into(),
            bytes => format!("received more than the expected {bytes} bytes; the cache is INVALID"),
        };
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, ErrorKind::Exceeded, why));
    }
    if !incoming.whole {
        return Err(ApiError::malformed("upload interrupted"));
    }
    Ok(reservation.commit(&manifest, false, crate::clock::now())?.record)
}
