//! The end of a copy: hard links, attributes of directories, durability; [`super::delete`] is between them.

use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, FileType};
use rustix::io::Errno;
use tidecast_text::count;

use super::ask::{NamedEntry, named_entry};
use super::attributes::same_time;
use super::cross_device;
use super::dirs::{Dirs, look, set_mode, split};
use super::entry_error::{Doing, EntryError, EntryResult};
use super::opened::Opened;
use super::root::Target;
use super::stage::{self, Stage};
use super::write::reopen;
use super::{Directory, Relaxed, Staging};
use crate::entry::{Entry, Kind};
use crate::error::Error;
use crate::job::Walked;
use crate::part::Part;
use crate::spec::Durable;

impl Directory {
    pub(super) fn finish_all(&self, walked: &Walked) -> Result<(), Error> {
        let Some(staging) = &self.staging else {
            self.plan_links()?;
            self.delete(walked)?;
            self.report_left_out();
            return Ok(());
        };
        if staging.removed.swap(true, Relaxed) {
            return Ok(());
        }
        let whole = |t: EntryError| t.at(staging.shown(&self.place).join(&staging.stage.name));
        let unfinished = self.unfinished(walked);
        let mut dirs = Dirs::new(staging.root.clone());
        let mut fatal = None;
        let each = |spool: &super::Spool,
                    act: &mut dyn FnMut(&Entry, u64) -> EntryResult,
                    fatal: &mut Option<Error>| {
            spool.each(|Part { entry, file, .. }| {
                let tried = act(entry, *file);
                let path = self.named(&entry.path).unwrap_or(&entry.path);
                if let Err(e) = self.or_problem(path, tried) {
                    fatal.get_or_insert(e);
                }
                Ok(())
            })
        };
        each(
            &staging.links,
            &mut |entry, number| self.link(staging, &mut dirs, entry, number, walked),
            &mut fatal,
        )
        .map_err(whole)?;
        self.fill(staging)?;
        self.delete(walked)?;
        let apply_to_dirs = |fatal: &mut Option<Error>| {
            let mut dirs = Dirs::new(staging.base().clone());
            each(&staging.made, &mut |entry, _| self.open_made(&mut dirs, &entry.path), fatal)
                .map_err(whole)?;
            let mut late = Late::default();
            each(&staging.dirs, &mut |entry, _| self.apply_to_dir(&mut dirs, entry, &mut late), fatal)
                .map_err(whole)?;
            late.closed.sort_by_key(|entry| std::cmp::Reverse(entry.path.len()));
            for entry in &late.closed {
                let tried = self.apply_to_open(&mut dirs, entry);
                self.or_problem(&entry.path, tried)?;
            }
            Ok::<_, Error>(late)
        };
        let mut late = apply_to_dirs(&mut fatal)?;
        if let Some(e) = fatal {
            return Err(e);
        }
        self.report_left_out();
        self.sync(staging)?;
        if self.appears(staging, late.top.as_ref())? {
            late = apply_to_dirs(&mut fatal)?;
            if let Some(e) = fatal {
                return Err(e);
            }
        }
        self.close_dirs(&mut Dirs::new(staging.base().clone()));
        self.leave(staging, unfinished, late.top.as_ref())?;
        let Some((around, own)) = &self.place.around else { return Ok(()) };
        own.remove(around).map_err(|t| t.at(self.place.shown.clone()))
    }

    /// Reports the number of entries that the flags do not select.
    fn report_left_out(&self) {
        let left_out = self.counts.left_out.load(Relaxed);
        if left_out > 0 {
            let entries = count(left_out, "entry");
            let what = format!(
                "skipped {entries} (links, devices, pipes, sockets), which the flags do not select; -a copies all kinds, -l links, -D the \
                 others"
            );
            self.problem(b"", what, false);
        }
    }

    /// Syncs everything to disk.
    fn sync(&self, staging: &Staging) -> Result<(), Error> {
        if self.spec.durable == Durable::No {
            return Ok(());
        }
        let synced = fs::syncfs(&**staging.base()).doing("sync").and_then(|()| self.others.sync());
        synced.map_err(|t| t.at(self.place.shown.clone()))
    }

    /// Renames the staged destination to its name; whether another program has created the destination
    /// meanwhile.
    fn appears(&self, staging: &Staging, top: Option<&Entry>) -> Result<bool, Error> {
        // One that its owner may not write to cannot be renamed, nor be opened again if it is closed otherwise.
        if let Some(top) = top
            .filter(|top| top.attributes.mode & 0o700 == 0o700 && !matches!(staging.target, Target::Itself))
        {
            let tried = self.apply_to_open(&mut Dirs::new(staging.base().clone()), top);
            self.or_problem(b"", tried)?;
        }
        self.appear(staging)
    }

    /// Removes the staging directory, and syncs the top-level names.
    fn leave(&self, staging: &Staging, unfinished: bool, top: Option<&Entry>) -> Result<(), Error> {
        let base = reopen(staging.base()).map_err(|t| t.at(self.place.shown.clone()))?;
        self.idle.lock().clear();
        let tried = if unfinished { self.leave_unfinished(staging) } else { staging.stage.remove() };
        self.or_problem(staging.stage.name.as_bytes(), tried)?;
        self.clear_leftovers(staging)?;
        if let Some(top) = top {
            let tried = self.apply_to_open(&mut Dirs::new(staging.base().clone()), top);
            self.or_problem(b"", tried)?;
            staging.opened.iter().for_each(Opened::settle);
        }
        self.sync_name(staging)?;
        if self.spec.durable != Durable::No {
            match fs::fsync(&base) {
                // A file system whose directories need no sync returns this.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(e) => return Err(Error::io("sync", &self.place.shown)(e.into())),
            }
        }
        Ok(())
    }

