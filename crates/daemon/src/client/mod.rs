//! A connection to the daemon of this host, for the commands and the plugin.

pub mod admin;
mod batch_job;
mod bind;
mod caches;
pub mod create;
pub(crate) mod descriptors;
pub mod fetch;
pub mod hand_out;
pub mod materialize;
pub mod plugin;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidecast_paths::{End, OTHERS_WRITE, STICKY, follow, refuse_planted};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::client::descriptors::{Descriptors, PROTOCOL};
use crate::model::types::{CacheInfo, Create, Created};

/// Most bytes of an answer.
const MAX_ANSWER: usize = 256 << 20;
/// The daemon takes a connection within this time.
const CONNECT: Duration = Duration::from_secs(10);
/// How long apart a connection is tried while the daemon's queue of new ones is full.
const QUEUE_PAUSE: Duration = Duration::from_millis(20);
/// ... and answers within this time, besides the requested waiting time.
const ANSWER: Duration = Duration::from_secs(120);

/// Of a content something comes within this time.
const SILENT: Duration = Duration::from_secs(10);

/// A daemon that gives files to as many as it can is asked again after this long.
const AGAIN: Duration = Duration::from_millis(200);

const JSON: (&str, &str) = ("content-type", "application/json");

/// Why the daemon did not do it.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No process listens.
    #[error("no daemon answers at {}: {source}; {}", path.display(), start(path))]
    NoDaemon {
        /// Its socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another user may have planted the socket.
    #[error("the daemon's socket is not used: {0}; name another with TIDECAST_SOCKET")]
    Planted(io::Error),
    /// The connection failed, or the reply was malformed.
    #[error("no reply from the daemon at {}: {why}", path.display())]
    Broken {
        /// Its socket.
        path: PathBuf,
        /// How.
        why: String,
    },
    /// The caller may read none of this name.
    #[error("no cache {0} on this host that you may read")]
    Absent(String),
    /// The daemon rejected the request.
    #[error("{why}")]
    Refused {
        /// HTTP's code.
        status: u16,
        /// One word for programs.
        kind: String,
        /// For people.
        why: String,
    },
}

/// The socket that a path leads to.
struct Socket {
    found: OwnedFd,
    /// Users besides the owner of a directory on the way may put another socket in its place.
    is_shared: bool,
}

impl Socket {
    /// One that another user may have planted is refused: caches would come from that user.
    fn find(path: &Path) -> io::Result<Self> {
        let mut is_shared = false;
        let end = follow(path, &mut |step| {
            is_shared |= step.dir.mode & OTHERS_WRITE != 0 && step.dir.mode & STICKY == 0;
            refuse_planted(step)
        });
        match end? {
            End::Dir(found) | End::Other(found) => Ok(Self { found, is_shared }),
            End::Missing(_) => Err(rustix::io::Errno::NOENT.into()),
        }
    }

    /// The path by which the kernel finds it and no other.
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.found.as_raw_fd()))
    }

    /// Checks who listens: where other users may write to a directory on the way, the process must be of this user or of root.
    fn check(&self, path: &Path, stream: &UnixStream) -> io::Result<()> {
        let uid = stream.peer_cred()?.uid();
        if !self.is_shared || [0, rustix::process::geteuid().as_raw()].contains(&uid) {
            return Ok(());
        }
        let why = format!(
            "user {uid} listens at {}, and other users may write to a directory on the way",
            path.display()
        );
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }
}

/// How to start the daemon that listens there.
fn start(socket: &Path) -> &'static str {
    match socket.starts_with("/run/tidecast") {
        true => "as root, start it: systemctl start tidecast",
        false => "start one: tidecast daemon",
    }
}

/// The daemon of this host.
pub struct Client {
    path: PathBuf,
    /// The user and the process that must be at the other end; None: any.
    expected: Option<(u32, u32)>,
}

