//! Where a tree is at home on this host: the socket of its server, its log, its manifest, and its data.
//!
//! The directory is opened once. It is this user's alone, and no other user can put another one in its place (`base`). Files in
//! it are opened beneath its descriptor, and no link is followed. Its path is for other processes and for the socket.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, fcntl_setfl, flock, statvfs};
use tidecast_metainfo::{MAX_LEN, Manifest};
use tidecast_node::{Source, id_bytes};
use tidecast_paths::{OTHERS_WRITE, Root, is_link};

use crate::base;
use crate::error::{Error, home};

const RAM: &str = "/dev/shm";
/// A tree is kept in RAM if it takes at most this fraction (one part in N) of the free space there.
const SHARE: u64 = 4;
/// Tries to make a user's own directory where other users have occupied its usual name.
const TRIES: usize = 4;

const SOCKET: &str = "socket";
const LOG: &str = "log";
const MANIFEST: &str = "manifest";
const STARTING: &str = "starting";
const EMPTY: &str = "empty";
const DATA: &str = "data";

/// The directory of a tree on this host, which is this user's alone.
#[derive(Debug, Clone)]
pub struct Home {
    /// Open, with its path without links.
    dir: Arc<Root>,
    /// The user has chosen the directory of the data.
    told: bool,
    id: String,
}

impl Home {
    /// Of this tree; made if need be. `cache`: the directory that the user has named.
    ///
    /// # Errors
    /// The directory cannot be made, belongs to another user, or another user could put another one in its place.
    pub fn of(source: &Source, cache: Option<&Path>) -> Result<Home, Error> {
        let id = HEXLOWER.encode(&source.id());
        let base = match cache {
            Some(dir) => base::cache(dir)?,
            None => own(&base::temporary(&std::env::temp_dir())?)?,
        };
        Self::within(&base, cache.is_some(), id)
    }

    /// In the directory of all trees.
    pub(crate) fn within(base: &Root, told: bool, id: String) -> Result<Home, Error> {
        let dir = private(base, short(&id))?;
        let home = Home { dir: Arc::new(dir), told, id };
        home.verify()?;
        Ok(home)
    }

    /// Checks that the path, by which other processes find it, leads to the directory that is open.
    ///
    /// # Errors
    /// It leads to another one, or nowhere: the directory was removed or moved.
    pub(crate) fn verify(&self) -> Result<(), Error> {
        let same = |there: Root| Ok(there.stat("")?.id == self.dir.stat("")?.id);
        match Root::open(self.path()).and_then(same) {
            Ok(true) => Ok(()),
            Ok(false) => {
                Err(io::Error::other("another directory has taken its place; run the command again"))
            }
            Err(error) => Err(error),
        }
        .map_err(home("use", self.path()))
    }

