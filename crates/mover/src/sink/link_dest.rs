//! `--link-dest`: a file that one of these directories has in the wanted state is linked from there instead
//! of being sent.
//!
//! The directories are opened once, by the names that the user gives; below them no link is followed. Other
//! users may write there: a linked file is checked again under its new name, in a private directory, before
//! it gets its final one. A file that belongs to another user than it should is not linked, whatever the
//! flags keep, because that user could change it later.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::sync::Arc;

use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat};
use tidecast_hash::Digest;

use super::ask::{Existing, NamedEntry, lookup_dirs, named_entry};
use super::destination::{DIRECTORY, Destination, unreached};
use super::dirs::{Dirs, kind};
use super::entry_error::{Doing, EntryError, EntryResult};
use super::itemize::is_of;
use super::{Directory, Relaxed, Staging, Writer};
use crate::entry::{Entry, Kind};
use crate::error::Error;
use crate::spec::ReceiveSpec;

/// As many as rsync takes.
const MOST: usize = 20;

/// Opens them; those that are not there come back by name.
pub(super) fn open(
    spec: &ReceiveSpec,
    place: &Destination,
) -> Result<(Vec<Arc<OwnedFd>>, Vec<OsString>), Error> {
    if spec.link_dest.len() > MOST {
        return Err(Error::Usage(format!("--link-dest can be given at most {MOST} times")));
    }
    let (mut opened, mut missing) = (Vec::new(), Vec::new());
    for name in &spec.link_dest {
        match place.way.open(&place.beside(name), DIRECTORY) {
            Ok(dir) => opened.push(Arc::new(dir)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => missing.push(name.clone()),
            Err(e) => return Err(unreached("--link-dest", name, e)),
        }
    }
    Ok((opened, missing))
}

/// How much of an entry is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Equal {
    /// That it is a file, a link, and so on.
    Kind,
    Content,
    All,
}

/// An entry of theirs that the wanted one is compared with, or made from.
pub(super) struct Basis<'p> {
    pub(super) there: NamedEntry<'p>,
    pub(super) equal: Equal,
}

impl Directory {
    /// Handles of theirs for one thread.
    pub(super) fn alternates(&self) -> EntryResult<Vec<Dirs>> {
        self.alternates.iter().map(|dir| lookup_dirs(dir)).collect()
    }

