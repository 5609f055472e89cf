//! Interface of a catalogue: it registers this daemon, and lists others.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use tidecast_classad::Ad;

/// Interval of visits to a catalogue in the long run.
pub(super) const LAST: Duration = Duration::from_secs(30);
/// An entry that is not renewed for this long may go, seconds.
pub(super) const LIFETIME: u32 = 4 * LAST.as_secs() as u32;

/// The entry of this daemon in a catalogue.
pub(crate) struct Entry {
    pub(super) name: String,
    pub(super) addresses: Vec<SocketAddr>,
    /// Its ad, with the names of caches that every user may read.
    pub(super) ad: Ad,
}

impl Entry {
    /// As [`super::known_peers::KnownPeers`] and `--peer` have it.
    pub(super) fn addresses(&self) -> String {
        self.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
}

/// Why a visit failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CatalogueError(String);

pub(super) fn failed(why: impl fmt::Display) -> CatalogueError {
    CatalogueError(why.to_string())
}

/// A daemon that a catalogue names, as `--peer` does; None if that cannot be one, for others may have written anything there.
pub(super) fn peer(name: &str, addresses: &str) -> Option<String> {
    let is_address = |text: &str| text.parse::<SocketAddr>().is_ok();
    let good = crate::model::name::is_name(name) && addresses.split(',').all(is_address);
    good.then(|| format!("{name}={addresses}"))
}

pub(super) type Visit<'a, T> = Pin<Box<dyn Future<Output = Result<T, CatalogueError>> + Send + 'a>>;

/// A catalogue of daemons.
pub(super) trait Catalogue: Send + Sync {
    /// Registers this daemon, or renews its entry; the other daemons, in the format of `--peer`.
    fn visit<'a>(&'a self, entry: &'a Entry) -> Visit<'a, Vec<String>>;
    /// Takes the entry away.
    fn leave<'a>(&'a self, name: &'a str) -> Visit<'a, ()>;
}
