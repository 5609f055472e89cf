//! Who may have a cache, and whether anybody would like a copy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidecast_depot::{CacheId, State};
use tidecast_identity::{Identity, NodeId};
use tidecast_members::{Claim, Record};
use tokio::net::lookup_host;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::assembly::Daemon;
use crate::directory::names::held;
use crate::host::caller::Caller;
use crate::links::link::Link;
use crate::model::api_error::ApiError;
use crate::model::message::{Answer, Ask, Want};
use crate::model::name::CacheName;
use crate::model::types::{Holder, Offered};
use crate::policy::ads;

/// Things that a name may mean, as several say, that are looked after.
const MEANINGS: usize = 4;
/// Whether somebody holds a cache is said within this time.
const HOLDS: Duration = Duration::from_secs(3);
/// A daemon that has just started finds others within this time, seconds.
const LOOKING: u64 = 10;
/// Holders of a cache that are connected to at once.
const AT_ONCE: usize = 4;

/// The port that daemons are expected at.
pub const PORT: u16 = 6980;

impl Daemon {
    /// Those to ask for a cache, best first: its origin, if it is reached, those who say that they hold it, then everybody else who
    /// is known. Daemons of other users than the reader are not told what he wants, unless they are the origin.
    pub(crate) async fn sources(self: &Arc<Self>, name: &CacheName, reader: &str) -> Vec<Arc<Link>> {
        let ((), holders) = tokio::join!(self.acquaint(name.origin.as_deref()), self.said_to_hold(name));
        let mut all = self.peers.all();
        all.retain(|link| !self.fetches.is_shunned(link.peer.addr));
        let is_origin = |link: &Arc<Link>| name.origin.as_ref() == Some(&link.peer.hello.name);
        all.retain(|link| match &link.peer.identity {
            Identity::Host(_) => true,
            Identity::User(user) => user == reader || is_origin(link),
        });
        let holds = |link: &Arc<Link>| holders.contains(&link.peer.node);
        all.sort_by_key(|link| (!is_origin(link), !holds(link), link.peer.hello.started));
        all
    }

    /// Those that hold a cache as far as the circle says, some of them, connected.
    async fn said_to_hold(self: &Arc<Self>, name: &CacheName) -> Vec<NodeId> {
        let Some(origin) = &name.origin else { return Vec::new() };
        let mut said = self.membership.named(origin, &name.name).await;
        let version = |record: &Record| match &record.claim {
            Claim::Name { version, manifest, .. } => Some((*version, *manifest)),
            Claim::Holder { .. } => None,
        };
        said.retain(|record| {
            version(record).is_some_and(|(v, _)| name.version.is_none_or(|asked| asked == u64::from(v)))
        });
        let mut looking = JoinSet::new();
        for (version, content) in said.iter().filter_map(version).take(MEANINGS) {
            let (daemon, held) = (self.clone(), held(&format!("{origin}/{}@{version}", name.name), &content));
            looking.spawn(async move { daemon.reach_holders(&held, &[], AT_ONCE).await });
        }
        let mut all = Vec::new();
        while let Some(found) = looking.join_next().await {
            all.extend(found.unwrap_or_default().into_iter().map(|link| link.peer.node));
        }
        all
    }

    /// Channels to some of those who hold a cache, or are getting it, but not to `known`.
    pub(crate) async fn reach_holders(
        self: &Arc<Self>,
        held: &[u8; 32],
        known: &[NodeId],
        most: usize,
    ) -> Vec<Arc<Link>> {
        let mut holders = self.membership.holders(held).await;
        holders.retain(|(node, _)| *node != self.membership.me() && !known.contains(node));
        // Any of them: not all who want it go to the same.
        holders.sort_by_cached_key(|(_, complete)| (!complete, rand::random::<u32>()));
        let alive = self.membership.alive();
        let mut reaching = JoinSet::new();
        for (node, _) in holders.into_iter().take(most) {
            let (daemon, addresses) = (self.clone(), alive.get(&node).cloned().unwrap_or_default());
            reaching.spawn(async move { daemon.peers.reach(node, &addresses, &daemon).await });
        }
        let mut reached = Vec::new();
        while let Some(link) = reaching.join_next().await {
            reached.extend(link.ok().and_then(Result::ok));
        }
        reached
    }

