//! The handle by which a tree is read.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::RwLock;
use tidecast_event::{Context as _, Error};
use tidecast_mount::reader::Coming;

use super::data::Data;
use super::entries::{Entries, Entry, EntryKind, dirs};

/// How long a wait lasts until it is started again; a waiting call is woken at once when its bytes are here.
const MOMENT: Duration = Duration::from_secs(10);
/// Whole files that are remembered.
const WHOLE: usize = 256;

/// Reads files of a tree, from any number of threads. Cheap to clone.
///
/// Files are named by their place in [`entries`](Reader::entries). Calls may wait: within tokio use them by
/// `spawn_blocking`. A reader works as long as its operation runs; present data can be read after that, too.
#[derive(Clone)]
pub struct Reader(Arc<Inner>);

struct Inner {
    entries: Entries,
    data: Data,
    /// Files of which all is here.
    whole: RwLock<HashMap<usize, Arc<File>>>,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("entries", &self.0.entries.all.len()).finish_non_exhaustive()
    }
}

impl Reader {
    pub(super) fn new(entries: Entries, data: Data) -> Self {
        Self(Arc::new(Inner { entries, data, whole: RwLock::default() }))
    }

    /// All names of the tree: files in the order in which their bytes are published.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.0.entries.all
    }

    /// The file or directory at a path, through symbolic links within the tree. `None` for the top itself,
    /// for a missing entry, and for a link out of the tree.
    pub fn find(&self, path: impl AsRef<[u8]>) -> Option<usize> {
        self.0.entries.find(path.as_ref())
    }

    /// Reads bytes of a file; fewer at its end. Fetches the pieces that cover them if they are not here, and
    /// reads ahead according to earlier reads of the file.
    ///
    /// # Errors
    /// No peer supplies them within the timeout of the options ([`Kind::Interrupted`](crate::Kind::Interrupted)); the disk
    /// fails; this is not a file ([`Kind::Usage`](crate::Kind::Usage)).
    pub fn read_at(&self, file: usize, offset: u64, bytes: &mut [u8]) -> Result<usize, Error> {
        let mut fetching = self.read_on(file, offset, bytes.len())?;
        while fetching.wait(MOMENT)?.is_pending() {}
        self.copy(file, offset, bytes)
    }

    /// Begins to fetch the bytes that [`read_at`](Reader::read_at) with these arguments reads.
    ///
    /// # Errors
    /// This is not a file.
    pub fn read_on(&self, file: usize, offset: u64, len: usize) -> Result<Fetching, Error> {
        let entry = self.file_entry(file)?;
        let range = clamp(&(offset..offset.saturating_add(len as u64)), entry);
        if range.is_empty() || self.known_whole(file).is_some() {
            return Ok(Fetching::default());
        }
        let coming = match &self.0.data {
            Data::Swarm(reader) => Some(reader.bring_on(number(reader, file)?, range)),
            Data::Local(_) => None,
        };
        Ok(Fetching { coming, path: entry.path.clone() })
    }

    /// Begins to fetch ranges of bytes of files, all at once, and nothing else: (file, bytes).
    ///
    /// # Errors
    /// One is not a file.
    pub fn fetch(&self, ranges: &[(usize, Range<u64>)]) -> Result<Fetching, Error> {
        let wanted = self.wanted(ranges)?;
        let coming = match &self.0.data {
            Data::Swarm(reader) if !wanted.is_empty() => Some(reader.bring(wanted)),
            _ => None,
        };
        let path = match ranges {
            [(file, _)] => self.file_entry(*file)?.path.clone(),
            _ => Vec::new(),
        };
        Ok(Fetching { coming, path })
    }

    /// Requests ranges of bytes in this order: before earlier requests of this kind, and after the bytes that reads wait for.
    /// Does not wait until they come.
    ///
    /// # Errors
    /// One is not a file.
    pub fn want(&self, ranges: &[(usize, Range<u64>)]) -> Result<(), Error> {
        let wanted = self.wanted(ranges)?;
        if let Data::Swarm(reader) = &self.0.data {
            reader.bring_later(wanted);
        }
        Ok(())
    }

    /// Reads bytes that are here, as after [`fetch`](Reader::fetch); fewer at the end of the file.
    ///
    /// # Errors
    /// They are not here; the disk fails; this is not a file.
    pub fn copy(&self, file: usize, offset: u64, bytes: &mut [u8]) -> Result<usize, Error> {
        let entry = self.file_entry(file)?;
        let cannot = || format!("cannot read {}", String::from_utf8_lossy(&entry.path));
        if let Some(whole) = self.known_whole(file) {
            return fill(&whole, offset, bytes).with_context(cannot);
        }
        match &self.0.data {
            Data::Swarm(reader) => reader.copy(number(reader, file)?, offset, bytes).with_context(cannot),
            Data::Local(local) => fill(&*local.file(file, &entry.path)?, offset, bytes).with_context(cannot),
        }
    }

    /// A file that can be mapped into memory, if all of it is here.
    ///
    /// # Errors
    /// It cannot be opened; this is not a file.
    pub fn whole(&self, file: usize) -> Result<Option<Arc<File>>, Error> {
        let entry = self.file_entry(file)?;
        if let Some(whole) = self.known_whole(file) {
            return Ok(Some(whole));
        }
        let whole = match &self.0.data {
            Data::Swarm(reader) => reader.whole(number(reader, file)?),
            Data::Local(local) => return local.file(file, &entry.path).map(Some),
        };
        if let Some(whole) = &whole {
            let mut all = self.0.whole.write();
            if all.len() >= WHOLE {
                all.clear();
            }
            all.insert(file, whole.clone());
        }
        Ok(whole)
    }

    /// A file in which this one's bytes lie at the same offsets, to be read without the reader; the content
    /// of ranges that were not fetched is undefined. `None` if nothing was fetched, and for a file that is a
    /// hole.
    ///
    /// # Errors
    /// It cannot be opened; this is not a file.
    pub fn descriptor(&self, file: usize) -> Result<Option<Arc<File>>, Error> {
        let entry = self.file_entry(file)?;
        match &self.0.data {
            Data::Swarm(reader) => Ok(reader.descriptor(number(reader, file)?)),
            Data::Local(local) => local.file(file, &entry.path).map(Some),
        }
    }

    /// Where a file of a cache lies; None for one of a swarm.
    #[must_use]
    pub fn path(&self, file: usize) -> Option<PathBuf> {
        match &self.0.data {
            Data::Swarm(_) => None,
            Data::Local(local) => self.0.entries.all.get(file).map(|entry| local.path(&entry.path)),
        }
    }

    /// Payload received from peers since it was opened, bytes.
    #[must_use]
    pub fn received(&self) -> u64 {
        match &self.0.data {
            Data::Swarm(reader) => reader.received(),
            Data::Local(_) => 0,
        }
    }

    /// Bytes in a piece, the smallest unit of fetching.
    #[must_use]
    pub fn piece_length(&self) -> Option<u32> {
        match &self.0.data {
            Data::Swarm(reader) => Some(reader.manifest().layout().piece_length()),
            Data::Local(_) => None,
        }
    }

    fn known_whole(&self, file: usize) -> Option<Arc<File>> {
        self.0.whole.read().get(&file).cloned()
    }

    fn file_entry(&self, file: usize) -> Result<&Entry, Error> {
        let entry = self.0.entries.all.get(file).filter(|entry| entry.kind == EntryKind::File);
        entry.ok_or_else(|| Error::usage(format!("entry {file} of the tree is not a regular file")))
    }

    fn wanted(&self, ranges: &[(usize, Range<u64>)]) -> Result<Vec<(u32, Range<u64>)>, Error> {
        let mut wanted = Vec::with_capacity(ranges.len());
        for (file, range) in ranges {
            let range = clamp(range, self.file_entry(*file)?);
            if let Data::Swarm(reader) = &self.0.data
                && !range.is_empty()
            {
                wanted.push((number(reader, *file)?, range));
            }
        }
        Ok(wanted)
    }
}

