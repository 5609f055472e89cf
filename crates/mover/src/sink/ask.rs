//! Answers to the sender's question whether a file is already here.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use rustix::fd::OwnedFd;
use rustix::fs::{self, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use tidecast_hash::Digest;
use tidecast_paths::PageBuffer;

use super::attributes::mtime;
use super::dirs::{Dirs, is_planted, kind, look, set_mode, split};
use super::entry_error::{Doing, EntryError, EntryResult};
use super::journal::id;
use super::{Directory, Relaxed, Staging, Writer};
use crate::digest::{self, Layer};
use crate::entry::{Entry, Kind};
use crate::error::Error;
use crate::job::{Want, Wanted};
use crate::part::{BLOCK, Part};
use crate::spec::InPlace;

/// The state here of a file that was asked about.
pub(super) enum Existing {
    /// Nothing that could stay.
    No,
    /// It, perhaps with other attributes.
    Same { differs: bool },
    /// Something that is to stay.
    Stays,
    /// The entry is not selected: nothing is made, and what is here stays.
    LeftOut,
}

impl Directory {
    /// Answers one question.
    pub(super) fn asked(
        &self,
        staging: &Staging,
        writer: &mut Writer,
        part: &Part,
        path: &[u8],
        root: Option<&Digest>,
        want: &mut Option<Want>,
    ) -> Result<(), Error> {
        let want = want.get_or_insert_with(Want::default);
        let here =
            self.in_opened(writer, path, |writer| self.here(&mut writer.dirs, &part.entry, path, root));
        let here = self.or_problem(path, here)?;
        if !writer.alternates.is_empty() && matches!(here, Some(Existing::No | Existing::Same { .. })) {
            let taken = self.take_alternate(staging, writer, &part.entry, path, root);
            if self.or_problem(path, taken)? == Some(true) {
                self.taken(part.file);
                return Ok(());
            }
        }
        match here {
            // The failure was reported; whether the file can be written will be seen.
            Some(Existing::No) | None => {
                let mut wanted = self.have(staging, part, path)?;
                match self.updated(&mut writer.dirs, part, path, &mut wanted) {
                    Ok(()) => want.files.push(wanted),
                    // It cannot be written to, and is not replaced either.
                    Err(trouble) => {
                        self.or_problem(path, Err::<(), _>(trouble))?;
                        self.done.lock().insert(part.file);
                    }
                }
            }
            Some(Existing::Stays) => self.keep(part.file),
            Some(Existing::LeftOut) => drop(self.done.lock().insert(part.file)),
            Some(Existing::Same { differs }) => {
                self.keep(part.file);
                if !differs {
                    self.prove(part.file);
                } else {
                    let item = self.item(&mut writer.dirs, &part.entry, path, false);
                    let tried = self.correct(writer, &part.entry, path);
                    let corrected = self.or_problem(path, tried)?;
                    corrected.iter().for_each(|_| self.prove(part.file));
                    if corrected == Some(true) {
                        self.counts.entries.fetch_add(1, Relaxed);
                        self.change_done(path, "set attributes", item);
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn keep(&self, file: u64) {
        if self.done.lock().insert(file) {
            self.counts.kept.fetch_add(1, Relaxed);
        }
    }

    /// Whether a file is here; nothing is changed.
    pub(super) fn here(
        &self,
        dirs: &mut Dirs,
        entry: &Entry,
        path: &[u8],
        root: Option<&Digest>,
    ) -> EntryResult<Existing> {
        let only = &self.spec.only;
        if self.is_blocked(dirs, entry, path) {
            return Ok(Existing::Stays);
        }
        let NamedEntry { dir, name, stat } = match named_entry(dirs, path)? {
            found if self.stays_as_it_is(entry, found.as_ref().map(|there| &there.stat)) => {
                let is_there = found.is_some() && self.spec.only.has_len(entry.len());
                return Ok(if is_there { Existing::Stays } else { Existing::LeftOut });
            }
            Some(found) if kind(&found.stat) == FileType::RegularFile => found,
            _ => return Ok(Existing::No),
        };
        let (has, time) = (mtime(&stat), entry.attributes.mtime);
        let same_time = self.owners.same_time(&stat, time);
        let is_newer = match only.window {
            // A file that is older by less than the window may be newer.
            Some(window @ 1..) => time.seconds.saturating_sub(has.seconds) < window,
            _ => has > time && !same_time,
        };
        if self.spec.update && is_newer {
            return Ok(Existing::Stays);
        }
        let found = NamedEntry { dir, name, stat };
        if !self.is_same(&found, entry, root)? {
            let stays = self.is_append_complete(&stat, entry)
                && !self.owners.distrusts(&found.dir, &stat, &entry.attributes)?;
            return Ok(if stays { Existing::Stays } else { Existing::No });
        }
        let attributes = self.owners.settled(entry, Some(&stat), None);
        Ok(Existing::Same { differs: self.owners.differ(&found.dir, name, &stat, &attributes).any() })
    }

    /// Whether a file counts as the one that is sent: by size and time, or by content.
    pub(super) fn is_same(
        &self,
        there: &NamedEntry<'_>,
        entry: &Entry,
        root: Option<&Digest>,
    ) -> EntryResult<bool> {
        let (only, NamedEntry { dir, name, stat }) = (&self.spec.only, there);
        if only.ignore_times && !only.size_only && root.is_none()
            || u64::try_from(stat.st_size) != Ok(entry.len())
            || self.owners.distrusts(dir, stat, &entry.attributes)?
        {
            return Ok(false);
        }
        let Some(root) = root else {
            return Ok(only.size_only || self.owners.same_time(stat, entry.attributes.mtime));
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match fs::openat(dir, *name, flags, Mode::empty()) {
            // Its content cannot be known.
            Err(Errno::ACCESS) => return Ok(false),
            other => other.doing("open")?,
        };
        Ok(hash(&File::from(file), entry.len()).doing("read")? == Some(*root))
    }

    /// Whether an entry is not selected, where `there` has its name.
    pub(super) fn stays_as_it_is(&self, entry: &Entry, there: Option<&Stat>) -> bool {
        let only = &self.spec.only;
        let is_dir = |stat: &Stat| entry.kind == Kind::Dir && kind(stat) == FileType::Directory;
        let left_out = match there {
            None => only.existing,
            Some(stat) => only.missing && !is_dir(stat),
        };
        let of_other_length = matches!(entry.kind, Kind::File { len, .. } if !only.has_len(len));
        if of_other_length {
            self.left_out.add(&entry.path);
        }
        left_out || of_other_length
    }

    /// Whether something that must stay is in the way of an entry: a non-directory in place of a directory. As with rsync,
    /// what would lie below that directory is a failure.
    pub(super) fn is_blocked(&self, dirs: &mut Dirs, entry: &Entry, path: &[u8]) -> bool {
        let is_file = |found| matches!(found, Err(Errno::NOTDIR | Errno::LOOP));
        if !self.spec.only.missing {
            return false;
        }
        if is_file(dirs.find(split(path).0)) {
            self.problem(
                path,
                "not copied: the place of its directory is taken, and stays as it is".into(),
                true,
            );
            return true;
        }
        entry.kind == Kind::Dir && is_file(dirs.find(path))
    }

    /// Whether an entry other than a file or a further name of one is here; nothing is changed.
    pub(super) fn same(&self, dirs: &mut Dirs, entry: &Entry, path: &[u8]) -> EntryResult<Existing> {
        let NamedEntry { dir, name, stat } = match named_entry(dirs, path)? {
            found if self.stays_as_it_is(entry, found.as_ref().map(|there| &there.stat)) => {
                return Ok(Existing::Stays);
            }
            Some(found) => found,
            None => return Ok(Existing::No),
        };
        let is = kind(&stat);
        let same = match &entry.kind {
            Kind::Dir => is == FileType::Directory,
            Kind::Symlink { target } => {
                is == FileType::Symlink
                    && fs::readlinkat(&dir, name, Vec::new()).doing("stat")?.as_bytes() == target.as_slice()
            }
            Kind::Fifo => is == FileType::Fifo,
            Kind::Socket => is == FileType::Socket,
            Kind::Device { character, number } => {
                let wanted = if *character { FileType::CharacterDevice } else { FileType::BlockDevice };
                is == wanted && stat.st_rdev == *number
            }
            Kind::File { .. } | Kind::HardLink { .. } => false,
        };
        if !same || is != FileType::Directory && is_planted(&dir, &stat).doing("stat")? {
            return Ok(Existing::No);
        }
        let attributes = self.owners.settled(entry, Some(&stat), None);
        Ok(Existing::Same { differs: self.owners.differ(&dir, name, &stat, &attributes).any() })
    }

    fn correct(&self, writer: &mut Writer, entry: &Entry, path: &[u8]) -> EntryResult<bool> {
        let (parent, name) = split(path);
        let dir = writer.dirs.find(parent).doing("open")?;
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let open = |how: OFlags| fs::openat(&dir, name, flags | how, Mode::empty());
        // One's own file may be such that one can only write it, or not even that.
        let file = match open(OFlags::RDONLY).or_else(|_| open(OFlags::WRONLY)) {
            Err(Errno::ACCESS) => open_closed(open(OFlags::PATH).doing("open")?, self.owners.own().0)?,
            other => other.doing("open")?,
        };
        let stat = fs::fstat(&file).doing("stat")?;
        if kind(&stat) != FileType::RegularFile {
            return Err(EntryError::because("set attributes of", "it is no longer a file"));
        }
        let attributes = self.owners.settled(entry, Some(&stat), None);
        self.owners.apply(&file, &stat, &attributes, &mut |lost| self.lost(path, lost))
    }

    /// Parts of a wanted file that an earlier run has left. They count when the source is known to hold the same.
    fn have(&self, staging: &Staging, part: &Part, path: &[u8]) -> Result<Wanted, Error> {
        let mut wanted = Wanted { file: part.file, ..Wanted::default() };
        if part.entry.len() <= BLOCK as u64 {
            return Ok(wanted);
        }
        if let Some(left) = staging.left.lock().remove(&id(&part.entry)) {
            let is_over = || self.done.lock().has(part.file);
            let Some(part_file) = self.part_files.get(part.file, &part.entry, is_over) else {
                return Ok(wanted);
            };
            let handle = self.part_files.handle(&part_file, &staging.stage, staging.reserve);
            self.or_problem(path, handle.and_then(|file| part_file.resume(&file, &left)))?;
        }
        // It may have been asked before, and the answer got lost.
        wanted.have = self.part_files.find(part.file).map(|part_file| part_file.left()).unwrap_or_default();
        Ok(wanted)
    }

    /// Records the existing data of a longer file that is to be updated.
    fn updated(&self, dirs: &mut Dirs, part: &Part, path: &[u8], wanted: &mut Wanted) -> EntryResult {
        if self.spec.in_place == InPlace::No {
            return Ok(());
        }
        let Some(base) = self.base_at(dirs, &part.entry, path)? else { return Ok(()) };
        if part.entry.len() <= BLOCK as u64 {
            return Ok(());
        }
        match self.spec.in_place {
            InPlace::Append => wanted.skip = base.len / BLOCK as u64,
            _ => wanted.prove = base.len.min(part.entry.len()).div_ceil(BLOCK as u64),
        }
        let is_over = || self.done.lock().has(part.file);
        if let Some(part_file) = self.part_files.get(part.file, &part.entry, is_over) {
            wanted.skip = part_file.updates(base, wanted.skip);
        }
        Ok(())
    }
}

/// Opens a file whose owner, user `own`, may neither read nor write it.
fn open_closed(named: OwnedFd, own: u32) -> EntryResult<OwnedFd> {
    let stat = fs::fstat(&named).doing("stat")?;
    if kind(&stat) != FileType::RegularFile || stat.st_uid != own {
        return Err(Errno::ACCESS).doing("open");
    }
    set_mode(&named, stat.st_mode & 0o7777 | 0o600).doing("set the mode of")?;
    let opened = tidecast_paths::reopen(&named, OFlags::RDONLY | OFlags::NONBLOCK);
    set_mode(&named, stat.st_mode & 0o7777).doing("set the mode of")?;
    opened.doing("open")
}

/// The entry of a name.
pub(super) struct NamedEntry<'p> {
    pub(super) dir: Arc<OwnedFd>,
    pub(super) name: &'p [u8],
    pub(super) stat: Stat,
}

/// The entry of a path, by its directory and its name there; the destination itself lies in itself.
pub(super) fn named_entry<'p>(dirs: &mut Dirs, path: &'p [u8]) -> EntryResult<Option<NamedEntry<'p>>> {
    let (parent, name) = if path.is_empty() { (&b""[..], &b"."[..]) } else { split(path) };
    let dir = match dirs.find(parent) {
        Ok(dir) => dir,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(e) => return Err(e).doing("stat"),
    };
    Ok(look(&dir, name)?.map(|stat| NamedEntry { dir, name, stat }))
}

/// The root of a file here; None if it has another length now.
fn hash(file: &File, len: u64) -> std::io::Result<Option<Digest>> {
    let (mut layer, mut buffer, mut part, mut at) = (Layer::new(len), PageBuffer::new(BLOCK), 0, 0);
    loop {
        let mut filled = 0;
        while filled < BLOCK {
            match (&*file).read(&mut buffer[filled..])? {
                0 => break,
                n => filled += n,
            }
        }
        at += filled as u64;
        if at > len || (filled < BLOCK && at < len) {
            return Ok(None);
        }
        let digest = digest::content(&buffer[..filled], len);
        if len <= BLOCK as u64 {
            return Ok((at == len).then_some(digest));
        }
        if filled > 0 {
            layer.set(part, digest);
        }
        part += 1;
        if at == len {
            return Ok(layer.root());
        }
    }
}

/// A directory handle for looking only.
pub(super) fn lookup_dirs(base: &OwnedFd) -> EntryResult<Dirs> {
    let base = rustix::io::fcntl_dupfd_cloexec(base, 0).doing("open")?;
    Ok(Dirs::new(Arc::new(base)))
}
