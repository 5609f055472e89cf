//! Asks sources for a cache, until one grants it and its answer is verified.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tidecast_depot::CacheRecord;
use tidecast_identity::NodeKey;
use tidecast_metainfo::Manifest;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::directory::names::{proves, speaks_for};
use crate::directory::sources::Directory;
use crate::links::link::{Link, LinkError};
use crate::links::trust::Trust;
use crate::model::api_error::ErrorKind;
use crate::model::attributes::Attributes;
use crate::model::message::{Answer, Ask, Granted, Want};
use crate::model::name::CacheName;
use crate::transfer::fetch_state::{Failed, FetchState, PATIENCE};

/// The next source is asked besides when the last has not answered for this long.
const HEDGE: Duration = Duration::from_millis(400);

/// A granted cache.
pub(crate) struct Grant {
    pub(crate) link: Arc<Link>,
    pub(crate) granted: Granted,
    pub(crate) about: CacheRecord,
}

/// The answers of the sources.
struct Received {
    last: Option<Failed>,
    wait: Option<(u64, String)>,
}

/// Asks sources until one grants the cache.
pub(crate) async fn ask(
    directory: &Arc<Directory>,
    name: &CacheName,
    want: &Want,
    tell: &watch::Sender<FetchState>,
) -> Result<Grant, Failed> {
    let began = Instant::now();
    loop {
        let mut heard = Received { last: None, wait: None };
        if let Some(grant) = ask_all(directory, name, want, &mut heard).await {
            return Ok(grant);
        }
        match heard.wait {
            Some((seconds, why)) if began.elapsed() < PATIENCE => {
                tell.send_replace(FetchState::Waiting { why, bytes: 0, total: 0 });
                tokio::time::sleep(Duration::from_secs(seconds)).await;
            }
            _ => return Err(heard.end(directory, name).await),
        }
    }
}

/// Asks one source after the other, the next also when the last is slow: a source may have failed unnoticed.
async fn ask_all(
    directory: &Arc<Directory>,
    name: &CacheName,
    want: &Want,
    heard: &mut Received,
) -> Option<Grant> {
    let mut left = directory.sources(name, &want.reader).await.into_iter();
    let mut asking = JoinSet::new();
    loop {
        if let Some(link) = left.next() {
            let ask = Ask::Want(want.clone());
            asking.spawn(async move { (link.ask(&ask, Bytes::new()).await, link) });
        }
        tokio::select! {
            Some(answered) = asking.join_next() => {
                let Ok((answer, link)) = answered else { continue };
                if let Some(grant) = heard.judge(directory, name, link, answer.map(|(answer, _)| answer)) {
                    return Some(grant);
                }
            }
            () = tokio::time::sleep(HEDGE), if left.len() > 0 => {}
            else => return None,
        }
    }
}

impl Received {
    /// The error if no source granted it. A source that could not be asked because one side rejected the
    /// other might have it.
    async fn end(self, directory: &Directory, name: &CacheName) -> Failed {
        let mut last = match self.last {
            Some(last) => last,
            None => match directory.no_source_reason(name.origin.as_deref()).await {
                Some(why) => {
                    let what = format!("no cache {name} on this host that you may read, and {why}");
                    Failed::new(ErrorKind::Absent, what)
                }
                None => {
                    let again = match directory.left_alone() {
                        names if names.is_empty() => String::new(),
                        names => format!("; hosts that failed shortly before are asked again: {names}"),
                    };
                    Failed::new(ErrorKind::Unreachable, format!("no known host has {name}{again}"))
                }
            },
        };
        if matches!(last.kind, ErrorKind::Unreachable | ErrorKind::Absent) {
            last.why = directory.links.with_rejections(last.why);
        }
        last
    }

    fn judge(
        &mut self,
        directory: &Directory,
        name: &CacheName,
        link: Arc<Link>,
        answer: Result<Answer, LinkError>,
    ) -> Option<Grant> {
        let peer = link.peer.hello.name.clone();
        let failed = |kind, why: String| Failed::new(kind, format!("{peer}: {why}"));
        match answer {
            Ok(Answer::Cache(granted)) => {
                let about = serde_json::from_value::<CacheRecord>(granted.about.clone());
                let about = about.map_err(|error| format!("malformed reply: {error}"));
                let believed = about.and_then(|about| {
                    is_theirs(&link, name, &about, directory.links.trust(), &directory.key)?;
                    Ok(about)
                });
                match believed {
                    Ok(about) => return Some(Grant { link, granted: *granted, about }),
                    Err(why) => {
                        tracing::warn!(peer, %name, why, "rejected an answer about a cache");
                        self.last = Some(failed(ErrorKind::Unreachable, why));
                    }
                }
            }
            Ok(Answer::Absent)
                if self.last.as_ref().is_none_or(|last| last.kind == ErrorKind::Unreachable) =>
            {
                let why = format!("no cache {name} that you may read");
                self.last = Some(Failed::new(ErrorKind::Absent, why));
            }
            Ok(Answer::Absent) => {}
            Ok(Answer::Wait { seconds, why }) => self.wait = Some((seconds.clamp(1, 60), why)),
            Ok(Answer::Rejected { why }) => self.last = Some(failed(ErrorKind::Rejected, why)),
            Ok(_) => {
                self.last = Some(failed(ErrorKind::Unreachable, "it does not support this request".into()))
            }
            Err(error) => {
                directory.backoff.add(link.peer.addr);
                self.last = Some(Failed::new(ErrorKind::Unreachable, error.to_string()));
            }
        }
        None
    }
}

