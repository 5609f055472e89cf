//! The record of files that this program has put at a destination: its next version may replace these, and nothing
//! else.
//!
//! Only placed files count: a file that existed before, even an identical one, stays its owner's.
//!
//! One file per destination, in the user's state directory. It holds marks, hashes of 64 bits: of the state that
//! each file had when it was placed (inode, size, time), and of its content. A file is a former version if its
//! state is known, or else if it hashes to a known content: so a copy of the whole tree or a crash between the
//! rename and the record do no harm. An edited file has another time, and other content, and is never taken for
//! ours; bytes that changed under an unchanged time are damage, which the next run repairs. A lost or outdated
//! record proves nothing, and then `--force` is needed.
//!
//! ```text
//! "TIDEDEST" | marks, u64 LE, ascending | SHA-256 of all before
//! ```

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tidecast_hash::Digest;
use tidecast_paths::{Lock, Root};

use crate::disk::{Disk, Kind, Meta};

const MAGIC: &[u8; 8] = b"TIDEDEST";
/// A longer record is not one.
const LIMIT: u64 = 256 << 20;
/// Records kept in one directory. Beyond them the oldest go, a quarter at a time.
const RECORDS: usize = 4096;

/// Placing all files of another version takes at most this long; the lock is retried at this interval.
const PATIENCE: Duration = Duration::from_secs(900);
const LOOK: Duration = Duration::from_millis(20);

/// The record of one destination.
pub(crate) struct Record {
    /// A directory, and the file in it.
    file: Option<(Root, String)>,
    /// Why there is no record, if there should be one.
    unusable: Option<io::Error>,
    marks: BTreeSet<u64>,
}