    /// Where all of this is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Where the server listens.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.full(SOCKET)
    }

    /// The status of each server.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.dir.full(LOG)
    }

    /// The log, to be written on.
    pub(crate) fn open_log(&self) -> Result<File, Error> {
        let log = self.dir.open_or_create(LOG, 0o600).map_err(home("write", self.log()))?;
        fcntl_setfl(&log, OFlags::APPEND).map_err(home("write", self.log()))?;
        Ok(log)
    }

    /// An empty directory for whatever purpose.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn scratch(&self) -> Result<PathBuf, Error> {
        private(&self.dir, EMPTY).map(|dir| dir.path().to_owned())
    }

    /// Where the manifest is kept.
    #[must_use]
    pub fn manifest_path(&self) -> PathBuf {
        self.dir.full(MANIFEST)
    }

    /// The directory itself, open.
    pub(crate) fn root(&self) -> Result<Root, Error> {
        self.dir.again().map_err(home("use", self.path()))
    }

    /// Held by the process that starts a server; others wait.
    pub(crate) fn lock(&self) -> Result<File, Error> {
        let path = || self.dir.full(STARTING);
        let file = self.dir.open_or_create(STARTING, 0o600).map_err(home("make", path()))?;
        flock(&file, FlockOperation::LockExclusive).map_err(home("lock", path()))?;
        Ok(file)
    }

    /// The manifest, if it was fetched before.
    #[must_use]
    pub fn manifest(&self) -> Option<Manifest> {
        let mut bytes = Vec::new();
        let file = self.dir.open_file(MANIFEST).ok()?;
        file.take(MAX_LEN as u64 + 1).read_to_end(&mut bytes).ok()?;
        let manifest = Manifest::parse(&bytes).ok()?;
        (HEXLOWER.encode(&id_bytes(&manifest)) == self.id).then_some(manifest)
    }

    /// Keeps the manifest for the next process.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep(&self, manifest: &Manifest) -> Result<(), Error> {
        let mut file = self.dir.scratch(MANIFEST, 0o600).map_err(home("write into", self.path()))?;
        file.file_mut().write_all(&manifest.to_bytes()).map_err(home("write", self.manifest_path()))?;
        file.finish().map_err(home("write", self.manifest_path()))
    }

    /// The place of the data, open: where it is already, else RAM if there is enough, unless the user has chosen a
    /// place.
    pub(crate) fn data(&self, manifest: &Manifest) -> Result<Root, Error> {
        let is_here = self.dir.look(DATA).map_err(home("use", self.dir.full(DATA)))?.is_some();
        let in_memory = if self.told || is_here { None } else { self.in_memory(manifest)? };
        let dir = in_memory.as_ref().unwrap_or(&self.dir);
        dir.ensure_dir(DATA, 0o700).map_err(home("make", dir.full(DATA)))?;
        dir.sub(DATA).map_err(home("use", dir.full(DATA)))
    }

    /// The directory of the tree in RAM. None if there is too little, and without a directory there, as in a container without
    /// shared memory: the data is on the disk then.
    fn in_memory(&self, manifest: &Manifest) -> Result<Option<Root>, Error> {
        let free = statvfs(RAM).map_or(0, |room| room.f_bavail.saturating_mul(room.f_frsize));
        if manifest.total_len() > free / SHARE {
            return Ok(None);
        }
        let base = base::memory(Path::new(RAM)).and_then(|below| own(&below).ok());
        base.map(|base| private(&base, short(&self.id))).transpose()
    }
}

/// The name of the directory of a tree.
fn short(id: &str) -> &str {
    id.get(..16).unwrap_or(id)
}

/// This user's own directory below one that all may write to. Where another user has occupied its usual name, it has one that
/// no one can guess, and that is found by its owner.
fn own(below: &Root) -> Result<Root, Error> {
    let usual = format!("tidecast-{}", rustix::process::geteuid().as_raw());
    match private(below, &usual) {
        Err(Error::Foreign(_)) => {}
        other => return other,
    }
    let start = format!("{usual}-");
    for _ in 0..TRIES {
        let mut names = below.list("").map_err(home("list", below.path()))?;
        names.retain(|name| name.as_encoded_bytes().starts_with(start.as_bytes()));
        // Several processes may have made one at the same time: all use the same.
        names.sort_unstable();
        let is_ours = |name: &OsString| below.stat(name).is_ok_and(|meta| meta.is_dir() && meta.is_mine());
        if let Some(dir) =
            names.iter().filter(|name| is_ours(name)).find_map(|name| existing(below, name).ok())
        {
            return Ok(dir);
        }
        let name = format!("{start}{:016x}", rand::random::<u64>());
        below.make_dir(&name, 0o700).map_err(home("make", below.full(&name)))?;
    }
    Err(Error::Foreign(below.full(usual)))
}

/// Opens a directory that belongs to this user alone, and makes it if it is missing. A file, a link, or a directory of another
/// user in its place is not used.
fn private(base: &Root, name: &str) -> Result<Root, Error> {
    match base.make_dir(name, 0o700) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(home("make", base.full(name))(error)),
        _ => existing(base, OsStr::new(name)),
    }
}

/// The same of one that is there.
fn existing(base: &Root, name: &OsStr) -> Result<Root, Error> {
    let path = base.full(name);
    let dir = match base.sub(name) {
        Err(error) if is_link(&error) || error.kind() == ErrorKind::NotADirectory => {
            return Err(Error::Foreign(path));
        }
        other => other.map_err(home("use", &path))?,
    };
    let meta = dir.stat("").map_err(home("use", &path))?;
    if meta.uid != rustix::process::geteuid().as_raw() || meta.mode & OTHERS_WRITE != 0 {
        return Err(Error::Foreign(path));
    }
    if meta.mode & 0o077 != 0 {
        // Others may have been allowed to read it. A file system whose directories all have one mode refuses this.
        let _ = fchmod(&dir, Mode::RWXU);
    }
    Ok(dir)
}

#[cfg(test)]
#[path = "home_tests.rs"]
#[allow(clippy::unwrap_used)]
mod tests;
