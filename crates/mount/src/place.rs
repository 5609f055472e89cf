//! Where a tree may be mounted: never where it would hide the system's directories or the caller's home.
//!
//! The check uses the directory that is mounted over, held by a descriptor, and not its name: links, bind
//! mounts and spellings of a path lead to the same device and inode. The descriptor is what [`crate::mount`]
//! mounts on, so that nothing can take the directory's place between the check and the mount.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, fstat, openat, statat};
use rustix::io::Errno;
use tidecast_paths::{End, Missing, Replaceable, follow, replaceable};

/// A lock is waited for this long, and looked at this often.
const LOCKED: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(10);

/// Directories without which a host does not work, or whose content all programs trust.
const SYSTEM: [&str; 26] = [
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/dev/shm",
    "/etc",
    "/home",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/sys",
    "/tmp",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/sbin",
    "/usr/share",
    "/var",
    "/var/lib",
];
/// Below these only the caller chooses a place, never a manifest.
const CLOSED: [&str; 14] = [
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
    "/var/spool",
];
/// Exceptions to [`CLOSED`]: trees are built there.
const OPEN: [&str; 3] = ["/dev/shm", "/run/user", "/usr/local"];

/// The flags of a directory that is only named, not read.
const NAMED: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A place that changes is looked at so often.
const LOOKS: usize = 1000;

/// The origin of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// Named by the caller: its content may be hidden.
    ByCaller,
    /// A manifest names it, perhaps a stranger's: nothing may be hidden, and system directories are out of reach.
    ByManifest,
}

/// Why nothing is mounted at a place.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// It is a system directory, the caller's home, or holds one.
    #[error("cannot mount at {at}: the mount hides {hidden}; choose another directory")]
    Protected {
        /// Where.
        at: PathBuf,
        /// The directory that has to stay visible.
        hidden: PathBuf,
    },
    /// A manifest names a place in a directory whose content programs trust.
    #[error("cannot mount at {at}: a manifest may not choose a place in {within}; give the place with --at")]
    Closed {
        /// Where.
        at: PathBuf,
        /// The directory that it lies in.
        within: PathBuf,
    },
    /// The mount would hide the content of the directory.
    #[error(
        "cannot mount at {at}: the directory is not empty and the mount hides its files; allow this with --at {at}, \
         or choose another place with --at"
    )]
    NotEmpty {
        /// Where.
        at: PathBuf,
    },
    /// Another user could put another directory in its place.
    #[error("cannot mount at {at}: {why}")]
    Replaceable {
        /// Where.
        at: PathBuf,
        /// The name on the way to it, and the user.
        #[source]
        why: Replaceable,
    },
    /// No directory can be there.
    #[error("cannot mount at {at}: {why}")]
    System {
        /// Where.
        at: PathBuf,
        /// An error of the system.
        #[source]
        why: io::Error,
    },
}

impl Unfit {
    fn system(at: &Path, why: impl Into<io::Error>) -> Self {
        Self::System { at: at.into(), why: why.into() }
    }
}

/// The identity of a directory, whatever its name.
type Id = (u64, u64);

fn id(dir: impl AsFd) -> rustix::io::Result<Id> {
    let stat = fstat(dir)?;
    Ok((stat.st_dev, stat.st_ino))
}

fn id_at(path: &Path) -> Option<Id> {
    let stat = statat(CWD, path, AtFlags::empty()).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// A directory that stays visible, by name and identity.
#[derive(Debug)]
struct Known {
    path: PathBuf,
    id: Option<Id>,
}

impl Known {
    fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { id: id_at(&path), path }
    }
}

/// The directories that no mount may hide.
#[derive(Debug)]
pub struct Guard {
    protected: Vec<Known>,
    closed: Vec<Known>,
    open: Vec<Known>,
    homes: Vec<PathBuf>,
}

