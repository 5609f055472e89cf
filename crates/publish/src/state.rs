//! The hashes of an interrupted run: a log beside the output, from which the next run resumes.
//!
//! The log is a header and batches, each with its own checksum, appended about once a second. A batch
//! truncated by a crash ends the log and is overwritten. A record holds the hash of a piece, under a key made
//! of all its inputs: which stretches of which files (path, size, times, inode) it covers, and how it is
//! padded. So a changed file costs just its own pieces, and no stale hash is ever used.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidecast_hash::{Digest, Sha1Digest, sha256};
use tidecast_metainfo::{Layout, Version};

use tidecast_paths::Root;

use crate::base::output;
use crate::job::{self, Piece};
use crate::tree::{Identity, Node};
use crate::{Content, Error};

const HEADER: &[u8] = b"tidecast publish state 1\n";
/// Bytes of checksum and of key: enough that no two are alike by chance.
const SHORT: usize = 16;
/// Length and checksum before the payload of a batch.
const BATCH_HEAD: usize = 4 + SHORT;
/// Largest batch that is read back; larger ones are not written either.
const MAX_BATCH: usize = 16 << 20;
/// Records wait this long, or for this many bytes, before they are written.
const WAIT: Duration = Duration::from_secs(1);
const FULL: usize = 4 << 20;

/// The key of a record.
type Key = [u8; SHORT];

/// The recorded hashes of a piece.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    pub(crate) v2: Option<Digest>,
    pub(crate) v1: Option<Sha1Digest>,
    /// Place of its leaves in the log, in bytes, and how many.
    leaves: (u64, u32),
}

/// The log of one run.
#[derive(Debug)]
pub(crate) struct State {
    path: PathBuf,
    /// Its directory, and its name in there.
    dir: Root,
    name: OsString,
    file: File,
    /// Where the next batch goes.
    end: u64,
    waiting: Vec<u8>,
    since: Instant,
    known: HashMap<Key, Known>,
}

