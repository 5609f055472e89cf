//! A committed cache as open files, for a client that makes its own copies or links: the daemon writes only
//! in its store. `client/descriptors.rs` describes the protocol.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper_util::rt::TokioIo;
use tidecast_depot::{Busy, View};
use tidecast_metainfo::Manifest;

use super::app::App;
use super::audited::Audited;
use super::download::committed;
use super::listener::Connection;
use super::sessions::Session;
use crate::client::descriptors::{PROTOCOL, send};
use crate::host::caller::Caller;
use crate::model::api_error::{ApiError, ErrorKind};

/// The files that are sent.
struct Given {
    manifest: Arc<Manifest>,
    view: View,
    _busy: Busy,
    _session: Session,
}

pub(super) async fn files(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(text): Path<String>,
    mut request: Request,
) -> Result<Response, ApiError> {
    let asked = request.headers().get(header::UPGRADE).is_some_and(|to| to.as_bytes() == PROTOCOL.as_bytes());
    if !asked {
        let why = format!("files are passed as open descriptors; send the header Upgrade: {PROTOCOL}");
        return Err(ApiError::new(StatusCode::UPGRADE_REQUIRED, ErrorKind::Malformed, why));
    }
    let audited = Audited::on(&app.audit, &caller, "read", app.records.noted(&caller, &text));
    let (record, manifest) = audited.ended(committed(&app, &caller, &text).await)?;
    let session = app.sessions.begin(caller.uid)?;
    let busy = app.store.depot.busy(record.id, crate::clock::now())?;
    let id = record.id;
    let view = app.store.on_disk(move |depot| depot.open_view(id)).await?;
    let given = Given { manifest, view, _busy: busy, _session: session };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let Ok(parts) = upgraded.downcast::<TokioIo<Connection>>() else { return };
        let (connection, is_asked) = (parts.io.into_inner(), !parts.read_buf.is_empty());
        // A thread of its own, as it waits for the client.
        let give = move || {
            if let Err(error) = give(&connection, is_asked, given) {
                tracing::debug!(%error, "cannot send all files to a client");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("give-files".into()).spawn(give) {
            tracing::error!(%error, "cannot start a thread that sends files to a client");
        }
    });
    let head = [(header::CONNECTION, "upgrade"), (header::UPGRADE, PROTOCOL)];
    Ok((StatusCode::SWITCHING_PROTOCOLS, head, Body::empty()).into_response())
}

fn give(connection: &Connection, is_asked: bool, given: Given) -> std::io::Result<()> {
    let Given { manifest, mut view, _busy, _session } = given;
    let stream = UnixStream::from(connection.descriptor()?);
    // Nothing else reads or writes there any more.
    stream.set_nonblocking(false)?;
    let mut left = crate::model::files::missing(&manifest, &[]).into_iter();
    send(&stream, is_asked, || {
        let file = manifest.file(left.next()?)?;
        Some(view.open(file))
    })
}
