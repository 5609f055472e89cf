//! The staging directory: holds everything that has no final name yet. It lies below the destination, so that
//! one rename gives the final name; or beside a destination that does not exist yet ([`super::root`]).

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use tidecast_hash::sha256;

use super::attributes::plain;
use super::destination::Destination;
use super::entry_error::{Doing, EntryError, EntryResult};
use super::private::{self, Private, is_own_file};
use super::remove::remove_tree;
use crate::entry::Entry;
use crate::part::{Data, Part, Parts, TableWriter};

/// How the name of every staging directory begins.
pub(super) const PREFIX: &str = crate::spec::STAGING;
/// The directory that becomes the destination, or from which it is filled; and the mark that everything has
/// arrived.
pub(super) const ROOT: &str = "root";
pub(super) const WHOLE: &str = "whole";
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A staging directory that this process has locked.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) name: String,
    /// Where it lies.
    pub(super) base: Arc<OwnedFd>,
    pub(super) dir: OwnedFd,
    /// Whether an earlier copy has left it.
    pub(super) found: bool,
    _lock: OwnedFd,
}

/// The name of the staging directory of a copy.
pub(super) fn name(identity: &str, place: &Destination) -> String {
    let renamed = place.rename.as_ref().map_or(&[][..], |(_, to)| to);
    let digest = sha256(&[identity.as_bytes(), b"\0", renamed].concat());
    format!("{PREFIX}{}", data_encoding::HEXLOWER.encode(&digest[..8]))
}

/// The end of a killed copy needs a moment to notice that its peer has gone.
const WAIT: Duration = Duration::from_secs(5);

fn flock(lock: &OwnedFd) -> rustix::io::Result<()> {
    let until = Instant::now() + WAIT;
    loop {
        match fs::flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(WAIT / 100),
            other => return other,
        }
    }
}

impl Stage {
    /// Creates it or takes over the one that an earlier copy has left there. A directory that is not provably
    /// this user's own is left alone, and another name is taken.
    pub(super) fn open(base: Arc<OwnedFd>, name: &str) -> EntryResult<Self> {
        for _ in 0..8 {
            let private = Private::open(&base, name, &is_known)?;
            if let Some(stage) = Self::lock(&base, private)? {
                return Ok(stage);
            }
        }
        Err(EntryError::because("create a staging directory in", "another program removes it repeatedly"))
    }

    /// The staging directory of an earlier copy of this user, if it exists.
    pub(super) fn find(base: Arc<OwnedFd>, name: &str) -> EntryResult<Option<Self>> {
        let found = Private::find(&base, name, &is_known)?;
        found.map_or(Ok(None), |private| Self::lock(&base, private))
    }

    /// None if it was removed meanwhile.
    fn lock(base: &Arc<OwnedFd>, private: Private) -> EntryResult<Option<Self>> {
        let Private { name, dir, found } = private;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = match fs::openat(&dir, "lock", flags, Mode::from_raw_mode(0o600)) {
            Err(Errno::NOENT) => return Ok(None),
            other => other.doing("open the lock file in")?,
        };
        match flock(&lock) {
            // A file system without locks: going on unlocked beats refusing to work there.
            Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(Errno::WOULDBLOCK) => {
                let why = "another copy of the same sources to the same destination is running";
                return Err(EntryError::because("start in", why));
            }
            Err(e) => return Err(e).doing("lock"),
        }
        // The previous holder may have removed it meanwhile.
        let is_there = private::names(base, &name, &dir)? && private::names(&dir, "lock", &lock)?;
        Ok(is_there.then(|| Self { name, base: base.clone(), dir, found, _lock: lock }))
    }

    /// Removes the files of an earlier copy, except those that `keep` names.
    pub(super) fn clear(&self, keep: &dyn Fn(&[u8]) -> bool) -> EntryResult {
        for entry in fs::Dir::read_from(&self.dir).doing("list")? {
            let entry = entry.doing("list")?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b".." | b"lock") || keep(name) {
                continue;
            }
            match fs::unlinkat(&self.dir, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR | Errno::PERM) => remove_tree(&self.dir, name)?,
                Err(e) => return Err(e).doing("remove"),
            }
        }
        Ok(())
    }

    /// A directory of its own for a writer.
    pub(super) fn writer(&self, number: usize) -> EntryResult<OwnedFd> {
        let name = format!("w{number}");
        fs::mkdirat(&self.dir, name.as_str(), Mode::from_raw_mode(0o700)).doing("create the directory")?;
        let dir = fs::openat(&self.dir, name.as_str(), DIRECTORY, Mode::empty()).doing("open")?;
        plain(&dir).doing("set the mode of")?;
        Ok(dir)
    }

    /// Removes it with all that is in it.
    pub(super) fn remove(&self) -> EntryResult {
        private::remove(&self.base, &self.name, &self.dir)
    }

    /// Opens a file in it. One that this user has not made there, or that has another name too, is removed.
    pub(super) fn file(&self, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let open = || {
            let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            fs::openat(&self.dir, name, flags, Mode::from_raw_mode(0o600))
        };
        let file = open()?;
        if is_own_file(&self.dir, &file)? {
            return Ok(file);
        }
        fs::unlinkat(&self.dir, name, AtFlags::empty())?;
        open()
    }
}

/// Names in a staging directory.
fn is_known(name: &[u8]) -> bool {
    let all = |rest: &[u8], of: fn(&u8) -> bool| !rest.is_empty() && rest.iter().all(of);
    match name {
        b"lock" | b"journal" | b"dirs" | b"made" | b"links" | b"link" | b"root" | b"whole" => true,
        [b'w' | b'b', rest @ ..] => all(rest, u8::is_ascii_digit),
        [b'f', rest @ ..] => all(rest, u8::is_ascii_hexdigit),
        _ => false,
    }
}

/// Entries that wait on disk for the end of the copy.
#[derive(Debug)]
pub(super) struct Spool(Mutex<BufWriter<File>>);

impl Spool {
    pub(super) fn new(dir: impl AsFd, name: &str) -> EntryResult<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(dir, name, flags, Mode::from_raw_mode(0o600)).doing("create")?;
        Ok(Self(Mutex::new(BufWriter::new(File::from(file)))))
    }

    pub(super) fn push(&self, number: u64, entry: &Entry) -> EntryResult {
        let mut table = TableWriter::new(Vec::new());
        table.push(number, entry, &Data::None);
        let table = table.finish();
        let mut to = self.0.lock();
        let mut all = || {
            to.write_all(&(table.len() as u64).to_le_bytes())?;
            to.write_all(&table)
        };
        all().doing("write to the list in")
    }

    /// All of them in order.
    pub(super) fn each(&self, mut act: impl FnMut(&Part) -> EntryResult) -> EntryResult {
        let mut file = self.0.lock();
        file.flush().doing("write to the list in")?;
        let file = file.get_mut();
        file.rewind().doing("read the list in")?;
        let mut from = BufReader::new(file);
        let (mut len, mut table, mut part) = ([0; 8], Vec::new(), Part::default());
        loop {
            match from.read_exact(&mut len) {
                Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
                other => other.doing("read the list in")?,
            }
            table.clear();
            let wanted = u64::from_le_bytes(len);
            (&mut from).take(wanted).read_to_end(&mut table).doing("read the list in")?;
            let read = Parts::new(&table, 0).next(&mut part);
            read.map_err(std::io::Error::other).doing("read the list in")?;
            act(&part)?;
        }
    }
}
