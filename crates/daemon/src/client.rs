//! A connection to the daemon of this host, for the commands and the plugin.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Frame};
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::api::types::{CacheInfo, Create, Created};

/// Most bytes of an answer.
const MAX_ANSWER: usize = 256 << 20;
/// The daemon takes a connection within this time.
const CONNECT: Duration = Duration::from_secs(10);
/// ... and answers within this time, beyond what it was told to wait.
const ANSWER: Duration = Duration::from_secs(120);

const JSON: (&str, &str) = ("content-type", "application/json");

/// Why the daemon did not do it.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("no daemon answers at {}: {source}; start one: tidecast daemon", path.display())]
    NoDaemon {
        /// Its socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The connection broke, or what came was no answer.
    #[error("the daemon at {} does not answer: {why}", path.display())]
    Broken {
        /// Its socket.
        path: PathBuf,
        /// How.
        why: String,
    },
    /// It said no.
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

/// The daemon of this host.
pub struct Client {
    path: PathBuf,
}

impl Client {
    /// The daemon that listens at this socket.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
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

    /// Hands the files over that [`Created::files`] names.
    ///
    /// # Errors
    /// As [`Client::post`]; what `chunks` ends with.
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
        let connect = timeout(CONNECT, UnixStream::connect(&self.path)).await;
        let connect = connect.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let stream = connect.map_err(|source| ClientError::NoDaemon { path: self.path.clone(), source })?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|e| self.broken(e))?;
        let running = tokio::spawn(connection);
        let request = Request::builder().method(method).uri(path).header("host", "daemon");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.body(body).map_err(|e| self.broken(e))?;
        let talk = async {
            let answer = sender.send_request(request).await.map_err(|e| self.broken(e))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
            Ok((status, body.map_err(|e| self.broken(e))?.to_bytes()))
        };
        let talked = timeout(ANSWER + wait, talk).await;
        running.abort();
        let (status, body) =
            talked.map_err(|_| self.broken(format!("nothing for {} s", (ANSWER + wait).as_secs())))??;
        self.understand(status, &body)
    }

    fn understand<A: DeserializeOwned>(&self, status: StatusCode, body: &[u8]) -> Result<A, ClientError> {
        if status.is_success() {
            let body = if body.is_empty() { b"null" } else { body };
            return serde_json::from_slice(body).map_err(|e| self.broken(e));
        }
        let said: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let word = |key: &str| said.get(key).and_then(serde_json::Value::as_str).map(str::to_owned);
        Err(ClientError::Refused {
            status: status.as_u16(),
            kind: word("kind").unwrap_or_else(|| "error".into()),
            why: word("error").unwrap_or_else(|| status.to_string()),
        })
    }

    fn broken(&self, why: impl ToString) -> ClientError {
        ClientError::Broken { path: self.path.clone(), why: why.to_string() }
    }
}

fn whole(bytes: Vec<u8>) -> BoxBody<Bytes, io::Error> {
    Full::new(Bytes::from(bytes)).map_err(|never| match never {}).boxed()
}

/// A body that comes from a queue.
struct Chunks(mpsc::Receiver<io::Result<Bytes>>);

impl Body for Chunks {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(cx).map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }
}
