//! Builds a new version of a cache from its older version on this host: leaves of 16 KiB are found in the old
//! files at any offset, so that inserted or removed bytes cost no more than the leaves around them (as in
//! zsync).
//!
//! The source sends a fingerprint of each leaf of a file ([`Fingerprint`]: 16 bytes, a thousandth of the
//! data); this daemon searches its old version for them, at the same offset first. If enough is found it
//! assembles the new file, requests the leaves that are missing between found ones, and passes the result to
//! the store as an older version ([`Base`]), of which every piece is hashed before it counts. So false
//! answers of the source do no harm, and any failure only makes the swarm transfer more.

use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidecast_depot::{CacheRecord, Filter, Reader, State};
use tidecast_hash::{Fingerprint, LEAF};
use tidecast_metainfo::Manifest;
use tidecast_net::Throttle;
use tidecast_paths::Root;
use tidecast_store::{Base, Patch};
use tokio::sync::watch;

use crate::model::message::{Answer, Ask};
use crate::storage::store::{Store, open_view};
use crate::transfer::fetch_state::FetchState;
use crate::transfer::grant::Grant;

/// Bytes that one answer gives.
pub(crate) const GIVEN: u64 = 1 << 20;
/// Files shorter than this come whole.
const LEAST: u64 = 4 * LEAF as u64;
/// Longer files are compared at the same offsets only: an index of their leaves would take too much memory.
const MOST: u64 = 16 << 30;
/// A file of which less than one leaf in this many is found comes whole.
const WORTH: usize = 8;
/// Missing bytes that are asked of one holder; the swarm brings more.
const ASKED: u64 = 256 << 20;
/// Directory for assembled files, beside the received ones.
pub(crate) const PLACE: &str = ".tidecast-base";
/// Files that are compared, the largest that changed.
const FILES: usize = 256;
/// The comparison stops after this time: the remaining files are transferred whole.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of a leaf.
pub(crate) const LEN: u64 = LEAF as u64;

/// An old version of a cache that is here, opened.
struct Old {
    root: Root,
    /// Where its tree or file is below the root.
    home: PathBuf,
}

impl Old {
    fn file(&self, path: &tidecast_metainfo::TreePath<'_>) -> Option<File> {
        let file = self.root.open_file(path.below(&self.home)).ok()?;
        (file.metadata().ok()?.len() >= LEN).then_some(file)
    }
}

/// Parts of older versions for a new one.
#[derive(Debug, Default)]
pub(crate) struct Bases {
    /// The best first.
    pub(crate) bases: Vec<Base>,
    /// Bytes that came from the holder for it.
    pub(crate) received: u64,
}

/// Finds data of the new version in the version before it. Without an older version it finds nothing, which is not an error.
pub(crate) async fn bases(
    store: &Arc<Store>,
    throttle: &Throttle,
    grant: &Grant,
    manifest: &Arc<Manifest>,
    dir: &Path,
    missing: &[u32],
    tell: &watch::Sender<FetchState>,
) -> Bases {
    let mut found = Bases::default();
    let (asked, about) = (store.clone(), grant.about.clone());
    let before = tokio::task::spawn_blocking(move || before(&asked, &about)).await;
    let Some(old) = before.ok().flatten().map(Arc::new) else { return found };
    let why = format!("comparing {} with the version in the store", grant.about.full_name());
    tell.send_replace(FetchState::Waiting { why, bytes: 0, total: manifest.total_len() });
    let Ok(dir) = store.depot.open_dir(dir).map(Arc::new) else { return found };
    if !clear(&dir).await {
        return found;
    }
    // An earlier attempt is continued as it was begun.
    let is_stage = |name: &OsStr| name.as_bytes().starts_with(b".tidecast-");
    let begun = dir.list("").is_ok_and(|names| names.iter().any(|name| is_stage(name)));
    let size = |index: &u32| manifest.file(*index).map_or(0, |file| file.len());
    let mut large: Vec<u32> =
        missing.iter().copied().filter(|index| !begun && size(index) >= LEAST).collect();
    large.sort_by_key(|index| std::cmp::Reverse(size(index)));
    let (mut patched, until) = (false, Instant::now() + PATIENCE);
    for index in large.into_iter().take(FILES).take_while(|_| Instant::now() < until) {
        match patch(throttle, grant, manifest, &dir, &old, index).await {
            Ok(received) => {
                patched |= received.is_some();
                found.received += received.unwrap_or(0);
            }
            Err(why) => {
                let cache = grant.about.full_name();
                tracing::info!(cache, why, "cannot reuse the older version");
                patched = false;
                clear(&dir).await;
                break;
            }
        }
    }
    if patched && let Ok(root) = dir.sub(PLACE) {
        found.bases.push(Base::beneath(root, Path::new("")));
    }
    if let Ok(root) = old.root.sub("") {
        found.bases.push(Base::beneath(root, &old.home));
    }
    found
}

/// Removes assembled files; false if that fails.
pub(crate) async fn clear(dir: &Arc<Root>) -> bool {
    let dir = dir.clone();
    matches!(tokio::task::spawn_blocking(move || dir.remove_all(PLACE)).await, Ok(Ok(())))
}

/// The newest other version that is here and that the owner of this one may read.
fn before(store: &Store, about: &CacheRecord) -> Option<Old> {
    let filter = Filter {
        name: Some(about.name.clone()),
        origin: Some(about.origin.clone()),
        state: Some(State::Committed),
        reader: Some(Reader::owner(&about.owner)),
        ..Filter::default()
    };
    let mut all = store.depot.caches(&filter);
    all.retain(|record| record.version != about.version);
    all.sort_by_key(|record| std::cmp::Reverse(record.version));
    let record = all.first()?;
    let manifest = store.manifest(record.id, record.content?).ok()?;
    let (root, home) = open_view(&store.depot, record.id, &manifest).ok()?;
    Some(Old { root, home })
}