impl Client {
    /// The daemon that listens at this socket.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), expected: None }
    }

    /// The daemon of this user and process, at a name without a file.
    pub(crate) fn of_daemon(name: &str, uid: u32, pid: u32) -> Self {
        Self { path: PathBuf::from(format!("\0{name}")), expected: Some((uid, pid)) }
    }

    /// Connects, and checks the process at the other end.
    pub(crate) async fn connect(&self) -> Result<UnixStream, ClientError> {
        let socket = self.expected.is_none().then(|| Socket::find(&self.path)).transpose();
        let socket = socket.map_err(|source| self.unreachable(source))?;
        let path = socket.as_ref().map_or_else(|| self.path.clone(), Socket::path);
        let connect = async {
            loop {
                match UnixStream::connect(&path).await {
                    // Its queue is full: other users connect faster than it accepts.
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(QUEUE_PAUSE).await,
                    done => return done,
                }
            }
        };
        let connect = timeout(CONNECT, connect).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let stream = connect.map_err(|source| self.unreachable(source))?;
        if let Some(socket) = socket {
            socket.check(&self.path, &stream).map_err(|source| self.unreachable(source))?;
        }
        if let Some((uid, pid)) = self.expected {
            let there = stream.peer_cred().map_err(|e| self.broken(e))?;
            let pid = i32::try_from(pid).ok();
            if there.uid() != uid || there.pid() != pid {
                return Err(self.broken("another process listens there"));
            }
        }
        Ok(stream)
    }

    /// Asks with JSON, and takes the answer's. `wait`: how much longer than usual the answer may take.
    ///
    /// # Errors
    /// No daemon, no answer, or a refusal.
    pub async fn post<A: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        wait: Duration,
    ) -> Result<A, ClientError> {
        let body = serde_json::to_vec(body).map_err(|e| self.broken(e))?;
        self.send(Method::POST, path, &[JSON], whole(body), wait).await
    }

    /// Gets JSON.
    ///
    /// # Errors
    /// As [`Client::post`].
    pub async fn get<A: DeserializeOwned>(&self, path: &str) -> Result<A, ClientError> {
        self.send(Method::GET, path, &[], whole(Vec::new()), Duration::ZERO).await
    }

    /// Removes.
    ///
    /// # Errors
    /// As [`Client::post`].
    pub async fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.send(Method::DELETE, path, &[], whole(Vec::new()), Duration::ZERO).await
    }

    /// Declares a cache with this manifest.
    ///
    /// # Errors
    /// As [`Client::post`].
    pub async fn create(
        &self,
        create: &Create,
        manifest: Vec<u8>,
        wait: Duration,
    ) -> Result<Created, ClientError> {
        let head = serde_json::to_string(create).map_err(|e| self.broken(e))?;
        let headers = [("content-type", "application/x-bittorrent"), ("tidecast-create", head.as_str())];
        self.send(Method::POST, "/v1/caches", &headers, whole(manifest), wait).await
    }

    /// Uploads the files that [`Created::files`] lists.
    ///
    /// # Errors
    /// As [`Client::post`]; the error that ends `chunks`.
    pub async fn upload(
        &self,
        cache: &str,
        chunks: mpsc::Receiver<io::Result<Bytes>>,
        wait: Duration,
    ) -> Result<CacheInfo, ClientError> {
        let path = format!("/v1/caches/{cache}/content");
        let headers = [("content-type", "application/octet-stream")];
        self.send(Method::PUT, &path, &headers, BoxBody::new(Chunks(chunks)), wait).await
    }

    async fn send<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: BoxBody<Bytes, io::Error>,
        wait: Duration,
    ) -> Result<A, ClientError> {
        let talk = async { self.open().await?.send(method, path, headers, body, wait).await };
        self.within(ANSWER + wait, talk).await
    }

    async fn within<T>(
        &self,
        limit: Duration,
        talk: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let late = |_| self.broken(format!("timeout after {} s", limit.as_secs()));
        timeout(limit, talk).await.map_err(late)?
    }

    /// The description of a committed cache as JSON, and its manifest.
    pub(crate) async fn manifest(&self, cache: &str) -> Result<(Bytes, Bytes), ClientError> {
        let path = format!("/v1/caches/{cache}/manifest");
        let talk = async {
            let (answer, _running) = self.ask(Method::GET, &path, &[], whole(Vec::new())).await?;
            if !answer.status().is_success() {
                let status = answer.status();
                return Err(self.refusal(status, &self.whole(answer).await?));
            }
            let record = answer.headers().get("tidecast-record").map(|head| head.as_bytes().to_vec());
            Ok((record.unwrap_or_default().into(), self.whole(answer).await?))
        };
        timeout(ANSWER, talk).await.map_err(|_| self.broken("timeout while waiting for the manifest"))?
    }

    /// The files of a committed cache that have content, one after the other, each content once: in the order of
    /// an upload.
    pub(crate) async fn content(&self, cache: &str) -> Result<Content, ClientError> {
        let path = format!("/v1/caches/{cache}/content");
        let asked = timeout(ANSWER, self.ask(Method::GET, &path, &[], whole(Vec::new()))).await;
        let (answer, running) = asked.map_err(|_| self.broken("timeout while waiting for the content"))??;
        if !answer.status().is_success() {
            let status = answer.status();
            return Err(self.refusal(status, &self.whole(answer).await?));
        }
        Ok(Content { from: self.shown(), body: answer.into_body(), _running: running })
    }

    /// The files of a committed cache that have content, open for reading, each content once: in the order of an upload.
    ///
    /// # Errors
    /// As [`Client::post`]; this system or the daemon passes no files.
    pub async fn files(&self, cache: &str) -> Result<Descriptors, ClientError> {
        let path = format!("/v1/caches/{cache}/files");
        let upgrade = [("connection", "upgrade"), ("upgrade", PROTOCOL)];
        let began = Instant::now();
        loop {
            let asked = timeout(ANSWER, self.ask(Method::GET, &path, &upgrade, whole(Vec::new()))).await;
            let (answer, _running) = asked.map_err(|_| self.broken("timeout while waiting for files"))??;
            if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
                let upgraded = timeout(ANSWER, hyper::upgrade::on(answer)).await;
                let upgraded = upgraded.map_err(|_| self.broken("timeout while waiting for files"))?;
                return self.descriptors(upgraded.map_err(|e| self.broken(e))?);
            }
            let status = answer.status();
            match self.refusal(status, &self.whole(answer).await?) {
                ClientError::Refused { kind, .. } if kind == "wait" && began.elapsed() < ANSWER => {
                    tokio::time::sleep(AGAIN).await;
                }
                ClientError::Refused { status: 404, kind, why } if why.contains("no such request") => {
                    let why =
                        "the daemon is older than this program and cannot pass open files: restart it".into();
                    return Err(ClientError::Refused { status: 404, kind, why });
                }
                refused => return Err(refused),
            }
        }
    }

    fn descriptors(&self, upgraded: hyper::upgrade::Upgraded) -> Result<Descriptors, ClientError> {
        let parts = upgraded
            .downcast::<TokioIo<UnixStream>>()
            .map_err(|_| self.broken("the connection is not a unix socket"))?;
        if !parts.read_buf.is_empty() {
            return Err(self.broken("files arrived before they were requested"));
        }
        let stream = parts.io.into_inner().into_std().and_then(|stream| {
            stream.set_nonblocking(false)?;
            Descriptors::new(stream)
        });
        stream.map_err(|e| self.broken(e))
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: BoxBody<Bytes, io::Error>,
    ) -> Result<(Response<Incoming>, Running), ClientError> {
        let mut line = self.open().await?;
        let answer = line.ask(method, path, headers, body).await?;
        Ok((answer, line.running))
    }

    /// A connection for questions one after the other.
    async fn open(&self) -> Result<Line<'_>, ClientError> {
        let stream = self.connect().await?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|e| self.broken(e))?;
        Ok(Line { client: self, sender, running: Running(tokio::spawn(connection.with_upgrades())) })
    }

    async fn whole(&self, answer: Response<Incoming>) -> Result<Bytes, ClientError> {
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
        Ok(body.map_err(|e| self.broken(e))?.to_bytes())
    }

    fn understand<A: DeserializeOwned>(&self, status: StatusCode, body: &[u8]) -> Result<A, ClientError> {
        if status.is_success() {
            let body = if body.is_empty() { b"null" } else { body };
            return serde_json::from_slice(body).map_err(|e| self.broken(e));
        }
        Err(self.refusal(status, body))
    }

    fn refusal(&self, status: StatusCode, body: &[u8]) -> ClientError {
        let said: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let word = |key: &str| said.get(key).and_then(serde_json::Value::as_str).map(str::to_owned);
        ClientError::Refused {
            status: status.as_u16(),
            kind: word("kind").unwrap_or_else(|| "error".into()),
            why: word("error").unwrap_or_else(|| status.to_string()),
        }
    }

    fn broken(&self, why: impl ToString) -> ClientError {
        ClientError::Broken { path: self.shown(), why: why.to_string() }
    }

    /// Why there is no connection.
    fn unreachable(&self, source: io::Error) -> ClientError {
        // The system's own refusals have a number.
        match source.kind() == io::ErrorKind::PermissionDenied && source.raw_os_error().is_none() {
            true => ClientError::Planted(source),
            false => ClientError::NoDaemon { path: self.shown(), source },
        }
    }

    /// Its socket, as people write it.
    fn shown(&self) -> PathBuf {
        PathBuf::from(self.path.to_string_lossy().replace('\0', "@"))
    }
}

