//! Finds the daemons to ask for a cache, and connects to them.

use std::sync::Arc;
use std::time::Duration;

use tidecast_identity::{NodeId, NodeKey};
use tidecast_members::{Claim, Record};
use tokio::task::JoinSet;

use super::backoff::Backoff;
use super::catalogue::known_peers::KnownPeers;
use super::configured_peers::{is_of, resolve};
use super::membership::Membership;
use crate::config::Config;
use crate::host::election::Election;
use crate::links::link::Link;
use crate::links::peers::Links;
use crate::model::name::CacheName;
use crate::model::signed_name::held;
use crate::policy::sources;

/// Meanings of a name that are followed up, if members announce several.
const MEANINGS: usize = 4;
/// A daemon that has just started finds others within this time, seconds.
const LOOKING: u64 = 10;
/// Holders of a cache that are connected to at once.
const AT_ONCE: usize = 4;

/// Finds daemons, and those that have a cache.
pub(crate) struct Directory {
    pub(crate) config: Arc<Config>,
    pub(crate) links: Arc<Links>,
    pub(crate) membership: Arc<Membership>,
    pub(crate) found: Arc<KnownPeers>,
    pub(crate) election: Arc<Election>,
    pub(crate) backoff: Backoff,
    /// This node's: with it, signatures of others are checked.
    pub(crate) key: NodeKey,
}

impl Directory {
    /// Daemons to ask for a cache, best first: its origin, if connected, members that announce it, then all
    /// others. Daemons of users other than the reader are not asked, unless they are the origin, so that they
    /// do not learn of the request.
    pub(crate) async fn sources(self: &Arc<Self>, name: &CacheName, reader: &str) -> Vec<Arc<Link>> {
        let ((), holders) = tokio::join!(self.connect_known(name.origin.as_deref()), self.said_to_hold(name));
        let mut all = self.links.all();
        all.retain(|link| !self.backoff.has(link.peer.addr));
        let is_origin = |link: &Arc<Link>| name.origin.as_ref() == Some(&link.peer.hello.name);
        all.retain(|link| sources::may_be_asked(&link.peer.identity, reader, is_origin(link)));
        let holds = |link: &Arc<Link>| holders.contains(&link.peer.node);
        all.sort_by_key(|link| sources::rank(is_origin(link), holds(link), link.peer.hello.started));
        all
    }

    /// Connected daemons that are not asked, as they failed shortly before: names, and when they are asked again; empty
    /// without one.
    pub(crate) fn left_alone(&self) -> String {
        let left =
            |link: &Arc<Link>| Some((link.peer.hello.name.clone(), self.backoff.left(link.peer.addr)?));
        let text = |(name, left): (String, Duration)| format!("{name} in {} s", left.as_secs() + 1);
        let all: Vec<String> = self.links.all().iter().filter_map(left).take(AT_ONCE).map(text).collect();
        all.join(", ")
    }

    /// Members that announce the cache, some of them, connected.
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
            let (directory, held) =
                (self.clone(), held(&format!("{origin}/{}@{version}", name.name), &content));
            looking.spawn(async move { directory.reach_holders(&held, &[], AT_ONCE).await });
        }
        let mut all = Vec::new();
        while let Some(found) = looking.join_next().await {
            all.extend(found.unwrap_or_default().into_iter().map(|link| link.peer.node));
        }
        all
    }

    /// Channels to some of the daemons that hold a cache, or are fetching it, without `known`.
    pub(crate) async fn reach_holders(
        self: &Arc<Self>,
        held: &[u8; 32],
        known: &[NodeId],
        most: usize,
    ) -> Vec<Arc<Link>> {
        let mut holders = self.membership.holders(held).await;
        holders.retain(|(node, _)| *node != self.membership.me() && !known.contains(node));
        // In random order, so that not all readers go to the same holder.
        holders.sort_by_cached_key(|(_, complete)| (!complete, rand::random::<u32>()));
        let alive = self.membership.alive();
        let mut reaching = JoinSet::new();
        for (node, _) in holders.into_iter().take(most) {
            let (links, addresses) = (self.links.clone(), alive.get(&node).cloned().unwrap_or_default());
            reaching.spawn(async move { links.reach(node, &addresses).await });
        }
        let mut reached = Vec::new();
        while let Some(link) = reaching.join_next().await {
            reached.extend(link.ok().and_then(Result::ok));
        }
        reached
    }

    /// Sees to it that the daemons of the configuration are connected, and `host` if it can be found by its name.
    pub(crate) async fn connect_known(self: &Arc<Self>, host: Option<&str>) {
        let known = |name: &str| self.links.find(|peer| peer.hello.name == name).is_some();
        // Members are connected by the membership itself.
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
            let (directory, place) = (self.clone(), place.to_owned());
            dialling.spawn(async move {
                let mut addresses = resolve(&place).await;
                addresses.retain(|addr| !directory.backoff.has(*addr));
                if let (Err(error), Some(first)) = (directory.links.at(&addresses).await, addresses.first()) {
                    tracing::debug!(place, %error, "cannot reach a peer");
                    directory.backoff.unreached(*first);
                }
            });
        }
        // Each attempt has its own time limit.
        while dialling.join_next().await.is_some() {}
    }

    /// Why no other host can be asked for caches of `origin`, now or soon. None: there are other hosts, or
    /// may be.
    pub(crate) async fn no_source_reason(&self, origin: Option<&str>) -> Option<String> {
        if self.election.last_parent().is_some() {
            return None;
        }
        if self.links.trust().trusts_none() {
            return Some("this daemon trusts no other daemon: set the site's CA in its configuration".into());
        }
        let is_new = crate::clock::now().saturating_sub(self.links.hello().started) < LOOKING;
        let known = !self.config.peers.is_empty()
            || !self.membership.alive().is_empty()
            || !self.links.all().is_empty()
            || !self.found.some(None, &self.config.name).is_empty();
        if is_new || known {
            return None;
        }
        let what = "this daemon knows no other daemon to ask";
        match origin {
            Some(host) if !resolve(host).await.is_empty() => None,
            Some(host) => Some(format!("host {host} is unknown, its name does not resolve, and {what}")),
            None => Some(what.into()),
        }
    }

    /// The daemon of this name, connected to if it can be.
    pub(crate) async fn link_to(self: &Arc<Self>, host: &str) -> Option<Arc<Link>> {
        let find = || self.links.find(|peer| peer.hello.name == host);
        match find() {
            Some(link) => Some(link),
            None => {
                self.connect_known(Some(host)).await;
                find()
            }
        }
    }
}
