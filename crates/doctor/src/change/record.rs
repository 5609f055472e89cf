//! The record of changes: lines of JSON in a directory that only root may write to.
//!
//! All intents of a fix are durable before its first change; each change that was made is marked behind it. A
//! line that a crash has cut short is not read: what it would have announced has not begun.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock, fstat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tidecast_paths::{Meta, OTHERS_WRITE, Root};

use super::error::Error;
use super::step::Step;
use super::target::{Target, Value};

const NAME: &str = "record";
/// Longest record that is read, bytes.
const LENGTH_MAX: u64 = 64 << 20;
/// Processes that remove the directory while this one opens it.
const TRIES: usize = 100;

/// How far one change of the record has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Announced: it may have been made or not.
    Intended,
    /// Made; the value that was read back.
    Made(Value),
    /// The system refused it.
    Refused,
}

/// One change of the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What was changed.
    pub target: Target,
    /// Its value before.
    pub before: Value,
    /// Its value after.
    pub after: Value,
    /// How far it has come.
    pub progress: Progress,
}

impl Entry {
    /// A change that is announced.
    pub(super) fn intended(step: Step) -> Self {
        Self { target: step.target, before: step.before, after: step.after, progress: Progress::Intended }
    }

    /// Whether it was made.
    #[must_use]
    pub fn is_made(&self) -> bool {
        matches!(self.progress, Progress::Made(_))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Version(u32),
    Intent { target: Target, before: Value, after: Value },
    Made { entry: usize, read: Value },
    Refused { entry: usize },
}

/// The record of this host, locked for this process.
#[derive(Debug)]
pub struct Record {
    dir: Root,
    entries: Vec<Entry>,
}

impl Record {
    /// Locks and reads the record below `directory`, which is created if it is missing.
    ///
    /// # Errors [`Error::Locked`] if another process holds it; [`Error::NotOurs`] if another user may write to
    /// it; [`Error::Damaged`].
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Record { path: directory.to_owned(), source };
        for _ in 0..TRIES {
            let dir = own(directory)?;
            match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => return Err(Error::Locked),
                other => other.map_err(|e| failed(e.into()))?,
            }
            // The process that held the lock may have removed the directory.
            if fstat(&dir).map_err(|e| failed(e.into()))?.st_nlink > 0 {
                let entries = read(&dir, &[me()])?;
                return Ok(Self { dir, entries });
            }
        }
        Err(failed(Errno::BUSY.into()))
    }

    /// The changes, oldest first.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The changes of the record below `directory` without a lock; `None` if this user may not read it.
    ///
    /// # Errors
    /// [`Error::NotOurs`] if another user than this one or root may write to it; [`Error::Damaged`].
    pub fn look(directory: &Path) -> Result<Option<Vec<Entry>>, Error> {
        let opened = existing(directory).and_then(|dir| match dir {
            Some(dir) => read(&dir, &[0, me()]),
            None => Ok(Vec::new()),
        });
        match opened {
            Err(Error::Record { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => Ok(None),
            other => other.map(Some),
        }
    }

    /// Announces changes, durably.
    pub(super) fn announce(&mut self, entries: Vec<Entry>) -> Result<usize, Error> {
        let first = self.entries.len();
        self.entries.extend(entries);
        self.rewrite()?;
        Ok(first)
    }

    /// Notes how far the change `entry` has come, durably.
    pub(super) fn mark(&mut self, entry: usize, progress: Progress) -> Result<(), Error> {
        let line = match &progress {
            Progress::Made(read) => Line::Made { entry, read: read.clone() },
            _ => Line::Refused { entry },
        };
        let add = || {
            let mut file = self.dir.open_write(NAME)?;
            let end = file.metadata()?.len();
            io::Seek::seek(&mut file, io::SeekFrom::Start(end))?;
            file.write_all(text(&line)?.as_bytes())?;
            file.sync_all()
        };
        add().map_err(|source| self.failed(source))?;
        if let Some(entry) = self.entries.get_mut(entry) {
            entry.progress = progress;
        }
        Ok(())
    }

    /// Keeps only the changes of `targets`; without any, the record and its directory are removed.
    pub(super) fn keep(mut self, targets: &[Target]) -> Result<(), Error> {
        self.entries.retain(|entry| targets.contains(&entry.target));
        if !self.entries.is_empty() {
            return self.rewrite();
        }
        let remove = || {
            for name in [NAME, "record.new"] {
                if self.dir.look(name)?.is_some() {
                    self.dir.remove_file(name)?;
                }
            }
            self.dir.sync("")
        };
        remove().map_err(|source| self.failed(source))?;
        // By its path, through the directory above; the lock is held, so nothing is in it.
        match std::fs::remove_dir(self.dir.path()) {
            Err(e) if e.kind() != io::ErrorKind::DirectoryNotEmpty && e.kind() != io::ErrorKind::NotFound => {
                Err(self.failed(e))
            }
            _ => Ok(()),
        }
    }

    fn rewrite(&self) -> Result<(), Error> {
        let write = || {
            let mut whole = text(&Line::Version(1))?;
            for entry in &self.entries {
                let Entry { target, before, after, .. } = entry.clone();
                whole.push_str(&text(&Line::Intent { target, before, after })?);
            }
            for (number, entry) in self.entries.iter().enumerate() {
                match &entry.progress {
                    Progress::Intended => {}
                    Progress::Made(read) => {
                        whole.push_str(&text(&Line::Made { entry: number, read: read.clone() })?);
                    }
                    Progress::Refused => whole.push_str(&text(&Line::Refused { entry: number })?),
                }
            }
            self.dir.write_whole(NAME, whole.as_bytes(), 0o600)?;
            self.dir.sync("")
        };
        write().map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::Record { path: self.dir.full(NAME), source }
    }
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Opens the directory and follows no link; `None` if it does not exist.
fn existing(directory: &Path) -> Result<Option<Root>, Error> {
    let (above, name) = split(directory)?;
    match Root::open(above).and_then(|above| above.sub(name)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some).map_err(|source| Error::Record { path: directory.to_owned(), source }),
    }
}

/// Creates and opens the directory, follows no link, and fails if another user may write to it.
fn own(directory: &Path) -> Result<Root, Error> {
    let failed = |source| Error::Record { path: directory.to_owned(), source };
    let (above, name) = split(directory)?;
    let parent = Root::open(above).map_err(failed)?;
    parent.ensure_dir(name, 0o700).map_err(failed)?;
    let dir = parent.sub(name).map_err(failed)?;
    trust(&dir.stat("").map_err(failed)?, directory, &[me()])?;
    parent.sync("").map_err(failed)?;
    Ok(dir)
}

fn split(directory: &Path) -> Result<(&Path, &OsStr), Error> {
    directory
        .parent()
        .zip(directory.file_name())
        .ok_or_else(|| Error::Record { path: directory.to_owned(), source: Errno::INVAL.into() })
}

/// Fails if another user than `owners` may have written it.
fn trust(meta: &Meta, path: &Path, owners: &[u32]) -> Result<(), Error> {
    if owners.contains(&meta.uid) && meta.mode & OTHERS_WRITE == 0 {
        return Ok(());
    }
    Err(Error::NotOurs { path: path.to_owned(), owner: meta.uid })
}

/// The changes of a record that only `owners` may have written.
fn read(dir: &Root, owners: &[u32]) -> Result<Vec<Entry>, Error> {
    let path: PathBuf = dir.full(NAME);
    let failed = |source| Error::Record { path: path.clone(), source };
    let file = match dir.open_file(NAME) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(failed)?,
    };
    trust(&dir.stat("").map_err(failed)?, dir.path(), owners)?;
    trust(&Meta::of(&fstat(&file).map_err(|e| failed(e.into()))?), &path, owners)?;
    let mut bytes = Vec::new();
    file.take(LENGTH_MAX).read_to_end(&mut bytes).map_err(failed)?;
    parse(&bytes, &path)
}

fn parse(bytes: &[u8], path: &Path) -> Result<Vec<Entry>, Error> {
    let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
    let mut entries: Vec<Entry> = Vec::new();
    for (number, line) in bytes[..whole].split_inclusive(|b| *b == b'\n').enumerate() {
        let damaged = |why: String| Error::Damaged { path: path.to_owned(), line: number + 1, why };
        let parsed: Line = serde_json::from_slice(line).map_err(|e| damaged(e.to_string()))?;
        let (entry, progress) = match parsed {
            Line::Version(1) if number == 0 => continue,
            Line::Version(other) => return Err(damaged(format!("version {other} is not known"))),
            Line::Intent { target, before, after } => {
                target.check(&after).map_err(damaged)?;
                entries.push(Entry { target, before, after, progress: Progress::Intended });
                continue;
            }
            Line::Made { entry, read } => (entry, Progress::Made(read)),
            Line::Refused { entry } => (entry, Progress::Refused),
        };
        entries
            .get_mut(entry)
            .ok_or_else(|| damaged(format!("change {entry} was not announced")))?
            .progress = progress;
    }
    Ok(entries)
}

fn text(line: &Line) -> io::Result<String> {
    Ok(serde_json::to_string(line)? + "\n")
}
