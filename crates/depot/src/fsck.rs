//! Checks and repairs the store.
//!
//! Database and manifests are authoritative; the disk is compared with both. A damaged object is copied from
//! elsewhere in the store or fetched again by the caller (from peers), verified, and replaces the old one in every
//! view; otherwise it stops being an object, and its caches are INVALID until it is repaired.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidecast_metainfo::{FileRef, Manifest};

use crate::compare::differing;
use crate::db::{ALL, Objects, Tables};
use crate::error::{Context, Error};
use crate::layout::Layout;
use crate::object::{ObjectKey, Parts, object_size};
use crate::open_dir::OpenDir;
use crate::place::{empty, set_attributes};
use crate::report::{Bad, Depth, Look, Report, Unread};
use crate::reserve::held_in;
use crate::root::root_of;
use crate::{CacheId, CacheRecord, Depot, Size, State, os};

const NO_MANIFEST: &str = "the manifest is damaged";

/// Fetches a content: writes it to the file; whether it could. The data is verified.
type Bring<'a> = &'a mut dyn FnMut(&Bad, &mut File) -> io::Result<bool>;

/// A committed cache that is being checked.
struct Checked {
    record: Arc<CacheRecord>,
    manifest: Manifest,
    parts: Parts,
}

impl Depot {
    /// Checks everything and repairs it as far as possible; `bring` is called for damaged content. Commits and
    /// evictions wait meanwhile; reading continues.
    ///
    /// # Errors
    /// Errors of disk and database; damage is not an error but in the report.
    pub fn fsck(&self, depth: Depth, bring: Bring<'_>) -> Result<Report, Error> {
        self.check(|_| true, Some(depth), bring)
    }

    /// Repairs one damaged cache, as [`Depot::fsck`] does, without checking anything else, nor content that was
    /// found undamaged.
    ///
    /// # Errors
    /// As [`Depot::fsck`].
    pub fn repair(&self, id: CacheId, bring: Bring<'_>) -> Result<Report, Error> {
        self.check(|record| record.id == id && record.withdrawn, None, bring)
    }

    /// Replaces a damaged manifest. Its cache stays INVALID until the next [`Depot::fsck`], which checks its files.
    ///
    /// # Errors
    /// [`Error::NoCache`]; it is not this cache's; the disk's error.
    pub fn put_manifest(&self, id: CacheId, manifest: &Manifest) -> Result<(), Error> {
        let _disk = self.0.disk.lock();
        let record = self.cache(id).ok_or(Error::NoCache(id))?;
        if record.content.is_none() || manifest.hash_v2() != record.content {
            return Err(Error::Unfit("the manifest describes other content"));
        }
        let dir = self.0.layout.cache(id);
        self.0.layout.write_manifest(&dir, manifest)?;
        self.0.layout.sync(&dir)
    }

    /// A cache's manifest, if it is not damaged.
    fn manifest_of(&self, record: &CacheRecord) -> Result<Option<Manifest>, Error> {
        match self.0.layout.manifest_in(&self.0.layout.cache(record.id)) {
            // A failure of this host is no damage.
            Err(error) if error.is_of_host() => Err(error),
            read => Ok(read.ok().filter(|m| m.hash_v2() == record.content)),
        }
    }

    /// The missing parts of a damaged cache: its manifest, and of each missing content the first file.
    ///
    /// # Errors
    /// [`Error::NoCache`]; [`Error::Unfit`]: its manifest is damaged.
    pub fn lacks(&self, id: CacheId) -> Result<(Manifest, Vec<u32>), Error> {
        let record = self.cache(id).ok_or(Error::NoCache(id))?;
        let manifest = self.manifest_of(&record)?.ok_or(Error::Unfit(NO_MANIFEST))?;
        let gone = |key: &ObjectKey| !self.0.layout.is_file(&self.0.layout.object(key));
        let files = manifest.files().filter(|f| !f.is_empty());
        let lost = files.filter(|f| ObjectKey::of(*f).is_some_and(|key| gone(&key))).map(|f| f.same_as());
        let lost: BTreeSet<u32> = lost.collect();
        Ok((manifest, lost.into_iter().collect()))
    }

    /// An empty directory for fetched content. One at a time; leftovers are removed when the store is opened.
    ///
    /// # Errors
    /// The disk's error.
    pub fn repairs(&self) -> Result<PathBuf, Error> {
        let dir = self.0.layout.incoming().join("repairs");
        self.0.layout.remove_all(&dir)?;
        self.0.layout.make_dir(&dir)?;
        Ok(dir)
    }

