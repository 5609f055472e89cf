//! `--inplace`, `--append` and `--append-verify`: an existing file is updated, and its other hard links with
//! it.
//!
//! Only complete and verified data is written to it: differing parts are assembled in the staging directory
//! first, and equal parts are proved by digest in place. Then the parts are written in order. A killed update
//! leaves a file with another time, so the next copy compares it again; a growing file holds a correct prefix
//! of the source at any time.
//!
//! A file that another user may have put there, or linked to something else, is not written to but replaced.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use parking_lot::MutexGuard;
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, FallocateFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use tidecast_paths::{OTHERS_WRITE, PageBuffer};

use super::attributes::unsupported;
use super::dirs::{Dirs, kind, look, split};
use super::entry_error::{Doing, EntryError, EntryResult};
use super::part_files::PartFile;
use super::{Directory, Staging};
use crate::entry::{Entry, Time};
use crate::overlap::Inode;
use crate::part::BLOCK;
use crate::spec::{Durable, InPlace};

const PARTS: u64 = BLOCK as u64;
/// Bytes that are copied at a time.
const STEP: usize = 1 << 20;

/// A file here that is updated.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) file: File,
    /// Its length before.
    pub(super) len: u64,
}

/// Files of several names that were updated, and the length and time that they got: their other names, which the source has too, need
/// nothing more.
pub(super) type Updated = HashMap<Inode, (u64, Time)>;

/// The update of a file. No other name of it is updated meanwhile.
struct Turn<'d> {
    /// None for a file of one name.
    updated: Option<MutexGuard<'d, Updated>>,
    inode: Inode,
}

impl Directory {
    /// Whether a file here is left alone because it is not shorter than the source.
    pub(super) fn is_append_complete(&self, stat: &Stat, entry: &Entry) -> bool {
        self.spec.in_place.appends() && u64::try_from(stat.st_size).is_ok_and(|len| len >= entry.len())
    }

    /// The file that is to be updated; None if a new one takes its name.
    pub(super) fn base_in(&self, dir: &OwnedFd, name: &[u8], entry: &Entry) -> EntryResult<Option<Base>> {
        if self.spec.in_place == InPlace::No
            || look(dir, name)?.is_none_or(|stat| kind(&stat) != FileType::RegularFile)
        {
            return Ok(None);
        }
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match fs::openat(dir, name, flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::LOOP | Errno::ISDIR | Errno::NXIO) => return Ok(None),
            other => other.doing("write to")?,
        };
        let (stat, around) = (fs::fstat(&file).doing("stat")?, fs::fstat(dir).doing("stat")?);
        let len = u64::try_from(stat.st_size).unwrap_or_default();
        let wanted = self.owners.resolve(&entry.attributes.owner, self.owners.own()).0;
        let is_ours = kind(&stat) == FileType::RegularFile
            && is_trusted(&stat, &around, self.owners.own().0, wanted)
            && (!self.spec.in_place.appends() || len < entry.len());
        Ok(is_ours.then(|| Base { file: File::from(file), len }))
    }

    /// The same by its path.
    pub(super) fn base_at(&self, dirs: &mut Dirs, entry: &Entry, path: &[u8]) -> EntryResult<Option<Base>> {
        let (parent, name) = split(path);
        match dirs.find(parent) {
            Ok(dir) => self.base_in(&dir, name, entry),
            Err(_) => Ok(None),
        }
    }

    /// Updates a file that came in one piece; without data it is a hole.
    pub(super) fn update(
        &self,
        base: &Base,
        (dir, name): (&OwnedFd, &[u8]),
        entry: &Entry,
        path: &[u8],
        data: Option<&[u8]>,
    ) -> EntryResult {
        let Some(turn) = self.begin_update(base, (dir, name), entry, path)? else { return Ok(()) };
        let from = self.first(base);
        match data {
            Some(data) => {
                let rest = usize::try_from(from).ok().and_then(|from| data.get(from..)).unwrap_or_default();
                base.file.write_all_at(rest, from).doing("write")?;
            }
            None if from == 0 => base.file.set_len(0).doing("set the size of")?,
            None => {}
        }
        self.end_update(base, turn, entry, path)
    }

    /// Updates a file whose differing parts are in the staging directory.
    pub(super) fn update_part_file(
        &self,
        staging: &Staging,
        part_file: &PartFile,
        staged: &File,
        (dir, name): (&OwnedFd, &[u8]),
        path: &[u8],
    ) -> EntryResult {
        let Some(base) = part_file.base.get() else { return Ok(()) };
        if let Some(turn) = self.begin_update(base, (dir, name), &part_file.entry, path)? {
            let (from, len) = (self.first(base), part_file.entry.len());
            let (parts, holes) = part_file.to_update();
            let mut buffer = PageBuffer::new(STEP);
            for part in parts {
                let (begin, end) = (part * PARTS, len.min((part + 1) * PARTS));
                copy(staged, &base.file, begin.max(from), end, &mut buffer)?;
            }
            for (first, count) in holes {
                let end = len.min(first.saturating_add(count).saturating_mul(PARTS));
                clear(&base.file, (first * PARTS).max(from), end.min(base.len))?;
            }
            self.end_update(base, turn, &part_file.entry, path)?;
        }
        match fs::unlinkat(&staging.stage.dir, super::journal::staged(&part_file.id), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e).doing("remove"),
        }
    }

    /// The offset at which writing begins.
    fn first(&self, base: &Base) -> u64 {
        if self.spec.in_place == InPlace::Append { base.len } else { 0 }
    }

    /// Proves that a name is still that of the file, and keeps a copy of it if that was asked for. None if the file has been
    /// updated by another of its names.
    fn begin_update(
        &self,
        base: &Base,
        (dir, name): (&OwnedFd, &[u8]),
        entry: &Entry,
        path: &[u8],
    ) -> EntryResult<Option<Turn<'_>>> {
        let (open, there) = (fs::fstat(&base.file).doing("stat")?, look(dir, name)?);
        let inode = (open.st_dev, open.st_ino);
        if there.is_none_or(|there| (there.st_dev, there.st_ino) != inode) {
            return Err(EntryError::because("write to", "another file has taken its name"));
        }
        let updated = (open.st_nlink > 1).then(|| self.updated.lock());
        let to = (entry.len(), entry.attributes.mtime);
        if updated.as_ref().is_some_and(|updated| updated.get(&inode) == Some(&to)) {
            return Ok(None);
        }
        let open = fs::fstat(&base.file).doing("stat")?;
        if self.spec.in_place.appends() && u64::try_from(open.st_size) != Ok(base.len) {
            return Err(EntryError::because("append to", "its size changed meanwhile"));
        }
        self.back_up_copy(dir, name, path)?;
        Ok(Some(Turn { updated, inode }))
    }

    /// Gives a file that was updated its length, its attributes, and last its time: only a file that is complete has that.
    fn end_update(&self, base: &Base, turn: Turn<'_>, entry: &Entry, path: &[u8]) -> EntryResult {
        base.file.set_len(entry.len()).doing("set the size of")?;
        if self.spec.durable != Durable::No {
            base.file.sync_data().doing("sync")?;
        }
        let file = OwnedFd::from(base.file.try_clone().doing("open")?);
        let stat = fs::fstat(&file).doing("stat")?;
        let attributes = self.owners.settled(entry, Some(&stat), None);
        self.owners.apply(&file, &stat, &attributes, &mut |lost| self.lost(path, lost))?;
        if let Some(mut updated) = turn.updated {
            updated.insert(turn.inode, (entry.len(), entry.attributes.mtime));
        }
        if self.spec.durable == Durable::Each { fs::fsync(&file).doing("sync") } else { Ok(()) }
    }
}

