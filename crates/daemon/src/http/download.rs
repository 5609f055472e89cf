//! A committed cache for programs that keep caches themselves: its description, and its bytes.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use tidecast_depot::{Busy, CacheRecord, View};
use tidecast_metainfo::Manifest;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::app::App;
use super::audited::Audited;
use super::extract::id;
use crate::client::Chunks;
use crate::host::caller::Caller;
use crate::model::api_error::ApiError;

/// Bytes read at a time.
const CHUNK: usize = 256 << 10;
/// Chunks that may wait for the reader.
const AHEAD: usize = 1;
/// A client that takes no chunk for this long receives no more: its cache could not be evicted.
const SILENT: Duration = Duration::from_secs(60);

/// Its manifest, with the description in a header.
pub(super) async fn manifest(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(text): Path<String>,
) -> Result<Response, ApiError> {
    let record = app.records.readable(&caller, id(&text)?)?;
    if !record.is_committed() {
        return Err(ApiError::absent(&record.full_name()));
    }
    let id = record.id;
    let manifest = app.store.on_disk(move |depot| depot.open_manifest(id)).await?;
    let head = serde_json::to_string(&app.signer.told(&record)).map_err(ApiError::internal)?;
    let head = axum::http::HeaderValue::from_str(&ascii(&head)).map_err(ApiError::internal)?;
    Ok(([("tidecast-record", head)], stream("application/x-bittorrent", manifest)).into_response())
}

/// JSON of ASCII characters only, as headers require.
fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for unit in json.chars() {
        match unit {
            ' '..='~' => text.push(unit),
            other => {
                let mut units = [0; 2];
                other.encode_utf16(&mut units).iter().for_each(|u| text.push_str(&format!("\\u{u:04x}")));
            }
        }
    }
    text
}

/// Its files that have content, each content once, in the order of the manifest: as an upload of all of it would be.
pub(super) async fn content(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(text): Path<String>,
) -> Result<Response, ApiError> {
    let audited = Audited::on(&app.audit, &caller, "read", app.records.noted(&caller, &text));
    let (record, manifest) = audited.ended(committed(&app, &caller, &text).await)?;
    let busy = app.store.depot.busy(record.id, crate::clock::now())?;
    let id = record.id;
    let view = app.store.on_disk(move |depot| depot.open_view(id)).await?;
    let files = crate::model::files::missing(&manifest, &[]);
    let reader = Reader { files: files.into_iter(), manifest, view, current: None, _busy: busy };
    Ok(stream("application/octet-stream", reader))
}

/// A response with all bytes of `source`, which are read while the client takes them.
fn stream(kind: &'static str, source: impl Source) -> Response {
    let (chunks, queue) = mpsc::channel(AHEAD);
    tokio::spawn(pass_on(source, chunks));
    ([("content-type", kind)], Body::new(Chunks(queue))).into_response()
}

/// Passes chunks on until the client has them all, or takes none for too long. Uses a thread only while it reads.
async fn pass_on(mut source: impl Source, chunks: mpsc::Sender<io::Result<Bytes>>) {
    loop {
        let read = tokio::task::spawn_blocking(move || (source.next(), source)).await;
        let Ok((next, rest)) = read else { return };
        source = rest;
        let Some(chunk) = next.transpose() else { return };
        let is_last = chunk.is_err();
        if !matches!(timeout(SILENT, chunks.send(chunk)).await, Ok(Ok(()))) || is_last {
            return;
        }
    }
}

/// Bytes on the disk, in chunks.
trait Source: Send + 'static {
    /// The next chunk; None at the end. Blocks on the disk.
    fn next(&mut self) -> io::Result<Option<Bytes>>;
}

/// The files of a cache, one after the other.
struct Reader {
    files: std::vec::IntoIter<u32>,
    manifest: Arc<Manifest>,
    view: View,
    current: Option<(File, u64)>,
    _busy: Busy,
}

impl Source for Reader {
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if let Some((file, left)) = &mut self.current
                && *left > 0
            {
                let mut chunk = vec![0; CHUNK.min(usize::try_from(*left).unwrap_or(CHUNK))];
                file.read_exact(&mut chunk)?;
                *left -= chunk.len() as u64;
                return Ok(Some(chunk.into()));
            }
            let Some(index) = self.files.next() else { return Ok(None) };
            let Some(file) = self.manifest.file(index) else { continue };
            self.current = Some((self.view.open(file).map_err(io::Error::other)?, file.len()));
        }
    }
}

impl Source for File {
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        let mut chunk = Vec::with_capacity(CHUNK);
        (&*self).take(CHUNK as u64).read_to_end(&mut chunk)?;
        Ok((!chunk.is_empty()).then(|| chunk.into()))
    }
}

pub(super) async fn committed(
    app: &App,
    caller: &Caller,
    text: &str,
) -> Result<(Arc<CacheRecord>, Arc<Manifest>), ApiError> {
    let record = app.records.readable(caller, id(text)?)?;
    let content = record.content.filter(|_| record.is_committed());
    let content = content.ok_or_else(|| ApiError::absent(&record.full_name()))?;
    let (reading, id) = (app.store.clone(), record.id);
    let read = tokio::task::spawn_blocking(move || reading.manifest(id, content)).await;
    Ok((record, read.map_err(ApiError::internal)??))
}