impl Guard {
    /// The system's directories, and these of the caller: homes, and others that have to stay visible.
    #[must_use]
    pub fn new(homes: &[PathBuf]) -> Self {
        let mut protected: Vec<Known> = SYSTEM.iter().map(Known::new).collect();
        let mut real = Vec::new();
        for home in homes.iter().filter(|home| home.is_absolute()) {
            protected.extend(home.ancestors().map(Known::new));
            if let Ok(home) = home.canonicalize() {
                protected.extend(home.ancestors().map(Known::new));
                real.push(home);
            }
        }
        let open = OPEN.iter().map(Known::new).chain(real.iter().map(Known::new)).collect();
        let closed = CLOSED.iter().map(Known::new).collect();
        Self { protected, closed, open, homes: real }
    }

    /// As [`Guard::new`], of the user who runs this process: the home by `$HOME` and by the user database, and `more`.
    #[must_use]
    pub fn of_user(more: &[PathBuf]) -> Self {
        let user = nix::unistd::User::from_uid(nix::unistd::Uid::effective()).ok().flatten();
        let homes = user.map(|user| user.dir).into_iter().chain(std::env::home_dir());
        Self::new(&homes.chain(more.iter().cloned()).collect::<Vec<_>>())
    }

    /// The protected directory that a mount over this one would hide.
    fn hides(&self, id: Option<Id>, path: &Path) -> Option<&Path> {
        let hidden = |known: &&Known| (id.is_some() && known.id == id) || known.path.starts_with(path);
        self.protected.iter().find(hidden).map(|known| known.path.as_path())
    }

    /// Whether a manifest may choose a place at this path; `dir` is its nearest directory that exists.
    fn leaves(&self, path: &Path, dir: &OwnedFd) -> Result<(), Unfit> {
        let refuse = |within: &Path| Err(Unfit::Closed { at: path.into(), within: within.into() });
        for home in &self.homes {
            // Files that programs read from a home by default are in its hidden directories: ~/.ssh,
            // ~/.config.
            let first = path.strip_prefix(home).ok().and_then(|rest| rest.components().next());
            if let Some(Component::Normal(name)) = first
                && name.as_encoded_bytes().starts_with(b".")
            {
                return refuse(&home.join(name));
            }
        }
        let failed = |why: Errno| Unfit::system(path, why);
        let mut dir = dir.try_clone().map_err(|why| Unfit::system(path, why))?;
        loop {
            let this = id(&dir).map_err(failed)?;
            let same = |known: &&Known| known.id == Some(this);
            // The caller's own directories and those of the exceptions come first on the path upwards.
            if self.open.iter().any(|known| same(&known)) {
                return Ok(());
            }
            if let Some(known) = self.closed.iter().find(same) {
                return refuse(&known.path);
            }
            let above = openat(&dir, "..", NAMED, Mode::empty()).map_err(failed)?;
            if id(&above).map_err(failed)? == this {
                return Ok(());
            }
            dir = above;
        }
    }
}

/// A directory that may be mounted over.
#[derive(Debug)]
pub struct Place {
    dir: OwnedFd,
    path: PathBuf,
}

impl Place {
    /// The directory at a path, if a mount may cover it.
    ///
    /// # Errors
    /// No directory is there, or it has to stay visible.
    pub fn open(at: &Path, guard: &Guard, chosen: Chosen) -> Result<Self, Unfit> {
        match find(at, guard, chosen)? {
            Spot::There(place) => Ok(place),
            Spot::Absent(_) => Err(Unfit::system(at, Errno::NOENT)),
        }
    }

    fn check(dir: OwnedFd, at: &Path, guard: &Guard, chosen: Chosen) -> Result<Self, Unfit> {
        let failed = |why: io::Error| Unfit::system(at, why);
        let path = fs::read_link(by_descriptor(&dir)).map_err(failed)?;
        let this = id(&dir).map_err(|why| Unfit::system(at, why))?;
        if let Some(hidden) = guard.hides(Some(this), &path) {
            return Err(Unfit::Protected { at: at.into(), hidden: hidden.into() });
        }
        if chosen == Chosen::ByManifest {
            guard.leaves(&path, &dir)?;
            if fs::read_dir(by_descriptor(&dir)).map_err(failed)?.next().is_some() {
                return Err(Unfit::NotEmpty { at: path });
            }
        }
        Ok(Self { dir, path })
    }

