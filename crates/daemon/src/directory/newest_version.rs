//! Checks whether the origin of a cache has a newer version than this host. A request for a name without a
//! version wants the newest; only the origin knows it, for it alone assigns versions. An origin that does not
//! answer in time delays no request, and is not asked again for a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tidecast_depot::{CacheRecord, Reader};
use tidecast_text::percent_encode;
use tokio::time::{Instant, timeout};

use crate::directory::sources::Directory;
use crate::model::message::{Answer, Ask, Want};
use crate::model::name::CacheName;
use crate::model::types::Holder;
use crate::storage::host_ad::HostAd;

/// The origin must answer within this time; else the version on this host is used.
const ANSWER: Duration = Duration::from_secs(2);
/// An origin that has not answered is not asked again for this long.
const SILENT: Duration = Duration::from_secs(10);
/// Silent origins remembered.
const REMEMBERED: usize = 1000;

/// The origin's answer about a cache on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Newest {
    /// The newest is here.
    Here,
    /// This version is newer.
    Is(u64),
    /// The origin did not answer: why.
    Unknown(String),
}

/// Origins that have not answered.
#[derive(Default)]
pub(crate) struct Silent(Mutex<HashMap<String, Instant>>);

impl Silent {
    fn has(&self, origin: &str) -> bool {
        self.0.lock().get(origin).is_some_and(|at| at.elapsed() < SILENT)
    }

    fn add(&self, origin: &str) {
        let mut all = self.0.lock();
        if all.len() >= REMEMBERED {
            all.retain(|_, at| at.elapsed() < SILENT);
        }
        if all.len() < REMEMBERED {
            all.insert(origin.to_owned(), Instant::now());
        }
    }
}

/// Asks origins for their newest versions.
pub(crate) struct NewestVersion {
    name: String,
    directory: Arc<Directory>,
    ad: Arc<HostAd>,
    silent: Silent,
}

impl NewestVersion {
    /// `name`: this host's, the origin of caches created here.
    pub(crate) fn new(name: String, directory: Arc<Directory>, ad: Arc<HostAd>) -> Self {
        Self { name, directory, ad, silent: Silent::default() }
    }

    /// Asks the origin of a cache that is here for its newest version, for at most two seconds.
    pub(crate) async fn newest(&self, record: &CacheRecord, reader: &Reader) -> Newest {
        let origin = &record.origin;
        if *origin == self.name {
            return Newest::Here;
        }
        if self.silent.has(origin) {
            return Newest::Unknown(format!("{origin} did not answer recently"));
        }
        let asked = timeout(ANSWER, self.version_at_origin(record, reader)).await;
        match asked.unwrap_or_else(|_| Err(format!("{origin} did not answer within {} s", ANSWER.as_secs())))
        {
            Ok(version) if Some(version) > record.version => Newest::Is(version),
            Ok(_) => Newest::Here,
            Err(why) => {
                self.silent.add(origin);
                Newest::Unknown(why)
            }
        }
    }

    async fn version_at_origin(&self, record: &CacheRecord, reader: &Reader) -> Result<u64, String> {
        let (origin, name) = (&record.origin, format!("{}/{}", record.origin, record.name));
        if let Some(version) = self.version_by_parent(&name).await {
            return Ok(version);
        }
        if self.directory.links.trust().trusts_none() {
            return Err("this daemon trusts no other host, so it cannot ask the origin".into());
        }
        let link = self.directory.link_to(origin).await.ok_or_else(|| format!("cannot reach {origin}"))?;
        let want = Want {
            name: name.clone(),
            cache: None,
            reader: reader.owner.clone(),
            groups: reader.groups.clone(),
            ad: self.ad.now().map_err(|e| e.to_string())?.to_string(),
        };
        match link.ask(&Ask::Holds(want), Bytes::new()).await {
            Ok((Answer::Cache(granted), _)) => {
                let says = |key: &str| granted.about.get(key).and_then(serde_json::Value::as_str);
                let version = granted.about.get("version").and_then(serde_json::Value::as_u64);
                let same = says("origin") == Some(origin) && says("name") == Some(&record.name);
                version.filter(|_| same).ok_or_else(|| format!("malformed reply from {origin}"))
            }
            Ok((Answer::Absent, _)) => Err(format!("{origin} no longer provides {}", record.name)),
            Ok(_) => Err(format!("{origin} does not support this request")),
            Err(error) => Err(format!("{origin}: {error}")),
        }
    }

    /// The version known to the host's daemon, or to another daemon of this user.
    async fn version_by_parent(&self, name: &str) -> Option<u64> {
        let parent = self.directory.election.parent().await.filter(|parent| parent.is_plausible)?;
        let path = format!("/v1/where?name={}", percent_encode(name.as_bytes(), ""));
        let holders: Vec<Holder> = parent.client.get(&path).await.ok()?;
        holders.iter().find(|holder| holder.origin)?.version
    }

    /// The version to fetch for this name if it is newer than the one on this host, or why it is unknown.
    pub(crate) async fn renewed(
        &self,
        record: &CacheRecord,
        name: &CacheName,
        reader: &Reader,
    ) -> (Option<CacheName>, Option<String>) {
        let shown = record.full_name();
        match self.newest(record, reader).await {
            Newest::Here => (None, None),
            Newest::Is(version) => {
                let origin = Some(record.origin.clone());
                (Some(CacheName { origin, version: Some(version), ..name.clone() }), None)
            }
            Newest::Unknown(why) => (None, Some(format!("{shown} may not be the newest version: {why}"))),
        }
    }
}
