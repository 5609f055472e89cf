//! Requests of other daemons, and the answers. Each request is authorized by itself: the identity of the peer
//! is proven, and whether that owner may read the cache is looked up here.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use tidecast_classad::Ad;
use tidecast_depot::{CacheRecord, Filter, Reader};
use tidecast_identity::{Identity, NodeId};

use super::fetching_peers::FetchingPeers;
use super::fingerprints::FingerprintServer;
use crate::config::Config;
use crate::directory::membership::Membership;
use crate::directory::names::Signer;
use crate::host::activity::Activity;
use crate::links::link::{Enrolling, Link, Peer, Serve, Serving};
use crate::links::peers::Links;
use crate::local::admin::Admin;
use crate::model::attributes::Attributes;
use crate::model::message::{Answer, Ask, Enrolment, Granted, Want};
use crate::model::name::CacheName;
use crate::model::types::{Limit, Method};
use crate::policy::ads;
use crate::policy::requests::reader;
use crate::site::Registrar;
use crate::storage::audit::Audit;
use crate::storage::host_ad::HostAd;
use crate::storage::run_mode::{Mode, RunMode};
use crate::storage::store::Store;
use crate::transfer::admission::Admission;
use crate::transfer::pending::PendingContents;
use crate::transfer::requests::Requests;
use crate::transfer::seeding::Seeding;
use crate::transfer::swarms::Swarms;

/// Bytes of a manifest in one answer.
const PART: usize = 1 << 20;
/// A daemon that has to wait asks again after this many seconds.
const AGAIN: u64 = 2;

/// Answers other daemons.
pub(crate) struct Answers {
    pub(crate) config: Arc<Config>,
    pub(crate) store: Arc<Store>,
    pub(crate) audit: Arc<Audit>,
    pub(crate) mode: Arc<RunMode>,
    pub(crate) activity: Arc<Activity>,
    pub(crate) ad: Arc<HostAd>,
    pub(crate) links: Arc<Links>,
    pub(crate) membership: Arc<Membership>,
    pub(crate) signer: Arc<Signer>,
    pub(crate) swarms: Arc<Swarms>,
    pub(crate) seeding: Arc<Seeding>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) contents: Arc<PendingContents>,
    pub(crate) requests: Arc<Requests>,
    pub(crate) admin: Arc<Admin>,
    pub(crate) fingerprints: FingerprintServer,
    pub(crate) fetching_peers: FetchingPeers,
    pub(crate) registrar: Registrar,
}

impl Serve for Answers {
    fn serve<'a>(self: Arc<Self>, peer: &'a Peer, ask: Ask, payload: Bytes) -> Serving<'a> {
        Box::pin(self.answer(peer, ask, payload))
    }

    fn met(&self, link: &Arc<Link>) {
        self.membership.met(link.peer.node, link.peer.hello.addresses.clone());
    }

    fn ended(&self, node: NodeId) {
        if self.links.to(node).is_none() {
            self.membership.lost(node);
        }
    }

    fn distrusted(&self, node: NodeId) {
        self.swarms.expel(&[node]);
    }

    fn rejected_peer(&self, who: &str, why: &str) {
        self.audit.note(who, "connect", "", &format!("refused: {why}"));
    }

    fn refused(&self, peer: &Peer, why: &str) {
        self.links.refused(peer, why);
    }

    fn enrol(self: Arc<Self>, node: NodeId, addr: SocketAddr, wish: Enrolment) -> Enrolling {
        Box::pin(self.registrar.clone().answer(node, addr, wish))
    }
}

fn rejected(why: impl Into<String>) -> Answer {
    Answer::Rejected { why: why.into() }
}