    /// Opens a file in [`Depot::repairs`], by its whole path.
    ///
    /// # Errors
    /// The system's error; a link is rejected.
    pub fn open_received(&self, path: &Path) -> io::Result<File> {
        let repairs = self.0.layout.incoming().join("repairs");
        if !path.starts_with(repairs) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.0.layout.open(path)
    }

    /// `depth`: for everything; `None`: existing objects count as undamaged.
    fn check(
        &self,
        only: impl Fn(&CacheRecord) -> bool,
        depth: Option<Depth>,
        bring: Bring<'_>,
    ) -> Result<Report, Error> {
        let _disk = self.0.disk.lock();
        let mut report = Report::default();
        let (caches, is_all) = self.manifests(only, &mut report)?;
        let wanted = wanted(&caches);
        report.caches = caches.len() as u64;
        let (mut bad, mut unread, mut open_dir) =
            (BTreeSet::new(), BTreeSet::new(), OpenDir::new(&self.0.layout));
        for (key, len) in &wanted {
            report.objects += 1;
            match self.good(&mut open_dir, (key, *len), depth.unwrap_or(Depth::Names), &mut report.bytes)? {
                Look::Right => {}
                Look::Wrong => {
                    if !self.repair_object((key, *len), &wanted, &caches, bring, &mut report)? {
                        bad.insert(*key);
                    }
                }
                Look::Unread(error) => {
                    let with = caches.iter().filter(|c| c.parts.objects.contains_key(key));
                    let ids = with.map(|c| c.record.id).collect();
                    report.unread.push(Unread::new(&self.0.layout.object(key), &error, ids));
                    unread.insert(*key);
                }
            }
        }
        self.condemn(&caches, &bad, &mut report)?;
        let is_right = |key: &ObjectKey| !bad.contains(key) && !unread.contains(key);
        let whole = |cache: &&Checked| cache.parts.objects.keys().all(is_right);
        for cache in caches.iter().filter(whole) {
            let invalid = cache.record.state == State::Invalid;
            // Content that another program found damaged needs reading to be accepted again.
            if invalid && !cache.record.withdrawn && depth != Some(Depth::Bytes) {
                continue;
            }
            if self.repair_view(cache)? {
                report.views.push(cache.record.id);
            }
            if invalid {
                self.restore(cache, &mut report)?;
            }
        }
        if depth.is_some() && is_all {
            let changed = !report.invalid.is_empty() || !report.restored.is_empty();
            let caches = if changed { self.manifests(|_| true, &mut report)?.0 } else { caches };
            report.recounted = self.recount(&caches)?;
            report.orphans = self.orphans(&wanted)?;
        }
        Ok(report)
    }

    /// The manifests of all caches that have one, INVALID ones too: they still hold their objects. Also whether
    /// these are all manifests: if only a newer program understands a cache, or the disk fails, unneeded files are
    /// unknown.
    fn manifests(
        &self,
        only: impl Fn(&CacheRecord) -> bool,
        report: &mut Report,
    ) -> Result<(Vec<Checked>, bool), Error> {
        let (records, foreign) = self.0.db.lock().read()?.caches()?;
        let (mut all, mut is_all) = (Vec::new(), foreign.is_empty());
        for record in records.into_iter().filter(|r| r.content.is_some() && only(r)) {
            let manifest = match self.manifest_of(&record) {
                Err(Error::Io { path, source, .. }) if tidecast_paths::is_failing(&source) => {
                    is_all = false;
                    let unread = Unread::new(&path, &source, vec![record.id]);
                    // Also checked twice in one run.
                    if !report.unread.contains(&unread) {
                        report.unread.push(unread);
                    }
                    continue;
                }
                read => read?,
            };
            match manifest.and_then(|m| Some((Parts::of(&m).ok()?, m))) {
                Some((parts, manifest)) => all.push(Checked { record: Arc::new(record), manifest, parts }),
                None => {
                    if record.state != State::Invalid {
                        self.invalidate(record.id, NO_MANIFEST)?;
                        self.conceal(record.id)?;
                    }
                    if !report.invalid.contains(&record.id) {
                        report.invalid.push(record.id);
                    }
                }
            }
        }
        Ok((all, is_all))
    }

    /// Whether an object matches its key.
    fn good(
        &self,
        open_dir: &mut OpenDir<'_>,
        (key, len): (&ObjectKey, u64),
        depth: Depth,
        bytes: &mut u64,
    ) -> Result<Look, Error> {
        let path = self.0.layout.object(key);
        let (file, meta) =
            match open_dir.open(&path).and_then(|file| file.metadata().map(|meta| (file, meta))) {
                Err(e) => return Look::failed(e, "open", &path),
                Ok(opened) => opened,
            };
        if meta.len() != len {
            return Ok(Look::Wrong);
        }
        if depth == Depth::Names {
            return Ok(Look::Right);
        }
        *bytes += len;
        match root_of(&file, len) {
            Err(e) => Look::failed(e, "read", &path),
            Ok(root) => Ok(if root == key.root { Look::Right } else { Look::Wrong }),
        }
    }

