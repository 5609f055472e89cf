//! Catalogues that a site already runs: this daemon registers there, and finds others.
//!
//! An entry is only a hint where to ask; the certificate proves the identity when a connection is made. So a
//! catalogue that is down, empty or wrong costs time at most, and never stops the daemon.

mod condor;
mod entry;
mod etcd;
mod file;
pub(crate) mod known_peers;

use std::sync::Arc;
use std::time::Duration;

use tidecast_classad::{Ad, Expr, Value};
use tidecast_depot::{Filter, State};

use crate::config::{CatalogueAt, Config};
use crate::links::peers::Links;
use crate::model::error::Error;
use crate::storage::host_ad::HostAd;
use crate::storage::store::Store;
use entry::{Catalogue, Entry, LAST, failed};
use known_peers::KnownPeers;

/// The first visit comes this soon after the start, later ones less and less often.
const FIRST: Duration = Duration::from_secs(1);
/// One visit takes no longer.
const VISIT: Duration = Duration::from_secs(25);
/// Caches named in this daemon's entry.
const NAMED: usize = 1000;

/// The catalogue of the configuration, and the sources of this daemon's entry.
pub(crate) struct Keeper {
    pub(crate) config: Arc<Config>,
    pub(crate) links: Arc<Links>,
    pub(crate) store: Arc<Store>,
    pub(crate) ad: Arc<HostAd>,
    pub(crate) found: Arc<KnownPeers>,
}

fn open(at: &CatalogueAt) -> Box<dyn Catalogue> {
    match at {
        CatalogueAt::Condor => Box::new(condor::Condor),
        CatalogueAt::Etcd(hosts) => Box::new(etcd::Etcd(hosts.clone())),
        CatalogueAt::File(path) => Box::new(file::File(path.clone())),
    }
}

impl Keeper {
    /// Visits the catalogue of the configuration, as long as the daemon runs.
    pub(crate) async fn keep(&self) {
        let Some(at) = &self.config.catalogue else { return };
        let catalogue = open(at);
        let (mut pause, mut well) = (FIRST, true);
        loop {
            let visited = async { catalogue.visit(&self.entry().map_err(failed)?).await };
            match tokio::time::timeout(VISIT, visited).await.unwrap_or_else(|_| Err(failed("no answer"))) {
                Ok(mut found) => {
                    let own = format!("{}=", self.config.name);
                    found.retain(|peer| !peer.starts_with(&own));
                    self.found.set(found);
                    well = true;
                }
                // Daemons found before stay valid.
                Err(error) if well => {
                    tracing::warn!(%at, %error, "cannot use the catalogue");
                    well = false;
                }
                Err(_) => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST);
        }
    }

    /// Takes this daemon out of the catalogue.
    pub(crate) async fn leave(&self) {
        let Some(at) = &self.config.catalogue else { return };
        let catalogue = open(at);
        let left = tokio::time::timeout(Duration::from_secs(5), catalogue.leave(&self.config.name));
        if let Ok(Err(error)) = left.await {
            tracing::info!(%at, %error, "cannot leave the catalogue; it lists this daemon until the entry expires");
        }
    }

    fn entry(&self) -> Result<Entry, Error> {
        let mut ad = self.ad.now()?;
        let hello = self.links.hello();
        let readable = |mode: u32, private: bool| mode & 0o004 != 0 && !private;
        let mut held =
            self.store.depot.caches(&Filter { state: Some(State::Committed), ..Filter::default() });
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
