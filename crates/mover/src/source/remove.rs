//! `--remove-source-files`: removes the files that the receiver has proved to have, after it has finished all
//! of them.
//!
//! Sent files are recorded in an unnamed file: a number, a path, and the state that was read. A name is
//! removed only if the receiver names that number and the file is still in that state: a file that was
//! changed or replaced since stays, and is reported.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, Read, Seek, Write};

use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::fs::{self as rfs, AtFlags};
use rustix::io::Errno;

use super::links::unnamed;
use super::state::Seen;
use super::walk::DIRECTORY;
use super::{Dir, Item, Tree};

/// A sent file.
#[derive(Debug, Default)]
pub(super) struct Removal {
    log: Mutex<Log>,
    /// It was done.
    over: Mutex<bool>,
}

#[derive(Debug, Default)]
struct Log {
    file: Option<File>,
    buffer: Vec<u8>,
    failed: bool,
}

/// Bytes of notes that are written at a time.
const BUFFER: usize = 1 << 16;

/// A file that was sent.
struct Sent {
    number: u64,
    top: usize,
    seen: Seen,
    path: Vec<u8>,
    name: Vec<u8>,
    inside: Vec<u8>,
}

impl Log {
    fn flush(&mut self) -> std::io::Result<()> {
        if self.file.is_none() {
            self.file = Some(unnamed()?);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

impl Removal {
    /// A file was sent, or found at the receiver, in that state.
    pub(super) fn note(&self, item: &Item, seen: &Seen) {
        let mut log = self.log.lock();
        let to = &mut log.buffer;
        to.extend_from_slice(&item.file.to_le_bytes());
        to.extend_from_slice(&(item.dir.top as u64).to_le_bytes());
        seen.numbers().iter().for_each(|n| to.extend_from_slice(&n.to_le_bytes()));
        for text in [item.dir.path.as_slice(), &item.name, &item.dir.inside] {
            // Paths are shorter than 64 KiB: the walk goes no deeper.
            to.extend_from_slice(&(text.len() as u16).to_le_bytes());
            to.extend_from_slice(text);
        }
        if to.len() >= BUFFER && log.flush().is_err() {
            // Files that are not recorded are not removed.
            log.failed = true;
            log.buffer.clear();
        }
    }
}

/// Reads one note; None at the end.
fn read(from: &mut impl Read) -> std::io::Result<Option<Sent>> {
    let mut number = [0; 8];
    match from.read_exact(&mut number) {
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let mut next = || {
        let mut bytes = [0; 8];
        from.read_exact(&mut bytes).map(|()| u64::from_le_bytes(bytes))
    };
    let top = usize::try_from(next()?).unwrap_or(usize::MAX);
    let mut numbers = [0; Seen::NUMBERS];
    for number in &mut numbers {
        *number = next()?;
    }
    let mut text = || {
        let mut len = [0; 2];
        from.read_exact(&mut len)?;
        let mut text = vec![0; usize::from(u16::from_le_bytes(len))];
        from.read_exact(&mut text).map(|()| text)
    };
    let (path, name, inside) = (text()?, text()?, text()?);
    let seen = Seen::from_numbers(&numbers);
    Ok(Some(Sent { number: u64::from_le_bytes(number), top, seen, path, name, inside }))
}

/// Whether a number is in one of these stretches, which are in order.
fn has(proved: &[(u64, u64)], number: u64) -> bool {
    let after = proved.partition_point(|(first, _)| *first <= number);
    let last = after.checked_sub(1).and_then(|at| proved.get(at));
    last.is_some_and(|(first, count)| number - first < *count)
}

/// The state during the removal of names.
#[derive(Default)]
struct Known {
    /// Numbers of which it was decided: a part that was sent again is noted again.
    decided: HashSet<u64>,
    /// Files of which a name was removed, which changes the `stat` of their other names.
    inodes: HashSet<(u64, u64)>,
    /// The last directory, by source and path.
    near: Option<(usize, Vec<u8>, OwnedFd)>,
}

impl Tree {
    /// Removes the files that the receiver has; once.
    pub(super) fn remove(&self, proved: &[(u64, u64)], alive: &dyn Fn()) {
        let Some(removal) = &self.removal else { return };
        let mut over = removal.over.lock();
        if std::mem::replace(&mut *over, true) {
            return;
        }
        let mut log = removal.log.lock();
        let tried = log.flush().and_then(|()| {
            let Some(file) = &mut log.file else { return Ok(()) };
            file.rewind()?;
            let mut from = BufReader::new(file);
            let mut known = Known::default();
            while let Some(sent) = read(&mut from)? {
                alive();
                if has(proved, sent.number) && known.decided.insert(sent.number) {
                    self.remove_one(&sent, &mut known);
                }
            }
            Ok(())
        });
        let root = Dir { top: 0, path: Vec::new(), inside: Vec::new() };
        match tried {
            Err(e) => self.trouble(&root, b"", format!("some sources were not removed: {e}"), true),
            Ok(()) if log.failed => {
                self.trouble(
                    &root,
                    b"",
                    "some sources were not removed: no space for their list in TMPDIR",
                    true,
                );
            }
            Ok(()) => {}
        }
    }

    fn remove_one(&self, sent: &Sent, known: &mut Known) {
        let stays = match self.try_remove(sent, known) {
            Ok(None) => return,
            Ok(Some(why)) => why.to_owned(),
            Err(e) => std::io::Error::from(e).to_string(),
        };
        let dir = Dir { top: sent.top, path: sent.path.clone(), inside: Vec::new() };
        self.trouble(&dir, &sent.name, format!("copied, but not removed: {stays}"), true);
    }

    /// None when it is removed, else the reason why it stays.
    fn try_remove(&self, sent: &Sent, known: &mut Known) -> Result<Option<&'static str>, Errno> {
        let is_near = |(top, path, _): &(usize, Vec<u8>, OwnedFd)| *top == sent.top && *path == sent.path;
        if !known.near.as_ref().is_some_and(is_near) {
            let fd = self.open(sent.top, &sent.path, DIRECTORY)?;
            known.near = Some((sent.top, sent.path.clone(), fd));
        }
        let Some((_, _, at)) = &known.near else { return Err(Errno::NOENT) };
        let stat = match rfs::statat(at, sent.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            other => other?,
        };
        let (now, inode) = (Seen::new(&stat), (stat.st_dev, stat.st_ino));
        if !sent.seen.is_still(&now, known.inodes.contains(&inode)) {
            return Ok(Some("it changed after it was read"));
        }
        let there = self.dest.as_ref().and_then(|dest| dest.inode_in(&super::join(&sent.inside, &sent.name)));
        if there == Some(inode) {
            return Ok(Some("source and destination are the same file"));
        }
        match rfs::unlinkat(at, sent.name.as_slice(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e),
        }
        if stat.st_nlink > 1 {
            known.inodes.insert(inode);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::has;

    #[test]
    fn only_numbers_that_are_named_are_proved() {
        let proved = [(3, 2), (7, 1)];
        let found: Vec<u64> = (0..10).filter(|n| has(&proved, *n)).collect();
        assert_eq!(found, [3, 4, 7]);
        assert!(!has(&[], 0));
    }
}
