//! What has a name already, and whose names count there.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, fstat, openat, readlinkat};
use rustix::io::Errno;
use tidecast_paths::{Access, Meta, Root, STICKY};

use super::error::Error;

pub(super) const REPLACEABLE: &str = "it belongs to another user and could be changed later; replace it with --force, or choose \
                           another destination";
const FIXED: &str = "it belongs to another user and could be changed later; choose another destination";

/// Something that has a name, opened (`O_PATH`) without following a link.
#[derive(Debug)]
pub(super) struct Found {
    fd: OwnedFd,
    pub(super) meta: Meta,
}

impl Found {
    /// `None` if there is nothing. `name` is one component.
    pub(super) fn open(dir: &Root, name: &OsStr) -> io::Result<Option<Self>> {
        match openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e.into()),
            Ok(fd) => Ok(Some(Self { meta: Meta::of(&fstat(&fd)?), fd })),
        }
    }

    /// The text of a symbolic link; `None` for anything else.
    pub(super) fn target(&self) -> io::Result<Option<OsString>> {
        if !self.meta.is_symlink() {
            return Ok(None);
        }
        Ok(Some(OsString::from_vec(readlinkat(&self.fd, "", Vec::new())?.into_bytes())))
    }
}

/// Whose names count in a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owners {
    /// This process's user.
    pub(super) me: u32,
    /// The directory.
    pub(super) dir: Access,
}

impl Owners {
    pub(super) fn of(dir: &Root) -> io::Result<Self> {
        let meta = dir.stat("")?;
        let me = rustix::process::geteuid().as_raw();
        Ok(Self { me, dir: Access { owner: meta.uid, mode: meta.mode } })
    }

    /// Whether a name of this owner counts: an error if another user may have planted it, false if such a name is to be
    /// replaced (`force`).
    pub(super) fn may_count(self, owner: u32, path: &Path, force: bool) -> Result<bool, Error> {
        if !self.dir.lets_plant(owner, self.me) {
            return Ok(true);
        }
        let replaces = self.dir.mode & STICKY == 0 || [self.dir.owner, 0].contains(&self.me);
        match (replaces, force) {
            (true, true) => Ok(false),
            (true, false) => Err(foreign(path, REPLACEABLE)),
            (false, _) => Err(foreign(path, FIXED)),
        }
    }
}

pub(super) fn foreign(path: &Path, why: &'static str) -> Error {
    Error::Foreign { path: path.to_owned(), why }
}