    /// Has an object brought again.
    fn repair_object(
        &self,
        (key, len): (&ObjectKey, u64),
        wanted: &BTreeMap<ObjectKey, u64>,
        caches: &[Checked],
        bring: Bring<'_>,
        report: &mut Report,
    ) -> Result<bool, Error> {
        let with: Vec<&Checked> = caches.iter().filter(|c| c.parts.objects.contains_key(key)).collect();
        let ids = with.iter().map(|c| c.record.id).collect();
        let bad = Bad { root: key.root, len, caches: ids };
        self.set_aside(key)?;
        let scratch = self.0.layout.incoming().join("mending");
        self.0.layout.remove_file(&scratch)?;
        let mut file = self.0.layout.create(&scratch, 0o600).at("create", &scratch)?;
        let brought = match self.elsewhere(key, len, wanted, &with) {
            Some(from) => os::fill(&from, &file).is_ok(),
            None => bring(&bad, &mut file).unwrap_or(false),
        };
        let right = brought
            && file.metadata().at("stat", &scratch)?.len() == len
            && root_of(&file, len).is_ok_and(|root| root == key.root);
        let of = with.iter().find_map(|c| file_of(&c.manifest, key));
        let (true, Some(of)) = (right, of) else {
            self.0.layout.remove_file(&scratch)?;
            report.bad.push(bad);
            return Ok(false);
        };
        set_attributes(&file, of, &scratch)?;
        file.sync_all().at("sync", &scratch)?;
        let at = self.0.layout.object(key);
        let dir = at.parent().unwrap_or(&at);
        self.0.layout.make_dir(dir)?;
        self.0.layout.rename(&scratch, &at)?;
        self.0.layout.sync(dir)?;
        self.0.layout.sync(&self.0.layout.objects())?;
        // The views still have the old inode: `repair_view` sees that it is another.
        report.mended.push(bad);
        Ok(true)
    }

    /// A client that expected to reuse an object has to upload it.
    fn set_aside(&self, key: &ObjectKey) -> Result<(), Error> {
        let incoming = self.0.layout.incoming();
        let uploads = self.0.layout.names(&incoming)?.into_iter().map(|name| incoming.join(name));
        for upload in uploads.filter(|upload| self.0.layout.is_dir(upload)) {
            self.0.layout.remove_file(&held_in(&upload, &key.root))?;
        }
        Ok(())
    }

    /// The content of an object from where else it is: another variant, or an inode that a view has.
    fn elsewhere(
        &self,
        key: &ObjectKey,
        len: u64,
        wanted: &BTreeMap<ObjectKey, u64>,
        with: &[&Checked],
    ) -> Option<File> {
        let variant = |variant| ObjectKey { root: key.root, variant };
        let others = wanted.range(variant([0; 8])..=variant([0xff; 8])).map(|(other, _)| other);
        let others = others.filter(|other| *other != key).map(|other| self.0.layout.object(other));
        let views = with.iter().flat_map(|cache| {
            let top = self.0.layout.view(&cache.record);
            let files = cache.manifest.files().filter(|f| ObjectKey::of(*f).as_ref() == Some(key));
            files.map(move |f| f.path().below(&top))
        });
        let mut seen = HashSet::new();
        others.chain(views).find_map(|path| {
            let file = self.0.layout.open(&path).ok()?;
            let meta = file.metadata().ok()?;
            let new = meta.len() == len && seen.insert((meta.dev(), meta.ino()));
            (new && root_of(&file, len).ok()? == key.root).then_some(file)
        })
    }