impl Answers {
    async fn answer(self: Arc<Self>, peer: &Peer, ask: Ask, payload: Bytes) -> (Answer, Bytes) {
        if matches!(ask, Ask::Want(_) | Ask::Join(_) | Ask::Offer { .. }) {
            self.activity.asked();
        }
        // Transfers are logged where the data is sent.
        let judged = match &ask {
            Ask::Want(want) => Some(("want", want.name.clone())),
            Ask::Offer { name, .. } => Some(("offer", name.clone())),
            _ => None,
        };
        let answer = match ask {
            Ask::Want(want) => self.grant(peer, &want).await,
            Ask::Join(want) => self.join(peer, &want).await,
            Ask::Offer { name, owner, ad } => self.offered(peer, &name, owner, &ad),
            Ask::Manifest { cache, offset } => return self.part(peer, &cache, offset).await,
            Ask::Fingerprints { cache, file, first } => {
                return self.fingerprints.fingerprints(peer, &cache, file, first).await;
            }
            Ask::Leaves { cache, file, ranges } => {
                return self.fingerprints.leaves(peer, &cache, file, ranges).await;
            }
            Ask::Ping => Answer::Ok,
            Ask::Membership => {
                self.membership.heard(peer.node, payload);
                Answer::Ok
            }
            Ask::Admin { who, what, limit } => return self.ruled(peer, &who, &what, limit).await,
            Ask::Holds(want) => self.holds(peer, &want),
            Ask::Ad => return self.said_of_itself(),
        };
        if let (Some((what, name)), Answer::Rejected { why }) = (judged, &answer) {
            self.audit.note_shared(&peer.hello.name, what, &name, &format!("rejected: {why}"));
        }
        (answer, Bytes::new())
    }

    /// The cache that is wanted, if the reader may have it.
    fn wanted(&self, peer: &Peer, want: &Want) -> Option<Arc<CacheRecord>> {
        let name: CacheName = want.name.parse().ok()?;
        let reader = reader(&peer.identity, want);
        self.store.here(&name, &reader)
    }

    async fn grant(&self, peer: &Peer, want: &Want) -> Answer {
        let Some(record) = self.wanted(peer, want) else {
            self.audit.note_shared(&peer.hello.name, "want", &want.name, "absent");
            return Answer::Absent;
        };
        if self.mode.now() == Mode::Paused {
            return Answer::Wait { seconds: AGAIN, why: format!("{} is paused", self.config.name) };
        }
        match self.match_ads(&record, want) {
            Ok(None) => {}
            Ok(Some(why)) | Err(why) => return rejected(why),
        }
        let served = self.serve_swarm(&record, peer).await;
        let (manifest, content) = match served {
            Ok(served) => served,
            Err(why) => {
                tracing::error!(why, cache = record.full_name(), "cannot serve a cache");
                return Answer::Wait { seconds: AGAIN, why: "the source cannot serve it at present".into() };
            }
        };
        let swarm = Attributes::of(&record).methods().contains(&Method::Swarm);
        let holders = if swarm { self.fetching_peers.meet(content, peer) } else { Vec::new() };
        let Ok(about) = serde_json::to_value(self.signer.told(&record)) else { return rejected("internal") };
        self.audit.note(&peer.hello.name, "send", &record.full_name(), "ok");
        Answer::Cache(Box::new(Granted { cache: record.id.to_string(), about, manifest, holders }))
    }

    /// Whether this host has it, for readers only.
    fn holds(&self, peer: &Peer, want: &Want) -> Answer {
        let Some(record) = self.wanted(peer, want) else { return Answer::Absent };
        let Ok(about) = serde_json::to_value(&*record) else { return rejected("internal") };
        Answer::Cache(Box::new(Granted { cache: record.id.to_string(), about, manifest: 0, holders: vec![] }))
    }

    fn said_of_itself(&self) -> (Answer, Bytes) {
        match self.ad.now() {
            Ok(ad) => (Answer::Ok, ad.to_string().into()),
            Err(error) => (rejected(error.to_string()), Bytes::new()),
        }
    }

    /// Why the cache and the peer do not match.
    fn match_ads(&self, record: &CacheRecord, want: &Want) -> Result<Option<String>, String> {
        let cache = ads::cache(record).map_err(|e| e.to_string())?;
        let theirs = tidecast_classad::Ad::parse(&want.ad).map_err(|e| format!("its ad: {e}"))?;
        ads::mismatch(&cache, &theirs, crate::clock::now()).map_err(|e| e.to_string())
    }

    /// Has its swarm run, and lets `peer` in; the length of its manifest and its content.
    async fn serve_swarm(&self, record: &CacheRecord, peer: &Peer) -> Result<(u64, [u8; 32]), String> {
        let content = record.content.ok_or("the cache has no content yet")?;
        let (store, id) = (self.store.clone(), record.id);
        let manifest = tokio::task::spawn_blocking(move || store.manifest(id, content)).await;
        let manifest = manifest.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
        self.swarms.admit(content, peer.node);
        self.seeding.serve_on(record).await?;
        Ok((manifest.to_bytes().len() as u64, content))
    }

