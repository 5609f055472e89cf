//! HTTP and JSON over the unix socket. `openapi.json` is its description, served at `/v1/openapi.json`.

pub(crate) mod app;
mod audited;
mod download;
mod extract;
mod files;
mod handlers;
mod listener;
pub(crate) mod manifests;
pub(crate) mod sessions;
pub(crate) mod shares;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::connect_info::ConnectInfo;
use axum::extract::{DefaultBodyLimit, FromRequestParts, Request};
use axum::http::Method;
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tidecast_paths::Root;
use tidecast_socket::{BindError, Bound};
use tokio::net::UnixListener;

use crate::config::Serves;
use crate::host::caller::{Caller, is_stranger};
use crate::model::api_error::{ApiError, ErrorKind};
use app::App;
use listener::Cred;

/// Most bytes of a request that is neither a manifest nor an upload, nor names hosts.
const MAX_REQUEST: usize = 16 << 10;
/// Most bytes of a request that names hosts.
const MAX_HOSTS: usize = 1 << 20;
/// Bytes of a connection in memory, each way; a request's head has no more.
const BUFFER: usize = 64 << 10;
/// A connection without a request is closed after this long.
const IDLE: Duration = Duration::from_secs(60);
/// Uploads and downloads of one user at once.
pub(crate) const TRANSFERS: usize = 128;
/// Other requests of one user at once that can have a long body or answer.
pub(crate) const REQUESTS: usize = 32;

const OPENAPI: &str = include_str!("openapi.json");

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<App>) -> Result<Self, ApiError> {
        let cred = ConnectInfo::<Cred>::from_request_parts(parts, state).await;
        let Ok(ConnectInfo(Cred(Some(cred), _))) = cred else {
            return Err(ApiError::internal("the kernel reported no credentials of the client"));
        };
        state.activity.asked();
        let asked =
            tokio::task::spawn_blocking(move || Caller::of(&cred)).await.map_err(ApiError::internal)?;
        asked.map_err(|e| ApiError::internal(format!("cannot look up user {}: {e}", cred.uid())))
    }
}

/// All that can be asked.
fn router(app: Arc<App>) -> Router {
    let transfers = Router::new()
        .route("/v1/caches/{id}/content", put(handlers::content).get(download::content))
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(app.transfers.clone(), shares::counted));
    let declarations = Router::new()
        .route("/v1/caches", post(handlers::create))
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(app.declarations.clone(), shares::counted));
    let answers = Router::new()
        .route("/v1/daemon", get(handlers::status))
        .route("/v1/caches", get(handlers::list))
        .route("/v1/caches/{id}", get(handlers::show))
        .route("/v1/caches/{id}/manifest", get(download::manifest))
        .route("/v1/where", get(handlers::holders))
        .route("/v1/history", get(handlers::history))
        .route("/v1/caches/{id}/replicate", post(handlers::replicate).layer(DefaultBodyLimit::max(MAX_HOSTS)))
        .layer(from_fn_with_state(app.answers.clone(), shares::counted));
    Router::new()
        .merge(transfers)
        .merge(declarations)
        .merge(answers)
        .route("/v1/openapi.json", get(|| async { ([("content-type", "application/json")], OPENAPI) }))
        .route("/v1/caches/{id}", delete(handlers::remove))
        .route("/v1/caches/{id}/files", get(files::files))
        .route("/v1/caches/{id}/extend", post(handlers::extend))
        .route("/v1/caches/{id}/pin", post(handlers::pin))
        .route("/v1/caches/{id}/unpin", post(handlers::unpin))
        .route("/v1/get", post(handlers::get))
        .route("/v1/fsck", post(handlers::fsck))
        .route("/v1/admin/{what}", post(handlers::admin))
        .route("/v1/site/{what}", post(handlers::site))
        .fallback(async || {
            ApiError::new(axum::http::StatusCode::NOT_FOUND, ErrorKind::Absent, "there is no such request")
        })
        .layer(DefaultBodyLimit::max(MAX_REQUEST))
        .with_state(app)
}

/// The clients that a socket accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// The users that the daemon serves: its own user, or all users of the host.
    Users,
    /// Also other daemons of this machine, of any user.
    Daemons,
}

/// Rejects requests of users that the daemon does not serve. Daemons of other users may ask for its status
/// and for caches that every user may read.
async fn admit(audience: Audience, serves: Serves, request: Request, next: Next) -> Response {
    let cred = request.extensions().get::<ConnectInfo<Cred>>().and_then(
        |ConnectInfo(Cred(cred, unauthenticated))| {
            unauthenticated.prove();
            *cred
        },
    );
    let path = request.uri().path();
    let takes = match *request.method() {
        Method::GET => path == "/v1/daemon" || path.ends_with("/manifest") || path.ends_with("/content"),
        Method::POST => path == "/v1/get",
        _ => false,
    };
    if cred.is_some_and(|cred| !is_stranger(cred.uid(), serves)) || audience == Audience::Daemons && takes {
        return next.run(request).await;
    }
    ApiError::forbidden("this daemon serves its own user only").into_response()
}

/// Opens the socket for the users that the daemon serves: if it serves all users, every user may connect, as
/// the kernel identifies the caller; else only its user. A dead socket at the path is replaced, and nothing
/// else. A socket from a service manager is left unchanged.
///
/// # Errors
/// It cannot be created, or another daemon listens there.
pub(crate) fn listen(path: &Path, serves: Serves) -> Result<(UnixListener, Option<Bound>), BindError> {
    if let Some(listener) = crate::host::service::listener()? {
        return Ok((UnixListener::from_std(listener)?, None));
    }
    if let Some(dir) = path.parent() {
        Root::make(dir)?;
    }
    let mode = if serves == Serves::Everyone { 0o666 } else { 0o600 };
    let (listener, bound) = tidecast_socket::listen(path, mode)?;
    listener.set_nonblocking(true)?;
    Ok((UnixListener::from_std(listener)?, Some(bound)))
}

/// Serves until the future is dropped; requests in progress continue.
pub(crate) async fn serve(app: Arc<App>, listener: UnixListener, audience: Audience) -> std::io::Result<()> {
    let serves = app.config.serves;
    let admitted = router(app).layer(from_fn(move |request, next| admit(audience, serves, request, next)));
    let most = match audience {
        Audience::Users => listener::MOST,
        Audience::Daemons => listener::MOST_OF_DAEMONS,
    };
    let shared = listener::Shared::new(listener, most);
    let mut protocol = http1::Builder::new();
    protocol.timer(TokioTimer::new()).header_read_timeout(IDLE).max_buf_size(BUFFER);
    loop {
        let connection = shared.accept().await;
        let (info, routes) = (ConnectInfo(connection.cred()), TowerToHyperService::new(admitted.clone()));
        let answer = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(info.clone());
            routes.call(request)
        });
        let served = protocol.serve_connection(TokioIo::new(connection), answer).with_upgrades();
        tokio::spawn(async move {
            if let Err(error) = served.await {
                tracing::debug!(%error, "a client's connection has ended");
            }
        });
    }
}
