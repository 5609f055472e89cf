//! Reads the shared memory of a receiver: see "Shared memory" in `docs/field-format.md`.
//!
//! It uses `pread` instead of a mapping: if another process truncates a mapped file, its readers are killed;
//! reading a hole of it allocates memory; and it would need `unsafe`. With `pread` a short file is an error,
//! and copying the values to be reduced costs little.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use tidecast_event::field::receive::Total;
use tidecast_field::layout::{
    DIR, ENTRY, HEAD, MAGIC, PREFIX, TITLE, VERSION, VOLUMES, entry, file_name, head as at, slab,
};

use crate::error::Error;
use crate::state::{Closed, Slab, State};

/// Bytes of a slab's header that have a meaning.
const WORDS: usize = slab::IS_OPEN + 8;
/// Most entries of the history that are reported.
const TOLD: u64 = 600;

/// The constant part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// x, y, z.
    pub shape: [u64; 3],
    slabs: [u64; 3],
    volumes: [u64; 3],
    history: [u64; 2],
    /// The maps of values of the step: where the first volume's map is, and bytes of one; 0: there are no
    /// maps.
    maps: [u64; 2],
    made: u64,
}

impl Layout {
    /// Reads it from the head of a file of `len` bytes, and makes sure that all that it names is within.
    ///
    /// # Errors
    /// The defect, as text.
    pub fn parse(head: &[u8], len: u64) -> Result<Self, String> {
        let word = |offset| word(head, offset).ok_or_else(|| "file too short".to_owned());
        if head.get(..8) != Some(&MAGIC) {
            return Err("does not start with TCFIELD1".into());
        }
        let three = |first| Ok::<_, String>([word(first)?, word(first + 8)?, word(first + 16)?]);
        let version = word(at::VERSION)?;
        if version != VERSION {
            return Err(format!("layout version {version} is not supported (only {VERSION} is)"));
        }
        let shape = three(at::SHAPE)?;
        if shape.iter().any(|side| !(1..=65_536).contains(side)) {
            return Err(format!("invalid shape {shape:?}"));
        }
        let layout = Self {
            shape,
            slabs: three(at::SLABS)?,
            volumes: three(at::VOLUMES)?,
            history: [word(at::HISTORY)?, word(at::HISTORY + 8)?],
            maps: [word(at::MAPS)?, word(at::MAPS + 8)?],
            made: word(at::MADE)?,
        };
        layout.check(len).map(|()| layout)
    }

    fn check(&self, len: u64) -> Result<(), String> {
        let within = |what: &str, first: u64, each: u64, count: u64, size: u64| {
            let end = each.checked_mul(count.saturating_sub(1)).and_then(|n| n.checked_add(first));
            match end.and_then(|n| n.checked_add(size)) {
                Some(end) if end <= len => Ok(()),
                _ => Err(format!("{what} beyond the end of the file ({len} bytes)")),
            }
        };
        let [slabs, first, each] = self.slabs;
        if !(1..=65_536).contains(&slabs) || each < WORDS as u64 || !first.is_multiple_of(8) {
            return Err(format!("invalid slab headers: {slabs} of {each} bytes"));
        }
        within("slab headers", first, each, slabs, each)?;
        let [volumes, first, each] = self.volumes;
        // Sides are 2^16 at most: no overflow.
        let size = self.shape.iter().product::<u64>() * 4;
        if !(1..=VOLUMES).contains(&volumes) || (volumes > 1 && each < size) {
            return Err(format!("invalid volumes: {volumes}, {each} bytes apart"));
        }
        within("volumes", first, each, volumes, size)?;
        let [first, entries] = self.history;
        if !(1..=1 << 20).contains(&entries) {
            return Err(format!("invalid history of {entries} entries"));
        }
        within("history", first, ENTRY as u64, entries, ENTRY as u64)?;
        let ([first, each], bytes) = (self.maps, (size / 4).div_ceil(8));
        if first == 0 {
            return Ok(());
        }
        if volumes > 1 && each < bytes {
            return Err(format!("invalid maps, {each} bytes apart"));
        }
        within("maps", first, each, volumes, bytes)
    }
}

fn word(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..)?.first_chunk().copied().map(u64::from_le_bytes)
}