/// Whether the granted cache is the requested one, and authentic: the peer is its origin, or has the origin's
/// signed record.
fn is_theirs(
    link: &Link,
    name: &CacheName,
    about: &CacheRecord,
    trust: &Trust,
    key: &NodeKey,
) -> Result<(), &'static str> {
    is_asked_for(name, about)?;
    if link.peer.hello.name == about.origin && speaks_for(&link.peer.identity, about) {
        return Ok(());
    }
    let word = Attributes::of(about).named.ok_or("the origin's signed record is missing")?;
    proves(&word, about, trust, key)
}

/// Whether a record is that of a whole cache of this name.
pub(crate) fn is_asked_for(name: &CacheName, about: &CacheRecord) -> Result<(), &'static str> {
    let asked = name.name == about.name
        && name.origin.as_ref().is_none_or(|origin| *origin == about.origin)
        && name.version.is_none_or(|version| about.version == Some(version));
    if asked && about.is_committed() && about.version.is_some() {
        return Ok(());
    }
    Err("it answered with a different cache")
}

/// The manifest of the granted cache, verified by its hash.
pub(crate) async fn manifest(grant: &Grant) -> Result<Manifest, Failed> {
    let who = || grant.link.peer.hello.name.clone();
    let limit = tidecast_metainfo::MAX_LEN as u64;
    if grant.granted.manifest > limit {
        return Err(Failed::new(
            ErrorKind::Rejected,
            format!("manifest too long: {} bytes (limit {limit})", grant.granted.manifest),
        ));
    }
    let mut bytes = BytesMut::new();
    while (bytes.len() as u64) < grant.granted.manifest {
        let ask = Ask::Manifest { cache: grant.granted.cache.clone(), offset: bytes.len() as u64 };
        match grant.link.ask(&ask, Bytes::new()).await {
            Ok((Answer::Ok, payload)) if !payload.is_empty() => bytes.extend_from_slice(&payload),
            Ok(_) => {
                return Err(Failed::new(
                    ErrorKind::Unreachable,
                    format!("{} did not send the manifest", who()),
                ));
            }
            Err(error) => return Err(Failed::new(ErrorKind::Unreachable, error.to_string())),
        }
    }
    let manifest = Manifest::parse(&bytes)
        .map_err(|e| Failed::new(ErrorKind::Unreachable, format!("{}: {e}", who())))?;
    if manifest.hash_v2().is_none() || manifest.hash_v2() != grant.about.content {
        return Err(Failed::new(
            ErrorKind::Unreachable,
            format!("{} sent a manifest with the wrong hash", who()),
        ));
    }
    Ok(manifest)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tidecast_identity::{Identity, NodeId};

    use super::*;
    use crate::links::link::{Peer, Serve, Serving};
    use crate::model::message::Hello;

    struct NoAnswers;

    impl Serve for NoAnswers {
        fn serve<'a>(self: Arc<Self>, _: &'a Peer, _: Ask, _: Bytes) -> Serving<'a> {
            Box::pin(async { (Answer::Absent, Bytes::new()) })
        }
    }

    fn link(identity: Identity, name: &str) -> Arc<Link> {
        let hello = Hello {
            name: name.into(),
            card: String::new(),
            addresses: vec![],
            machine: String::new(),
            started: 0,
            user: None,
            clock: 0,
        };
        let addr = "127.0.0.1:1".parse().unwrap();
        let peer = Peer { node: NodeId([1; 32]), identity, hello, addr, called: true };
        Link::new(peer, tokio::io::duplex(1).0, Arc::new(NoAnswers)).0
    }

    fn about(text: &str) -> CacheRecord {
        let size = serde_json::json!({ "bytes": 1, "inodes": 1 });
        let mut record = serde_json::json!({
            "id": 1, "origin": "head", "name": "nt", "version": 2, "owner": "root", "mode": 0o444, "state": "COMMITTED",
            "declared": size, "created": 1, "last_used": 1, "lease_until": 1,
        });
        let changed: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).unwrap();
        record.as_object_mut().unwrap().extend(changed);
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn nobody_is_believed_about_another_cache_and_without_the_origins_word_only_the_origin() {
        let (head, host) =
            (link(Identity::Host("head".into()), "head"), link(Identity::Host("node1".into()), "node1"));
        let alice = link(Identity::User("alice".into()), "alice.node1");
        let (trust, key) = (Trust::open(None).unwrap(), NodeKey::generate().unwrap());
        let judge = |link: &Arc<Link>, name: &str, changed: &str| {
            is_theirs(link, &name.parse().unwrap(), &about(changed), &trust, &key).is_ok()
        };
        assert!(
            judge(&head, "head/nt", "{}") && judge(&head, "nt@2", "{}") && judge(&head, "head/nt@2", "{}")
        );
        for name in ["head/nr", "other/nt", "head/nt@1"] {
            assert!(!judge(&head, name, "{}"), "{name}");
        }
        for changed in [r#"{"state": "UPLOADING"}"#, r#"{"version": null}"#] {
            assert!(!judge(&head, "head/nt", changed), "{changed}");
        }
        assert!(!judge(&host, "head/nt", "{}"));
        assert!(!judge(&alice, "head/nt", "{}"));
        assert!(!judge(&alice, "head/nt", r#"{"owner": "alice"}"#));
        assert!(!judge(&alice, "alice.node1/nt", r#"{"origin": "alice.node1"}"#));
        assert!(judge(&alice, "alice.node1/nt", r#"{"origin": "alice.node1", "owner": "alice"}"#));
    }
}
