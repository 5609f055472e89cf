//! The API over HTTP: see "Viewer" in `docs/field-format.md`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::connect_info::ConnectInfo;
use axum::extract::{Path, Query, Request, State as Shared};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing::get};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::error::Error;
use crate::listener::Client;
use crate::page;
use crate::panel::{LevelRequest, Panel};
use crate::reduce::How;
use crate::state::State;
use crate::token::{Token, TokenSource, shown};

/// Cells of an answer in float32 at most.
pub(crate) const FLOATS: usize = 1 << 24;
/// Reductions at a time: each has all cores.
const READERS: usize = 2;
/// Requests at a time.
const REQUESTS: usize = 64;
/// How long a request for news may wait, and how often is looked.
const WAIT: u64 = 10_000;
const LOOK: Duration = Duration::from_millis(25);

/// State shared by all requests.
#[derive(Debug)]
pub(crate) struct App {
    panels: Vec<Panel>,
    readers: Semaphore,
    requests: Semaphore,
    access: Access,
}

/// Access rules, and the base path.
#[derive(Debug)]
pub(crate) struct Access {
    /// The required token; None: the socket admits its user only.
    pub(crate) token: Option<Token>,
    /// The cookie that opens the files of the page: of another name for each port, as browsers send one to all ports of a host.
    pub(crate) cookie: String,
    /// Its value.
    pub(crate) page: Token,
    /// The path below which proxies see the page: empty, or with a slash in front and none behind.
    pub(crate) base: String,
    /// Names by which this host may be asked for; None: by any, at a unix socket.
    pub(crate) hosts: Option<Hosts>,
}

impl App {
    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    pub(crate) fn new(panels: Vec<Panel>, access: Access) -> Self {
        Self { panels, readers: Semaphore::new(READERS), requests: Semaphore::new(REQUESTS), access }
    }
}

/// Names of this host. A page elsewhere may have had its name turned to this address (DNS rebinding): it is not among them.
#[derive(Debug)]
pub(crate) struct Hosts {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Names that the user has allowed, and this host's own where it listens for others.
    pub(crate) names: Vec<String>,
}

impl Hosts {
    /// Whether a Host header names this host.
    fn are_named(&self, header: &str) -> bool {
        let bare = match header.rsplit_once(':') {
            Some((host, port))
                if port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']')) =>
            {
                host
            }
            _ => header,
        };
        let ip = bare.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let listens = self.address.ip();
        ip.is_ok_and(|ip| {
            let ip = ip.to_canonical();
            ip.is_loopback() || ip == listens.to_canonical() || listens.is_unspecified()
        }) || bare.eq_ignore_ascii_case("localhost")
            || self.names.iter().any(|name| !name.is_empty() && bare.eq_ignore_ascii_case(name))
    }
}

/// All volumes.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct States {
    /// Another when anything has changed.
    pub(crate) token: String,
    /// Nanoseconds since 1970, here.
    pub(crate) now: u64,
    pub(crate) volumes: Vec<State>,
}

/// The header `field` of cells.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Meta {
    pub(crate) step: u64,
    pub(crate) size: [u64; 3],
    /// Of the values that were read, not of the cells.
    pub(crate) min: Option<f32>,
    pub(crate) max: Option<f32>,
    pub(crate) missing: u64,
    /// The values of bytes 1 and 255.
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) milliseconds: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StateQuery {
    since: Option<String>,
    wait: u64,
}

#[derive(Debug, Deserialize)]
struct LevelQuery {
    step: Option<u64>,
    factor: Option<u64>,
    #[serde(rename = "box")]
    part: Option<String>,
    how: Option<How>,
    min: Option<f64>,
    max: Option<f64>,
    #[serde(rename = "as")]
    form: Option<Form>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Form {
    #[default]
    U8,
    F32,
}

type Refused = (StatusCode, Json<serde_json::Value>);

fn refuse(status: StatusCode, kind: &str, why: impl ToString) -> Refused {
    (status, Json(serde_json::json!({ "kind": kind, "error": why.to_string() })))
}

fn refusal(error: &Error) -> Refused {
    match error {
        Error::Request(_) | Error::Name(_) => refuse(StatusCode::BAD_REQUEST, "malformed", error),
        Error::Absent(_) | Error::Step(_) => refuse(StatusCode::NOT_FOUND, "absent", error),
        Error::Changing | Error::Slow(_) => refuse(StatusCode::SERVICE_UNAVAILABLE, "busy", error),
        Error::Remote { .. } => refuse(StatusCode::BAD_GATEWAY, "remote", error),
        _ => refuse(StatusCode::INTERNAL_SERVER_ERROR, "internal", error),
    }
}

/// All that is answered: below the base path, and without it, as some proxies take it off.
pub(crate) fn router(app: Arc<App>) -> Router {
    let mut router = Router::new();
    let mut bases = vec![app.access.base.as_str()];
    if !app.access.base.is_empty() {
        bases.push("");
    }
    for base in bases {
        router = router
            .route(&format!("{base}/api/state"), get(state))
            .route(&format!("{base}/api/volumes/{{number}}/cells"), get(cells));
    }
    router
        .fallback(files)
        .method_not_allowed_fallback(async || {
            refuse(StatusCode::METHOD_NOT_ALLOWED, "malformed", "only GET is supported")
        })
        .layer(middleware::from_fn_with_state(app.clone(), guard))
        .with_state(app)
}

/// Refuses requests that are for another host, that do not show the token, and those that are too many.
async fn guard(
    Shared(app): Shared<Arc<App>>,
    ConnectInfo(client): ConnectInfo<Client>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = admit(&app, &client, request, next).await;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(page::POLICY));
    response
}

