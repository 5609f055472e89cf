//! A committed cache for programs that keep caches themselves: its description, and its bytes.

use std::io::Read;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use tidecast_depot::{CacheRecord, View};
use tidecast_metainfo::Manifest;
use tokio::sync::mpsc;

use super::app::App;
use super::audited::Audited;
use super::extract::id;
use crate::client::Chunks;
use crate::host::caller::Caller;
use crate::model::api_error::ApiError;

/// Bytes read at a time.
const CHUNK: usize = 256 << 10;
/// Chunks that may wait for the reader.
const AHEAD: usize = 8;

/// Its manifest, with the description in a header.
pub(super) async fn manifest(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(text): Path<String>,
) -> Result<Response, ApiError> {
    let (record, manifest) = committed(&app, &caller, &text).await?;
    let head = serde_json::to_string(&app.signer.told(&record)).map_err(ApiError::internal)?;
    let head = axum::http::HeaderValue::from_str(&ascii(&head)).map_err(ApiError::internal)?;
    let kind = axum::http::HeaderValue::from_static("application/x-bittorrent");
    let headers = [("content-type", kind), ("tidecast-record", head)];
    Ok((headers, manifest.to_bytes()).into_response())
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
    let (chunks, queue) = mpsc::channel(AHEAD);
    tokio::task::spawn_blocking(move || {
        let _busy = busy;
        if let Err(error) = read(&manifest, view, &chunks) {
            let _ = chunks.blocking_send(Err(error));
        }
    });
    let kind = axum::http::HeaderValue::from_static("application/octet-stream");
    Ok(([("content-type", kind)], Body::new(Chunks(queue))).into_response())
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

fn read(
    manifest: &Manifest,
    mut view: View,
    chunks: &mpsc::Sender<std::io::Result<Bytes>>,
) -> std::io::Result<()> {
    for file in
        crate::model::files::missing(manifest, &[]).into_iter().filter_map(|index| manifest.file(index))
    {
        let mut from = view.open(file).map_err(std::io::Error::other)?;
        let mut left = file.len();
        while left > 0 {
            let mut chunk = vec![0; CHUNK.min(usize::try_from(left).unwrap_or(CHUNK))];
            from.read_exact(&mut chunk)?;
            left -= chunk.len() as u64;
            if chunks.blocking_send(Ok(chunk.into())).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}
