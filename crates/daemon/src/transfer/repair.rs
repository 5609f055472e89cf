//! Checks the store. Damaged content is fetched again from any host that has a copy, caches of this host too:
//! contents are named by their roots, so no host needs to be trusted. The received data replaces the damaged
//! data, and the cache keeps its version.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidecast_depot::{CacheId, CacheRecord, Depth, Report};
use tidecast_metainfo::Manifest;
use tidecast_store::Select;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use crate::directory::sources::Directory;
use crate::links::link::Link;
use crate::model::api_error::{ApiError, ErrorKind};
use crate::model::message::{Answer, Ask, Want};
use crate::model::name::CacheName;
use crate::model::types::{Checked, Unread};
use crate::storage::audit::Audit;
use crate::storage::host_ad::HostAd;
use crate::storage::store::Store;
use crate::transfer::admission::Admission;
use crate::transfer::fetch_state::{Failed, FetchState};
use crate::transfer::grant::{Grant, manifest};
use crate::transfer::mover::{Bring, Mover};
use crate::transfer::permits::SourcePermits;
use crate::transfer::swarms::Swarms;

/// All repairs after one check take no longer than this, plus the time for the missing data at this rate,
/// bytes a second.
const PATIENCE: Duration = Duration::from_secs(600);
const RATE: u64 = 4 << 20;
/// A source must answer within this time.
const ANSWER: Duration = Duration::from_secs(10);
/// Sources that are tried for one cache.
const TRIES: usize = 8;

/// Checks and repairs.
pub(crate) struct Repair {
    pub(crate) store: Arc<Store>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) mover: Arc<dyn Mover>,
    pub(crate) swarms: Arc<Swarms>,
    pub(crate) permits: Arc<SourcePermits>,
    pub(crate) ad: Arc<HostAd>,
    pub(crate) audit: Arc<Audit>,
    /// Held during a check of the store.
    pub(crate) checking: tokio::sync::Mutex<()>,
}

impl Repair {
    /// Verifies everything in the store, and repairs damaged content from other hosts. Content that no other
    /// host has stays INVALID. `who`: the administrator who requested it.
    pub(crate) async fn fsck(&self, who: &str) -> Result<Checked, ApiError> {
        let _one = self.checking.lock().await;
        let report = self.looked_through().await?;
        // Swarms have the damaged files open.
        let touched = report.bad.iter().chain(&report.mended).flat_map(|bad| bad.caches.clone());
        self.serve_no_more(touched).await;
        let lacking: u64 = report.bad.iter().map(|bad| bad.len).sum();
        let until = Instant::now() + PATIENCE + Duration::from_secs(lacking / RATE);
        let mut checked = Checked {
            clean: report.is_clean(),
            caches: report.caches,
            objects: report.objects,
            bytes: report.bytes,
            damaged: (report.bad.len() + report.mended.len()) as u64,
            repaired: report.mended.len() as u64,
            views: self.names_of(&report.views),
            restored: self.names_of(&report.restored),
            orphans: report.orphans,
            unread: report.unread.iter().map(|unread| self.unread(unread)).collect(),
            ..Checked::default()
        };
        for id in report.invalid {
            self.repair_by(until, id, who, &mut checked).await;
        }
        checked.lost = checked.damaged.saturating_sub(checked.repaired);
        checked.bad = checked.lost;
        self.store.changed();
        Ok(checked)
    }

    /// The damaged content; manifests first, since they are needed for the check.
    async fn looked_through(&self) -> Result<Report, ApiError> {
        let check = |depot: &tidecast_depot::Depot| depot.fsck(Depth::Bytes, &mut |_, _| Ok(false));
        let first = self.store.on_disk(check).await?;
        let until = Instant::now() + PATIENCE;
        let mut brought = false;
        for id in &first.invalid {
            let id = *id;
            let whole = move |depot: &tidecast_depot::Depot| Ok::<_, ApiError>(depot.lacks(id).is_ok());
            if self.store.on_disk(whole).await? {
                continue;
            }
            let tried = timeout_at(until, self.bring_manifest(id)).await;
            match tried.unwrap_or_else(|_| Err(Failed::new(ErrorKind::Wait, "timeout"))) {
                Ok(()) => brought = true,
                Err(failed) => {
                    tracing::warn!(cache = %id, why = failed.why, "cannot replace a damaged manifest")
                }
            }
        }
        if !brought {
            return Ok(first);
        }
        let again = self.store.on_disk(check).await?;
        Ok(Report {
            mended: [first.mended, again.mended].concat(),
            views: [first.views, again.views].concat(),
            restored: [first.restored, again.restored].concat(),
            orphans: first.orphans + again.orphans,
            ..again
        })
    }

