//! What other daemons ask, and what this one answers. Each request is judged by itself: for whom the other speaks is proven,
//! and whether that owner may read the cache is looked up here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::SocketAddr;
use tidecast_classad::Ad;
use tidecast_depot::{CacheRecord, Filter, Reader};
use tidecast_identity::{Identity, NodeId};

use crate::assembly::{Daemon, Mode};
use crate::directory::names::SignedName;
use crate::links::link::{Link, Peer, Serve};
use crate::model::attributes::Attributes;
use crate::model::error::Error;
use crate::model::message::{Answer, Ask, Granted, Want};
use crate::model::name::CacheName;
use crate::model::types::Method;
use crate::policy::ads;
use crate::transfer::delta::open_view;
use crate::transfer::fetch::suits;

/// Bytes of a manifest in one answer.
const PART: usize = 1 << 20;
/// Holders named in one answer.
const NAMED: usize = 16;
/// Somebody who was granted a cache is taken to have (some of) it for so long.
const SEEKS: Duration = Duration::from_secs(3600);
/// Seekers remembered for one cache.
const SEEKERS: usize = 4096;
/// Whoever has to wait asks again after so many seconds.
const AGAIN: u64 = 2;

/// Who was granted which content lately: they can feed each other.
#[derive(Default)]
pub(crate) struct Seekers(Mutex<HashMap<[u8; 32], Vec<Seeker>>>);

struct Seeker {
    node: NodeId,
    addresses: Vec<SocketAddr>,
    at: Instant,
}

impl Seekers {
    /// Some who seek this content too, at random; `peer` is one of them from now on.
    fn meet(&self, content: [u8; 32], peer: &Peer) -> Vec<Vec<SocketAddr>> {
        let mut all = self.0.lock();
        all.retain(|_, seekers| {
            seekers.retain(|s| s.at.elapsed() < SEEKS);
            !seekers.is_empty()
        });
        let seekers = all.entry(content).or_default();
        seekers.retain(|s| s.node != peer.node);
        let mut some: Vec<Vec<SocketAddr>> = Vec::new();
        let start = if seekers.is_empty() { 0 } else { rand::random_range(0..seekers.len()) };
        for seeker in seekers.iter().cycle().skip(start).take(seekers.len().min(NAMED)) {
            some.push(seeker.addresses.clone());
        }
        if seekers.len() < SEEKERS {
            let mut addresses = peer.hello.addresses.clone();
            if let Some(port) = addresses.first().map(SocketAddr::port) {
                addresses.insert(0, SocketAddr::new(peer.addr.ip(), port));
            }
            addresses.dedup();
            seekers.push(Seeker { node: peer.node, addresses, at: Instant::now() });
        }
        some
    }
}

impl Serve for Daemon {
    async fn serve(self: Arc<Self>, peer: &Peer, ask: Ask, payload: Bytes) -> (Answer, Bytes) {
        if matches!(ask, Ask::Want(_) | Ask::Join(_) | Ask::Offer { .. }) {
            self.asked();
        }
        // What was given is noted where it is given.
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
                return self.fingerprints(peer, &cache, file, first).await;
            }
            Ask::Leaves { cache, file, ranges } => return self.leaves(peer, &cache, file, ranges).await,
            Ask::Ping => Answer::Ok,
            Ask::Circle => {
                self.membership.heard(peer.node, payload);
                Answer::Ok
            }
            Ask::Admin { who, what, limit } => return self.ruled(peer, &who, &what, limit),
            Ask::Holds(want) => self.holds(peer, &want),
            Ask::Ad => return self.said_of_itself(),
        };
        if let (Some((what, name)), Answer::Rejected { why }) = (judged, &answer) {
            self.note(&peer.hello.name, what, &name, &format!("rejected: {why}"));
        }
        (answer, Bytes::new())
    }

    fn met(&self, link: &Arc<Link>) {
        self.membership.met(link.peer.node, link.peer.hello.addresses.clone());
    }

    fn ended(&self, node: NodeId) {
        if self.peers.to(node).is_none() {
            self.membership.lost(node);
        }
    }

    fn distrusted(&self, node: NodeId) {
        self.swarms.expel(&[node]);
    }

    fn turned_away(&self, who: &str, why: &str) {
        self.note(who, "connect", "", &format!("refused: {why}"));
    }

    fn refused(&self, peer: &Peer, why: &str) {
        self.peers.refused(peer, why);
    }
}

