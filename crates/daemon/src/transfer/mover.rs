//! What moves the bytes of a cache that was granted: the engine; in tests, a copy.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use tidecast_metainfo::Manifest;
use tidecast_net::Progress;
use tidecast_store::{Base, Select};
use tokio::sync::watch;

use super::grant::Grant;
use super::stand::{Failed, Stand};
use crate::model::message::Want;
use crate::model::types::{Came, Method};

/// What is to be brought, and where.
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
    /// Has what was granted come, all of it verified, under its names. [`Mover::end`] is to be called in any case, or
    /// [`Mover::serve_on`] if it has come whole.
    fn bring<'a>(
        &'a self,
        grant: &'a Grant,
        bring: Bring,
        want: &'a Want,
        method: Method,
        tell: &'a watch::Sender<Stand>,
    ) -> Moving<'a, Result<(), Failed>>;

    /// Ends what [`Mover::bring`] has begun for this content; what came, by where from.
    fn end<'a>(&'a self, content: &'a [u8; 32], origin: &'a str) -> Moving<'a, Came>;

    /// As [`Mover::end`], of what has come whole: what has brought it may go on and serve it to others. Then its progress comes,
    /// too, and whoever calls this ends it later.
    fn serve_on<'a>(&'a self, content: &'a [u8; 32], origin: &'a str) -> Moving<'a, (Came, Option<Serving>)>;
}