fn whole(bytes: Vec<u8>) -> BoxBody<Bytes, io::Error> {
    Full::new(Bytes::from(bytes)).map_err(|never| match never {}).boxed()
}

/// Bytes that come.
pub(crate) struct Content {
    from: PathBuf,
    body: Incoming,
    _running: Running,
}

impl Content {
    /// Some; None at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        let broken = |why: String| ClientError::Broken { path: self.from.clone(), why };
        loop {
            let next = timeout(SILENT, self.body.frame()).await;
            let Some(frame) = next.map_err(|_| broken("timeout while waiting for data".into()))? else {
                return Ok(None);
            };
            if let Ok(data) = frame.map_err(|e| broken(e.to_string()))?.into_data() {
                return Ok(Some(data));
            }
        }
    }
}

/// A connection of a client.
struct Line<'a> {
    client: &'a Client,
    sender: http1::SendRequest<BoxBody<Bytes, io::Error>>,
    running: Running,
}

impl Line<'_> {
    /// `wait`: how much longer than usual the answer may take.
    async fn send<A: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: BoxBody<Bytes, io::Error>,
        wait: Duration,
    ) -> Result<A, ClientError> {
        let client = self.client;
        let talk = async {
            let answer = self.ask(method, path, headers, body).await?;
            let status = answer.status();
            Ok((status, client.whole(answer).await?))
        };
        let (status, body) = client.within(ANSWER + wait, talk).await?;
        client.understand(status, &body)
    }

    async fn get<A: DeserializeOwned>(&mut self, path: &str) -> Result<A, ClientError> {
        self.send(Method::GET, path, &[], whole(Vec::new()), Duration::ZERO).await
    }

    async fn ask(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: BoxBody<Bytes, io::Error>,
    ) -> Result<Response<Incoming>, ClientError> {
        let broken = |error| self.client.broken(error);
        self.sender.ready().await.map_err(broken)?;
        let request = Request::builder().method(method).uri(path).header("host", "daemon");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.body(body).map_err(|e| self.client.broken(e))?;
        self.sender.send_request(request).await.map_err(broken)
    }
}

/// A connection at work; it ends with this.
struct Running(JoinHandle<hyper::Result<()>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A body that comes from a queue.
pub(crate) struct Chunks(pub(crate) mpsc::Receiver<io::Result<Bytes>>);

impl Body for Chunks {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(cx).map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }
}