/// One file of shared memory, opened again when the receiver has made another.
#[derive(Debug)]
pub(crate) struct Memory {
    name: String,
    path: PathBuf,
    open: parking_lot::RwLock<Option<std::sync::Arc<Open>>>,
}

/// One that is open.
#[derive(Debug)]
pub(crate) struct Open {
    file: File,
    path: PathBuf,
    pub(crate) layout: Layout,
}

/// Which content is in front: as long as it stays the same, so do the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Front {
    made: u64,
    volume: u64,
    sequence: u64,
    last: u64,
    /// Whether values may be of another step.
    holed: bool,
    pub(crate) step: u64,
}

/// Whether a name refers to this user's own files: another user could show anything in their place.
fn is_trusted(owner: u32) -> bool {
    let user = rustix::process::geteuid();
    user.is_root() || owner == 0 || owner == user.as_raw()
}

/// The names of all that this user has.
pub(crate) fn names() -> Vec<String> {
    let user = rustix::process::geteuid().as_raw();
    let mine =
        |entry: &std::fs::DirEntry| entry.metadata().is_ok_and(|meta| meta.is_file() && meta.uid() == user);
    let entries = std::fs::read_dir(DIR).into_iter().flatten().flatten().filter(mine);
    let name = |entry: std::fs::DirEntry| entry.file_name().to_str()?.strip_prefix(PREFIX).map(str::to_owned);
    let mut names: Vec<_> = entries.filter_map(name).filter(|name| !name.contains(".new")).collect();
    names.sort();
    names
}

impl Front {
    /// Of a volume that is always changing.
    pub(crate) fn is_changing(&self) -> bool {
        self.last != 0
    }
}

impl Memory {
    /// Of this name; it need not be there yet.
    pub(crate) fn new(name: &str) -> Result<Self, Error> {
        let path = Path::new(DIR).join(file_name(name).ok_or_else(|| Error::Name(name.into()))?);
        Ok(Self { name: name.into(), path, open: parking_lot::RwLock::default() })
    }

