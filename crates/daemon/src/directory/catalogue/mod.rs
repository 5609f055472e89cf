//! Catalogues that a site runs already: this daemon is entered, and others are found there.
//!
//! What is found is a hint whom to ask, and no more: who a daemon is, its card says when it is spoken with. So a
//! catalogue that is down, empty or full of lies costs time at most, and nothing here stops the daemon.

mod condor;
mod etcd;
mod file;

use std::fmt;
use std::future::Future;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidecast_classad::{Ad, Expr, Value};
use tidecast_depot::{Filter, State};
use tokio::sync::Notify;

use crate::assembly::Daemon;
use crate::config::CatalogueAt;
use crate::model::error::Error;

/// It is looked at so soon after the start, then less and less often.
const FIRST: Duration = Duration::from_secs(1);
const LAST: Duration = Duration::from_secs(30);
/// An entry that is not renewed for so long may go, seconds.
const LIFETIME: u32 = 4 * LAST.as_secs() as u32;
/// One visit takes no longer.
const VISIT: Duration = Duration::from_secs(25);
/// Daemons remembered of a catalogue, and those of them that are asked without being named.
const REMEMBERED: usize = 10_000;
const ASKED: usize = 16;
/// Caches named in this daemon's entry.
const NAMED: usize = 1000;

/// What a catalogue is told of this daemon.
pub(crate) struct Entry {
    name: String,
    addresses: Vec<SocketAddr>,
    /// Its ad, with the names of caches that everybody may read.
    ad: Ad,
}

impl Entry {
    /// As [`Found`] and `--peer` have it.
    fn addresses(&self) -> String {
        self.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
}

/// Why a visit came to nothing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CatalogueError(String);

fn failed(why: impl fmt::Display) -> CatalogueError {
    CatalogueError(why.to_string())
}

/// A daemon that a catalogue names, as `--peer` does; None if that cannot be one, for others may have written anything there.
fn peer(name: &str, addresses: &str) -> Option<String> {
    let is_address = |text: &str| text.parse::<SocketAddr>().is_ok();
    let good = crate::model::name::is_name(name) && addresses.split(',').all(is_address);
    good.then(|| format!("{name}={addresses}"))
}

type Visit<'a, T> = Pin<Box<dyn Future<Output = Result<T, CatalogueError>> + Send + 'a>>;

/// A catalogue of daemons.
trait Catalogue: Send + Sync {
    /// Enters this daemon, or renews its entry; says who else is there, as `--peer` names them.
    fn visit<'a>(&'a self, entry: &'a Entry) -> Visit<'a, Vec<String>>;
    /// Takes the entry away.
    fn leave<'a>(&'a self, name: &'a str) -> Visit<'a, ()>;
}

fn open(at: &CatalogueAt) -> Box<dyn Catalogue> {
    match at {
        CatalogueAt::Condor => Box::new(condor::Condor),
        CatalogueAt::Etcd(hosts) => Box::new(etcd::Etcd(hosts.clone())),
        CatalogueAt::File(path) => Box::new(file::File(path.clone())),
    }
}

/// Who was found at the last visit, as `--peer` names them.
#[derive(Default)]
pub(crate) struct Found {
    peers: Mutex<Vec<String>>,
    /// Others were found than before.
    pub(crate) changed: Notify,
}

impl Found {
    /// Whom to ask: the one of this name, and a few others, for each daemon others.
    pub(crate) fn some(&self, host: Option<&str>, own: &str) -> Vec<String> {
        let all = self.peers.lock();
        let named = |peer: &&String| peer.split_once('=').map(|(name, _)| name) == host && host.is_some();
        let mut some: Vec<String> = all.iter().filter(named).cloned().collect();
        let mut others: Vec<&String> = all.iter().filter(|peer| !named(peer)).collect();
        others.sort_by_cached_key(|peer| {
            let mut hasher = DefaultHasher::new();
            (own, peer).hash(&mut hasher);
            hasher.finish()
        });
        some.extend(others.into_iter().take(ASKED).cloned());
        some
    }

    fn set(&self, mut peers: Vec<String>) {
        peers.truncate(REMEMBERED);
        peers.sort();
        let mut before = self.peers.lock();
        if *before != peers {
            *before = peers;
            self.changed.notify_one();
        }
    }
}

/// Visits the catalogue of the configuration, as long as the daemon runs.
pub(crate) async fn keep(daemon: Arc<Daemon>) {
    let Some(at) = &daemon.config.catalogue else { return };
    let catalogue = open(at);
    let (mut pause, mut well) = (FIRST, true);
    loop {
        let visited = async { catalogue.visit(&daemon.entry().map_err(failed)?).await };
        match tokio::time::timeout(VISIT, visited).await.unwrap_or_else(|_| Err(failed("no answer"))) {
            Ok(mut found) => {
                let own = format!("{}=", daemon.config.name);
                found.retain(|peer| !peer.starts_with(&own));
                daemon.found.set(found);
                well = true;
            }
            // What was found before still holds.
            Err(error) if well => {
                tracing::warn!(%at, %error, "the catalogue cannot be used");
                well = false;
            }
            Err(_) => {}
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST);
    }
}

/// Takes this daemon out of the catalogue.
pub(crate) async fn leave(daemon: &Daemon) {
    let Some(at) = &daemon.config.catalogue else { return };
    let catalogue = open(at);
    let left = tokio::time::timeout(Duration::from_secs(5), catalogue.leave(&daemon.config.name));
    if let Ok(Err(error)) = left.await {
        tracing::info!(%at, %error, "the catalogue keeps this daemon until its entry ends");
    }
}

impl Daemon {
    fn entry(&self) -> Result<Entry, Error> {
        let mut ad = self.ad()?;
        let hello = self.peers.hello();
        let readable = |mode: u32, private: bool| mode & 0o004 != 0 && !private;
        let mut held = self.depot.caches(&Filter { state: Some(State::Committed), ..Filter::default() });
        held.retain(|record| readable(record.mode, record.private));
        held.sort_by_key(|record| std::cmp::Reverse(record.last_used));
        held.truncate(NAMED);
        let held: Vec<String> = held.iter().map(|record| record.full_name()).collect();
        let entry = Entry { name: self.config.name.clone(), addresses: hello.addresses, ad: Ad::new() };
        let mut set = |name: &str, value: &str| drop(ad.insert(name, Expr::from(Value::from(value))));
        set("MyType", "Generic");
        set("CachesHeld", &held.join(", "));
        set("TidecastAddresses", &entry.addresses());
        Ok(Entry { ad, ..entry })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_one_is_asked_and_a_few_others() {
        let found = Found::default();
        found.set((0..100).map(|n| format!("node{n}=10.0.0.1:{n}")).collect());
        let some = found.some(Some("node42"), "head");
        assert_eq!((some.len(), some[0].as_str()), (1 + ASKED, "node42=10.0.0.1:42"));
        assert_eq!(found.some(None, "head"), found.some(None, "head"));
        assert_ne!(found.some(None, "head"), found.some(None, "node1"), "not everybody asks the same few");
    }
}
