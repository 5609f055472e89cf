//! Writes the contents of blocks.

use std::fs::File;

use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::ask::{Existing, named_entry};
use super::backup;
use super::cross_device;
use super::dirs::{kind, look, split};
use super::entry_error::{Doing, EntryError, EntryResult};
use super::inherit::Inherited;
use super::itemize::making;
use super::part_files::{Next, PartFile, Stretch, write_sparse};
use super::root::Target;
use super::{Directory, Relaxed, Staging, Writer};
use crate::digest;
use crate::entry::{Attributes, Entry, Kind};
use crate::error::Error;
use crate::job::{Want, Wanted};
use crate::part::{BLOCK, Data, Part};
use crate::spec::Durable;
use std::sync::Arc;

impl Directory {
    /// Handles one part.
    pub(super) fn take(
        &self,
        staging: &Staging,
        writer: &mut Writer,
        part: &Part,
        data: &[u8],
        want: &mut Option<Want>,
    ) -> Result<(), Error> {
        let path = self.named(&part.entry.path)?;
        if path.is_empty() && part.entry.kind != Kind::Dir {
            return Err(Error::Damaged("entry without a name".into()));
        }
        if path.split(|b| *b == b'/').next() == Some(staging.stage.name.as_bytes()) {
            self.problem(path, "not copied: the copy uses this name for its staging directory".into(), true);
            return Ok(());
        }
        if let Some(named) = &self.named {
            named.add_entry(path, part);
        }
        if let Data::Ask { root } = &part.data {
            return self.asked(staging, writer, part, path, root.as_ref(), want);
        }
        if self.done.lock().has(part.file) {
            return Ok(());
        }
        if self.is_blocked(&mut writer.dirs, &part.entry, path) {
            self.done.lock().insert(part.file);
            return Ok(());
        }
        let len = part.entry.len();
        let mut item = match part.entry.kind {
            Kind::File { .. } if len <= BLOCK as u64 => self.item(&mut writer.dirs, &part.entry, path, true),
            _ => None,
        };
        let tried = match (&part.entry.kind, &part.data) {
            (Kind::File { .. }, _) if len > BLOCK as u64 => {
                return self.receive_part(staging, writer, part, path, data, want);
            }
            (Kind::File { .. }, Data::Hole { root, .. }) => {
                let root = root.ok_or_else(|| Error::Damaged("hole without a digest".into()))?;
                if digest::zeros(len as usize) != root {
                    return Err(Error::Damaged("hole with a wrong digest".into()));
                }
                self.whole(staging, writer, &part.entry, path, None)
            }
            (Kind::File { .. }, _) => self.whole(staging, writer, &part.entry, path, Some(data)),
            (Kind::Dir, _) => {
                self.in_opened(writer, path, |writer| self.directory(staging, writer, &part.entry, path))
            }
            (Kind::HardLink { .. }, _) => staging.links.push(part.file, &part.entry),
            _ => {
                let here = (!self.place.fresh).then(|| {
                    self.in_opened(writer, path, |writer| self.same(&mut writer.dirs, &part.entry, path))
                });
                if let Some(Ok(Existing::Same { differs: false } | Existing::Stays | Existing::LeftOut)) =
                    here
                {
                    self.done.lock().insert(part.file);
                    if matches!(here, Some(Ok(Existing::Same { .. }))) {
                        self.prove(part.file);
                    }
                    return Ok(());
                }
                let is_same = matches!(here, Some(Ok(Existing::Same { .. })));
                item = self.item(&mut writer.dirs, &part.entry, path, !is_same);
                if !writer.alternates.is_empty() && !is_same {
                    let linked = self.link_special(staging, writer, &part.entry, path);
                    if self.or_problem(path, linked)? == Some(true) {
                        self.done.lock().insert(part.file);
                        self.prove(part.file);
                        self.counts.entries.fetch_add(1, Relaxed);
                        return Ok(());
                    }
                }
                self.special(staging, writer, &part.entry, path, is_same)
            }
        };
        let written = self.or_problem(path, tried)?.is_some();
        if !written {
            self.failed.add(&part.entry.path);
        }
        if self.done.lock().insert(part.file) && written {
            self.count(&part.entry, data.len() as u64);
            self.change_done(path, "copy", item);
            if self.is_placed(&part.entry.kind) {
                self.prove(part.file);
            }
        }
        Ok(())
    }