    /// Fetches the manifest of a cache again, from the first source that sends it.
    async fn bring_manifest(&self, id: CacheId) -> Result<(), Failed> {
        let failed = |error: &dyn std::fmt::Display| Failed::new(ErrorKind::Internal, error.to_string());
        let record = self.store.depot.cache(id).ok_or_else(|| failed(&"the cache was removed"))?;
        let (name, want) = self.wanting(&record)?;
        let mut last = nobody();
        for link in self.directory.sources(&name, &record.owner).await.into_iter().take(TRIES) {
            let given = match self.granted(link, &record, &want).await {
                Ok(grant) => manifest(&grant).await,
                Err(failed) => Err(failed),
            };
            match given {
                Ok(manifest) => {
                    let put = move |depot: &tidecast_depot::Depot| depot.put_manifest(id, &manifest);
                    return self.store.on_disk(put).await.map_err(|e| failed(&e.why));
                }
                Err(failed) => last = failed,
            }
        }
        Err(last)
    }

    /// The request to sources of this cache.
    fn wanting(&self, record: &CacheRecord) -> Result<(CacheName, Want), Failed> {
        let failed = |error: &dyn std::fmt::Display| Failed::new(ErrorKind::Internal, error.to_string());
        let name: CacheName = record.full_name().parse().map_err(|e| failed(&e))?;
        let want = Want {
            name: name.to_string(),
            cache: None,
            reader: record.owner.clone(),
            groups: record.group.iter().cloned().collect(),
            ad: self.ad.now().map_err(|e| failed(&e))?.to_string(),
        };
        Ok((name, want))
    }

    /// Repairs a cache before the deadline, and records the result.
    async fn repair_by(&self, until: Instant, id: CacheId, who: &str, checked: &mut Checked) {
        let late = Err(Failed::new(ErrorKind::Wait, "timeout"));
        let repaired = match Instant::now() < until {
            true => timeout_at(until, self.repair(id)).await.unwrap_or(late),
            false => late,
        };
        let outcome = match repaired {
            Ok(report) => {
                checked.repaired += report.mended.len() as u64;
                checked.restored.extend(self.names_of(&report.restored));
                "ok".to_owned()
            }
            Err(failed) => failed.why,
        };
        let Some(record) = self.store.depot.cache(id) else { return };
        self.audit.note(who, "repair", &record.full_name(), &outcome);
        if !record.is_committed() {
            tracing::warn!(cache = record.full_name(), why = outcome, "cannot repair a damaged cache");
            checked.invalid.push(record.full_name());
        }
    }

    /// A file that could not be read, also logged: its disk needs attention.
    fn unread(&self, unread: &tidecast_depot::Unread) -> Unread {
        let (path, why) = (unread.path.display().to_string(), unread.why.clone());
        tracing::warn!(path, why, "cannot read a file of the store; its caches stay unchanged");
        Unread { path, why, caches: self.names_of(&unread.caches) }
    }

    fn names_of(&self, ids: &[CacheId]) -> Vec<String> {
        ids.iter()
            .map(|id| self.store.depot.cache(*id).map_or_else(|| id.to_string(), |r| r.full_name()))
            .collect()
    }

    async fn serve_no_more(&self, caches: impl Iterator<Item = CacheId>) {
        let contents: std::collections::HashSet<[u8; 32]> =
            caches.filter_map(|id| self.store.depot.cache(id)?.content).collect();
        for content in contents.iter().filter(|content| self.swarms.only_seeds(content)) {
            self.swarms.stop(content).await;
        }
    }

    /// Fetches the missing content of a damaged cache, from the first source that has it.
    async fn repair(&self, id: CacheId) -> Result<Report, Failed> {
        let failed = |error: &dyn std::fmt::Display| Failed::new(ErrorKind::Internal, error.to_string());
        // It would be the first to be evicted. The repair is no use of the cache.
        let _busy = self.store.depot.busy(id, 0).map_err(|e| failed(&e))?;
        let record = self.store.depot.cache(id).ok_or_else(|| failed(&"the cache was removed"))?;
        let (manifest, lacking) =
            self.store.on_disk(move |depot| depot.lacks(id)).await.map_err(|e| failed(&e.why))?;
        let manifest = Arc::new(manifest);
        if lacking.is_empty() {
            return self.repair_content(id, HashMap::new()).await;
        }
        let (name, want) = self.wanting(&record)?;
        let mut last = nobody();
        for link in self.directory.sources(&name, &record.owner).await.into_iter().take(TRIES) {
            let brought = match self.granted(link, &record, &want).await {
                Ok(grant) => self.bring_lacking(&grant, &want, &manifest, &lacking).await,
                Err(failed) => Err(failed),
            };
            match brought {
                Ok(dir) => return self.repair_content(id, places(&manifest, &lacking, &dir)).await,
                Err(failed) => last = failed,
            }
        }
        Err(last)
    }

