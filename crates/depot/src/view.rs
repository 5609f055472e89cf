//! Reading a committed cache: by descriptor beneath the store, never through a link, and kept from eviction meanwhile.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tidecast_metainfo::FileRef;
use tidecast_paths::{Root, is_link};

use crate::access::own_dir;
use crate::error::{Context, Error};
use crate::{CacheId, Depot};

/// Keeps a cache from going while it is read by this program.
pub struct Busy {
    depot: Depot,
    id: CacheId,
}

/// The files of a committed cache, to be opened one after the other.
pub struct View {
    /// Where it is, for messages.
    path: PathBuf,
    /// The directory above the published file or directory.
    tree: Root,
    top: Vec<u8>,
    /// The directory that was opened last, by its place in the manifest: files of one directory follow each other.
    last: Option<(u32, Root)>,
}

impl Depot {
    /// Keeps a cache from going while the answer lives. Counts as use.
    ///
    /// # Errors
    /// [`Error::NoCache`].
    pub fn busy(&self, id: CacheId, now: u64) -> Result<Busy, Error> {
        let mut memory = self.0.memory.write();
        memory.get(id).ok_or(Error::NoCache(id))?;
        *memory.busy.entry(id).or_default() += 1;
        memory.touch(id, now);
        Ok(Busy { depot: self.clone(), id })
    }

    /// Opens a committed cache for reading; a [`Busy`] keeps it there meanwhile.
    ///
    /// # Errors
    /// [`Error::NoCache`] or [`Error::State`]; [`Error::Changed`]: another program has changed the store.
    pub fn open_view(&self, id: CacheId) -> Result<View, Error> {
        let record = self.committed(id)?;
        let path = self.view(id)?;
        let tree = own_dir(&self.0.layout, &self.0.layout.cache(id))?.sub("tree").at("open", &path)?;
        Ok(View { path, tree, top: record.top.clone(), last: None })
    }
}

impl View {
    /// Opens a regular file of it for reading.
    ///
    /// # Errors
    /// [`Error::Changed`]: it is not a regular file of the manifest's length, or there is a link; the system's
    /// error.
    pub fn open(&mut self, file: FileRef<'_>) -> Result<File, Error> {
        let path = file.path().below(&self.path);
        let opened = self.find(file).map_err(|e| match leads_elsewhere(&e) {
            Some(why) => Error::Changed { path: path.clone(), why },
            None => Error::io("open", &path, e),
        })?;
        if opened.metadata().at("stat", &path)?.len() != file.len() {
            return Err(Error::Changed { path, why: "length differs from the manifest" });
        }
        Ok(opened)
    }

    fn find(&mut self, file: FileRef<'_>) -> io::Result<File> {
        let top = Path::new(OsStr::from_bytes(&self.top));
        let Some(dir) = file.dir() else { return self.tree.open_file(top) };
        let name = OsStr::from_bytes(file.path().name());
        if let Some((last, opened)) = &self.last
            && *last == dir
        {
            return opened.open_file(name);
        }
        let path = file.path().below(top);
        let (_, opened) = self.last.insert((dir, self.tree.sub(path.parent().unwrap_or(top))?));
        opened.open_file(name)
    }
}

fn leads_elsewhere(e: &io::Error) -> Option<&'static str> {
    match e.kind() {
        _ if is_link(e) => Some("a symbolic link instead of a file or directory"),
        io::ErrorKind::NotADirectory => Some("not a directory"),
        io::ErrorKind::IsADirectory | io::ErrorKind::InvalidInput => Some("not a regular file"),
        io::ErrorKind::NotFound => Some("missing"),
        _ => None,
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut memory = self.depot.0.memory.write();
        if let Some(n) = memory.busy.get_mut(&self.id) {
            *n -= 1;
            if *n == 0 {
                memory.busy.remove(&self.id);
            }
        }
    }
}
