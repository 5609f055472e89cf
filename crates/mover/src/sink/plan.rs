//! A dry run: what would be done, without doing it.

use rustix::fd::OwnedFd;
use rustix::fs::{self, FileType, Mode};
use rustix::io::Errno;

use super::ask::{Here, looking};
use super::dirs::{Dirs, STEP, kind, look, split};
use super::remove;
use super::trouble::{Doing, Tried};
use super::write::reopen;
use super::{Directory, Relaxed};
use crate::block::Block;
use crate::entry::Kind;
use crate::error::Error;
use crate::job::{Change, Want};
use crate::part::{Data, Part, Parts};

/// Changes that are told one by one.
const CHANGES: usize = 10_000;

impl Directory {
    /// Looks what would be done with a block.
    pub(super) fn plan(&self, block: &Block) -> Result<Option<Want>, Error> {
        let dirs = self.place.base.as_ref().map(looking).transpose();
        let mut dirs = dirs.map_err(|t| t.at(self.place.shown.clone()))?;
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
                named.add(path);
            }
            let tried = self.change(dirs.as_mut(), &part, path);
            match self.settle(path, tried)?.flatten() {
                Some(what) => self.planned(path, what),
                None if matches!(part.data, Data::Ask { .. }) => drop(self.counts.kept.fetch_add(1, Relaxed)),
                None => {}
            }
        }
        Ok(want)
    }

    /// What would be done to a name, if anything.
    fn change(&self, dirs: Option<&mut Dirs>, part: &Part, path: &[u8]) -> Tried<Option<&'static str>> {
        let entry = &part.entry;
        let Some(dirs) = dirs else { return Ok(Some(self.would_make(part))) };
        if let Data::Ask { root } = &part.data {
            return Ok(match self.here(dirs, entry, path, root.as_ref())? {
                Here::No => Some(self.would_make(part)),
                Here::Newer => None,
                Here::Same { differs } => differs.then_some("set attributes"),
            });
        }
        if path.is_empty() {
            return Ok(None);
        }
        let (parent, name) = split(path);
        let dir = match dirs.find(parent) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Some(self.would_make(part))),
            other => other.doing("look at")?,
        };
        let Some(stat) = look(&dir, name)? else { return Ok(Some(self.would_make(part))) };
        let same = match &entry.kind {
            Kind::Dir => kind(&stat) == FileType::Directory,
            Kind::Symlink { target } => {
                kind(&stat) == FileType::Symlink
                    && fs::readlinkat(&dir, name, Vec::new()).doing("look at")?.as_bytes()
                        == target.as_slice()
            }
            Kind::HardLink { to } => {
                let (parent, name) = split(to);
                let first = dirs.find(parent).ok().and_then(|dir| look(&dir, name).ok().flatten());
                first.is_some_and(|first| (first.st_dev, first.st_ino) == (stat.st_dev, stat.st_ino))
            }
            Kind::Fifo => kind(&stat) == FileType::Fifo,
            Kind::Device { number, .. } => stat.st_rdev == *number,
            Kind::File { .. } => false,
        };
        Ok((!same).then(|| self.would_make(part)))
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
            Kind::Fifo | Kind::Device { .. } => "make",
        }
    }

    /// Notes what would be done.
    pub(super) fn planned(&self, path: &[u8], what: &str) {
        if what != "delete" {
            self.counts.entries.fetch_add(1, Relaxed);
        }
        let mut said = self.said.lock();
        if said.planned.len() < CHANGES {
            said.planned.push(Change::new(&self.place.show(path), what));
        }
    }

    /// Says what removing a name would remove, the content of a directory first; whether the name itself would go.
    pub(super) fn would_remove(&self, at: &OwnedFd, name: &[u8], path: &[u8], is_dir: bool) -> Tried<bool> {
        let mut goes = true;
        if is_dir {
            let dir = fs::openat(at, name, STEP, Mode::empty()).doing("open")?;
            let mut dirs = Vec::new();
            for entry in fs::Dir::new(reopen(&dir)?).doing("list")? {
                let entry = entry.doing("list")?;
                let name = entry.file_name().to_bytes();
                if matches!(name, b"." | b"..") {
                    continue;
                }
                let (below, is_dir) =
                    ([path, name].join(&b'/'), remove::is_dir(&dir, name, entry.file_type()));
                if self.stays(&below, is_dir) {
                    goes = false;
                } else if is_dir {
                    dirs.push(below);
                } else {
                    goes &= self.would_remove(&dir, name, &below, false)?;
                }
            }
            for below in dirs {
                goes &= self.would_remove(&dir, split(&below).1, &below, true)?;
            }
        }
        if goes {
            self.planned(path, "delete");
            self.counts.deleted.fetch_add(1, Relaxed);
        }
        Ok(goes)
    }
}