fn rejected(why: impl Into<String>) -> Answer {
    Answer::Rejected { why: why.into() }
}

/// Who reads, as far as `peer` is to be believed: a host speaks for all its users, a user for himself.
fn reader(peer: &Peer, want: &Want) -> Option<Reader> {
    match &peer.identity {
        Identity::Host(_) => {
            Some(Reader { owner: want.reader.clone(), groups: want.groups.clone(), all: false })
        }
        Identity::User(user) if *user == want.reader => Some(Reader::owner(user)),
        // For others on its machine, what everybody may read.
        Identity::User(_) => Some(Reader::default()),
    }
}

impl Daemon {
    /// The cache that is wanted, if the reader may have it.
    fn wanted(&self, peer: &Peer, want: &Want) -> Option<Arc<CacheRecord>> {
        let name: CacheName = want.name.parse().ok()?;
        let reader = reader(peer, want)?;
        self.here(&name, &reader)
    }

    async fn grant(&self, peer: &Peer, want: &Want) -> Answer {
        let Some(record) = self.wanted(peer, want) else {
            self.note(&peer.hello.name, "want", &want.name, "absent");
            return Answer::Absent;
        };
        if self.mode() == Mode::Paused {
            return Answer::Wait { seconds: AGAIN, why: format!("{} is paused", self.config.name) };
        }
        match self.match_ads(&record, want) {
            Ok(true) => {}
            Ok(false) => return rejected("the cache's requirements and this host do not match"),
            Err(why) => return rejected(why),
        }
        let served = self.serve_swarm(&record, peer).await;
        let (manifest, content) = match served {
            Ok(served) => served,
            Err(why) => {
                tracing::error!(why, cache = record.full_name(), "a cache cannot be served");
                return Answer::Wait { seconds: AGAIN, why: "the holder cannot serve it now".into() };
            }
        };
        let swarm = Attributes::of(&record).methods().contains(&Method::Swarm);
        let holders = if swarm { self.seekers.meet(content, peer) } else { Vec::new() };
        let Ok(about) = serde_json::to_value(self.told(&record)) else { return rejected("internal") };
        self.note(&peer.hello.name, "send", &record.full_name(), "ok");
        Answer::Cache(Box::new(Granted { cache: record.id.to_string(), about, manifest, holders }))
    }

    /// The record as it is given to others: with the origin's word for it.
    pub(crate) fn told(&self, record: &CacheRecord) -> CacheRecord {
        let mut told = record.clone();
        if record.origin == self.config.name {
            let (card, now) = (self.peers.hello().card, crate::directory::membership::millis());
            let mut attributes = Attributes::of(record);
            attributes.named = SignedName::sign(record, &self.certified, &card, now);
            told.attributes = attributes.to_map();
        }
        told
    }

    /// Whether it is here, for who may know.
    fn holds(&self, peer: &Peer, want: &Want) -> Answer {
        let Some(record) = self.wanted(peer, want) else { return Answer::Absent };
        let Ok(about) = serde_json::to_value(&*record) else { return rejected("internal") };
        Answer::Cache(Box::new(Granted { cache: record.id.to_string(), about, manifest: 0, holders: vec![] }))
    }

    fn said_of_itself(&self) -> (Answer, Bytes) {
        match self.ad() {
            Ok(ad) => (Answer::Ok, ad.to_string().into()),
            Err(error) => (rejected(error.to_string()), Bytes::new()),
        }
    }

    fn match_ads(&self, record: &CacheRecord, want: &Want) -> Result<bool, String> {
        let cache = ads::cache(record).map_err(|e| e.to_string())?;
        let theirs = tidecast_classad::Ad::parse(&want.ad).map_err(|e| format!("its ad: {e}"))?;
        ads::agree(&cache, &theirs, false, crate::now()).map_err(|e| e.to_string())
    }