    /// Damaged content stops being an object, and its caches become INVALID: at once, so that no new cache reuses
    /// it and no reader gets it.
    fn condemn(
        &self,
        caches: &[Checked],
        bad: &BTreeSet<ObjectKey>,
        report: &mut Report,
    ) -> Result<(), Error> {
        if bad.is_empty() {
            return Ok(());
        }
        // An object without a file is one that has to be brought, also if it ends here.
        for key in bad {
            self.0.layout.remove_file(&self.0.layout.object(key))?;
        }
        let with = |cache: &&Checked| cache.parts.objects.keys().any(|key| bad.contains(key));
        let with: Vec<&Checked> = caches.iter().filter(with).collect();
        // Caches that are INVALID already need none of this.
        let found = if with.iter().all(|cache| cache.record.withdrawn) { &[][..] } else { &with[..] };
        let change = |t: &mut Tables<'_>| {
            for Checked { record, parts, .. } in found {
                let Some(record) = self.cache(record.id).filter(|r| !r.withdrawn) else { continue };
                t.withdraw(&record, &parts.objects)?;
                let reason = Some("the content is damaged".to_owned());
                let invalid = CacheRecord {
                    state: State::Invalid,
                    reason,
                    withdrawn: true,
                    ..CacheRecord::clone(&record)
                };
                t.put(invalid)?;
            }
            t.ban(bad)
        };
        if !found.is_empty() {
            self.0.write(change)?;
        }
        for cache in with {
            self.conceal(cache.record.id)?;
            report.invalid.push(cache.record.id);
        }
        Ok(())
    }

    /// An INVALID cache without defects becomes COMMITTED again, unless it was replaced meanwhile.
    fn restore(&self, cache: &Checked, report: &mut Report) -> Result<(), Error> {
        let id = cache.record.id;
        let twin = self.find(&cache.record.origin, &cache.record.name, cache.record.version);
        if twin.is_some_and(|r| r.is_committed()) {
            report.invalid.push(id);
            return Ok(());
        }
        self.expose(&cache.record)?;
        self.0.write(|t| {
            let old = self.cache(id).ok_or(Error::NoCache(id))?;
            if old.withdrawn {
                t.grant(&old, &cache.parts.objects)?;
            }
            let (state, reason) = (State::Committed, None);
            t.put(CacheRecord { state, reason, withdrawn: false, ..CacheRecord::clone(&old) })
        })?;
        report.restored.push(id);
        Ok(())
    }

    /// Repairs a view that differs from the manifest; true if it did.
    fn repair_view(&self, cache: &Checked) -> Result<bool, Error> {
        let top = self.0.layout.view(&cache.record);
        let mut touched = BTreeSet::new();
        let has_moved = self.repair_frame(&cache.record)?;
        for dir in cache.manifest.dirs() {
            let path = dir.path().below(&top);
            if !self.0.layout.look(&path).is_ok_and(|m| m.is_dir() && m.is_mine()) {
                let above = path.parent().unwrap_or(&top);
                open_dir(&self.0.layout, above, &mut touched)?;
                self.0.layout.remove_all(&path)?;
                self.0.layout.make_dir(&path)?;
                touched.insert(path);
            }
        }
        let mut placed = OpenDir::new(&self.0.layout);
        for file in differing(&self.0.layout, &cache.manifest, &top) {
            let path = file.path().below(&top);
            let above = path.parent().unwrap_or(&top);
            open_dir(&self.0.layout, above, &mut touched)?;
            self.0.layout.remove_all(&path)?;
            match ObjectKey::of(file).filter(|_| !file.is_empty()) {
                Some(key) => self.link_again(&key, &path)?,
                None => empty(&mut placed, file, &path)?,
            }
        }
        for path in touched.iter().rev() {
            let dir = cache.manifest.dirs().find(|d| d.path().below(&top) == *path);
            self.0.layout.sync(path)?;
            self.0.layout.chmod(path, 0o555)?;
            crate::place::set_time(&self.0.layout, path, dir.and_then(|d| d.mtime()))?;
        }
        if has_moved && cache.record.is_committed() {
            self.expose(&cache.record)?;
        }
        Ok(has_moved || !touched.is_empty())
    }

    /// Sees to it that the directory of a cache is this program's own and holds nothing but its manifest and a view, before
    /// any name below it is looked up; true if it was otherwise. Older programs gave it to the cache's owner.
    fn repair_frame(&self, record: &CacheRecord) -> Result<bool, Error> {
        let layout = &self.0.layout;
        let cache = layout.cache(record.id);
        let is_frame = |path: &Path| layout.look(path).is_ok_and(|m| m.is_dir() && m.is_mine());
        let known = |name: &OsStr| name == "manifest" || name == "tree";
        if is_frame(&cache) && is_frame(&cache.join("tree")) && layout.names(&cache)?.iter().all(|n| known(n))
        {
            return Ok(false);
        }
        self.conceal(record.id)?;
        for name in layout.names(&cache)? {
            if !known(&name) || name == "tree" && !is_frame(&cache.join(&name)) {
                layout.remove_all(&cache.join(name))?;
            }
        }
        layout.make_dir(&cache.join("tree"))?;
        layout.sync(&cache)?;
        layout.chmod(&cache.join("tree"), 0o555)?;
        Ok(true)
    }

    fn link_again(&self, key: &ObjectKey, path: &Path) -> Result<(), Error> {
        let at = self.0.layout.object(key);
        match self.0.layout.link(&at, path) {
            Err(e) if os::unlinkable(&e) => drop(self.0.layout.duplicate(&at, path, true).at("copy", path)?),
            other => other.at("link", path)?,
        }
        Ok(())
    }

    /// Counts space and rights again, if the counts are wrong.
    fn recount(&self, caches: &[Checked]) -> Result<bool, Error> {
        let objects = self.0.objects()?;
        let extra = extra(&objects, caches)?;
        let before = self.0.memory.read().usage.clone();
        let wrong = self.counts_differ(&objects, caches)? || before != charged(&objects, caches)?;
        if wrong {
            self.0.write(|t| {
                t.recount(before.keys())?;
                let mut first = HashSet::new();
                for cache in caches {
                    let of = |key: &&ObjectKey| extra.contains_key(key) && first.insert(**key);
                    let more = cache.parts.objects.keys().filter(of).map(|k| (*k, extra[k])).collect();
                    t.take(&cache.record, &cache.parts.objects, &more)?;
                }
                Ok(())
            })?;
        }
        Ok(wrong)
    }

    fn counts_differ(&self, objects: &Objects, caches: &[Checked]) -> Result<bool, Error> {
        let mut counts: BTreeMap<ObjectKey, u32> = BTreeMap::new();
        for cache in caches {
            cache.parts.objects.keys().for_each(|k| *counts.entry(*k).or_default() += 1);
        }
        let mut wrong = false;
        objects.each(|key, object| wrong |= counts.remove(&key) != Some(object.caches))?;
        Ok(wrong || !counts.is_empty())
    }

    /// Removes objects that no cache has.
    fn orphans(&self, wanted: &BTreeMap<ObjectKey, u64>) -> Result<u64, Error> {
        let mut removed = 0;
        let objects = self.0.layout.objects();
        for dir in self.0.layout.names(&objects)? {
            let dir = objects.join(dir);
            if !self.0.layout.is_dir(&dir) {
                self.0.layout.remove_file(&dir)?;
                removed += 1;
                continue;
            }
            for name in self.0.layout.names(&dir)? {
                let key = name.to_str().and_then(ObjectKey::from_name);
                if key.is_none_or(|key| !wanted.contains_key(&key)) {
                    self.0.layout.remove_all(&dir.join(name))?;
                    removed += 1;
                }
            }
            self.0.layout.remove_if_empty(&dir);
        }
        Ok(removed)
    }
}

