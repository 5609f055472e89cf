//! Caches from another daemon of this machine: by links if both belong to one user and see the same
//! directories, else as a stream over its socket; the kernel identifies the caller.
//!
//! A trusted parent (root's, or of our own user) is asked for the whole cache. From daemons of other users
//! only bytes are taken, of caches that every user may read, and each is verified against the manifest that
//! its origin sent.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidecast_depot::{CacheId, CacheRecord, Reader, Reservation};
use tidecast_metainfo::Manifest;
use tidecast_paths::{Copied, Root, fill};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use crate::client::ClientError;
use crate::host::election::{Election, Parent};
use crate::host::limits::HostLimits;
use crate::model::api_error::ErrorKind;
use crate::model::name::CacheName;
use crate::model::types::{CacheInfo, Get, Got, Method, ReceivedBytes};
use crate::storage::store::Store;
use crate::storage::upload;
use crate::transfer::admission::{Admission, Room};
use crate::transfer::fetch_state::{Failed, FetchState};
use crate::transfer::grant;
use crate::transfer::received::ReceivedTotals;

/// The parent is asked again after this long, seconds; it answers within this long beyond.
const ASK: u64 = 2;
const ANSWER: Duration = Duration::from_secs(5);
/// The daemon of another user must report progress within this time, and finish within the next.
const STALLED: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(600);
/// Parents tried for one cache.
const TRIES: usize = 4;

/// Why it does not come from this parent.
enum Missed {
    /// The parent has failed: another may do.
    Lost(String),
    /// It does not have the cache, or this host has no space: another parent would not help.
    No(Failed),
}

impl From<ClientError> for Missed {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused { why, .. } => Missed::No(Failed::new(ErrorKind::Absent, why)),
            other => Missed::Lost(other.to_string()),
        }
    }
}

impl From<Failed> for Missed {
    fn from(failed: Failed) -> Self {
        Missed::No(failed)
    }
}

/// The other daemons of this machine, as sources.
pub(crate) struct SameHost {
    pub(crate) election: Arc<Election>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) received_totals: Arc<ReceivedTotals>,
    pub(crate) store: Arc<Store>,
    pub(crate) limits: Arc<HostLimits>,
    /// Whose daemon this is; None: the host's.
    pub(crate) user: Option<String>,
}

impl SameHost {
    /// Fetches from a trusted parent, if there is one and it has the cache or can fetch it. None: this daemon
    /// has to fetch it.
    pub(crate) async fn whole_cache(
        &self,
        name: &CacheName,
        reader: &Reader,
        tell: &watch::Sender<FetchState>,
    ) -> Option<(CacheId, Method)> {
        for _ in 0..TRIES {
            let parent = self.election.parent().await.filter(|parent| parent.is_plausible)?;
            match self.whole(&parent, name, reader, tell).await {
                Ok(done) => return Some(done),
                Err(Missed::No(failed)) => {
                    tracing::debug!(parent = parent.name, %name, why = failed.why, "the parent daemon does not provide the cache");
                    return None;
                }
                Err(Missed::Lost(why)) => {
                    tracing::info!(parent = parent.name, %name, why, "the parent daemon failed");
                    self.election.give_up(&parent);
                }
            }
        }
        None
    }

    /// The bytes of a cache that every user may read, from a daemon of another user. None: this daemon has to
    /// fetch them.
    pub(crate) async fn bytes(
        &self,
        about: &CacheRecord,
        manifest: &Arc<Manifest>,
        tell: &watch::Sender<FetchState>,
    ) -> Option<(CacheId, Method)> {
        let parent = self.election.parent().await?;
        if parent.is_plausible || about.mode & 0o004 == 0 || about.private {
            return None;
        }
        let user = self.user.clone()?;
        match self.bytes_of(&parent, about, manifest, &user, tell).await {
            Ok(done) => Some(done),
            Err(Missed::No(_)) => None,
            Err(Missed::Lost(why)) => {
                tracing::info!(
                    parent = parent.name,
                    cache = about.full_name(),
                    why,
                    "the parent daemon failed"
                );
                self.election.give_up(&parent);
                None
            }
        }
    }