    /// Removes the staging directories of other copies to the same place that are known to be over.
    fn clear_leftovers(&self, staging: &Staging) -> Result<(), Error> {
        for identity in &self.spec.leftovers {
            let name = stage::name(identity, &self.place);
            let found = Stage::find(staging.base().clone(), &name);
            if let Err(EntryError { doing, error }) =
                found.and_then(|stage| stage.map_or(Ok(()), |stage| stage.remove()))
            {
                self.problem(name.as_bytes(), format!("cannot {doing} it: {error}"), false);
            }
        }
        Ok(())
    }

    /// Reports incomplete files; if there are any, their data stays for another run.
    fn unfinished(&self, walked: &Walked) -> bool {
        let left = self.part_files.left();
        for part_file in &left {
            // The sender has reported the reason, if it knows one.
            if walked.failed == 0 {
                let path = self.named(&part_file.entry.path).unwrap_or(&part_file.entry.path);
                self.problem(path, "not copied: parts of it did not arrive".into(), true);
            }
        }
        !left.is_empty()
    }

    fn link(
        &self,
        staging: &Staging,
        dirs: &mut Dirs,
        entry: &Entry,
        number: u64,
        walked: &Walked,
    ) -> EntryResult {
        let Kind::HardLink { to } = &entry.kind else { return Ok(()) };
        if self.left_out.has(to) {
            return Ok(());
        }
        let NamedEntry { dir: from, name: old, stat: first } = match named_entry(dirs, to)? {
            Some(first) => first,
            // It was not selected.
            None if self.spec.only.selects() => return Ok(()),
            None => return Err(EntryError::because("create", "the target of this hard link is missing")),
        };
        let kind = FileType::from_raw_mode(first.st_mode);
        // If the sender could not read a file, an older one may have that name. All names of a file have the same time.
        let is_older =
            walked.failed > 0 && self.owners.keeps_time(kind) && !same_time(&first, entry.attributes.mtime);
        if is_older || self.failed.has(to) || kind == FileType::Directory {
            return Err(EntryError::because("create", "the file that it links to was not copied"));
        }
        let (parent, name) = split(&entry.path);
        if self.spec.only.selects() {
            let found = named_entry(dirs, &entry.path)?;
            if self.stays_as_it_is(entry, found.as_ref().map(|there| &there.stat)) {
                return Ok(());
            }
        }
        let dir = dirs.make(
            parent,
            &mut |path| staging.made.push(0, &Entry { path: path.to_vec(), ..Entry::default() }),
            &mut |at, name, path| self.back_up(at, name, path).map(drop),
        )?;
        if look(&dir, name)?.is_some_and(|stat| (stat.st_dev, stat.st_ino) == (first.st_dev, first.st_ino)) {
            self.prove(number);
            return Ok(());
        }
        let item = self.item(dirs, entry, &entry.path, true);
        let temporary = "link";
        let _ = fs::unlinkat(&staging.stage.dir, temporary, AtFlags::empty());
        match fs::linkat(&from, old, &staging.stage.dir, temporary, AtFlags::empty()) {
            Err(Errno::XDEV) => self.link_across(&from, old, &dir, entry)?,
            other => {
                other.doing("create")?;
                self.rename(&staging.stage.dir, temporary.as_bytes(), &dir, name, &entry.path)?;
            }
        }
        self.counts.entries.fetch_add(1, Relaxed);
        self.change_done(&entry.path, "make the link", item);
        self.prove(number);
        Ok(())
    }

    /// A hard link where the staging directory is on another file system than its target.
    fn link_across(&self, from: &OwnedFd, old: &[u8], dir: &OwnedFd, entry: &Entry) -> EntryResult {
        let (_, name) = split(&entry.path);
        let aside = cross_device::aside(dir)?;
        let made = match fs::linkat(from, old, &aside.dir, cross_device::NEW, AtFlags::empty()) {
            Err(Errno::XDEV) => {
                self.lost(&entry.path, cross_device::UNLINKED.into());
                self.others.note(dir)?;
                cross_device::duplicate(from, old, &aside.dir, self.spec.durable == Durable::Each)
            }
            other => other.doing("create"),
        };
        let tried =
            made.and_then(|()| self.rename(&aside.dir, cross_device::NEW.as_bytes(), dir, name, &entry.path));
        let removed = aside.remove(dir);
        tried.and(removed)
    }

    /// Gives a directory that was made the mode that the system would have given it.
    fn open_made(&self, dirs: &mut Dirs, path: &[u8]) -> EntryResult {
        let dir = dirs.find(path).doing("open")?;
        let mode = self.owners.usual(self.owners.default_acl(&dir).as_ref());
        set_mode(&*dir, mode).doing("set the mode of")
    }

    fn apply_to_dir(&self, dirs: &mut Dirs, entry: &Entry, late: &mut Late) -> EntryResult {
        if entry.path.is_empty() {
            // Removing the staging directory changes its time.
            late.top = Some(entry.clone());
        } else if entry.attributes.mode & 0o100 == 0 {
            // Its contents could no longer be reached.
            late.closed.push(entry.clone());
        } else {
            return self.apply_to_open(dirs, entry);
        }
        Ok(())
    }

    fn apply_to_open(&self, dirs: &mut Dirs, entry: &Entry) -> EntryResult {
        let dir = reopen(&*dirs.find(&entry.path).doing("open")?)?;
        let stat = fs::fstat(&dir).doing("stat")?;
        let mut warn = |lost| self.lost(&entry.path, lost);
        self.owners.apply(&dir, &stat, &entry.attributes, &mut warn).map(drop)
    }
}

/// Directories whose attributes are set last.
#[derive(Default)]
struct Late {
    top: Option<Entry>,
    closed: Vec<Entry>,
}