/// Puts a file together of its old version, if that has enough of it; the bytes that came for it.
async fn patch(
    throttle: &Throttle,
    grant: &Grant,
    manifest: &Arc<Manifest>,
    dir: &Arc<Root>,
    old: &Arc<Old>,
    index: u32,
) -> Result<Option<u64>, String> {
    let Some(file) = manifest.file(index).filter(|f| (LEAST..=MOST).contains(&f.len())) else {
        return Ok(None);
    };
    let Some(source) = old.file(&file.path()) else { return Ok(None) };
    let len = file.len();
    // It is there twice for a moment, and room is kept for one.
    let room = rustix::fs::fstatvfs(&**dir).map_err(|e| e.to_string())?;
    if room.f_blocks > 0 && room.f_bavail.saturating_mul(room.f_frsize) / 2 < len {
        return Ok(None);
    }
    let leaves = fingerprints(throttle, grant, index, len).await?;
    let mut received = (leaves.len() * Fingerprint::LEN) as u64;
    let source = Arc::new(source);
    let (from, known) = (source.clone(), leaves.clone());
    let plan = tokio::task::spawn_blocking(move || Patch::find(&known, &from, len)).await;
    let plan = plan.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
    if plan.found() * WORTH < leaves.len() {
        return Ok(Some(received));
    }
    let mut path = file.path().below(Path::new(PLACE));
    if manifest.is_single_file() {
        path.push(OsStr::from_bytes(manifest.name_bytes()));
    }
    let (place, plan) = (dir.clone(), Arc::new(plan));
    let (from, copies) = (source, plan.clone());
    let made = tokio::task::spawn_blocking(move || {
        let make = || {
            if let Some(above) = path.parent() {
                place.make_dirs(above, 0o700)?;
            }
            let to = place.create(&path, 0o600)?;
            to.set_len(len)?;
            copies.apply(&from, true, |data, offset| to.write_all_at(data, offset))?;
            Ok(Arc::new(to))
        };
        make().map_err(|e: std::io::Error| e.to_string())
    });
    let to = made.await.map_err(|e| e.to_string())??;
    let wanted = plan.missing(manifest.piece_length().into());
    if wanted.iter().map(|range| range.end - range.start).sum::<u64>() > ASKED {
        return Ok(Some(received));
    }
    for batch in batches(wanted) {
        let data = ask(
            throttle,
            grant,
            Ask::Leaves { cache: grant.granted.cache.clone(), file: index, ranges: batch.clone() },
        )
        .await?;
        received += data.len() as u64;
        let to = to.clone();
        let written = tokio::task::spawn_blocking(move || write(&to, &batch, &data)).await;
        written.map_err(|e| e.to_string())??;
    }
    Ok(Some(received))
}

/// The source's fingerprints of all leaves of a file.
async fn fingerprints(
    throttle: &Throttle,
    grant: &Grant,
    file: u32,
    len: u64,
) -> Result<Arc<Vec<Fingerprint>>, String> {
    let total = usize::try_from(len.div_ceil(LEN)).map_err(|e| e.to_string())?;
    let mut all: Vec<Fingerprint> = Vec::new();
    while all.len() < total {
        let first = all.len() as u32;
        let data =
            ask(throttle, grant, Ask::Fingerprints { cache: grant.granted.cache.clone(), file, first })
                .await?;
        let (told, rest) = data.as_chunks::<{ Fingerprint::LEN }>();
        if told.is_empty() || !rest.is_empty() || all.len() + told.len() > total {
            return Err(format!("malformed reply from {}", grant.link.peer.hello.name));
        }
        all.extend(told.iter().map(|bytes| Fingerprint::from_bytes(*bytes)));
    }
    Ok(Arc::new(all))
}

async fn ask(throttle: &Throttle, grant: &Grant, ask: Ask) -> Result<Bytes, String> {
    match grant.link.ask(&ask, Bytes::new()).await {
        Ok((Answer::Ok, payload)) => {
            throttle.receive(payload.len() as u64).await;
            Ok(payload)
        }
        Ok((answer, _)) => Err(format!("{} answers {answer:?}", grant.link.peer.hello.name)),
        Err(error) => Err(error.to_string()),
    }
}

/// Requests of at most as much as one answer gives, [offset, length] each.
fn batches(wanted: Vec<Range<u64>>) -> Vec<Vec<(u64, u64)>> {
    let (mut all, mut batch, mut room) = (Vec::new(), Vec::new(), GIVEN);
    for mut range in wanted {
        while range.start < range.end {
            let take = (range.end - range.start).min(room);
            batch.push((range.start, take));
            (range.start, room) = (range.start + take, room - take);
            if room == 0 {
                all.push(std::mem::take(&mut batch));
                room = GIVEN;
            }
        }
    }
    all.extend((!batch.is_empty()).then_some(batch));
    all
}

fn write(to: &File, ranges: &[(u64, u64)], mut data: &[u8]) -> Result<(), String> {
    for (offset, len) in ranges {
        let len = usize::try_from(*len).map_err(|e| e.to_string())?;
        let (part, rest) = data.split_at_checked(len).ok_or("reply too short")?;
        to.write_all_at(part, *offset).map_err(|e| e.to_string())?;
        data = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_missing_is_asked_for_in_parts() {
        let all = batches(vec![0..GIVEN + 5, 2 * GIVEN..2 * GIVEN + 7]);
        assert_eq!(all, [vec![(0, GIVEN)], vec![(GIVEN, 5), (2 * GIVEN, 7)]]);
    }
}