    async fn bytes_of(
        &self,
        parent: &Parent,
        about: &CacheRecord,
        manifest: &Arc<Manifest>,
        user: &str,
        tell: &watch::Sender<FetchState>,
    ) -> Result<(CacheId, Method), Missed> {
        let info = ready(parent, &about.full_name(), user, tell).await?;
        let (record, _) = parent.client.manifest(&info.cache).await?;
        if understood(&record)?.content != manifest.hash_v2() {
            return Err(Missed::Lost("its cache of this name has other content".into()));
        }
        match self.admission.admit(about, manifest, false, tell).await? {
            Room::Here(id) => Ok((id, Method::Direct)),
            Room::Kept(reservation, _) => self.stream(parent, &info.cache, reservation, manifest).await,
        }
    }

    async fn whole(
        &self,
        parent: &Parent,
        name: &CacheName,
        reader: &Reader,
        tell: &watch::Sender<FetchState>,
    ) -> Result<(CacheId, Method), Missed> {
        let info = ready(parent, &name.to_string(), &reader.owner, tell).await?;
        let (record, manifest) = parent.client.manifest(&info.cache).await?;
        let about = understood(&record)?;
        let nonsense = |e: &dyn std::fmt::Display| Missed::Lost(format!("malformed reply: {e}"));
        let manifest = Arc::new(Manifest::parse(&manifest).map_err(|e| nonsense(&e))?);
        grant::is_asked_for(name, &about).map_err(|e| nonsense(&e))?;
        if about.content.is_none() || manifest.hash_v2() != about.content || !about.readable_by(reader) {
            return Err(nonsense(&"not the requested cache"));
        }
        self.admission.agree(&about)?;
        let reservation = match self.admission.admit(&about, &manifest, false, tell).await? {
            Room::Here(id) => return Ok((id, Method::Direct)),
            Room::Kept(reservation, _) => reservation,
        };
        match info.path.filter(|_| parent.links) {
            Some(view) => self.link(&view, reservation, &manifest).await,
            None => self.stream(parent, &info.cache, reservation, &manifest).await,
        }
    }

    /// Links the parent's files, which belong to our user as well, into our own staging directory; they
    /// become ours unchanged.
    async fn link(
        &self,
        view: &Path,
        reservation: Reservation,
        manifest: &Arc<Manifest>,
    ) -> Result<(CacheId, Method), Missed> {
        let reservation = cleared(reservation, manifest).await?;
        let (from, to) = (view.parent().unwrap_or(view).to_owned(), reservation.dir());
        let linking = manifest.clone();
        let linked = tokio::task::spawn_blocking(move || link_all(&from, &to, &linking)).await;
        let linked = linked.map_err(|e| Failed::new(ErrorKind::Internal, e.to_string()))?;
        let copied = linked.map_err(|e| Missed::Lost(format!("cannot link its files: {e}")))?;
        reservation.take_links();
        let link = manifest.total_len().saturating_sub(copied);
        let came = ReceivedBytes { parent: copied, link, ..ReceivedBytes::default() };
        let id = self.admission.commit(reservation, manifest.clone(), came).await?.id;
        Ok((id, if copied == 0 { Method::Link } else { Method::Direct }))
    }

    /// Takes the bytes over the parent's socket, and verifies all of them.
    async fn stream(
        &self,
        parent: &Parent,
        cache: &str,
        reservation: Reservation,
        manifest: &Arc<Manifest>,
    ) -> Result<(CacheId, Method), Missed> {
        let reservation = cleared(reservation, manifest).await?;
        let files = crate::model::files::missing(manifest, &[]);
        let id = reservation.id();
        let upload = upload::Upload::new(reservation, manifest.clone(), files);
        let (chunks, queue) = mpsc::channel(upload::CHUNKS);
        let writing = tokio::spawn(upload::write(upload, queue));
        let sent = self.pass_on(parent, cache, chunks).await;
        let written = writing.await.map_err(|e| Failed::new(ErrorKind::Internal, e.to_string()))?;
        match (sent, written) {
            (sent, Ok(record)) => {
                let bytes = sent.unwrap_or(0);
                self.received_totals
                    .arrived(record.id, ReceivedBytes { parent: bytes, ..ReceivedBytes::default() })
                    .await;
                Ok((record.id, Method::Direct))
            }
            (sent, Err(error)) => {
                // The error that is reported is the one that came first.
                let _ = self.store.on_disk(move |depot| depot.clear_staged(id)).await;
                sent?;
                Err(Missed::Lost(error.why))
            }
        }
    }