    /// The best match of a file: the first that is equal in all respects, else the first with equal content.
    pub(super) fn alternate<'p>(
        &self,
        alternates: &mut [Dirs],
        entry: &Entry,
        path: &'p [u8],
        root: Option<&Digest>,
    ) -> EntryResult<Option<Basis<'p>>> {
        let own = self.owners.resolve(&entry.attributes.owner, self.owners.own()).0;
        let mut best = None;
        for dirs in alternates {
            // A file that cannot be examined does not match.
            let Ok(Some(there)) = named_entry(dirs, path) else { continue };
            let is_same = kind(&there.stat) == FileType::RegularFile
                && self.is_same(&there, entry, root).unwrap_or(false);
            if !is_same {
                continue;
            }
            let attributes = self.owners.settled(entry, Some(&there.stat), None);
            let differs = self.owners.differ(&there.dir, there.name, &there.stat, &attributes).any();
            if !differs && there.stat.st_uid == own {
                return Ok(Some(Basis { there, equal: Equal::All }));
            }
            best.get_or_insert(Basis { there, equal: Equal::Content });
        }
        Ok(best)
    }

    /// What an entry that is not here is compared with: of its name and kind, the first that is equal in all respects, else the
    /// first with the same content, else the first.
    pub(super) fn basis<'p>(
        &self,
        alternates: &mut [Dirs],
        entry: &Entry,
        path: &'p [u8],
        root: Option<&Digest>,
    ) -> EntryResult<Option<Basis<'p>>> {
        if matches!(entry.kind, Kind::File { .. })
            && let Some(found) = self.alternate(alternates, entry, path, root)?
        {
            return Ok(Some(found));
        }
        let mut best: Option<Basis<'p>> = None;
        for dirs in alternates {
            let Ok(Some(there)) = named_entry(dirs, path) else { continue };
            let equal = match self.same(dirs, entry, path) {
                Ok(Existing::Same { differs: false }) => Equal::All,
                Ok(Existing::Same { differs: true }) => Equal::Content,
                _ if is_of(kind(&there.stat), &entry.kind) => Equal::Kind,
                _ => continue,
            };
            if best.as_ref().is_none_or(|best| equal > best.equal) {
                best = Some(Basis { there, equal });
            }
        }
        Ok(best)
    }

    /// Makes a file from the match; false if it must come from the sender.
    pub(super) fn take_alternate(
        &self,
        staging: &Staging,
        writer: &mut Writer,
        entry: &Entry,
        path: &[u8],
        root: Option<&Digest>,
    ) -> EntryResult<bool> {
        let Some(found) = self.alternate(&mut writer.alternates, entry, path, root)? else {
            return Ok(false);
        };
        let here =
            named_entry(&mut writer.dirs, path)?.filter(|here| kind(&here.stat) == FileType::RegularFile);
        let inode = |stat: &Stat| (stat.st_dev, stat.st_ino);
        let is_exact = found.equal == Equal::All;
        if here.as_ref().is_some_and(|here| !is_exact || inode(&here.stat) == inode(&found.there.stat)) {
            return Ok(false);
        }
        if is_exact && self.link_alternate(staging, writer, &found.there, path)? {
            return Ok(true);
        }
        // The existing file is updated as usual.
        Ok(here.is_none() && self.copy_alternate(staging, writer, &found.there, entry, path)?)
    }

    /// Links the match of a link, pipe or device as the entry; false if none is equal in all respects.
    pub(super) fn link_special(
        &self,
        staging: &Staging,
        writer: &mut Writer,
        entry: &Entry,
        path: &[u8],
    ) -> EntryResult<bool> {
        let mut alternates = std::mem::take(&mut writer.alternates);
        let own = self.owners.resolve(&entry.attributes.owner, self.owners.own()).0;
        let found = alternates.iter_mut().find_map(|dirs| {
            let is_same = matches!(self.same(dirs, entry, path), Ok(Existing::Same { differs: false }));
            if is_same { named_entry(dirs, path).ok().flatten() } else { None }
        });
        writer.alternates = alternates;
        match found.filter(|found| found.stat.st_uid == own) {
            Some(found) => self.link_alternate(staging, writer, &found, path),
            None => Ok(false),
        }
    }

    /// False where no link can be made: of another file system, or by its rules.
    fn link_alternate(
        &self,
        staging: &Staging,
        writer: &mut Writer,
        found: &NamedEntry<'_>,
        path: &[u8],
    ) -> EntryResult<bool> {
        let (dir, name) = self.parent(staging, writer, path)?;
        if fs::fstat(&dir).doing("stat")?.st_dev != found.stat.st_dev {
            return Ok(false);
        }
        let temporary = writer.next();
        let at = temporary.as_str();
        if fs::linkat(&found.dir, found.name, &writer.stage, at, AtFlags::empty()).is_err() {
            return Ok(false);
        }
        // Whichever file had the name when it was examined, this is the one that is linked.
        let linked = fs::statat(&writer.stage, at, AtFlags::SYMLINK_NOFOLLOW).doing("stat");
        let tried = linked.and_then(|stat| match is_unchanged(&stat, &found.stat) {
            true => self.rename(&writer.stage, temporary.as_bytes(), &dir, name, path).map(|()| true),
            false => fs::unlinkat(&writer.stage, at, AtFlags::empty()).doing("remove").map(|()| false),
        });
        if tried.is_err() {
            let _ = fs::unlinkat(&writer.stage, at, AtFlags::empty());
        }
        tried
    }

    /// A separate file with the content of the match. It is one state of that file, or an error.
    fn copy_alternate(
        &self,
        staging: &Staging,
        writer: &mut Writer,
        found: &NamedEntry<'_>,
        entry: &Entry,
        path: &[u8],
    ) -> EntryResult<bool> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let Ok(source) = fs::openat(&found.dir, found.name, flags, Mode::empty()) else { return Ok(false) };
        if !is_unchanged(&fs::fstat(&source).doing("stat")?, &found.stat) {
            return Ok(false);
        }
        let (dir, name) = self.parent(staging, writer, path)?;
        let inherited = self.inherited(staging, &dir);
        let attributes = self.owners.settled(entry, None, inherited.acl.as_ref());
        let temporary = writer.next();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = self.owners.first_mode(&attributes);
        let file = fs::openat(&writer.stage, temporary.as_str(), flags, mode).doing("create")?;
        let (source, file) = (File::from(source), File::from(file));
        let fill = || {
            tidecast_paths::copy(&source, &file).doing("copy")?;
            if !is_unchanged(&fs::fstat(&source).doing("stat")?, &found.stat) {
                return Err(EntryError::because(
                    "copy",
                    "the file in the --link-dest directory changed meanwhile",
                ));
            }
            let file = OwnedFd::from(file.try_clone().doing("open")?);
            self.apply_to_file(&file, &attributes, &inherited, path)
        };
        let tried = fill().and_then(|()| self.rename(&writer.stage, temporary.as_bytes(), &dir, name, path));
        writer.remove_unless_renamed(&temporary, tried)?;
        self.change_done(path, "copy", self.local_item(entry, found));
        Ok(true)
    }

    /// Names the directories that are not there.
    pub(super) fn report_missing(&self, missing: &[OsString]) {
        for name in missing {
            let path = std::os::unix::ffi::OsStrExt::as_bytes(name.as_os_str());
            self.add_problem(crate::job::Problem::new(path, "--link-dest: no such directory", false));
        }
    }

    /// A file is here without having been sent.
    pub(super) fn taken(&self, file: u64) {
        self.keep(file);
        self.prove(file);
        self.counts.entries.fetch_add(1, Relaxed);
    }
}

/// Whether two looks were at the same file in the same state; a link that was made meanwhile changes `ctime`.
fn is_unchanged(now: &Stat, before: &Stat) -> bool {
    let all = |stat: &Stat| {
        let times = (stat.st_mtime, stat.st_mtime_nsec);
        (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mode, stat.st_uid, stat.st_gid, times)
    };
    all(now) == all(before)
}