    /// Whether a source has this content. Its name needs no proof: it is known here.
    async fn granted(&self, link: Arc<Link>, record: &CacheRecord, want: &Want) -> Result<Grant, Failed> {
        let who = link.peer.hello.name.clone();
        let failed = |why: &str| Failed::new(ErrorKind::Unreachable, format!("{who}: {why}"));
        let asked = timeout(ANSWER, link.ask(&Ask::Want(want.clone()), Bytes::new())).await;
        let granted = match asked.map_err(|_| failed("no answer before the timeout"))? {
            Ok((Answer::Cache(granted), _)) => granted,
            Ok((Answer::Wait { why, .. } | Answer::Rejected { why }, _)) => return Err(failed(&why)),
            Ok(_) => return Err(failed("it does not have the cache")),
            Err(error) => return Err(failed(&error.to_string())),
        };
        let about = serde_json::from_value::<CacheRecord>(granted.about.clone());
        let about = about.map_err(|error| failed(&format!("malformed reply: {error}")))?;
        if about.content != record.content {
            return Err(failed("its cache of this name has other content"));
        }
        Ok(Grant { link, granted: *granted, about })
    }

    /// Fetches these files into a directory of their own.
    async fn bring_lacking(
        &self,
        grant: &Grant,
        want: &Want,
        manifest: &Arc<Manifest>,
        lacking: &[u32],
    ) -> Result<PathBuf, Failed> {
        let content = manifest.hash_v2().unwrap_or_default();
        if self.swarms.runs(&content) && !self.swarms.only_seeds(&content) {
            return Err(Failed::new(ErrorKind::Wait, "the cache is being fetched already"));
        }
        let dir = self.store.on_disk(tidecast_depot::Depot::repairs).await;
        let dir = dir.map_err(|e| Failed::new(ErrorKind::Internal, e.why))?;
        let method = self.admission.method(&grant.about)?;
        let _permit = self.permits.acquire(grant.link.peer.node).await;
        let swarm = Ended { swarms: self.swarms.clone(), content: Some(content) };
        let (tell, _) = watch::channel(FetchState::Waiting { why: String::new(), bytes: 0, total: 0 });
        let files = Some(Select::Files(lacking.to_vec()));
        let bring = Bring { manifest: manifest.clone(), dir: dir.clone(), missing: files, bases: Vec::new() };
        let moved = self.mover.bring(grant, bring, want, method, &tell).await;
        swarm.end().await;
        moved.map(|()| dir)
    }

    /// Puts the received content in place.
    async fn repair_content(
        &self,
        id: CacheId,
        places: HashMap<[u8; 32], PathBuf>,
    ) -> Result<Report, Failed> {
        let repair_content = move |depot: &tidecast_depot::Depot| {
            let report = depot.repair(id, &mut |bad, to| match places.get(&bad.root) {
                Some(path) => io::copy(&mut depot.open_received(path)?, to).map(|_| true),
                None => Ok(false),
            });
            // Copied files are no longer needed.
            depot.repairs()?;
            report
        };
        self.store.on_disk(repair_content).await.map_err(|e| Failed::new(ErrorKind::Internal, e.why))
    }
}

fn nobody() -> Failed {
    Failed::new(ErrorKind::Unreachable, "no known host has the cache")
}

/// Ends a swarm that has fetched, also where its task is given up.
struct Ended {
    swarms: Arc<Swarms>,
    content: Option<[u8; 32]>,
}

impl Ended {
    async fn end(mut self) {
        if let Some(content) = self.content.take() {
            self.swarms.stop(&content).await;
        }
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let Some(content) = self.content else { return };
        let swarms = self.swarms.clone();
        tokio::spawn(async move { swarms.stop(&content).await });
    }
}

/// Where each content lies that was brought.
fn places(manifest: &Manifest, files: &[u32], dir: &Path) -> HashMap<[u8; 32], PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let top = dir.join(std::ffi::OsStr::from_bytes(manifest.name_bytes()));
    let files = files.iter().filter_map(|index| manifest.file(*index));
    files.filter_map(|file| Some((file.pieces_root()?, file.path().below(&top)))).collect()
}
