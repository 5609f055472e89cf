//! Shows a field while it comes: a page on this host, and the API that it draws from.
//!
//! [`Viewer`] listens. What it shows are volumes side by side ([`panel`]), each of shared memory ([`shm`]), of recorded steps ([`record`]),
//! or of another viewer ([`remote`]), or joined of several. [`reduce`] makes a level of detail of them, [`api`] answers, and [`page`] has
//! the files that were built from `web/`. The receiver is never waited for and never waits.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod api;
mod error;
mod page;
mod panel;
pub mod record;
pub mod reduce;
mod remote;
pub mod shm;
mod state;
mod values;

use std::future::{Future, IntoFuture as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpListener;

pub use error::Error;

/// What to show, and where.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names of shared memory, or `http://host:port/NAME`, or several of these joined by `+`. None, and no records: all that there are.
    pub names: Vec<String>,
    /// Directories of recorded steps.
    pub records: Vec<PathBuf>,
    /// Where to listen.
    pub listen: SocketAddr,
}

/// One that listens.
#[derive(Debug)]
pub struct Viewer {
    listener: TcpListener,
    app: Arc<api::App>,
    names: Vec<String>,
}

impl Viewer {
    /// Opens what is to be shown, as far as it is there already, and listens.
    ///
    /// # Errors
    /// When a name is none, a record is not one, or the port is taken.
    pub async fn start(options: &Options) -> Result<Self, Error> {
        let mut names = options.names.clone();
        if names.is_empty() && options.records.is_empty() {
            names = shm::names();
        }
        if names.is_empty() && options.records.is_empty() {
            names = vec!["field".into()];
        }
        let mut panels = names.iter().map(|name| panel::Panel::new(name)).collect::<Result<Vec<_>, _>>()?;
        for dir in &options.records {
            panels.push(panel::Panel::record(dir)?);
        }
        let names = panels.iter().map(|panel| panel.name.clone()).collect();
        let listener = TcpListener::bind(options.listen)
            .await
            .map_err(|error| Error::Listen { address: options.listen, error })?;
        Ok(Self { listener, app: Arc::new(api::App::new(panels)), names })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn address(&self) -> Result<SocketAddr, Error> {
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        self.listener.local_addr().map_err(|error| Error::Listen { address: unknown, error })
    }

    /// What it shows.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether the page was there when the program was built.
    pub fn has_page(&self) -> bool {
        page::is_built()
    }

    /// Answers until `stop`.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send) {
        let serving = axum::serve(self.listener, api::router(self.app)).into_future();
        // Whoever waits for news then is let go: there is nothing to finish.
        tokio::select! {
            _ = serving => {}
            () = stop => {}
        }
    }
}
