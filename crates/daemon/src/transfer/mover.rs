//! Moves the bytes of a granted cache: the engine; in tests, a copy.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use tidecast_metainfo::Manifest;
use tidecast_net::Progress;
use tidecast_store::{Base, Select};
use tokio::sync::watch;

use super::fetch_state::{Failed, FetchState};
use super::grant::Grant;
use crate::model::message::Want;
use crate::model::types::{Method, ReceivedBytes};

/// The data to fetch, and its destination.
pub(crate) struct Bring {
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) dir: PathBuf,
    /// None: nothing.
    pub(crate) missing: Option<Select>,
    /// Older versions that may have some of it.
    pub(crate) bases: Vec<Base>,
}

/// Something that takes time.
pub(crate) type Moving<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How far a swarm is that serves on.
pub(crate) type Serving = watch::Receiver<Progress>;

/// Moves bytes.
pub(crate) trait Mover: Send + Sync + 'static {
    /// Fetches the granted cache, verified, under its names. [`Mover::end`] must be called in any case, or
    /// [`Mover::serve_on`] if it is complete.
    fn bring<'a>(
        &'a self,
        grant: &'a Grant,
        bring: Bring,
        want: &'a Want,
        method: Method,
        tell: &'a watch::Sender<FetchState>,
    ) -> Moving<'a, Result<(), Failed>>;

    /// Ends the transfer that [`Mover::bring`] began for this content; returns the received bytes, by source.
    fn end<'a>(&'a self, content: &'a [u8; 32], origin: &'a str) -> Moving<'a, ReceivedBytes>;

    /// As [`Mover::end`], for a complete cache: the swarm may continue and serve it to other peers. Then its
    /// progress is returned too, and the caller ends it later.
    fn serve_on<'a>(
        &'a self,
        content: &'a [u8; 32],
        origin: &'a str,
    ) -> Moving<'a, (ReceivedBytes, Option<Serving>)>;
}