    /// Sees to it that the daemons of the configuration are connected, and `host` if it can be found by its name.
    pub(crate) async fn acquaint(self: &Arc<Self>, host: Option<&str>) {
        let known = |name: &str| self.peers.find(|peer| peer.hello.name == name).is_some();
        // Whoever belongs to the circle is called from there.
        let alone = self.membership.alive().is_empty();
        let found = self.found.some(host, &self.config.name);
        let mut wanted: Vec<&str> = self.config.peers.iter().chain(&found).map(String::as_str).collect();
        wanted.retain(|peer| alone || is_of(peer, host));
        if let Some(host) = host.filter(|host| !known(host)) {
            let listed = wanted.iter().any(|peer| peer.split_once('=').is_some_and(|(name, _)| name == host));
            if !listed {
                wanted.insert(0, host);
            }
        }
        let mut dialling = JoinSet::new();
        for peer in wanted {
            let (name, place) = peer.split_once('=').unwrap_or(("", peer));
            if !name.is_empty() && (known(name) || name == self.config.name) {
                continue;
            }
            let (daemon, place) = (self.clone(), place.to_owned());
            dialling.spawn(async move {
                let mut addresses = resolve(&place).await;
                addresses.retain(|addr| !daemon.fetches.is_shunned(*addr));
                if let (Err(error), Some(first)) =
                    (daemon.peers.at(&addresses, &daemon).await, addresses.first())
                {
                    tracing::debug!(place, %error, "not reached");
                    daemon.fetches.unreached(*first);
                }
            });
        }
        // Each of them ends by itself: all bounds are theirs.
        while dialling.join_next().await.is_some() {}
    }

    /// Why no other host can be asked for what `origin` made, now or soon. None: there are others, or may be.
    pub(crate) async fn nobody_to_ask(&self, origin: Option<&str>) -> Option<String> {
        if self.has_parent() {
            return None;
        }
        if self.peers.trust().is_nobody() {
            return Some("this daemon trusts no other: name the site's CA in its configuration".into());
        }
        let is_new = crate::now().saturating_sub(self.peers.hello().started) < LOOKING;
        let known = !self.config.peers.is_empty()
            || !self.membership.alive().is_empty()
            || !self.peers.all().is_empty()
            || !self.found.some(None, &self.config.name).is_empty();
        if is_new || known {
            return None;
        }
        let what = "this daemon knows no other to ask";
        match origin {
            Some(host) if !resolve(host).await.is_empty() => None,
            Some(host) => Some(format!("no host {host} is known, its name has no address, and {what}")),
            None => Some(what.into()),
        }
    }

    /// Who has a cache that `caller` may read, as far as the daemons that are known say.
    pub(crate) async fn holders(
        self: &Arc<Self>,
        caller: &Caller,
        name: CacheName,
    ) -> Result<Vec<Holder>, ApiError> {
        let mut holders = Vec::new();
        let here = self.here(&name, &caller.reader());
        if let Some(record) = &here {
            holders.push(Holder {
                host: self.config.name.clone(),
                addresses: self.peers.hello().addresses,
                here: true,
                origin: record.origin == self.config.name,
                version: record.version,
            });
        }
        let ad = self.ad()?.to_string();
        let want = Want {
            name: name.to_string(),
            cache: None,
            reader: caller.name.clone(),
            groups: caller.groups.clone(),
            ad,
        };
        let mut asking = JoinSet::new();
        for link in self.sources(&name, &caller.name).await {
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
            return Err(ApiError { why: self.peers.with_refusals(absent.why), ..absent });
        }
        Ok(holders)
    }