    /// Whether an entry that was taken without trouble has its name.
    fn is_placed(&self, kind: &Kind) -> bool {
        match kind {
            Kind::File { .. } | Kind::Symlink { .. } | Kind::Fifo | Kind::Socket => true,
            Kind::Device { .. } => self.owners.is_root(),
            Kind::Dir | Kind::HardLink { .. } => false,
        }
    }

    fn count(&self, entry: &Entry, bytes: u64) {
        // Hard links count when they are made, directories if they are made or changed.
        if matches!(entry.kind, Kind::File { .. }) {
            self.counts.files.fetch_add(1, Relaxed);
            self.counts.bytes.fetch_add(bytes, Relaxed);
        }
        if !matches!(entry.kind, Kind::HardLink { .. } | Kind::Dir) {
            self.counts.entries.fetch_add(1, Relaxed);
        }
    }

    /// The directory in which an entry goes, made if need be.
    pub(super) fn parent<'p>(
        &self,
        staging: &Staging,
        writer: &mut Writer,
        path: &'p [u8],
    ) -> EntryResult<(Arc<OwnedFd>, &'p [u8])> {
        let (parent, name) = split(path);
        Ok((self.make_dir(staging, writer, parent)?, name))
    }

    fn make_dir(&self, staging: &Staging, writer: &mut Writer, path: &[u8]) -> EntryResult<Arc<OwnedFd>> {
        let _making = self.made.is_some().then(|| self.making.lock());
        self.before.iter().for_each(|before| before.note(&mut writer.dirs, path));
        writer.dirs.make(
            path,
            &mut |made| {
                self.counts.entries.fetch_add(1, Relaxed);
                self.made.iter().for_each(|names| names.add(made));
                self.change_done(made, "make the directory", self.before.as_ref().map(|_| making(made)));
                staging.made.push(0, &Entry { path: made.to_vec(), ..Entry::default() })
            },
            &mut |at, name, path| self.back_up(at, name, path).map(drop),
        )
    }

    fn directory(&self, staging: &Staging, writer: &mut Writer, entry: &Entry, path: &[u8]) -> EntryResult {
        if self.spec.only.existing && named_entry(&mut writer.dirs, path)?.is_none() {
            return Ok(());
        }
        let dir = self.make_dir(staging, writer, path)?;
        let mode = self.opened(&dir, None)?;
        let mut stat = fs::fstat(&dir).doing("stat")?;
        stat.st_mode = stat.st_mode & !0o7777 | mode;
        if let Some(opened) = staging.opened.as_ref().filter(|_| path.is_empty()) {
            stat.st_mode = stat.st_mode & !0o7777 | opened.mode;
        }
        let was_there = self.made.as_ref().is_none_or(|made| !made.has(path));
        self.directory_item(&mut writer.dirs, entry, path, was_there);
        let acl = if was_there { None } else { self.owners.default_acl(&dir) };
        let there = was_there.then_some(&stat);
        let mut attributes = self.owners.settled(entry, there, acl.as_ref()).into_owned();
        if self.owners.keeps_old_mode() {
            // Entries made in such a directory get its group: the system passes it on.
            attributes.mode |= stat.st_mode & 0o2000;
        }
        staging.dirs.push(0, &Entry { attributes, ..entry.clone() })
    }

    /// A file in one piece; without data it is a hole.
    fn whole(
        &self,
        staging: &Staging,
        writer: &mut Writer,
        entry: &Entry,
        path: &[u8],
        data: Option<&[u8]>,
    ) -> EntryResult {
        let (dir, name) = self.parent(staging, writer, path)?;
        if let Some(base) = self.base_in(&dir, name, entry)? {
            return self.update(&base, (&dir, name), entry, path, data);
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let there = self.replaced(&dir, name)?;
        let inherited = self.inherited(staging, &dir);
        let attributes = self.owners.settled(entry, there.as_ref(), inherited.acl.as_ref());
        let mode = self.owners.first_mode(&attributes);
        let fill = |file: OwnedFd| {
            let (file, written) = fill(file, entry, data);
            let tried = written.and_then(|()| self.apply_to_file(&file, &attributes, &inherited, path));
            (file, tried)
        };
        // One that is killed here must not have the length that it is to have.
        let grows = data.is_some() && matches!(entry.kind, Kind::File { sparse: false, .. });
        if grows && !matches!(staging.target, Target::Itself) {
            match fs::openat(&*dir, name, flags, mode) {
                Ok(file) => {
                    let (file, tried) = fill(file);
                    return tried.inspect_err(|_| forget(&dir, name, &file));
                }
                // An earlier run has left it, or another source has one of this name.
                Err(Errno::EXIST) => {}
                Err(e) => return Err(e).doing("create"),
            }
        }
        let temporary = writer.next();
        let file = fs::openat(&writer.stage, temporary.as_str(), flags, mode).doing("create")?;
        let (_, tried) = fill(file);
        let tried = tried.and_then(|()| self.rename(&writer.stage, temporary.as_bytes(), &dir, name, path));
        writer.remove_unless_renamed(&temporary, tried)
    }

    /// What a directory passes on to a new entry. One that is below a new root has no access list to pass on.
    pub(super) fn inherited(&self, staging: &Staging, dir: &OwnedFd) -> Inherited {
        match &staging.target {
            Target::Itself => self.owners.inherited(dir),
            Target::Absent(_) | Target::Empty(_) => Inherited { owner: self.owners.own_in(dir), acl: None },
        }
    }

    /// The file that a new one replaces, if that matters.
    fn replaced(&self, dir: &OwnedFd, name: &[u8]) -> EntryResult<Option<Stat>> {
        if !self.owners.keeps_old_mode() {
            return Ok(None);
        }
        Ok(look(dir, name)?.filter(|stat| kind(stat) == FileType::RegularFile))
    }

    pub(super) fn apply_to_file(
        &self,
        file: &OwnedFd,
        attributes: &Attributes,
        inherited: &Inherited,
        path: &[u8],
    ) -> EntryResult {
        self.owners.apply_new(file, attributes, inherited, &mut |lost| self.lost(path, lost))?;
        if self.spec.durable == Durable::Each {
            fs::fsync(file).doing("sync")?;
        }
        Ok(())
    }

    /// A part of a file that comes in several.
    fn receive_part(
        &self,
        staging: &Staging,
        writer: &mut Writer,
        part: &Part,
        path: &[u8],
        data: &[u8],
        want: &mut Option<Want>,
    ) -> Result<(), Error> {
        let is_over = || self.done.lock().has(part.file);
        let Some(part_file) = self.part_files.get(part.file, &part.entry, is_over) else { return Ok(()) };
        let (stretch, root, there) = match &part.data {
            Data::Bytes { offset, digest, root, .. } => {
                (Stretch::Part(offset / BLOCK as u64, *digest), root, false)
            }
            Data::Same { offset, digest, root, .. } => {
                (Stretch::Part(offset / BLOCK as u64, *digest), root, true)
            }
            Data::Hole { offset, len, root } => {
                (Stretch::Hole(offset / BLOCK as u64, len.div_ceil(BLOCK as u64)), root, false)
            }
            Data::None | Data::Apart | Data::Ask { .. } => {
                return Err(Error::Damaged("part without data".into()));
            }
        };
        let tried = if there {
            self.keep_part(staging, &part_file, &stretch)
        } else {
            self.write_part(staging, &part_file, &stretch, data).map(Some)
        };
        let Some(next) = self.or_problem(path, tried)? else {
            self.failed.add(&part_file.entry.path);
            self.over(part.file);
            return Ok(());
        };
        let Some(next) = next else {
            let wanted = Wanted { file: part.file, ..Wanted::default() };
            want.get_or_insert_with(Want::default).files.push(wanted);
            return Ok(());
        };
        let after = root.as_ref().map_or(Next::Wait, |root| part_file.root(root));
        match if after == Next::Wait { next } else { after } {
            Next::Wait => Ok(()),
            Next::Finish => self.complete(staging, writer, &part_file, part.file, path),
            Next::Differs => {
                self.failed.add(&part_file.entry.path);
                self.over(part.file);
                let _ =
                    fs::unlinkat(&staging.stage.dir, super::journal::staged(&part_file.id), AtFlags::empty());
                self.problem(
                    path,
                    "not copied: the data that arrived differs from the data that was read".into(),
                    true,
                );
                Ok(())
            }
        }
    }

    fn write_part(
        &self,
        staging: &Staging,
        part_file: &Arc<PartFile>,
        stretch: &Stretch,
        data: &[u8],
    ) -> EntryResult<Next> {
        if !part_file.claim(stretch) {
            return Ok(Next::Wait);
        }
        let file = self.part_files.handle(part_file, &staging.stage, staging.reserve)?;
        match stretch {
            Stretch::Part(part, _) => {
                part_file.write(&file, *part, data)?;
                staging.journal.add(&part_file.id, *part)?;
                self.counts.bytes.fetch_add(data.len() as u64, Relaxed);
            }
            Stretch::Hole(first, count) => part_file.write_hole(&file, *first, *count)?,
        }
        Ok(part_file.written(stretch.range().1))
    }

    /// A part that an earlier run may have left; None if it has not.
    fn keep_part(
        &self,
        staging: &Staging,
        part_file: &Arc<PartFile>,
        stretch: &Stretch,
    ) -> EntryResult<Option<Next>> {
        let Stretch::Part(part, digest) = stretch else { return Ok(None) };
        if part_file.has(*part) {
            return Ok(Some(Next::Wait));
        }
        let file = self.part_files.handle(part_file, &staging.stage, staging.reserve)?;
        let is_left = part_file.is_left(*part) && part_file.holds(&file, *part, digest)?;
        if !is_left && !part_file.is_held(*part, digest)? {
            return Ok(None);
        }
        if !part_file.claim(stretch) {
            return Ok(Some(Next::Wait));
        }
        if !is_left {
            return Ok(Some(part_file.written(1)));
        }
        let len = part_file.entry.len().saturating_sub(part * BLOCK as u64).min(BLOCK as u64);
        self.counts.resumed.fetch_add(len, Relaxed);
        Ok(Some(part_file.written(1)))
    }

    /// Gives a file whose parts are all there its attributes and its name.
    pub(super) fn complete(
        &self,
        staging: &Staging,
        writer: &mut Writer,
        part_file: &Arc<PartFile>,
        number: u64,
        path: &[u8],
    ) -> Result<(), Error> {
        let item = self.item(&mut writer.dirs, &part_file.entry, path, true);
        let mut finish = || {
            let (dir, name) = self.parent(staging, writer, path)?;
            let file = self.part_files.handle(part_file, &staging.stage, false)?;
            if part_file.base.get().is_some() {
                return self.update_part_file(staging, part_file, &file, (&dir, name), path);
            }
            let file = OwnedFd::from(file.try_clone().doing("open")?);
            let there = self.replaced(&dir, name)?;
            let inherited = self.inherited(staging, &dir);
            let attributes = self.owners.settled(&part_file.entry, there.as_ref(), inherited.acl.as_ref());
            let stat = fs::fstat(&file).doing("stat")?;
            self.owners.apply_as(&file, &stat, &attributes, &inherited, &mut |lost| self.lost(path, lost))?;
            if self.spec.durable == Durable::Each {
                fs::fsync(&file).doing("sync")?;
            }
            self.rename(
                &staging.stage.dir,
                super::journal::staged(&part_file.id).as_bytes(),
                &dir,
                name,
                path,
            )
        };
        let tried = finish();
        self.over(number);
        if self.or_problem(path, tried)?.is_some() {
            self.count(&part_file.entry, 0);
            self.prove(number);
            self.change_done(path, "copy", item);
        } else {
            self.failed.add(&part_file.entry.path);
        }
        Ok(())
    }

    /// This file is finished; later parts are ignored.
    fn over(&self, number: u64) {
        self.done.lock().insert(number);
        self.part_files.forget(number);
    }

    /// Links, pipes and devices. An existing one with other attributes is created again: its name may refer
    /// to something else by now.
    fn special(
        &self,
        staging: &Staging,
        writer: &mut Writer,
        entry: &Entry,
        path: &[u8],
        is_same: bool,
    ) -> EntryResult {
        let (dir, name) = self.parent(staging, writer, path)?;
        let there = if is_same { look(&dir, name)? } else { None };
        let mut inherited = self.inherited(staging, &dir);
        let attributes = self.owners.settled(entry, there.as_ref(), inherited.acl.as_ref());
        inherited.owner = there.as_ref().map_or(inherited.owner, |stat| (stat.st_uid, stat.st_gid));
        let temporary = writer.next();
        let (stage, at) = (&writer.stage, temporary.as_str());
        let mode = Mode::from_raw_mode(0o600);
        match &entry.kind {
            Kind::Symlink { target } => fs::symlinkat(target.as_slice(), stage, at).doing("create")?,
            Kind::Fifo => fs::mknodat(stage, at, FileType::Fifo, mode, 0).doing("create the pipe")?,
            Kind::Socket => fs::mknodat(stage, at, FileType::Socket, mode, 0).doing("create the socket")?,
            Kind::Device { .. } if !self.owners.is_root() => {
                self.problem(path, "not copied: only root can make devices".into(), true);
                return Ok(());
            }
            Kind::Device { character, number } => {
                let kind = if *character { FileType::CharacterDevice } else { FileType::BlockDevice };
                fs::mknodat(stage, at, kind, mode, *number).doing("create the device")?;
            }
            Kind::File { .. } | Kind::Dir | Kind::HardLink { .. } => {}
        }
        let mut warn = |lost| self.lost(path, lost);
        let applied = self.owners.apply_to_name(stage, at, &attributes, &inherited, &mut warn);
        let tried = applied.and_then(|()| match is_same {
            // An entry that differs only in attributes is not another version of it.
            true if fs::renameat(stage, at, &*dir, name).is_ok() => Ok(()),
            _ => self.rename(stage, temporary.as_bytes(), &dir, name, path),
        });
        writer.remove_unless_renamed(&temporary, tried)
    }

    /// Renames a finished entry. A directory is in the way only if it is not empty.
    pub(super) fn rename(
        &self,
        from: &OwnedFd,
        temporary: &[u8],
        to: &OwnedFd,
        name: &[u8],
        path: &[u8],
    ) -> EntryResult {
        let renamed = {
            let mut kept = self.back_up(to, name, path)?;
            let renamed = fs::renameat(from, temporary, to, name);
            if renamed.is_ok() {
                backup::placed(&mut kept, path);
            }
            renamed
        };
        match renamed {
            Err(Errno::XDEV) => return self.rename_across(from, temporary, to, name, path),
            Err(Errno::ISDIR | Errno::EXIST | Errno::NOTEMPTY) => {}
            other => return other.doing("rename"),
        }
        match fs::unlinkat(to, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) if self.spec.delete || self.spec.force => {
                self.remove(to, name, path, true);
            }
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                return Err(EntryError::occupied());
            }
            other => other.doing("replace")?,
        }
        fs::renameat(from, temporary, to, name).doing("rename")
    }

    fn rename_across(
        &self,
        from: &OwnedFd,
        temporary: &[u8],
        to: &OwnedFd,
        name: &[u8],
        path: &[u8],
    ) -> EntryResult {
        self.others.note(to)?;
        let aside = cross_device::aside(to)?;
        if fs::statat(from, temporary, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| stat.st_nlink > 1) {
            self.lost(path, cross_device::UNLINKED.into());
        }
        let tried = cross_device::duplicate(from, temporary, &aside.dir, self.spec.durable == Durable::Each)
            .and_then(|()| self.rename(&aside.dir, cross_device::NEW.as_bytes(), to, name, path));
        if tried.is_ok() {
            let _ = fs::unlinkat(from, temporary, AtFlags::empty());
        }
        let removed = aside.remove(to);
        tried.and(removed)
    }
}