async fn admit(app: &App, client: &Client, request: Request, next: Next) -> Response {
    let access = &app.access;
    let host = request.headers().get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if access.hosts.as_ref().is_some_and(|hosts| !hosts.are_named(host)) {
        let why = format!("{host:?} is not a name of this host; use its address, or --allow-host");
        return refuse(StatusCode::FORBIDDEN, "host", why).into_response();
    }
    let shown = match &access.token {
        Some(token) => shown(token, (&access.cookie, &access.page), request.uri(), request.headers()),
        None => TokenSource::Else,
    };
    let path = request.uri().path();
    let is_data = path.strip_prefix(&access.base).unwrap_or(path).starts_with("/api/");
    if shown == TokenSource::Not || shown == TokenSource::Page && is_data {
        let as_page = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
        return unauthorized(as_page.is_some_and(|kinds| kinds.contains("text/html")));
    }
    client.prove();
    let Ok(_permit) = app.requests.try_acquire() else {
        let why = format!("more than {REQUESTS} requests at once; try again later");
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "busy", why).into_response();
    };
    let mut response = next.run(request).await;
    if shown == TokenSource::Url
        && let Some(cookie) = access.cookie_header()
    {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

impl Access {
    /// Opens the files of the page, which cannot show the token in a header.
    fn cookie_header(&self) -> Option<HeaderValue> {
        let path = if self.base.is_empty() { "/" } else { &self.base };
        let text = format!("{}={}; Path={path}; HttpOnly; SameSite=Strict", self.cookie, self.page.text());
        let mut value = HeaderValue::from_str(&text).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// The answer to a request without the token.
fn unauthorized(as_page: bool) -> Response {
    let close = ("connection", "close");
    if as_page {
        let kind = ("content-type", "text/html; charset=utf-8");
        return (StatusCode::FORBIDDEN, [kind, close], page::UNAUTHORIZED).into_response();
    }
    let why = "missing or wrong token; open the URL that the viewer printed";
    (StatusCode::FORBIDDEN, [close], refuse(StatusCode::FORBIDDEN, "token", why).1).into_response()
}

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |time| time.as_nanos() as u64)
}

/// How everything is; with `since`, when it has changed, or at the end of `wait`.
async fn state(
    Shared(app): Shared<Arc<App>>,
    news: Result<Query<StateQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<States>, Refused> {
    let Query(news) = news.map_err(|e| refuse(StatusCode::BAD_REQUEST, "malformed", e.body_text()))?;
    let until = Instant::now() + Duration::from_millis(news.wait.min(WAIT));
    loop {
        let app = app.clone();
        let look = move || app.panels.iter().map(Panel::state).collect::<Vec<_>>();
        let volumes = tokio::task::spawn_blocking(look).await;
        let volumes = volumes.map_err(|e| refuse(StatusCode::INTERNAL_SERVER_ERROR, "internal", e))?;
        let token = token(&volumes);
        if news.since.as_ref() != Some(&token) || Instant::now() >= until {
            return Ok(Json(States { token, now: now(), volumes }));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Differs when a step has closed or come, or a receiver is another; of a volume that is always changing, with packets too.
fn token(volumes: &[State]) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    for state in volumes {
        let changing = if state.live { state.last / 100_000_000 } else { 0 };
        (state.step, state.closed, state.made, state.receiving, &state.error, changing, state.shape)
            .hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}

/// A volume at a level of detail.
async fn cells(
    Shared(app): Shared<Arc<App>>,
    number: Result<Path<usize>, axum::extract::rejection::PathRejection>,
    asked: Result<Query<LevelQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Refused> {
    let Path(number) = number.map_err(|e| refuse(StatusCode::BAD_REQUEST, "malformed", e.body_text()))?;
    let Query(asked) = asked.map_err(|e| refuse(StatusCode::BAD_REQUEST, "malformed", e.body_text()))?;
    let part = asked.part.as_deref().map(numbers).transpose().map_err(|e| refusal(&e))?;
    if app.panels.get(number).is_none() {
        return Err(refuse(StatusCode::NOT_FOUND, "absent", format!("unknown volume {number}")));
    }
    if asked.min.zip(asked.max).is_some_and(|(min, max)| !(min.is_finite() && max.is_finite() && min <= max))
    {
        return Err(refuse(
            StatusCode::BAD_REQUEST,
            "malformed",
            "invalid range: min and max must be finite, with min <= max",
        ));
    }
    let _permit =
        app.readers.acquire().await.map_err(|e| refuse(StatusCode::INTERNAL_SERVER_ERROR, "internal", e))?;
    let wanted = LevelRequest {
        step: asked.step,
        factor: asked.factor.unwrap_or(1),
        part,
        how: asked.how.unwrap_or_default(),
    };
    let shared = app.clone();
    let work = move || answer(shared.panels.get(number), &wanted, &asked);
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| refuse(StatusCode::INTERNAL_SERVER_ERROR, "internal", e))?.map_err(|e| refusal(&e))
}

fn answer(panel: Option<&Panel>, wanted: &LevelRequest, asked: &LevelQuery) -> Result<Response, Error> {
    let began = Instant::now();
    let level = panel.ok_or(Error::Absent(String::new()))?.level(wanted)?;
    let cells = &level.cells;
    let (min, max) = cells.range.unzip();
    let from = asked.min.or(min.map(f64::from)).unwrap_or(0.0);
    let to = asked.max.or(max.map(f64::from)).unwrap_or(1.0);
    let body = match asked.form.unwrap_or_default() {
        Form::U8 => cells.quantised(from, to),
        Form::F32 if cells.values.len() > FLOATS => {
            return Err(Error::Request(format!(
                "more than {FLOATS} cells of float32; use a larger factor, or a box"
            )));
        }
        Form::F32 => cells.values.iter().flat_map(|value| value.to_le_bytes()).collect(),
    };
    let milliseconds = began.elapsed().as_millis() as u64;
    let (step, size, missing) = (level.step, level.size, cells.missing);
    let meta = Meta { step, size, min, max, missing, from, to, milliseconds };
    let meta = serde_json::to_string(&meta).unwrap_or_default();
    let headers = [
        ("content-type", "application/octet-stream".to_owned()),
        ("cache-control", "no-store".to_owned()),
        ("field", meta),
    ];
    Ok((headers, body).into_response())
}

/// x,y,z,nx,ny,nz.
fn numbers(text: &str) -> Result<[u64; 6], Error> {
    let wrong = || Error::Request(format!("invalid box={text:?}; expected x,y,z,nx,ny,nz in cells"));
    let all: Vec<u64> = text.split(',').map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
    all.try_into().map_err(|_| wrong())
}

/// The page, and its parts by names relative to it.
async fn files(Shared(app): Shared<Arc<App>>, uri: Uri) -> Response {
    let base = &app.access.base;
    let path = match uri.path().strip_prefix(base.as_str()) {
        // Names relative to the page are below it only with a slash.
        Some("") if !base.is_empty() => {
            let query = uri.query().map_or(String::new(), |query| format!("?{query}"));
            let headers = [("location", format!("{base}/{query}")), ("cache-control", "no-store".into())];
            return (StatusCode::TEMPORARY_REDIRECT, headers).into_response();
        }
        Some(rest) if rest.starts_with('/') => rest,
        _ => uri.path(),
    };
    match page::find(path) {
        Some((kind, content)) => {
            ([("content-type", kind), ("cache-control", "no-cache")], content).into_response()
        }
        None => refuse(StatusCode::NOT_FOUND, "absent", format!("unknown path {path}")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_host_is_answered_for() {
        let hosts = |address: &str, names: &[&str]| Hosts {
            address: address.parse().unwrap(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        let (here, there, any) =
            (hosts("127.0.0.1:1", &["gate.example"]), hosts("10.0.0.7:1", &["node7"]), hosts("[::]:1", &[]));
        for host in ["localhost", "localhost:8765", "127.0.0.1:1", "[::1]:8765", "[::1]"] {
            assert!(here.are_named(host) && there.are_named(host) && any.are_named(host), "{host}");
        }
        assert!(here.are_named("Gate.example:443") && !there.are_named("gate.example"));
        assert!(there.are_named("10.0.0.7:80") && there.are_named("Node7:99") && any.are_named("10.0.0.7"));
        assert!(!here.are_named("10.0.0.7:80") && !here.are_named("node7"));
        for host in [
            "",
            "evil.example",
            "evil.example:8765",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "node7.x",
            "gate.example.evil.example",
        ] {
            assert!(!here.are_named(host) && !there.are_named(host) && !any.are_named(host), "{host}");
        }
    }

    #[test]
    fn a_box_is_six_numbers() {
        assert_eq!(numbers("0,1,2,3,4,5").unwrap(), [0, 1, 2, 3, 4, 5]);
        for text in ["", "1,2,3", "1,2,3,4,5,6,7", "1,2,3,4,5,-6", "a,b,c,d,e,f"] {
            assert!(numbers(text).is_err(), "{text}");
        }
    }
}