    /// Its path, without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for other processes that mount here, for some seconds: any user who may list the directory could hold its
    /// lock. Where it cannot be locked, this process goes on without.
    #[must_use]
    pub fn lock(&self) -> Option<File> {
        let dir = File::open(self.by_descriptor()).ok()?;
        let until = Instant::now() + LOCKED;
        loop {
            match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Some(dir),
                Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(LOOK),
                Err(_) => return None,
            }
        }
    }

    /// The path by which the kernel finds this directory and no other.
    pub(crate) fn by_descriptor(&self) -> PathBuf {
        by_descriptor(&self.dir)
    }
}

fn by_descriptor(dir: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()))
}

/// The object at a path where a tree may be mounted.
#[derive(Debug)]
pub enum Spot {
    /// A directory.
    There(Place),
    /// Nothing.
    Absent(Absent),
}

/// A place without a directory.
#[derive(Debug)]
pub struct Absent {
    above: OwnedFd,
    above_path: PathBuf,
    rest: Vec<OsString>,
}

impl Absent {
    /// The nearest directory above that exists, without links.
    #[must_use]
    pub fn above(&self) -> &Path {
        &self.above_path
    }

    /// The names below it that are missing.
    #[must_use]
    pub fn missing(&self) -> &[OsString] {
        &self.rest
    }

    /// The place.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.above_path.join(self.rest.iter().collect::<PathBuf>())
    }

    pub(crate) fn dir(&self) -> &OwnedFd {
        &self.above
    }
}

/// Looks at a place where a tree is to be mounted.
///
/// # Errors
/// It has to stay visible, or no directory can be there.
pub fn find(at: &Path, guard: &Guard, chosen: Chosen) -> Result<Spot, Unfit> {
    let at = &std::path::absolute(at).map_err(|why| Unfit::system(at, why))?;
    for _ in 0..LOOKS {
        match look(at, guard, chosen) {
            // Made or removed during the look, as by commands that share a place.
            Err(Unfit::System { why, .. }) if why.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
    }
    Err(Unfit::system(at, Errno::NOENT))
}

/// One walk, so that the directory that is found is the one of which no other user can put another in its place.
fn look(at: &Path, guard: &Guard, chosen: Chosen) -> Result<Spot, Unfit> {
    let mut fault = None;
    let end = follow(at, &mut |step| {
        fault = replaceable(step, chosen == Chosen::ByCaller);
        if fault.is_some() { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
    });
    if let Some(why) = fault {
        return Err(Unfit::Replaceable { at: at.into(), why });
    }
    match end.map_err(|why| Unfit::system(at, why))? {
        End::Dir(dir) => Place::check(dir, at, guard, chosen).map(Spot::There),
        End::Other(_) => Err(Unfit::system(at, Errno::NOTDIR)),
        End::Missing(Missing { link: Some(link), .. }) => {
            let why = io::Error::other(format!("{} is a dangling symbolic link", link.display()));
            Err(Unfit::system(at, why))
        }
        End::Missing(missing) => absent(missing, at, guard, chosen).map(Spot::Absent),
    }
}

fn absent(missing: Missing, at: &Path, guard: &Guard, chosen: Chosen) -> Result<Absent, Unfit> {
    let Missing { above, names: rest, .. } = missing;
    let above_path = fs::read_link(by_descriptor(&above)).map_err(|why| Unfit::system(at, why))?;
    if rest.iter().any(|name| name == "..") {
        return Err(Unfit::system(at, io::Error::other("`..` below a directory that does not exist")));
    }
    let absent = Absent { above, above_path, rest };
    let path = absent.path();
    if let Some(hidden) = guard.hides(None, &path) {
        return Err(Unfit::Protected { at: at.into(), hidden: hidden.into() });
    }
    if chosen == Chosen::ByManifest {
        guard.leaves(&path, &absent.above)?;
    }
    Ok(absent)
}

#[cfg(test)]
#[path = "place_tests.rs"]
#[allow(clippy::unwrap_used)]
mod tests;
