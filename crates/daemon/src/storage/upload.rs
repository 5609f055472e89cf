//! Writes the bytes of a cache from a stream: its files one after the other, without separators.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::http::StatusCode;
use bytes::Bytes;
use tidecast_depot::{CacheId, CacheRecord, Depot, Filter, Reservation, Size, State};
use tidecast_metainfo::Manifest;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::model::api_error::{ApiError, ErrorKind};

/// Chunks of the stream that may wait for the disk.
pub(crate) const CHUNKS: usize = 4;

/// An upload that has room.
pub(crate) struct Upload {
    reservation: Reservation,
    manifest: Arc<Manifest>,
    files: Vec<u32>,
    pub(crate) since: Instant,
}

impl Upload {
    /// These files of the manifest are to come.
    pub(crate) fn new(reservation: Reservation, manifest: Arc<Manifest>, files: Vec<u32>) -> Self {
        Self { reservation, manifest, files, since: Instant::now() }
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

/// Writes the files as their bytes arrive, and commits. A chunk of `None` marks the end; without it the upload was
/// interrupted. Uses a thread only while it writes: a slow sender holds none.
pub(crate) async fn write(
    upload: Upload,
    mut queue: mpsc::Receiver<Option<Bytes>>,
) -> Result<Arc<CacheRecord>, ApiError> {
    let mut writer = Writer::new(upload);
    loop {
        let mut chunks = Vec::new();
        queue.recv_many(&mut chunks, CHUNKS).await;
        let step = tokio::task::spawn_blocking(move || writer.step(chunks));
        match step.await.map_err(ApiError::internal)?? {
            Step::Continue(next) => writer = next,
            Step::Committed(record) => return Ok(record),
        }
    }
}

/// The state of a [`Writer`] after some chunks.
enum Step {
    Continue(Writer),
    Committed(Arc<CacheRecord>),
}

/// Writes chunks into files. Its methods block on the disk.
struct Writer {
    reservation: Reservation,
    manifest: Arc<Manifest>,
    files: std::vec::IntoIter<u32>,
    current: Option<Current>,
    written: Size,
}

/// A file that is being written.
struct Current {
    file: File,
    index: u32,
    left: u64,
}

impl Writer {
    fn new(upload: Upload) -> Self {
        let Upload { reservation, manifest, files, .. } = upload;
        Self { reservation, manifest, files: files.into_iter(), current: None, written: Size::ZERO }
    }

    /// Writes these chunks; no chunks: the sender has disconnected.
    fn step(mut self, chunks: Vec<Option<Bytes>>) -> Result<Step, ApiError> {
        if chunks.is_empty() {
            return Err(self.incomplete("upload interrupted"));
        }
        for chunk in chunks {
            match chunk {
                Some(bytes) => self.append(bytes)?,
                None => return self.commit().map(Step::Committed),
            }
        }
        Ok(Step::Continue(self))
    }

    fn append(&mut self, mut bytes: Bytes) -> Result<(), ApiError> {
        while !bytes.is_empty() {
            let Some(current) = self.current()? else { return Err(self.excess()) };
            let len = usize::try_from(current.left).unwrap_or(usize::MAX).min(bytes.len());
            let (index, wrote) = (current.index, current.file.write_all(&bytes.split_to(len)));
            current.left -= len as u64;
            if let Err(source) = wrote {
                let path = self.path(index, &self.reservation.dir().join(self.top()));
                return Err(tidecast_depot::Error::io("write", &path, source).into());
            }
            self.written.bytes += len as u64;
        }
        Ok(())
    }

    /// The file that the next bytes belong to; None after the last.
    fn current(&mut self) -> Result<Option<&mut Current>, ApiError> {
        while self.current.as_ref().is_none_or(|current| current.left == 0) {
            if self.current.take().is_some() {
                self.written.inodes += 1;
                self.reservation.grown(self.written)?;
            }
            let Some(index) = self.files.next() else { return Ok(None) };
            let Some(left) = self.manifest.file(index).map(|file| file.len()) else { continue };
            let file = self.reservation.create(&self.path(index, &self.top()))?;
            self.current = Some(Current { file, index, left });
        }
        Ok(self.current.as_mut())
    }

    fn commit(mut self) -> Result<Arc<CacheRecord>, ApiError> {
        if self.current()?.is_some() {
            return Err(self.incomplete("upload interrupted"));
        }
        Ok(self.reservation.commit(&self.manifest, false, crate::clock::now())?.record)
    }

    fn top(&self) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(self.manifest.name_bytes()))
    }

    fn path(&self, index: u32, below: &Path) -> PathBuf {
        self.manifest.file(index).map_or_else(|| below.into(), |file| file.path().below(below))
    }

    /// The upload ended before all bytes arrived. `otherwise`: the reason if it ended between two files.
    fn incomplete(&mut self, otherwise: &str) -> ApiError {
        match self.current() {
            Ok(Some(&mut Current { index, left, .. })) => {
                // A single file is named as the whole.
                let below = if self.manifest.is_single_file() { self.top() } else { PathBuf::new() };
                let path = self.path(index, &below);
                let len = self.manifest.file(index).map_or(0, |file| file.len());
                let received = len - left;
                ApiError::interrupted(format!(
                    "the upload ended within {}: {received} of {len} bytes received",
                    path.display()
                ))
            }
            Ok(None) => ApiError::interrupted(otherwise),
            Err(error) => error,
        }
    }

    /// More bytes arrived than the manifest declares: the cache is INVALID from here on.
    fn excess(&self) -> ApiError {
        let size = Size { bytes: self.manifest.total_len() + 1, ..self.written };
        match self.reservation.grown(size) {
            Ok(()) | Err(tidecast_depot::Error::Exceeded { .. }) => {}
            Err(error) => return error.into(),
        }
        let why = match self.written.bytes {
            0 => "no data expected, the store has all files already; the cache is INVALID".into(),
            bytes => format!("received more than the expected {bytes} bytes; the cache is INVALID"),
        };
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, ErrorKind::Exceeded, why)
    }
}