impl State {
    /// Opens the log at `path`, created if it is missing, and reads its records. `None` if another run uses
    /// it: then this one runs without.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>, Error> {
        let (dir, name, file) = output(path).map_err(Error::io("open the state file", path))?;
        // On a file system without locks the log works all the same, by its checksums.
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            return Ok(None);
        }
        let mut state = Self {
            path: path.to_owned(),
            dir,
            name,
            file,
            end: 0,
            waiting: Vec::new(),
            since: Instant::now(),
            known: HashMap::new(),
        };
        state.load().map_err(Error::io("read the state file", path))?;
        state.file.write_all_at(HEADER, 0).map_err(Error::io("write the state file", path))?;
        Ok(Some(state))
    }

    fn load(&mut self) -> io::Result<()> {
        let mut start = Vec::new();
        let limit = HEADER.len() as u64;
        (&self.file).take(limit).read_to_end(&mut start)?;
        if !HEADER.starts_with(&start) {
            let why = "not a state file of Tidecast; remove it or name another";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        self.end = limit;
        let len = self.file.metadata()?.len();
        while let Some(payload) = self.batch(len)? {
            let base = self.end + BATCH_HEAD as u64;
            let mut at = 0;
            while let Some((key, known, next)) = record(&payload, at, base) {
                self.known.insert(key, known);
                at = next;
            }
            self.end = base + payload.len() as u64;
        }
        Ok(())
    }

    /// The payload of the batch at `end`; `None` if it is not complete.
    fn batch(&self, len: u64) -> io::Result<Option<Vec<u8>>> {
        let mut head = [0; BATCH_HEAD];
        if len.saturating_sub(self.end) < BATCH_HEAD as u64 {
            return Ok(None);
        }
        self.file.read_exact_at(&mut head, self.end)?;
        let [a, b, c, d, sum @ ..] = head;
        let size = u32::from_le_bytes([a, b, c, d]) as usize;
        let base = self.end + BATCH_HEAD as u64;
        if size == 0 || size > MAX_BATCH || len - base < size as u64 {
            return Ok(None);
        }
        let mut payload = vec![0; size];
        self.file.read_exact_at(&mut payload, base)?;
        Ok((short(&payload) == sum).then_some(payload))
    }

    /// The hashes of a piece; only with leaves if these are `needed`.
    pub(crate) fn get(&self, key: &Key, leaves_needed: bool) -> Option<Known> {
        let known = self.known.get(key).copied();
        known.filter(|k| !leaves_needed || k.leaves.1 > 0)
    }

    /// The leaves of a known piece.
    pub(crate) fn leaves(&self, known: &Known) -> Result<Vec<Digest>, Error> {
        let (at, count) = known.leaves;
        let mut leaves = vec![[0; 32]; count as usize];
        self.file
            .read_exact_at(leaves.as_flattened_mut(), at)
            .map_err(Error::io("read the state file", &self.path))?;
        Ok(leaves)
    }

    /// Puts a hashed piece on record; on disk within about a second of further calls.
    pub(crate) fn put(&mut self, key: &Key, piece: &Piece<'_>) -> Result<(), Error> {
        self.waiting.extend_from_slice(key);
        let flags = u8::from(piece.v2.is_some()) | u8::from(piece.v1.is_some()) << 1;
        self.waiting.push(flags);
        self.waiting.extend(piece.v2.iter().flatten());
        self.waiting.extend(piece.v1.iter().flatten());
        let count = piece.leaves.len() as u32;
        self.waiting.extend_from_slice(&count.to_le_bytes());
        self.waiting.extend_from_slice(piece.leaves.as_flattened());
        if self.waiting.len() >= FULL || self.since.elapsed() >= WAIT {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the pending records. One write: if a crash truncates it, its checksum is wrong.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.since = Instant::now();
        if self.waiting.is_empty() {
            return Ok(());
        }
        let mut batch = Vec::with_capacity(BATCH_HEAD + self.waiting.len());
        batch.extend_from_slice(&(self.waiting.len() as u32).to_le_bytes());
        batch.extend_from_slice(&short(&self.waiting));
        batch.append(&mut self.waiting);
        self.file.write_all_at(&batch, self.end).map_err(Error::io("write the state file", &self.path))?;
        self.end += batch.len() as u64;
        Ok(())
    }

    /// Removes the log: all is done.
    pub(crate) fn remove(self) -> Result<(), Error> {
        self.dir.remove_file(&self.name).map_err(Error::io("remove the state file", &self.path))
    }
}

/// The record at `at` in a batch whose payload begins at `base` of the log, and where the next one is.
fn record(payload: &[u8], at: usize, base: u64) -> Option<(Key, Known, usize)> {
    let (key, rest) = payload.get(at..)?.split_first_chunk::<SHORT>()?;
    let (&flags, rest) = rest.split_first()?;
    let (v2, rest) = optional::<32>(rest, flags & 1 != 0)?;
    let (v1, rest) = optional::<20>(rest, flags & 2 != 0)?;
    let (count, rest) = rest.split_first_chunk::<4>()?;
    let count = u32::from_le_bytes(*count);
    let leaves_at = payload.len() - rest.len();
    let next = leaves_at.checked_add(count as usize * 32)?;
    let known = Known { v2, v1, leaves: (base + leaves_at as u64, count) };
    (next <= payload.len()).then_some((*key, known, next))
}

fn optional<const N: usize>(bytes: &[u8], there: bool) -> Option<(Option<[u8; N]>, &[u8])> {
    if !there {
        return Some((None, bytes));
    }
    let (value, rest) = bytes.split_first_chunk::<N>()?;
    Some((Some(*value), rest))
}

fn short(bytes: &[u8]) -> Key {
    let mut short = [0; SHORT];
    short.copy_from_slice(&sha256(bytes)[..SHORT]);
    short
}

/// The key of a piece: everything that its hashes depend on. `None` if it must not be put on record, because one of
/// its files was changed so lately that another change might not show in its times.
pub(crate) fn key(
    layout: &Layout,
    version: Version,
    piece: u32,
    file: impl Fn(u32) -> Option<(usize, Identity)>,
    nodes: &[Node<Content>],
) -> Option<Key> {
    let len = layout.piece_len(piece);
    let mut text = Vec::with_capacity(256);
    text.extend([u8::from(version.has_v1()), u8::from(version.has_v2())]);
    text.extend(job::wire_len(layout, version, piece).to_le_bytes());
    if version.has_v2() {
        text.extend((job::width(layout, piece) as u64).to_le_bytes());
    }
    for span in layout.spans(piece, 0, len) {
        text.extend(span.len.to_le_bytes());
        if span.pad {
            text.push(0);
            continue;
        }
        let (node, identity) = file(span.file)?;
        if is_fresh(&identity) {
            return None;
        }
        text.push(1);
        text.extend(span.offset.to_le_bytes());
        let Identity { dev, ino, len, mtime, ctime } = identity;
        for number in [dev, ino, len, mtime.seconds as u64, ctime.seconds as u64] {
            text.extend(number.to_le_bytes());
        }
        text.extend(mtime.nanos.to_le_bytes());
        text.extend(ctime.nanos.to_le_bytes());
        let path = nodes.get(node)?.path.as_os_str().as_bytes();
        text.extend((path.len() as u64).to_le_bytes());
        text.extend_from_slice(path);
    }
    Some(short(&text))
}

/// Whether a file changed so lately that the clock of its file system may not have ticked since.
fn is_fresh(identity: &Identity) -> bool {
    let tick = if identity.ctime.nanos == 0 { 2000 } else { 100 };
    let changed = Duration::new(u64::try_from(identity.ctime.seconds).unwrap_or(0), identity.ctime.nanos);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now < changed + Duration::from_millis(tick)
}
