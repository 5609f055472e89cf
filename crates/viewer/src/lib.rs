//! Shows a field while it comes: a page on this host, and the API that it draws from.
//!
//! [`Viewer`] listens. It shows volumes side by side ([`panel`]), each from shared memory ([`shm`]), from
//! recorded steps ([`record`]), from another viewer ([`remote`]), or joined from several. [`reduce`] computes
//! their levels of detail, [`api`] answers requests, and [`page`] has the files built from `web/`. The viewer
//! never waits for the receiver, nor the receiver for the viewer.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod api;
mod error;
mod listener;
mod page;
mod panel;
pub mod record;
pub mod reduce;
mod remote;
pub mod shm;
mod state;
mod token;
mod values;

use std::fmt;
use std::future::{Future, IntoFuture as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use listener::{Client, GatedListener, Socket};
use tidecast_socket::Bound;
use tokio::net::{TcpListener, UnixListener};

pub use error::Error;
pub use token::Token;

/// What to show, and where to listen.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names of shared memory, or `http://host:port/NAME`, or several of these joined by `+`. None, and no records: all that there are.
    pub names: Vec<String>,
    /// Directories of recorded steps.
    pub records: Vec<PathBuf>,
    /// Where to listen.
    pub listen: ListenAddress,
    /// The required token; None: none, at a unix socket that only its user can reach.
    pub token: Option<Token>,
    /// The token for other viewers among the names.
    pub remote_token: Option<Token>,
    /// Names, in addition to its addresses, that browsers may use for it.
    pub allow_hosts: Vec<String>,
    /// The path below which proxies see the page; empty: none.
    pub base: String,
    /// Threads of the server; None: one for each core.
    pub threads: Option<usize>,
}

/// All shared memory that there is, at 127.0.0.1:8765.
impl Default for Options {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            records: Vec::new(),
            listen: ListenAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 8765))),
            token: None,
            remote_token: None,
            allow_hosts: Vec::new(),
            base: String::new(),
            threads: None,
        }
    }
}

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    /// At an address.
    Tcp(SocketAddr),
    /// At a path, for this user alone.
    Unix(PathBuf),
}

/// `ADDR:PORT`, or `unix:/PATH`.
impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("unix: needs a path".into()),
            Some(path) => Ok(Self::Unix(path.into())),
            None => text.parse().map(Self::Tcp).map_err(|_| "expected ADDR:PORT or unix:/PATH".into()),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// One that listens.
#[derive(Debug)]
pub struct Viewer {
    socket: Socket,
    bound: Option<Bound>,
    app: Arc<api::App>,
    names: Vec<String>,
}

impl Viewer {
    /// Opens the volumes that exist already, and listens.
    ///
    /// # Errors
    /// A name is not valid, a recording is damaged, or the port is taken.
    pub async fn start(options: &Options) -> Result<Self, Error> {
        let mut names = options.names.clone();
        if names.is_empty() && options.records.is_empty() {
            names = shm::names();
        }
        if names.is_empty() && options.records.is_empty() {
            names = vec!["field".into()];
        }
        let mut panels = names
            .iter()
            .map(|name| panel::Panel::new(name, options.remote_token.as_ref()))
            .collect::<Result<Vec<_>, _>>()?;
        for dir in &options.records {
            panels.push(panel::Panel::record(dir)?);
        }
        let names = panels.iter().map(|panel| panel.name.clone()).collect();
        let base = base(&options.base)?;
        let (socket, bound) = open(&options.listen).await?;
        let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let mut hosts = None;
        let mut cookie = "tidecast-view".to_owned();
        if let Socket::Tcp(listener) = &socket {
            let address =
                listener.local_addr().map_err(|error| Error::Listen { address: unknown(), error })?;
            cookie += &format!("-{}", address.port());
            let mut names = options.allow_hosts.clone();
            names.extend((!address.ip().is_loopback()).then_some(own));
            hosts = Some(api::Hosts { address, names });
        }
        // At a TCP address any process may connect.
        let is_open = options.token.is_none() && matches!(socket, Socket::Tcp(_));
        let token = if is_open { Some(Token::random()) } else { options.token.clone() };
        let access = api::Access { token, cookie, page: Token::random(), base, hosts };
        Ok(Self { socket, bound, app: Arc::new(api::App::new(panels, access)), names })
    }

    /// Where it listens; None at a path.
    ///
    /// # Errors
    /// The system does not report it.
    pub fn address(&self) -> Result<Option<SocketAddr>, Error> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let address = listener.local_addr();
                address.map(Some).map_err(|error| Error::Listen { address: unknown(), error })
            }
            Socket::Unix(_) => Ok(None),
        }
    }

    /// The path of the page, followed by the token: the part after the address.
    #[must_use]
    pub fn path(&self) -> String {
        let access = self.app.access();
        let token = access.token.as_ref().map_or(String::new(), |token| format!("?token={}", token.text()));
        format!("{}/{token}", access.base)
    }

    /// The shown volumes.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether the page was there when the program was built.
    pub fn has_page(&self) -> bool {
        page::is_built()
    }

    /// Answers until `stop`.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send) {
        let service = api::router(self.app).into_make_service_with_connect_info::<Client>();
        let serving = axum::serve(GatedListener::new(self.socket), service).into_future();
        // Requests that wait for news are dropped then: there is nothing to finish.
        tokio::select! {
            _ = serving => {}
            () = stop => {}
        }
        if let Some(bound) = self.bound {
            bound.remove();
        }
    }
}

fn unknown() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], 0))
}

async fn open(place: &ListenAddress) -> Result<(Socket, Option<Bound>), Error> {
    match place {
        ListenAddress::Tcp(address) => {
            let bound = TcpListener::bind(address).await;
            let listener = bound.map_err(|error| Error::Listen { address: *address, error })?;
            Ok((Socket::Tcp(listener), None))
        }
        ListenAddress::Unix(path) => {
            let failed = |error| Error::Socket { path: path.clone(), error };
            let (listener, bound) = tidecast_socket::listen(path, 0o600).map_err(failed)?;
            let listener = listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(listener));
            Ok((Socket::Unix(listener.map_err(|error| failed(error.into()))?), Some(bound)))
        }
    }
}

/// A base path with a slash in front and none behind.
fn base(text: &str) -> Result<String, Error> {
    let bare = text.trim_end_matches('/');
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~' | '%' | '/');
    let good = bare.is_empty() || bare.starts_with('/') && !bare.contains("//") && bare.chars().all(plain);
    if good { Ok(bare.into()) } else { Err(Error::Base(text.into())) }
}
