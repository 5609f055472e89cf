//! The location of sources, for a receiver that may be on the same host under another name: a copy must not
//! delete its own source, nor copy a source onto or into itself. Directories are identified by device and
//! inode, which are the same through all links and mounts of a host.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, fstat, openat};
use serde::{Deserialize, Serialize};
use tidecast_text::escaped_bytes;

use crate::error::Error;
use crate::filter::Filter;

/// Most sources that are sent; there are more only where a pattern has found them, in one directory.
const MOST: usize = 1000;
/// No path is deeper.
const DEEPEST: usize = 4096;
const LOOK: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Device and inode.
pub(crate) type Inode = (u64, u64);

/// Where all sources are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceLocations {
    /// The kernel that knows the directories by these numbers.
    boot: String,
    sources: Vec<SourceLocation>,
    /// The sender leaves the destination out.
    leaves_out: bool,
}

/// Where one source is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SourceLocation {
    /// As the user calls it.
    pub(crate) shown: Vec<u8>,
    /// Only the named paths of it are copied.
    #[serde(default)]
    pub(crate) listed: bool,
    /// Its path in the copy; None if it is not a directory.
    pub(crate) inside: Option<Vec<u8>>,
    /// The directory itself, or its parent, and then all that are above; with the path down from there to the
    /// source.
    pub(crate) above: Vec<(Inode, Vec<u8>)>,
}

/// The directory `at` and those above it; `path` has their names, as far as they are known.
pub(crate) fn above(at: impl AsFd, path: &[u8], below: &[u8]) -> Vec<(Inode, Vec<u8>)> {
    let mut names = path.split(|b| *b == b'/').filter(|name| !name.is_empty()).rev();
    let (mut all, mut down) = (Vec::new(), below.to_vec());
    let mut up: Option<OwnedFd> = None;
    while all.len() < DEEPEST {
        let stat = match &up {
            None => fstat(&at),
            Some(up) => fstat(up),
        };
        let Ok(stat) = stat else { return all };
        let inode = (stat.st_dev, stat.st_ino);
        // The root is above itself.
        if all.last().is_some_and(|(last, _)| *last == inode) {
            return all;
        }
        all.push((inode, down.clone()));
        let name = names.next().unwrap_or(b"?");
        down = if down.is_empty() { name.to_vec() } else { [name, &down].join(&b'/') };
        let opened = match &up {
            None => openat(&at, "..", LOOK, Mode::empty()),
            Some(up) => openat(up, "..", LOOK, Mode::empty()),
        };
        let Ok(opened) = opened else { return all };
        up = Some(opened);
    }
    all
}

/// The kernel of this host since it was started.
fn boot() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    boot.trim().to_owned()
}

impl SourceLocations {
    pub(crate) fn new(sources: impl Iterator<Item = SourceLocation>, leaves_out: bool) -> Self {
        Self { boot: boot(), sources: sources.take(MOST).collect(), leaves_out }
    }

    /// The sources that are directories of this host.
    pub(crate) fn here(&self) -> Vec<Inode> {
        if self.boot.is_empty() || self.boot != boot() {
            return Vec::new();
        }
        let first = |line: &SourceLocation| line.above.first().map(|(inode, _)| *inode);
        self.sources.iter().filter_map(first).collect()
    }

    /// Whether a copy to `base` leaves its sources as they are; or to a name in it, if nothing `is_there` yet.
    ///
    /// # Errors
    /// A source is its own destination, lies in a directory that would be deleted, or contains the
    /// destination.
    pub(crate) fn check(
        &self,
        (base, is_there): (&OwnedFd, bool),
        shown: &[u8],
        delete: bool,
        filter: &Filter,
    ) -> Result<(), Error> {
        if self.here().is_empty() {
            return Ok(());
        }
        let refused = |line: &SourceLocation, why: &str| {
            let (source, dest) = (escaped_bytes(&line.shown), escaped_bytes(shown));
            Err(Error::Usage(why.replace("SRC", &source.to_string()).replace("DEST", &dest.to_string())))
        };
        let around = above(base, b"", b"");
        let find = |inside: &[u8]| if is_there { find(base, inside) } else { None };
        for line in &self.sources {
            let Some((own, _)) = line.above.first().filter(|_| line.inside.is_some()) else { continue };
            if line.inside.as_ref().is_some_and(|inside| find(inside) == Some(*own)) {
                return refused(line, "SRC and DEST are the same: a source cannot be copied onto itself");
            }
            if !self.leaves_out && !line.listed && around.iter().any(|(inode, _)| inode == own) {
                return refused(
                    line,
                    "DEST is inside SRC, so the copy would never end; choose another destination",
                );
            }
        }
        let emptied = self.sources.iter().filter(|_| delete).filter_map(|line| {
            let inside = line.inside.as_ref()?;
            Some((find(inside)?, inside))
        });
        for (dir, inside) in emptied {
            for line in &self.sources {
                let Some((_, down)) = line.above.iter().find(|(inode, _)| *inode == dir) else { continue };
                let path = if inside.is_empty() { down.clone() } else { [inside, &down[..]].join(&b'/') };
                let is_kept = !down.is_empty() && filter.leaves_out_below(&path, line.inside.is_some());
                if !is_kept {
                    return refused(
                        line,
                        "SRC is inside DEST, where --delete would remove it; leave out --delete, or --exclude it",
                    );
                }
            }
        }
        Ok(())
    }
}

/// The directory at a path in the copy, if there is one.
fn find(base: &OwnedFd, inside: &[u8]) -> Option<Inode> {
    let stat = if inside.is_empty() {
        fstat(base).ok()?
    } else {
        fstat(openat(base, inside, LOOK | OFlags::NOFOLLOW, Mode::empty()).ok()?).ok()?
    };
    Some((stat.st_dev, stat.st_ino))
}