    /// The file that is there now.
    pub(crate) fn current(&self) -> Result<std::sync::Arc<Open>, Error> {
        if let Some(open) = self.open.read().clone()
            && open.head().is_ok_and(|head| open.is_receiving(&head))
        {
            return Ok(open);
        }
        let old = self.open.read().clone();
        match Open::new(&self.path) {
            Ok(open) => Ok(self.open.write().insert(std::sync::Arc::new(open)).clone()),
            // The data received last stays visible.
            Err(Error::Absent(_)) => old.ok_or_else(|| Error::Absent(self.name.clone())),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn state(&self) -> Result<State, Error> {
        self.current()?.state(&self.name)
    }
}

impl Open {
    fn new(path: &Path) -> Result<Self, Error> {
        let io = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::Absent(path.display().to_string()),
            _ => Error::Io { path: path.into(), error },
        };
        // In a directory for all users the file may be of any kind: a pipe must not block this, nor a link be
        // followed.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| io(error.into()))?;
        let file = File::from(file);
        let meta = file.metadata().map_err(io)?;
        let bad = |why| Error::Format { path: path.into(), what: "a field's shared memory", why };
        if !meta.is_file() {
            return Err(bad("not a regular file".into()));
        }
        if !is_trusted(meta.uid()) {
            return Err(bad(format!("belongs to user {}", meta.uid())));
        }
        let mut head = [0; HEAD];
        file.read_exact_at(&mut head, 0).map_err(|_| bad("file too short".into()))?;
        let layout = Layout::parse(&head, meta.len()).map_err(bad)?;
        Ok(Self { file, path: path.into(), layout })
    }

    /// Fills `bytes` from `offset` on.
    fn read(&self, bytes: &mut [u8], offset: u64) -> Result<(), Error> {
        let io = |error| Error::Io { path: self.path.clone(), error };
        self.file.read_exact_at(bytes, offset).map_err(io)
    }

    fn head(&self) -> Result<[u8; HEAD], Error> {
        let mut head = [0; HEAD];
        self.read(&mut head, 0).map(|()| head)
    }

    /// Whether a receiver has it: a killed one could not mark its end, but holds its lock no longer. Our lock
    /// is shared and released at once: receivers lock only files that no other process can have opened yet,
    /// so it disturbs none.
    fn is_receiving(&self, head: &[u8]) -> bool {
        let flock = |how| rustix::fs::flock(&self.file, how);
        word(head, at::STATE) == Some(1)
            && match flock(FlockOperation::NonBlockingLockShared) {
                Ok(()) => flock(FlockOperation::Unlock).is_err(),
                Err(_) => true,
            }
    }

    /// The front volume; None while it is written.
    pub(crate) fn front(&self) -> Result<Option<Front>, Error> {
        let head = self.head()?;
        let get = |offset| word(&head, offset).unwrap_or_default();
        let single = self.layout.volumes[0] == 1;
        let volume = get(at::FRONT).min(self.layout.volumes[0] - 1);
        let sequence = if single { 0 } else { get(at::SEQUENCES + 8 * volume as usize) };
        // A volume that is always changing is another with each packet.
        let last = if single { get(at::LAST) } else { 0 };
        let holed = self.layout.maps[0] != 0 && get(at::HOLES + 8 * volume as usize) != 0;
        let front = Front { made: self.layout.made, volume, sequence, last, holed, step: get(at::STEP) };
        Ok((sequence % 2 == 0).then_some(front))
    }

    /// Values of a row, from `x` on, as bytes.
    pub(crate) fn values(&self, front: &Front, place: [u64; 3], bytes: &mut [u8]) -> Result<(), Error> {
        let [_, first, each] = self.layout.volumes;
        self.read(bytes, first + front.volume * each + self.place(place) * 4)
    }

    /// Replaces the values of a row that are not of the current step by NaN: they would show values of
    /// another time.
    pub(crate) fn blank(&self, front: &Front, place: [u64; 3], values: &mut [f32]) -> Result<(), Error> {
        if !front.holed {
            return Ok(());
        }
        let [first, each] = self.layout.maps;
        let place = self.place(place);
        let skipped = (place % 8) as usize;
        crate::values::with_bytes((skipped + values.len()).div_ceil(8), |bits| {
            self.read(bits, first + front.volume * each + place / 8)?;
            for (n, value) in values.iter_mut().enumerate() {
                let at = skipped + n;
                if bits.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 0) {
                    *value = f32::NAN;
                }
            }
            Ok(())
        })
    }

    fn place(&self, [x, y, z]: [u64; 3]) -> u64 {
        let [nx, ny, _] = self.layout.shape;
        (z * ny + y) * nx + x
    }

    /// The planes of slabs here with received values: the rest was never filled.
    pub(crate) fn filled(&self) -> Result<Vec<(u64, u64)>, Error> {
        let came = |slab: &Slab| slab.total.packets + slab.total.recovered > 0;
        Ok(self.slabs()?.iter().filter(|slab| came(slab)).map(|slab| (slab.z[0], slab.z[1])).collect())
    }

    fn slabs(&self) -> Result<Vec<Slab>, Error> {
        let [count, first, each] = self.layout.slabs;
        let mut bytes = [0; WORDS];
        (0..count)
            .map(|i| {
                self.read(&mut bytes, first + i * each)?;
                let get = |offset| word(&bytes, offset).unwrap_or_default();
                let end = get(slab::Z1).min(self.layout.shape[2]);
                Ok(Slab {
                    z: [get(slab::Z0).min(end), end],
                    step: get(slab::STEP),
                    expected: get(slab::EXPECTED),
                    received: get(slab::RECEIVED),
                    recovered_of_step: get(slab::RECOVERED_NOW),
                    total: Total {
                        packets: get(slab::PACKETS),
                        bytes: get(slab::BYTES),
                        lost: get(slab::LOST),
                        recovered: get(slab::RECOVERED),
                        duplicate: get(slab::DUPLICATE),
                        stale: get(slab::STALE),
                        rejected: get(slab::REJECTED),
                        reordered: get(slab::REORDERED),
                        complete: get(slab::COMPLETE),
                        incomplete: get(slab::INCOMPLETE),
                    },
                    last: get(slab::LAST),
                    stream: get(slab::STREAM),
                    open: get(slab::IS_OPEN) == 1,
                })
            })
            .collect()
    }