/// The right to replace files at a destination, until it is dropped: the records of two concurrent versions must
/// not overwrite each other.
pub(crate) struct DestinationLock(Root, String, #[allow(dead_code)] Lock);

impl Drop for DestinationLock {
    fn drop(&mut self) {
        let _ = self.0.remove_file(&self.1);
    }
}

impl Record {
    /// Waits for its turn, as long as `goes_on`, which is given the lock, agrees. Without a record, or locks, or if
    /// another process holds it for very long, it continues without.
    ///
    /// # Errors
    /// The lock, if the wait was ended.
    pub(crate) fn lock_destination(
        &self,
        goes_on: impl Fn(&Path) -> bool,
    ) -> Result<Option<DestinationLock>, PathBuf> {
        let Some((root, name)) = &self.file else { return Ok(None) };
        let Ok(root) = root.again() else { return Ok(None) };
        let name = format!("{name}.lock");
        let (path, until) = (root.full(&name), Instant::now() + PATIENCE);
        loop {
            match root.lock(&name) {
                Ok(Some(lock)) => return Ok(Some(DestinationLock(root, name, lock))),
                Ok(None) if Instant::now() >= until => return Ok(None),
                Ok(None) if !goes_on(&path) => return Err(path),
                Ok(None) => std::thread::sleep(LOOK),
                Err(_) => return Ok(None),
            }
        }
    }

    /// The record of `home` on `disk`, kept in `dir`: an empty one if none can be read.
    pub(crate) fn open(dir: Option<&Path>, disk: &dyn Disk, home: &Path) -> Self {
        let file = dir.zip(disk.identity()).map(|(dir, identity)| {
            let key =
                tidecast_hash::sha256(&[&identity, b"\0".as_slice(), home.as_os_str().as_bytes()].concat());
            let name = key.iter().take(16).map(|b| format!("{b:02x}")).collect();
            Ok((Root::make_private(dir)?, name))
        });
        let (file, unusable) = match file.transpose() {
            Ok(file) => (file, None),
            Err(error) => (None, Some(error)),
        };
        let mut record = Record { file, unusable, marks: BTreeSet::new() };
        record.reload();
        record
    }

    /// Reads it again: another process may have written it meanwhile. Returns whether one has.
    pub(crate) fn reload(&mut self) -> bool {
        let Some((root, name)) = &self.file else { return false };
        let short = root.stat(name).is_ok_and(|m| m.is_file() && m.len <= LIMIT);
        let bytes = if short { root.read(name).unwrap_or_default() } else { Vec::new() };
        let before = std::mem::replace(&mut self.marks, parse(&bytes).unwrap_or_default());
        before != self.marks
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    pub(crate) fn holds(&self, mark: u64) -> bool {
        self.marks.contains(&mark)
    }

    pub(crate) fn marks(&self) -> &BTreeSet<u64> {
        &self.marks
    }

    /// Replaces the record, atomically, if it changes.
    ///
    /// # Errors
    /// It cannot be written, or its directory could not be used from the start; reported once.
    pub(crate) fn write(&mut self, marks: BTreeSet<u64>) -> io::Result<()> {
        if let Some(error) = self.unusable.take() {
            return Err(error);
        }
        let Some((root, name)) = self.file.as_ref().filter(|_| marks != self.marks) else { return Ok(()) };
        if self.marks.is_empty() {
            prune(root);
        }
        let mut body = MAGIC.to_vec();
        body.extend(marks.iter().flat_map(|m| m.to_le_bytes()));
        let sum = tidecast_hash::sha256(&body);
        body.extend_from_slice(&sum);
        // Not synced: a power cut leaves a whole record or none, which costs a `--force`.
        let scratch = format!("{name}.{}.new", std::process::id());
        root.remove_file(&scratch)?;
        let written = root.create(&scratch, 0o600).and_then(|mut file| file.write_all(&body));
        written
            .and_then(|()| root.rename(&scratch, name, true))
            .inspect_err(|_| drop(root.remove_file(&scratch)))?;
        self.marks = marks;
        Ok(())
    }
}

fn parse(bytes: &[u8]) -> Option<BTreeSet<u64>> {
    let (body, sum) = bytes.split_last_chunk::<32>()?;
    let marks = body.strip_prefix(MAGIC)?;
    (tidecast_hash::sha256(body) == *sum)
        .then(|| marks.as_chunks().0.iter().copied().map(u64::from_le_bytes).collect())
}

/// Removes the oldest of too many records. Another process may remove them at the same time.
fn prune(root: &Root) {
    let names = root.list("").unwrap_or_default();
    if names.len() < RECORDS {
        return;
    }
    let mut all: Vec<_> = names.iter().filter_map(|n| Some((root.stat(n).ok()?.mtime, n))).collect();
    all.sort();
    all.iter().take(RECORDS / 4).for_each(|(_, name)| drop(root.remove_file(name)));
}

/// The mark of a name's present state; an edit changes it.
pub(crate) fn state(path: &Path, meta: &Meta) -> u64 {
    let kind = match meta.kind {
        Kind::File => b'f',
        Kind::Dir => b'd',
        Kind::Symlink => b'l',
        Kind::Other => b'o',
    };
    let s = &meta.stamp;
    // Not the device: its number differs between hosts that share a file system, and between boots.
    let numbers = [s.ino, s.size, s.mtime as u64, s.nanos.into()];
    let numbers: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    mark(&[b"state", &[kind], &numbers], path)
}

/// The mark of a file's content: the root of the Merkle tree over its leaves.
pub(crate) fn content(path: &Path, len: u64, root: &Digest) -> u64 {
    mark(&[b"content", &len.to_le_bytes(), root], path)
}

/// The mark of a symbolic link's text.
pub(crate) fn link(path: &Path, text: &[u8]) -> u64 {
    mark(&[b"link", &tidecast_hash::sha256(text)], path)
}

/// The mark of a name at which a file was put: one that has neither a known state nor a known content has changed since.
pub(crate) fn name(path: &Path) -> u64 {
    mark(&[b"name"], path)
}

/// The mark of a destination to which a tree was delivered, even if another program created its directory.
pub(crate) fn tree() -> u64 {
    mark(&[b"tree"], Path::new(""))
}

/// The mark of a directory that was made there.
pub(crate) fn dir(path: &Path) -> u64 {
    mark(&[b"dir"], path)
}

/// `path`: below the destination. All that comes before it has one length a kind.
fn mark(parts: &[&[u8]], path: &Path) -> u64 {
    let digest = tidecast_hash::sha256(&[&parts.concat(), path.as_os_str().as_bytes()].concat());
    digest.first_chunk().copied().map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::os::OsDisk;

    #[test]
    fn a_record_is_of_one_destination_and_damage_empties_it() {
        let (dir, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let disk = OsDisk::new(to.path()).unwrap();
        let open = |home: &str| Record::open(Some(dir.path()), &disk, Path::new(home));
        open("a").write([1, 5].into()).unwrap();
        assert!(open("a").holds(5) && !open("a").holds(2) && open("b").is_empty());
        let file = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[9] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        assert!(open("a").is_empty());
    }

    #[test]
    fn of_too_many_records_the_oldest_go() {
        let (dir, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for n in 0..RECORDS {
            std::fs::write(dir.path().join(format!("r{n}")), "").unwrap();
        }
        let disk = OsDisk::new(to.path()).unwrap();
        Record::open(Some(dir.path()), &disk, Path::new("a")).write([1].into()).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), RECORDS - RECORDS / 4 + 1);
    }
}
