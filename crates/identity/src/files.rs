//! Small secret files: created readable by their owner alone, replaced atomically, locked between processes.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::Mode;
use tidecast_paths::{
    Access, OTHERS_WRITE, Root, Step, open_not_planted, others_write, refuse_planted_link, unmapped,
};

use crate::Error;

/// No file of this crate is longer; a longer one is damaged, and is not read into memory.
const MAX_FILE: u64 = 16 << 20;

fn fail(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::File { action, path: path.to_owned(), source }
}

/// Makes the directory (mode 0700) and its parents if absent.
pub(crate) fn make_dir(dir: &Path) -> Result<(), Error> {
    Root::make_private(dir).map(drop).map_err(fail("create", dir))
}

/// Checks that a directory is this user's and that no other user can put files into it; an empty one is narrowed to mode
/// 0700.
pub(crate) fn check_own(dir: &Path) -> Result<(), Error> {
    let meta = fs::metadata(dir).map_err(fail("use", dir))?;
    if meta.uid() != rustix::process::geteuid().as_raw() {
        let (dir, owner) = (dir.display(), meta.uid());
        return Err(Error::Ca(format!("{dir} belongs to user {owner}; use a directory of your own")));
    }
    if meta.mode() & OTHERS_WRITE == 0 {
        return Ok(());
    }
    let is_empty = fs::read_dir(dir).map_err(fail("open", dir))?.next().is_none();
    if is_empty && narrow(dir, &meta)? {
        return Ok(());
    }
    let dir = dir.display();
    Err(Error::Ca(format!("other users can write to {dir}; run: chmod go-w {dir}")))
}

/// Closes a directory to others. By descriptor: false if it is not the one whose metadata were looked at.
fn narrow(dir: &Path, looked_at: &fs::Metadata) -> Result<bool, Error> {
    let open = OpenOptions::new().read(true).custom_flags(DIRECTORY).open(dir).map_err(fail("open", dir))?;
    let now = open.metadata().map_err(fail("use", dir))?;
    if (now.dev(), now.ino()) != (looked_at.dev(), looked_at.ino()) {
        return Ok(false);
    }
    open.set_permissions(fs::Permissions::from_mode(0o700)).map_err(fail("narrow", dir))?;
    Ok(true)
}

/// Names that Tidecast gives to files and directories of its state directory.
const NAMES: &[&str] = &[
    "authority.json",
    "authority.lock",
    "copy-server.key",
    "daemon",
    "field.key",
    "member.key",
    "node.key",
    "publish",
    "seed",
    "ssl-root.pem",
];

/// The state directory of this user: created with mode 0700; an existing one with a wider mode is narrowed, if it
/// has only Tidecast's own files. One that other programs use too (a home) keeps its mode: every file in it
/// is readable by its owner alone. One in which other users could plant files is refused.
///
/// # Errors
/// It belongs to another user or is open to all, is not a directory, or cannot be created or narrowed.
pub fn own_dir(dir: &Path) -> Result<(), Error> {
    let failed = |source: std::io::Error| match source.raw_os_error() {
        Some(_) => Error::Create { path: dir.to_owned(), source },
        // Refused by `may_use`, which has the reason.
        None => fail("create", dir)(source),
    };
    let root = Root::make_private_by(dir, &mut |step| may_use(step, dir)).map_err(failed)?;
    let meta = rustix::fs::fstat(&root).map_err(|e| fail("use", dir)(e.into()))?;
    let user = rustix::process::geteuid().as_raw();
    if meta.st_uid != user {
        return Err(Error::Foreign { path: dir.to_owned(), owner: meta.st_uid, user });
    }
    if meta.st_mode & 0o077 == 0 {
        return Ok(());
    }
    if meta.st_mode & 0o1000 != 0 || !is_ours_alone(&root) {
        let access = Access { owner: user, mode: meta.st_mode };
        let is_open = access.is_open() || others_write(user, meta.st_gid, meta.st_mode);
        return if is_open { Err(Error::Open(dir.to_owned())) } else { Ok(()) };
    }
    rustix::fs::fchmod(&root, Mode::from_raw_mode(0o700)).map_err(|e| fail("narrow", dir)(e.into()))
}