impl Writer {
    pub(super) fn next(&mut self) -> String {
        self.begun += 1;
        self.begun.to_string()
    }

    /// Removes an entry that was not renamed.
    pub(super) fn remove_unless_renamed(&self, temporary: &str, tried: EntryResult) -> EntryResult {
        if tried.is_err() {
            let _ = fs::unlinkat(&self.stage, temporary, AtFlags::empty());
        }
        tried
    }
}

/// Writes the content of a new file; without data it is a hole.
fn fill(file: OwnedFd, entry: &Entry, data: Option<&[u8]>) -> (OwnedFd, EntryResult) {
    let file = File::from(file);
    let set_len = || fs::ftruncate(&file, entry.len()).doing("create");
    let tried = match (data, &entry.kind) {
        (Some(data), Kind::File { sparse: false, .. }) => write_all(&file, data),
        (Some(data), _) => set_len().and_then(|()| write_sparse(&file, 0, data)),
        (None, _) => set_len(),
    };
    (file.into(), tried)
}

/// Removes the name of a file that is not complete, if it is still that file's.
fn forget(dir: &OwnedFd, name: &[u8], file: &OwnedFd) {
    let inode = |stat: Stat| (stat.st_dev, stat.st_ino);
    let there = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map(inode);
    if there.is_ok() && there == fs::fstat(file).map(inode) {
        let _ = fs::unlinkat(dir, name, AtFlags::empty());
    }
}

fn write_all(file: &File, data: &[u8]) -> EntryResult {
    use std::io::Write;
    (&*file).write_all(data).doing("write")
}

/// A handle that can do more than name a directory.
pub(super) fn reopen(dir: &OwnedFd) -> EntryResult<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::openat(dir, ".", flags, Mode::empty()).doing("open")
}
