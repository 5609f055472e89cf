//! The destination: the directory below which all entries lie, and the meaning of the destination's name.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use tidecast_text::escaped;

use super::private::Private;
use super::root::Absent;
use crate::error::Error;
use crate::spec::ReceiveSpec;

pub(super) const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A destination.
#[derive(Debug)]
pub(super) struct Destination {
    /// The directory below which all lies; None if a dry run has found none.
    pub(super) base: Option<OwnedFd>,
    /// In the place of `base`, where that is made at the end.
    pub(super) absent: Option<Absent>,
    /// Its name, for messages.
    pub(super) shown: PathBuf,
    /// The only source's name, and the one that it gets.
    pub(super) rename: Option<(Vec<u8>, Vec<u8>)>,
    /// Whether there is nothing yet at the destination.
    pub(super) fresh: bool,
    /// Whether the directory was made for this copy.
    pub(super) made: bool,
    /// With [`ReceiveSpec::discard`]: the directory in which the base is, and the base as one of its own.
    pub(super) around: Option<(OwnedFd, Private)>,
    /// How the names of other directories are resolved, and the path of this one.
    pub(super) way: Resolver,
    at: PathBuf,
}

/// The directory of data that is only written to measure the cost. Deletion skips names with this prefix.
const DISCARDED: &str = ".tidecast-copy-discarded";

/// How names before the destination itself are resolved: they are the user's, and links in them are followed, but for links that
/// another user may have planted; below a server's root they cannot lead out of it.
#[derive(Debug)]
pub(super) struct Resolver {
    start: OwnedFd,
    beneath: bool,
}

impl Resolver {
    pub(super) fn open(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = flags | OFlags::CLOEXEC;
        if !self.beneath {
            let found = tidecast_paths::named(path)?;
            let is_named = flags.contains(OFlags::PATH);
            return if is_named { Ok(found) } else { Ok(fs::openat(&found, ".", flags, Mode::empty())?) };
        }
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        Ok(tidecast_paths::openat2_again(&self.start, path, flags, inside)?)
    }

    /// Opens a directory, and creates it, with those above it, if it is missing.
    pub(super) fn make(&self, path: &Path) -> io::Result<OwnedFd> {
        let missing = match self.open(path, DIRECTORY) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => e,
            other => return other,
        };
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(missing) };
        let parent = self.make(parent)?;
        match fs::mkdirat(&parent, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(fs::openat(&parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?)
    }

    /// A path as it is opened here: below a server's root all begin there.
    fn path<'p>(&self, path: &'p OsStr) -> &'p Path {
        let bytes = path.as_bytes();
        let slashes = bytes.iter().take_while(|b| self.beneath && **b == b'/').count();
        Path::new(OsStr::from_bytes(bytes.get(slashes..).unwrap_or_default()))
    }
}

impl Destination {
    /// Determines the meaning of a destination, and opens it. `root`: it lies below that, as do all paths
    /// that it names.
    pub(super) fn open(spec: &ReceiveSpec, root: Option<&Path>) -> Result<Self, Error> {
        let start = fs::openat(CWD, root.unwrap_or(Path::new(".")), DIRECTORY, Mode::empty());
        let start = start.map_err(|e| Error::io("open", root.unwrap_or(Path::new(".")))(e.into()))?;
        let way = Resolver { start, beneath: root.is_some() };
        let dest = spec.dest.as_bytes();
        let slash = dest.ends_with(b"/");
        let path = way.path(&spec.dest);
        let there = way.open(path, OFlags::PATH).and_then(|fd| Ok(fs::fstat(&fd)?));
        let is_dir = match there {
            Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => Some(true),
                FileType::RegularFile => Some(false),
                // The user's own name for it, as /dev/null: not one that is come upon in a tree.
                kind => return Err(special(&spec.dest, kind)),
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(refused(&spec.dest, e)),
        };
        let place = match (is_dir, spec.offer.single.as_ref().filter(|_| is_dir.is_some() || !slash)) {
            (Some(true), _) => Self::directory(way, path, spec, None),
            (None, None) => {
                let absent = Absent::find(&way, path, spec).map_err(|e| refused(&spec.dest, e))?;
                Self::directory(way, path, spec, absent)
            }
            (Some(false), None) => Err(Error::Usage(format!(
                "the destination {} is a file; copying a directory or several sources needs a directory",
                escaped(&spec.dest)
            ))),
            (Some(false), Some(_)) if slash => Err(refused(&spec.dest, Errno::NOTDIR.into())),
            (_, Some(single)) => Self::renamed(way, path, single, spec),
        }?;
        let place = Self { made: is_dir.is_none(), ..place };
        if spec.discard { place.within(spec) } else { Ok(place) }
    }