    async fn join(&self, peer: &Peer, want: &Want) -> Answer {
        let content = want
            .cache
            .as_deref()
            .and_then(|hex| data_encoding::HEXLOWER.decode(hex.as_bytes()).ok()?.try_into().ok());
        let Some(content): Option<[u8; 32]> = content else { return Answer::Absent };
        let Ok(name) = want.name.parse::<CacheName>() else { return Answer::Absent };
        let reader = reader(&peer.identity, want);
        let granted = self.swarms.admits(&content, peer.node);
        // A cache on this host or being fetched. It must have this content: permission for one cache is no
        // permission for another.
        let may = |record: &Arc<CacheRecord>| {
            let of = record.content.or_else(|| self.contents.of(record.id));
            of == Some(content)
                && record.readable_by(&reader)
                && name.name == record.name
                && name.origin.as_ref() == Some(&record.origin)
                // A peer with a grant gets it from this host by any method; others by swarm only.
                && (granted || Attributes::of(record).methods().contains(&Method::Swarm))
        };
        let records = self.store.depot.caches(&Filter::default());
        let Some(record) = records.iter().find(|record| may(record)) else { return Answer::Absent };
        self.swarms.admit(content, peer.node);
        let served = record.is_committed() && self.seeding.serve_on(record).await.is_ok();
        if !served && !self.swarms.runs(&content) {
            return Answer::Wait { seconds: AGAIN, why: "the source cannot serve it at present".into() };
        }
        // The peer may be unable to connect to us, if it was us who connected to it.
        if peer.called {
            self.swarms.call(&content, peer.addr).await;
        }
        Answer::Ok
    }

    async fn part(&self, peer: &Peer, cache: &str, offset: u64) -> (Answer, Bytes) {
        let nothing = (Answer::Absent, Bytes::new());
        let Some((_, manifest)) = self.fingerprints.given_to(peer, cache) else { return nothing };
        let bytes = manifest.to_bytes();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let end = (start + PART).min(bytes.len());
        (Answer::Ok, Bytes::copy_from_slice(&bytes[start..end]))
    }

    /// Another daemon offers this host a copy. It is fetched like any other, and may still be refused.
    fn offered(&self, peer: &Peer, name: &str, owner: String, ad: &str) -> Answer {
        let Identity::Host(_) = peer.identity else { return rejected("only a host's daemon offers caches") };
        let Ok(name) = name.parse::<CacheName>() else { return rejected("malformed cache name") };
        if self.mode.now() != Mode::Running {
            return rejected("this daemon accepts no new caches");
        }
        if self.config.user.as_ref().is_some_and(|user| *user != owner) {
            return rejected("a user's daemon keeps copies of that user's caches only");
        }
        let reader = Reader::owner(&owner);
        if self.store.here(&name, &reader).is_some() {
            return Answer::Ok;
        }
        if let Ok(ad) = Ad::parse_new(ad)
            && let Err(failed) = self.admission.suits(&ad, &name.to_string(), &owner)
        {
            return rejected(failed.why);
        }
        match self.requests.fetch(name, reader, true) {
            Ok(_) => Answer::Wait { seconds: AGAIN, why: "the transfer has started".into() },
            Err(error) => rejected(error.why),
        }
    }

    /// An administrator on another host sends a command. A host's daemon is trusted to name the user (it
    /// obeys root only), if this daemon obeys that host; a user's daemons obey each other.
    async fn ruled(&self, peer: &Peer, who: &str, what: &str, limit: Limit) -> (Answer, Bytes) {
        let admins = &self.config.admins;
        let may = match &peer.identity {
            Identity::Host(host) => admins.is_empty() || admins.contains(host),
            Identity::User(user) => self.config.user.as_ref() == Some(user),
        };
        let who = format!("{who} at {}", peer.hello.name);
        let told = limit.wish(what);
        let obeyed = if may {
            self.admin.execute(what, limit).await.map_err(|error| error.why)
        } else {
            Err(format!("{} does not accept commands from {}", self.config.name, peer.hello.name))
        };
        if what != "status" || !may {
            self.audit.note(&who, &told, "", obeyed.as_ref().map_or_else(String::as_str, |_| "ok"));
        }
        match obeyed {
            Ok(status) => (Answer::Ok, serde_json::to_vec(&status).unwrap_or_default().into()),
            Err(why) => (Answer::Rejected { why }, Bytes::new()),
        }
    }
}