/// The charge of each owner and of all together, as commits and removals compute it.
fn charged(objects: &Objects, caches: &[Checked]) -> Result<HashMap<String, Size>, Error> {
    let (mut all, mut seen) = (HashMap::<String, Size>::new(), HashSet::new());
    let mut charge = |owner: &str, size| {
        let sum = all.entry(owner.to_owned()).or_default();
        *sum = sum.plus(size);
    };
    for Checked { record, parts, .. } in caches {
        if !record.withdrawn {
            charge(&record.owner, record.own);
        }
        charge(ALL, record.own);
        for (key, len) in &parts.objects {
            if !record.withdrawn && seen.insert((&*record.owner, key)) {
                charge(&record.owner, object_size(*len));
            }
            if seen.insert((ALL, key)) {
                charge(ALL, objects.get(key)?.map_or(object_size(*len), |o| o.size()));
            }
        }
    }
    Ok(all)
}

/// Inodes beyond the first that the database has.
fn extra(objects: &Objects, caches: &[Checked]) -> Result<BTreeMap<ObjectKey, u32>, Error> {
    let mut all = BTreeMap::new();
    for key in caches.iter().flat_map(|c| c.parts.objects.keys()) {
        if let Some(more) = objects.get(key)?.map(|o| o.inodes.saturating_sub(1)).filter(|n| *n > 0) {
            all.insert(*key, more);
        }
    }
    Ok(all)
}

fn wanted(caches: &[Checked]) -> BTreeMap<ObjectKey, u64> {
    caches.iter().flat_map(|c| c.parts.objects.iter().map(|(k, l)| (*k, *l))).collect()
}

fn file_of<'m>(manifest: &'m Manifest, key: &ObjectKey) -> Option<FileRef<'m>> {
    manifest.files().find(|f| ObjectKey::of(*f).as_ref() == Some(key))
}

/// Lets us write to a directory of a view.
fn open_dir(layout: &Layout, dir: &Path, touched: &mut BTreeSet<PathBuf>) -> Result<(), Error> {
    if touched.insert(dir.to_owned()) { layout.chmod(dir, 0o755) } else { Ok(()) }
}