    /// A directory of its own in the one that was found.
    fn within(mut self, spec: &ReceiveSpec) -> Result<Self, Error> {
        let Some(base) = self.base.take() else { return Ok(self) };
        let own = Private::open(&base, DISCARDED, &|_| true);
        let own = own.map_err(|t| t.at(Path::new(&spec.dest)))?;
        let opened =
            rustix::io::fcntl_dupfd_cloexec(&own.dir, 0).map_err(|e| refused(&spec.dest, e.into()))?;
        self.shown.push(&own.name);
        Ok(Self { base: Some(opened), around: Some((base, own)), rename: None, fresh: true, ..self })
    }

    fn directory(
        way: Resolver,
        path: &Path,
        spec: &ReceiveSpec,
        absent: Option<Absent>,
    ) -> Result<Self, Error> {
        let base = if absent.is_none() { Self::opened(&way, path, spec)? } else { None };
        let fresh = match &base {
            Some(base) => is_empty(base).map_err(Error::io("list", &spec.dest))?,
            None => true,
        };
        let (shown, at) = (PathBuf::from(&spec.dest), path.to_owned());
        Ok(Self { base, absent, shown, rename: None, fresh, made: false, around: None, way, at })
    }

    fn renamed(way: Resolver, path: &Path, single: &[u8], spec: &ReceiveSpec) -> Result<Self, Error> {
        let Some(Component::Normal(name)) = path.components().next_back() else {
            return Err(refused(&spec.dest, Errno::ISDIR.into()));
        };
        let parent = path.parent().unwrap_or(Path::new(""));
        let base = Self::opened(&way, parent, spec)?;
        let there = base.as_ref().map(|base| fs::statat(base, name, AtFlags::SYMLINK_NOFOLLOW));
        let fresh = matches!(there, None | Some(Err(Errno::NOENT)));
        let rename = Some((single.to_vec(), name.as_bytes().to_vec()));
        let shown = Path::new(&spec.dest).parent().unwrap_or(Path::new("")).to_owned();
        let (absent, at) = (None, parent.to_owned());
        Ok(Self { base, absent, shown, rename, fresh, made: false, around: None, at, way })
    }

    fn opened(way: &Resolver, path: &Path, spec: &ReceiveSpec) -> Result<Option<OwnedFd>, Error> {
        let opened = if spec.dry_run { way.open(path, DIRECTORY) } else { way.make(path) };
        match opened {
            Err(e) if spec.dry_run && e.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some).map_err(|e| refused(&spec.dest, e)),
        }
    }

    /// How it is opened.
    pub(super) fn at(&self) -> &Path {
        &self.at
    }

    /// The path of another directory that the user names; a relative one begins at this one.
    pub(super) fn beside(&self, dir: &OsStr) -> PathBuf {
        if Path::new(dir).is_absolute() { self.way.path(dir).to_owned() } else { self.at.join(dir) }
    }

    /// As a person would write the name of an entry.
    pub(super) fn show(&self, path: &[u8]) -> Vec<u8> {
        let path = if path.is_empty() { self.shown.clone() } else { self.path(path) };
        path.into_os_string().into_vec()
    }

    /// The same for errors.
    pub(super) fn path(&self, path: &[u8]) -> PathBuf {
        self.shown.join(std::ffi::OsString::from_vec(path.to_vec()))
    }
}

/// Blocks arrive in any order, which a pipe cannot take, and the rename at the end would replace it.
fn special(dest: &OsStr, kind: FileType) -> Error {
    let kind = match kind {
        FileType::Fifo => "pipe",
        FileType::Socket => "socket",
        _ => "device",
    };
    let dest = escaped(dest);
    Error::Usage(format!(
        "the destination {dest} is a {kind}, which is never replaced and accepts only one regular file; name a file or directory"
    ))
}

fn refused(dest: &OsStr, error: io::Error) -> Error {
    unreached("the destination", dest, error)
}

/// Why a directory that the user names cannot be opened.
pub(super) fn unreached(what: &str, dir: &OsStr, error: io::Error) -> Error {
    if Errno::from_io_error(&error) == Some(Errno::XDEV) {
        let dir = escaped(dir);
        return Error::Usage(format!("{what} {dir} is outside of the served directory"));
    }
    Error::io("open", dir)(error)
}

pub(super) fn is_empty(dir: &OwnedFd) -> io::Result<bool> {
    for entry in Dir::read_from(dir)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}
