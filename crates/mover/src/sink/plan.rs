//! A dry run: determines the changes of a copy without making them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::fs::{self, FileType, Mode};
use tidecast_paths::Descent;

use super::ask::{Existing, lookup_dirs, named_entry};
use super::backup::Backups;
use super::destination::{DIRECTORY, is_empty};
use super::dirs::{Dirs, STEP, kind, look, split};
use super::entry_error::{Doing, EntryError, EntryResult};
use super::itemize::deleting;
use super::link_dest::{Basis, Equal};
use super::remove;
use super::write::reopen;
use super::{Directory, Named, Relaxed};
use crate::block::Block;
use crate::entry::Kind;
use crate::error::Error;
use crate::job::Want;
use crate::part::{Data, Part, Parts, TableWriter};

/// The change to an existing name.
const DRESS: &str = "set attributes";

/// The state of a dry run until its end.
#[derive(Debug, Default)]
pub(super) struct Planned {
    /// Names that would be created, and those whose attributes would be set.
    made: Named,
    applied: Named,
    /// Further names of files: paths in it are as short as in a message, however long each is.
    links: Mutex<TableWriter>,
}

impl Directory {
    /// Determines the changes that a block would make.
    pub(super) fn plan(&self, block: &Block) -> Result<Option<Want>, Error> {
        let dirs = self.place.base.as_ref().map(lookup_dirs).transpose();
        let mut dirs = dirs.map_err(|t| t.at(self.place.shown.clone()))?;
        let mut alternates = self.alternates().map_err(|t| t.at(self.place.shown.clone()))?;
        let (mut parts, mut part, mut want) = (Parts::new(&block.table, block.len), Part::default(), None);
        while parts.next(&mut part)? {
            if matches!(part.data, Data::Ask { .. }) {
                want = Some(Want::default());
            }
            if !self.admit(&mut part)? {
                continue;
            }
            let path = self.named(&part.entry.path)?;
            if !self.done.lock().insert(part.file) {
                continue;
            }
            if let Some(named) = &self.named {
                named.add_entry(path, &part);
            }
            if matches!(part.entry.kind, Kind::HardLink { .. }) {
                self.planned.links.lock().push(0, &part.entry, &Data::None);
                continue;
            }
            let tried = self.change(dirs.as_mut(), &mut alternates, &part, path);
            if let Some((what, basis)) = self.or_problem(path, tried)?.flatten() {
                let made = what != DRESS;
                (if made { &self.planned.made } else { &self.planned.applied }).add(path);
                let is_linked = basis.as_ref().is_some_and(|basis| basis.equal == Equal::All);
                let itemized = (self.spec.itemize && !is_linked)
                    .then(|| self.itemized_by(dirs.as_mut(), &part.entry, path, made, basis));
                self.plan_change(path, what, itemized);
            }
        }
        Ok(want)
    }