    /// Offers a cache to hosts: to these, or to as many as its replicas, wherever its policy allows.
    pub(crate) async fn replicate(
        self: &Arc<Self>,
        caller: &Caller,
        id: CacheId,
        to: Vec<String>,
    ) -> Result<Vec<Offered>, ApiError> {
        let record = self.owned(caller, id)?;
        if record.state != State::Committed {
            return Err(ApiError::new(
                axum::http::StatusCode::CONFLICT,
                "state",
                format!("{} is {}: only what is committed is replicated", record.full_name(), record.state),
            ));
        }
        let links = if to.is_empty() { self.willing(&record).await? } else { Vec::new() };
        let mut offered = Vec::new();
        for link in links {
            offered.push(self.offer(&record, &link).await);
        }
        for host in to {
            let known = self.peers.find(|peer| peer.hello.name == host);
            let reached = match known {
                Some(link) => Ok(link),
                None => self.peers.at(&resolve(&self.place_of(&host)).await, self).await,
            };
            offered.push(match reached {
                Ok(link) => self.offer(&record, &link).await,
                Err(error) => Offered { host, answer: "unreachable".into(), why: Some(error.to_string()) },
            });
        }
        Ok(offered)
    }

    /// Daemons that the cache's policy allows, as many as are to have a copy besides this one.
    async fn willing(
        self: &Arc<Self>,
        record: &tidecast_depot::CacheRecord,
    ) -> Result<Vec<Arc<Link>>, ApiError> {
        self.acquaint(None).await;
        let most = crate::model::attributes::Attributes::of(record).replicas.saturating_sub(1);
        let cache = ads::cache(record).map_err(crate::model::error::Error::from)?;
        let mut willing = Vec::new();
        for link in self.peers.all() {
            let asked = link.ask(&Ask::Ad, Bytes::new()).await;
            let Ok((Answer::Ok, ad)) = asked else { continue };
            let Ok(ad) = tidecast_classad::Ad::parse(&ad) else { continue };
            if matches!(ads::agree(&cache, &ad, true, crate::now()), Ok(true)) {
                willing.push(link);
            }
            if willing.len() as u32 == most {
                break;
            }
        }
        Ok(willing)
    }

    pub(crate) async fn offer(&self, record: &tidecast_depot::CacheRecord, link: &Arc<Link>) -> Offered {
        let host = link.peer.hello.name.clone();
        // Without an ad the other finds out later what it thinks of it.
        let ad = ads::cache(record).map(|ad| ad.to_string()).unwrap_or_default();
        let ask = Ask::Offer { name: record.full_name(), owner: record.owner.clone(), ad };
        let (answer, why) = match link.ask(&ask, Bytes::new()).await {
            Ok((Answer::Ok | Answer::Cache(_), _)) => ("ok", None),
            Ok((Answer::Wait { why, .. }, _)) => ("wait", Some(why)),
            Ok((Answer::Rejected { why }, _)) => ("rejected", Some(why)),
            Ok((Answer::Absent, _)) => ("rejected", Some("it does not see this cache here".into())),
            Ok((Answer::NotUnderstood, _)) => ("rejected", Some("it does not understand".into())),
            Err(error) => ("unreachable", Some(error.to_string())),
        };
        Offered { host, answer: answer.into(), why }
    }

    /// Where the configuration says that a host is.
    fn place_of(&self, host: &str) -> String {
        let listed = self.config.peers.iter().filter_map(|peer| peer.split_once('='));
        listed.into_iter().find(|(name, _)| *name == host).map_or(host, |(_, place)| place).to_owned()
    }
}

/// Whether an entry of the configuration is that of a host.
fn is_of(peer: &str, host: Option<&str>) -> bool {
    peer.split_once('=').is_some_and(|(name, _)| Some(name) == host)
}

/// The addresses of HOST, HOST:PORT or several ADDR:PORT; none if it cannot be found.
pub(crate) async fn resolve(place: &str) -> Vec<SocketAddr> {
    if let Ok(all) = place.split(',').map(str::parse).collect() {
        return all;
    }
    let with_port = place.parse::<SocketAddr>().is_ok()
        || place.rsplit_once(':').is_some_and(|(_, p)| p.parse::<u16>().is_ok());
    let place = if with_port { place.to_owned() } else { format!("{place}:{PORT}") };
    let looked = timeout(Duration::from_secs(5), lookup_host(place)).await;
    looked.ok().and_then(Result::ok).map(Iterator::collect).unwrap_or_default()
}