    fn history(&self, written: u64) -> Result<Vec<Closed>, Error> {
        let [first, entries] = self.layout.history;
        let mut bytes = [0; ENTRY];
        (written.saturating_sub(entries.min(TOLD))..written)
            .map(|i| {
                self.read(&mut bytes, first + (i % entries) * ENTRY as u64)?;
                let get = |offset| word(&bytes, offset).unwrap_or_default();
                Ok(Closed {
                    step: get(entry::STEP),
                    when: get(entry::WHEN),
                    expected: get(entry::EXPECTED),
                    received: get(entry::RECEIVED),
                    recovered: get(entry::RECOVERED),
                    missing: get(entry::MISSING),
                    bytes: get(entry::BYTES),
                })
            })
            .collect()
    }

    fn state(&self, name: &str) -> Result<State, Error> {
        let head = self.head()?;
        let get = |offset| word(&head, offset).unwrap_or_default();
        let title =
            head.get(at::TITLE..at::TITLE + TITLE).unwrap_or_default().split(|byte| *byte == 0).next();
        Ok(State {
            name: name.into(),
            title: String::from_utf8_lossy(title.unwrap_or_default()).into_owned(),
            shape: self.layout.shape,
            step: get(at::STEP),
            closed: get(at::CLOSED),
            receiving: self.is_receiving(&head),
            live: self.layout.volumes[0] == 1,
            rate: get(at::RATE),
            last: get(at::LAST),
            made: self.layout.made,
            slabs: self.slabs()?,
            history: self.history(get(at::WRITTEN))?,
            steps: None,
            range: None,
            error: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head(words: &[(usize, u64)]) -> Vec<u8> {
        let mut head = vec![0; HEAD];
        head[..8].copy_from_slice(b"TCFIELD1");
        let good = [(8, 1), (16, 4), (24, 4), (32, 4), (40, 1), (48, 4096), (56, 256), (64, 3), (72, 8192)];
        for (at, word) in good.iter().chain(&[(80, 256), (200, 4352), (208, 4)]).chain(words) {
            head[*at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        head
    }

    #[test]
    fn what_lies_outside_is_refused() {
        let end = 8192 + 3 * 256;
        assert_eq!(Layout::parse(&head(&[]), end).map(|layout| layout.shape), Ok([4, 4, 4]));
        assert!(Layout::parse(&head(&[]), end - 1).is_err());
        let wrong = [(8, 2), (16, 0), (24, 65_537), (40, 0), (40, 1 << 40), (48, u64::MAX - 7), (56, 8)];
        for word in wrong.iter().chain(&[(64, 0), (64, 9), (72, u64::MAX), (80, 255), (200, end), (208, 0)]) {
            assert!(Layout::parse(&head(&[*word]), end).is_err(), "{word:?}");
        }
        let mapped = |first, each| Layout::parse(&head(&[(264, first), (272, each)]), end);
        assert!(mapped(end - 24, 8).is_ok());
        assert!(mapped(end - 16, 8).is_err() && mapped(4096, 7).is_err() && mapped(u64::MAX, 8).is_err());
    }

    #[test]
    fn a_receiver_lives_while_it_holds_the_lock() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let write = |state| {
            std::fs::write(file.path(), head(&[(112, state)])).unwrap();
            file.as_file().set_len(1 << 16).unwrap();
        };
        write(1);
        let open = Open::new(file.path()).unwrap();
        let receiving = || open.is_receiving(&open.head().unwrap());
        assert!(!receiving(), "killed");
        rustix::fs::flock(file.as_file(), FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(receiving());
        write(2);
        assert!(!receiving(), "ended");
    }

    proptest! {
        #[test]
        fn nothing_breaks_it(bytes: Vec<u8>, words: Vec<(u16, u64)>, len: u64) {
            let _ = Layout::parse(&bytes, len);
            let words: Vec<_> = words.iter().map(|(at, word)| (usize::from(*at) % 500 * 8 + 8, *word)).collect();
            if let Ok(layout) = Layout::parse(&head(&words), len) {
                let size = layout.shape.iter().product::<u64>() * 4;
                prop_assert!(layout.volumes[1] + (layout.volumes[0] - 1) * layout.volumes[2] + size <= len);
            }
        }
    }
}
