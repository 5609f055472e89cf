//! Copies of a cache on other hosts: which hosts have a cache, and offers to hosts that are to keep one.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use bytes::Bytes;
use tidecast_depot::{CacheId, CacheRecord, State};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::records::Records;
use crate::directory::configured_peers::{place_of, resolve};
use crate::directory::sources::Directory;
use crate::host::caller::Caller;
use crate::links::link::Link;
use crate::model::api_error::{ApiError, ErrorKind};
use crate::model::attributes::Attributes;
use crate::model::error::Error;
use crate::model::message::{Answer, Ask, Want};
use crate::model::name::CacheName;
use crate::model::types::{Holder, Offered};
use crate::policy::ads;
use crate::storage::host_ad::HostAd;
use crate::transfer::offer::{Reply, offer, suits};

/// A daemon must answer within this time whether it holds a cache.
const HOLDS: Duration = Duration::from_secs(3);

/// Asks other hosts.
pub(crate) struct Copies {
    pub(crate) records: Arc<Records>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) ad: Arc<HostAd>,
}

impl Copies {
    /// The hosts that have a cache that `caller` may read, as far as reachable daemons report.
    pub(crate) async fn holders(&self, caller: &Caller, name: CacheName) -> Result<Vec<Holder>, ApiError> {
        let mut holders = Vec::new();
        let here = self.records.store.here(&name, &caller.reader());
        if let Some(record) = &here {
            holders.push(Holder {
                host: self.records.config.name.clone(),
                addresses: self.directory.links.hello().addresses,
                here: true,
                origin: record.origin == self.records.config.name,
                version: record.version,
            });
        }
        let ad = self.ad.now()?.to_string();
        let want = Want {
            name: name.to_string(),
            cache: None,
            reader: caller.name.clone(),
            groups: caller.groups.clone(),
            ad,
        };
        let mut asking = JoinSet::new();
        for link in self.directory.sources(&name, &caller.name).await {
            let ask = Ask::Holds(want.clone());
            asking.spawn(async move { (timeout(HOLDS, link.ask(&ask, Bytes::new())).await, link) });
        }
        while let Some(asked) = asking.join_next().await {
            if let Ok((Ok(Ok((Answer::Cache(granted), _))), link)) = asked {
                let origin = granted.about.get("origin").and_then(serde_json::Value::as_str);
                holders.push(Holder {
                    host: link.peer.hello.name.clone(),
                    addresses: link.peer.hello.addresses.clone(),
                    here: false,
                    origin: origin == Some(link.peer.hello.name.as_str()),
                    version: granted.about.get("version").and_then(serde_json::Value::as_u64),
                });
            }
        }
        holders.sort_by(|a, b| (!a.here, !a.origin, &a.host).cmp(&(!b.here, !b.origin, &b.host)));
        if holders.is_empty() {
            let absent = ApiError::absent(&name.to_string());
            return Err(ApiError { why: self.directory.links.with_rejections(absent.why), ..absent });
        }
        Ok(holders)
    }

    /// Offers a cache to hosts: to these, or to as many as its replicas, wherever its policy allows.
    pub(crate) async fn replicate(
        &self,
        caller: &Caller,
        id: CacheId,
        to: Vec<String>,
    ) -> Result<Vec<Offered>, ApiError> {
        let record = self.records.owned(caller, id)?;
        if record.state != State::Committed {
            return Err(ApiError::new(
                StatusCode::CONFLICT,
                ErrorKind::State,
                format!(
                    "{} is {}: only committed caches can be replicated",
                    record.full_name(),
                    record.state
                ),
            ));
        }
        let links = if to.is_empty() { self.willing(&record).await? } else { Vec::new() };
        let mut offered = Vec::new();
        for link in links {
            offered.push(offer(&record, &link).await.told(link.peer.hello.name.clone()));
        }
        for host in to {
            if host == self.records.config.name {
                offered.push(Offered { why: Some("this host has it".into()), ..Reply::Has.told(host) });
                continue;
            }
            let known = self.directory.links.find(|peer| peer.hello.name == host);
            let reached = match known {
                Some(link) => Ok(link),
                None => {
                    self.directory
                        .links
                        .at(&resolve(&place_of(&self.records.config.peers, &host)).await)
                        .await
                }
            };
            offered.push(match reached {
                Ok(link) => offer(&record, &link).await.told(link.peer.hello.name.clone()),
                Err(error) => Reply::Unreachable(error.to_string()).told(host),
            });
        }
        Ok(offered)
    }

    /// Daemons that the cache's policy allows, as many as are to have a copy besides this one.
    async fn willing(&self, record: &CacheRecord) -> Result<Vec<Arc<Link>>, ApiError> {
        self.directory.connect_known(None).await;
        let most = Attributes::of(record).replicas.saturating_sub(1);
        let cache = ads::cache(record).map_err(Error::from)?;
        let mut willing = Vec::new();
        for link in self.directory.links.all() {
            if suits(&cache, &link).await {
                willing.push(link);
            }
            if willing.len() as u32 == most {
                break;
            }
        }
        Ok(willing)
    }
}