    /// Passes the bytes from the parent's socket to the writer; their number.
    async fn pass_on(
        &self,
        parent: &Parent,
        cache: &str,
        to: mpsc::Sender<Option<Bytes>>,
    ) -> Result<u64, ClientError> {
        let mut content = parent.client.content(cache).await?;
        let mut bytes = 0;
        while let Some(chunk) = content.next().await? {
            bytes += chunk.len() as u64;
            self.limits.throttle.store(chunk.len() as u64).await;
            if to.send(Some(chunk)).await.is_err() {
                // The writer has ended, and reports why.
                return Ok(bytes);
            }
        }
        let _ = to.send(None).await;
        Ok(bytes)
    }
}

fn understood(record: &[u8]) -> Result<CacheRecord, Missed> {
    serde_json::from_slice(record).map_err(|e| Missed::Lost(format!("malformed reply: {e}")))
}

/// Waits until the parent has the cache.
async fn ready(
    parent: &Parent,
    name: &str,
    user: &str,
    tell: &watch::Sender<FetchState>,
) -> Result<CacheInfo, Missed> {
    let get = Get { name: name.into(), wait: ASK, copy_for: Some(user.into()), ..Get::default() };
    let (began, mut moved, mut last) = (Instant::now(), Instant::now(), 0);
    loop {
        let asked = parent.client.post("/v1/get", &get, Duration::ZERO);
        let answer = timeout(Duration::from_secs(ASK) + ANSWER, asked).await;
        match answer.map_err(|_| Missed::Lost("no answer before the timeout".into()))?? {
            Got::Ready { info, .. } => return Ok(*info),
            Got::Wait { why, bytes, total } => {
                if bytes > last {
                    (last, moved) = (bytes, Instant::now());
                }
                if !parent.is_plausible && (moved.elapsed() > STALLED || began.elapsed() > PATIENCE) {
                    return Err(Missed::Lost("no progress before the timeout".into()));
                }
                let why = format!("{}: {why}", parent.name);
                tell.send_replace(FetchState::Waiting { why, bytes, total });
            }
        }
    }
}

/// Links each content once, or copies it where no link can be made; bytes that were copied.
fn link_all(from: &Path, to: &Path, manifest: &Manifest) -> std::io::Result<u64> {
    let (from, to) = (Root::open(from)?, Root::open(to)?);
    let mut copied = 0;
    for index in crate::model::files::missing(manifest, &[]) {
        let Some(file) = manifest.file(index) else { continue };
        let path = file.path().under(Path::new(""));
        if let Some(parent) = path.parent() {
            to.make_dirs(parent, 0o700)?;
        }
        if from.link_to(&path, &to, &path).is_ok() {
            continue;
        }
        let (old, new) = (from.open_file(&path)?, to.create(&path, 0o600)?);
        if fill(&old, &new)? == Copied::Copy {
            copied += file.len();
        }
    }
    Ok(copied)
}

/// Removes leftovers of an earlier attempt.
async fn cleared(reservation: Reservation, manifest: &Manifest) -> Result<Reservation, Failed> {
    let left = PathBuf::from(OsStr::from_bytes(manifest.name_bytes()));
    let clear = move || reservation.remove(&left).map(|()| reservation);
    let cleared = tokio::task::spawn_blocking(clear).await;
    let internal = |e: &dyn std::fmt::Display| Failed::new(ErrorKind::Internal, e.to_string());
    cleared.map_err(|e| internal(&e))?.map_err(|e| internal(&e))
}