/// Requested pieces that have not arrived.
#[derive(Default)]
pub struct Fetching {
    coming: Option<Coming>,
    path: Vec<u8>,
}

impl Fetching {
    /// Waits until all is here, at most this long. Without end it would wait for the timeout of the options since anything came.
    ///
    /// # Errors
    /// Why it does not come: of kind [`Interrupted`](crate::Kind::Interrupted) if no peer gives it, else of kind [`Fault`](crate::Kind::Fault).
    pub fn wait(&mut self, most: Duration) -> Result<Poll<()>, Error> {
        let waited = match &mut self.coming {
            None => return Ok(Poll::Ready(())),
            Some(coming) => coming.wait(most),
        };
        match waited {
            Poll::Pending => Ok(Poll::Pending),
            Poll::Ready(Ok(())) => Ok(Poll::Ready(())),
            Poll::Ready(Err(error)) if self.path.is_empty() => Err(error),
            Poll::Ready(Err(error)) => {
                Err(error.context(format!("cannot read {}", String::from_utf8_lossy(&self.path))))
            }
        }
    }
}

/// The place of an entry among the manifest's files.
fn number(reader: &tidecast_mount::reader::Reader, file: usize) -> Result<u32, Error> {
    let number = file.checked_sub(dirs(reader.manifest())).and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| Error::usage(format!("entry {file} of the tree is not a regular file")))
}

fn clamp(range: &Range<u64>, entry: &Entry) -> Range<u64> {
    range.start.min(entry.len)..range.end.min(entry.len)
}

fn fill(file: &File, offset: u64, bytes: &mut [u8]) -> std::io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