/// Whether a name on the way to the state directory may be followed or made. Root follows no other user's link, and makes
/// nothing in another user's home, where that user could not use it (as `sudo` may leave HOME).
fn may_use(step: &Step<'_>, dir: &Path) -> std::io::Result<()> {
    refuse_planted_link(step)?;
    let is_other = |owner: &u32| *owner != 0 && Some(*owner) != unmapped();
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let refuse = |why: String| Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, why));
    let (path, above) = (step.path.display(), step.dir.owner);
    match step.owner.filter(is_other) {
        Some(owner) if step.is_link => refuse(format!("{path} is a link of user {owner}")),
        None if step.owner.is_none() && is_other(&above) && is_at_home(dir) => refuse(format!(
            "root makes no {path} in a directory of user {above}; choose another directory with --state-dir"
        )),
        _ => Ok(()),
    }
}

fn is_at_home(dir: &Path) -> bool {
    let set = |name| std::env::var_os(name).filter(|home| !home.is_empty());
    ["HOME", "XDG_STATE_HOME"].into_iter().filter_map(set).any(|home| dir.starts_with(home))
}

/// O_DIRECTORY.
const DIRECTORY: i32 = rustix::fs::OFlags::DIRECTORY.bits().cast_signed();

/// The directory has nothing that another program put there.
fn is_ours_alone(dir: &Root) -> bool {
    let Ok(names) = dir.list("") else { return false };
    names
        .iter()
        .map(|name| name.to_string_lossy())
        .all(|name| NAMES.contains(&&*name) || name.starts_with(".tidecast-") || name.starts_with(".tmp"))
}

/// Reads a file with a private key, which must be there.
///
/// # Errors
/// It cannot be read, or other users may read it.
pub fn read_private(path: &Path) -> Result<Vec<u8>, Error> {
    let none = || fail("read", path)(std::io::ErrorKind::NotFound.into());
    read_secret(path)?.ok_or_else(none)
}

/// Reads a secret file; `None` if it does not exist. One that others may read, or another user may have planted, is rejected.
pub(crate) fn read_secret(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let file = match open_not_planted(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(fail("read", path)(e)),
    };
    let mode = file.metadata().map_err(fail("read", path))?.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(Error::Exposed { path: path.to_owned(), mode });
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(fail("read", path))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(Error::Damaged { path: path.to_owned(), why: "file too long".into() });
    }
    Ok(Some(bytes))
}

fn temporary(path: &Path, bytes: &[u8], mode: u32) -> Result<tempfile::NamedTempFile, Error> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".tidecast-")
        .permissions(fs::Permissions::from_mode(mode))
        .tempfile_in(dir)
        .map_err(fail("write", path))?;
    file.write_all(bytes).and_then(|()| file.as_file().sync_all()).map_err(fail("write", path))?;
    Ok(file)
}

fn sync_dir(path: &Path) -> Result<(), Error> {
    let dir = path.parent().unwrap_or(Path::new("."));
    File::open(dir).and_then(|d| d.sync_all()).map_err(fail("write", path))
}

/// Puts `bytes` at `path` (mode 0600), whole or not at all, and durably.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    put(path, bytes, 0o600)
}

/// As [`replace`], for a file that is no secret (mode 0644): it is copied to other places with its mode.
pub(crate) fn replace_public(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    put(path, bytes, 0o644)
}

fn put(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Error> {
    temporary(path, bytes, mode)?.persist(path).map_err(|e| fail("write", path)(e.error))?;
    sync_dir(path)
}

/// As [`replace`], but an existing file stays: false if there was one.
pub(crate) fn create(path: &Path, bytes: &[u8]) -> Result<bool, Error> {
    match temporary(path, bytes, 0o600)?.persist_noclobber(path) {
        Ok(_) => sync_dir(path).map(|()| true),
        Err(e) if e.error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(fail("write", path)(e.error)),
    }
}

/// Takes the lock file at `path`, waiting for its holder; dropping the answer releases it.
pub(crate) fn lock(path: &Path) -> Result<File, Error> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)
        .map_err(fail("lock", path))?;
    file.lock().map_err(fail("lock", path))?;
    Ok(file)
}