    /// Has its swarm run, and lets `peer` in; the length of its manifest and its content.
    async fn serve_swarm(&self, record: &CacheRecord, peer: &Peer) -> Result<(u64, [u8; 32]), String> {
        let content = record.content.ok_or("it has no content")?;
        let manifest = self.manifest(record.id, content).map_err(|e| e.to_string())?;
        self.swarms.admit(content, peer.node);
        self.serve_on(record).await?;
        Ok((manifest.to_bytes().len() as u64, content))
    }

    /// Has the swarm of a cache run that is here.
    pub(crate) async fn serve_on(&self, record: &CacheRecord) -> Result<(), String> {
        let content = record.content.ok_or("it has no content")?;
        let serve = || {
            let manifest = self.manifest(record.id, content)?;
            let (root, home) = open_view(&self.depot, record.id, &manifest)?;
            self.swarms
                .seed(&manifest, (root, &home), &self.config.dir.join("seen"))
                .map_err(|e| Error::Start(e.to_string()))
        };
        tokio::task::block_in_place(serve).map_err(|e| e.to_string())
    }

    async fn join(&self, peer: &Peer, want: &Want) -> Answer {
        let content = want
            .cache
            .as_deref()
            .and_then(|hex| data_encoding::HEXLOWER.decode(hex.as_bytes()).ok()?.try_into().ok());
        let Some(content): Option<[u8; 32]> = content else { return Answer::Absent };
        let (Ok(name), Some(reader)) = (want.name.parse::<CacheName>(), reader(peer, want)) else {
            return Answer::Absent;
        };
        let granted = self.swarms.admits(&content, peer.node);
        // One that is here, or on its way here. It must be this very content: the right to one cache is none to another.
        let may = |record: &Arc<CacheRecord>| {
            let of = record.content.or_else(|| self.fetches.content(record.id));
            of == Some(content)
                && record.readable_by(&reader)
                && name.name == record.name
                && name.origin.as_ref() == Some(&record.origin)
                // Whom it was granted has it from us, by whatever way; for others it is a swarm or nothing.
                && (granted || Attributes::of(record).methods().contains(&Method::Swarm))
        };
        let records = self.depot.caches(&Filter::default());
        let Some(record) = records.iter().find(|record| may(record)) else { return Answer::Absent };
        self.swarms.admit(content, peer.node);
        let served = record.is_committed() && self.serve_on(record).await.is_ok();
        if !served && !self.swarms.runs(&content) {
            return Answer::Wait { seconds: AGAIN, why: "it cannot be served now".into() };
        }
        // It may be that it cannot call us, if it was we who called.
        if peer.called {
            self.swarms.call(&content, peer.addr).await;
        }
        Answer::Ok
    }

    async fn part(&self, peer: &Peer, cache: &str, offset: u64) -> (Answer, Bytes) {
        let nothing = (Answer::Absent, Bytes::new());
        let Some((_, manifest)) = self.given_to(peer, cache) else { return nothing };
        let bytes = manifest.to_bytes();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let end = (start + PART).min(bytes.len());
        (Answer::Ok, Bytes::copy_from_slice(&bytes[start..end]))
    }

    /// Somebody would like this host to have a copy. It is fetched like any other, and may still be refused.
    fn offered(self: &Arc<Self>, peer: &Peer, name: &str, owner: String, ad: &str) -> Answer {
        let Identity::Host(_) = peer.identity else { return rejected("only a host's daemon offers caches") };
        let Ok(name) = name.parse::<CacheName>() else { return rejected("that is no name of a cache") };
        if self.mode() != Mode::Running {
            return rejected("this daemon takes nothing new");
        }
        let reader = Reader::owner(&owner);
        if self.here(&name, &reader).is_some() {
            return Answer::Ok;
        }
        if let Ok(ad) = Ad::parse_new(ad)
            && let Err(failed) = suits(self, &ad, &name.to_string(), &owner)
        {
            return rejected(failed.why);
        }
        match self.fetch(name, reader, true) {
            Ok(_) => Answer::Wait { seconds: AGAIN, why: "it is coming".into() },
            Err(error) => rejected(error.why),
        }
    }
}