    /// The change that would be made to a name, if any, and what the new entry is compared with.
    fn change<'p>(
        &self,
        mut dirs: Option<&mut Dirs>,
        alternates: &mut [Dirs],
        part: &Part,
        path: &'p [u8],
    ) -> EntryResult<Option<(&'static str, Option<Basis<'p>>)>> {
        let entry = &part.entry;
        let root = if let Data::Ask { root } = &part.data { root.as_ref() } else { None };
        let asked = matches!(part.data, Data::Ask { .. });
        let here = match dirs.as_deref_mut() {
            None if self.stays_as_it_is(entry, None) => Existing::LeftOut,
            None => Existing::No,
            Some(dirs) if asked => self.here(dirs, entry, path, root)?,
            Some(dirs) => match self.is_blocked(dirs, entry, path) {
                true => Existing::Stays,
                false => self.same(dirs, entry, path)?,
            },
        };
        let unchanged = || {
            self.counts.kept.fetch_add(u64::from(asked), Relaxed);
            Ok(None)
        };
        let basis = match here {
            Existing::LeftOut => return Ok(None),
            Existing::Stays => return unchanged(),
            Existing::No => self.basis(alternates, entry, path, root)?,
            Existing::Same { .. } if asked => self.basis(alternates, entry, path, root)?,
            Existing::Same { .. } => None,
        };
        let equal = basis.as_ref().map(|basis| basis.equal);
        if asked && equal == Some(Equal::All) {
            return unchanged();
        }
        if let Existing::Same { differs } = here {
            return if differs { Ok(Some((DRESS, None))) } else { unchanged() };
        }
        let there = dirs.as_deref_mut().map(|dirs| named_entry(dirs, path)).transpose()?.flatten();
        let is_file = there.is_some_and(|there| kind(&there.stat) == FileType::RegularFile);
        if asked && equal == Some(Equal::Content) && !is_file {
            self.counts.kept.fetch_add(1, Relaxed);
            return Ok(Some(("copy", basis)));
        }
        let what = match dirs {
            Some(dirs) => self.make(dirs, part, path)?,
            None => self.would_make(part),
        };
        Ok(Some((what, basis)))
    }

    /// What would be made in the place of what is here. The content of a directory is removed first.
    fn make(&self, dirs: &mut Dirs, part: &Part, path: &[u8]) -> EntryResult<&'static str> {
        if part.entry.kind != Kind::Dir
            && let Some(there) = named_entry(dirs, path)?
            && kind(&there.stat) == FileType::Directory
            && fs::openat(&*there.dir, there.name, DIRECTORY, Mode::empty())
                .is_ok_and(|dir| is_empty(&dir).is_ok_and(|empty| !empty))
        {
            let is_removed = self.spec.delete || self.spec.force;
            if !is_removed || !self.would_remove(&there.dir, there.name, path, true)? {
                return Err(EntryError::occupied());
            }
        }
        Ok(self.would_make(part))
    }

    /// The changes to further names of files, which depend on the change to the first.
    pub(super) fn plan_links(&self) -> Result<(), Error> {
        let dirs = self.place.base.as_ref().map(lookup_dirs).transpose();
        let mut dirs = dirs.map_err(|t| t.at(self.place.shown.clone()))?;
        let links = std::mem::take(&mut *self.planned.links.lock()).finish();
        let (mut links, mut part) = (Parts::new(&links, 0), Part::default());
        while links.next(&mut part)? {
            let entry = &part.entry;
            let Kind::HardLink { to } = &entry.kind else { continue };
            let mut inode = |path: &[u8]| {
                let (parent, name) = split(path);
                let dir = dirs.as_mut()?.find(parent).ok()?;
                look(&dir, name).ok().flatten().map(|stat| (stat.st_dev, stat.st_ino))
            };
            let (first, found) = (inode(to), inode(&entry.path));
            if self.left_out.has(to)
                || self.spec.only.selects()
                    && (first.is_none() && !self.planned.made.has(to)
                        || found.is_none() && self.spec.only.existing
                        || found.is_some() && self.spec.only.missing)
            {
                continue;
            }
            let is_one = first.is_some() && first == found;
            if !is_one || self.planned.made.has(to) {
                let itemized =
                    self.spec.itemize.then(|| self.itemized(dirs.as_mut(), entry, &entry.path, true));
                self.plan_change(&entry.path, "make the link", itemized);
            } else if self.planned.applied.has(to) {
                // Its first name has it already.
                self.plan_change(&entry.path, DRESS, None);
            }
        }
        Ok(())
    }

    fn would_make(&self, part: &Part) -> &'static str {
        match part.entry.kind {
            Kind::File { len, .. } => {
                self.counts.files.fetch_add(1, Relaxed);
                self.counts.bytes.fetch_add(len, Relaxed);
                "copy"
            }
            Kind::Dir => "make the directory",
            Kind::Symlink { .. } | Kind::HardLink { .. } => "make the link",
            Kind::Fifo | Kind::Socket | Kind::Device { .. } => "make",
        }
    }

    /// Records a change.
    fn plan_change(&self, path: &[u8], what: &str, itemized: Option<String>) {
        if what != "delete" {
            self.counts.entries.fetch_add(1, Relaxed);
        }
        self.note_change(path, what, itemized);
    }

    /// Reports the names that a removal would remove, the content of a directory first; whether the name
    /// itself would be removed.
    pub(super) fn would_remove(
        &self,
        at: &OwnedFd,
        name: &[u8],
        path: &[u8],
        is_dir: bool,
    ) -> EntryResult<bool> {
        if !is_dir {
            return Ok(self.would_go(path, false));
        }
        let mut path = path.to_vec();
        let dir = fs::openat(at, name, STEP, Mode::empty()).doing("open")?;
        let Some((below, goes)) = self.would_strip(&dir, &path)? else { return Ok(false) };
        let mut way = Descent::begin(dir, below, goes).doing("stat")?;
        loop {
            if let Some(name) = way.next_below() {
                let length = path.len();
                path.push(b'/');
                path.extend_from_slice(name.as_bytes());
                let dir = fs::openat(way.dir().doing("open")?, &name, STEP, Mode::empty()).doing("open")?;
                match self.would_strip(&dir, &path)? {
                    Some((below, goes)) => way.enter(dir, name, below, goes).doing("stat")?,
                    None => {
                        way.with().into_iter().for_each(|goes| *goes = false);
                        path.truncate(length);
                    }
                }
                continue;
            }
            let Some(left) = way.leave().doing("open")? else { return Ok(false) };
            let goes = left.with && self.would_go(&path, true);
            let Some(above) = way.with() else { return Ok(goes) };
            *above &= goes;
            path.truncate(path.len() - left.name.len() - 1);
        }
    }

    /// Reports the files in a directory that a removal would remove. Returns its subdirectories in reverse order, and whether all
    /// files would be removed; None if the directory stays.
    fn would_strip(&self, dir: &OwnedFd, path: &[u8]) -> EntryResult<Option<(Vec<OsString>, bool)>> {
        let stat = fs::fstat(dir).doing("stat")?;
        if self.backups.as_ref().and_then(Backups::inode) == Some((stat.st_dev, stat.st_ino)) {
            return Ok(None);
        }
        let (mut below, mut goes) = (Vec::new(), true);
        for entry in fs::Dir::new(reopen(dir)?).doing("list")? {
            let entry = entry.doing("list")?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let (inner, is_dir) = ([path, name].join(&b'/'), remove::is_dir(dir, name, entry.file_type()));
            if self.stays(&inner, is_dir) {
                goes = false;
            } else if is_dir {
                below.push(OsStr::from_bytes(name).to_owned());
            } else {
                let is_beside = self.backups.as_ref().is_some_and(|backups| backups.is_beside(name));
                goes &= self.would_go(&inner, false) && !is_beside;
            }
        }
        below.reverse();
        Ok(Some((below, goes)))
    }

    /// Reports the removal of a name, if one more may go.
    fn would_go(&self, path: &[u8], is_dir: bool) -> bool {
        let goes = self.budget.take();
        if goes {
            self.plan_change(path, "delete", self.spec.itemize.then(|| deleting(path, is_dir)));
            self.counts.deleted.fetch_add(1, Relaxed);
        }
        goes
    }
}