/// Whether a file may be updated in place. It belongs to this user, or to its owner at the sender; and
/// further names, by which another user may rely on it, were created only by its owner or by the user of this
/// process.
fn is_trusted(file: &Stat, dir: &Stat, own: u32, wanted: u32) -> bool {
    let is_owned = file.st_uid == own || file.st_uid == wanted;
    let is_closed = dir.st_mode & OTHERS_WRITE == 0
        && (dir.st_uid == own || dir.st_uid == 0 || dir.st_uid == file.st_uid);
    is_owned && (file.st_nlink == 1 || is_closed)
}

fn copy(from: &File, to: &File, mut at: u64, end: u64, buffer: &mut [u8]) -> EntryResult {
    while at < end {
        let len = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
        let room = &mut buffer[..len];
        from.read_exact_at(room, at).doing("read")?;
        to.write_all_at(room, at).doing("write")?;
        at += len as u64;
    }
    Ok(())
}

/// Makes a stretch zeros.
fn clear(file: &File, begin: u64, end: u64) -> EntryResult {
    if begin >= end {
        return Ok(());
    }
    match fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, begin, end - begin) {
        Err(e) if unsupported(e) => {
            let zeros = vec![0; STEP];
            let mut at = begin;
            while at < end {
                let len = usize::try_from(end - at).unwrap_or(usize::MAX).min(STEP);
                file.write_all_at(&zeros[..len], at).doing("write")?;
                at += len as u64;
            }
            Ok(())
        }
        other => other.doing("punch holes in"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_else_can_have_planted_is_written_to() {
        let at = tempfile::tempdir().unwrap();
        std::fs::write(at.path().join("f"), "x").unwrap();
        let dir = fs::open(at.path(), OFlags::RDONLY, Mode::empty()).unwrap();
        let with = |mut stat: Stat, change: &dyn Fn(&mut Stat)| {
            change(&mut stat);
            stat
        };
        let around = with(fs::fstat(&dir).unwrap(), &|stat| (stat.st_mode, stat.st_uid) = (0o40755, 7));
        let one = with(look(&dir, b"f").unwrap().unwrap(), &|stat| (stat.st_uid, stat.st_nlink) = (7, 1));
        let two = with(one, &|stat| stat.st_nlink = 2);
        let open = with(around, &|stat| stat.st_mode = 0o41777);
        assert!(is_trusted(&one, &around, 7, 7) && is_trusted(&one, &open, 7, 7));
        assert!(is_trusted(&two, &around, 7, 7), "the names that its owner gives it");
        assert!(!is_trusted(&two, &open, 7, 7), "anybody may have given it that name");
        assert!(!is_trusted(&one, &around, 8, 9), "another user's");
        assert!(is_trusted(&one, &around, 0, 7), "as the sender's");
        assert!(
            !is_trusted(&with(two, &|stat| stat.st_uid = 0), &around, 0, 7),
            "a link to root's in a user's directory"
        );
    }
}
