//! The shared memory that a receiver writes and others read: see "Shared memory" in `docs/field-format.md`.
//!
//! The one module with `unsafe`. The file is mapped by [`MmapRaw`], which hands out no references, because
//! the memory is shared with other processes. Words are atomics. Volumes are plain memory, copied to and from
//! by bytes; a reader of a volume that is being written may see values of two steps, and detects it by the
//! volume's sequence number.

#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};
use tidecast_text::{Size, meminfo};

use crate::control::padded_name;
use crate::geometry::{Shape, Slab};
use crate::layout::{DIR, ENTRY, HEAD, MAGIC, PREFIX, SLAB, VERSION, file_name, head, slab};
use crate::packet::VALUE;

/// Entries of the history.
pub const HISTORY: u64 = 4096;
/// Attempts to open a lock file that other processes make and remove meanwhile.
const TRIES: usize = 100;
/// Maps of volumes begin at multiples of it.
const PAGE: usize = 4096;
/// Volumes begin at multiples of it, so that they can lie on large pages.
const ALIGN: usize = 2 << 20;

/// Errors of sharing a field.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that cannot be a file name.
    #[error("invalid field name {0:?}; use at most 64 letters, digits, '-', '_' and '.'")]
    Name(String),
    /// Another receiver has it.
    #[error("{path} belongs to a running receiver; give this one another --name", path = .0.display())]
    Taken(PathBuf),
    /// Another user has it, with a receiver or without.
    #[error("user {owner} uses the name of {path}; give this receiver another --name", path = path.display())]
    Foreign {
        /// The shared memory.
        path: PathBuf,
        /// The user.
        owner: u32,
    },
    /// There is not as much memory.
    #[error("{DIR} has no space for {size} more; use a smaller volume or `--volume live`", size = Size(*.0))]
    Full(u64),
    /// The system refused.
    #[error("cannot {doing} {path}: {error}", path = path.display())]
    Io {
        /// The attempted action.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// The file that readers find by this name of a field.
///
/// # Errors
/// [`Error::Name`].
fn path(name: &str) -> Result<PathBuf, Error> {
    let name = file_name(name).ok_or_else(|| Error::Name(name.into()))?;
    Ok(Path::new(DIR).join(name))
}

/// A name that this receiver has, from its start on: before there is memory, and from one file to the next.
///
/// A lock on a file beside the memory, because the memory is created only when the shape is known. Readers do
/// not use it.
#[derive(Debug)]
pub struct Name {
    path: PathBuf,
    lock: PathBuf,
    _held: File,
}

impl Name {
    /// Takes it.
    ///
    /// # Errors
    /// The name is not valid, or another receiver has it.
    pub fn take(name: &str) -> Result<Self, Error> {
        let path = path(name)?;
        let lock = Path::new(DIR).join(format!(".{PREFIX}{name}.lock"));
        loop {
            let me = rustix::process::geteuid().as_raw();
            let foreign = |owner| Error::Foreign { path: path.clone(), owner };
            let other =
                || std::fs::symlink_metadata(&lock).ok().map(|meta| meta.uid()).filter(|uid| *uid != me);
            let held = open_lock(&lock).map_err(|error| match other() {
                Some(owner) if error.kind() == io::ErrorKind::PermissionDenied => foreign(owner),
                _ => Error::Io { doing: "open", path: lock.clone(), error },
            })?;
            rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive)
                .map_err(|_| other().map_or_else(|| Error::Taken(path.clone()), foreign))?;
            // The previous holder may have removed the file since it was opened: then another is in its
            // place.
            if held.metadata().is_ok_and(|meta| meta.nlink() > 0) {
                return Ok(Self { path, lock, _held: held });
            }
        }
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        // While it is held; a receiver that is killed leaves it, and the next one takes it.
        let _ = std::fs::remove_file(&self.lock);
    }
}

/// An existing lock file is opened without O_CREAT: in a directory for all users, O_CREAT on a file of
/// another user is refused even to root. A link, which any user may have put there, is not followed.
fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    for _ in 0..TRIES {
        match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
        match options.clone().create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other,
        }
    }
    Err(rustix::io::Errno::BUSY.into())
}

/// One file, as long as its shape and slabs stay.
#[derive(Debug)]
pub struct Shared {
    map: MmapRaw,
    /// Holds the lock that marks a running receiver.
    _file: File,
    path: PathBuf,
    slabs: usize,
    volumes: usize,
    first_volume: usize,
    volume_size: usize,
    /// Where the maps of the volumes begin, and bytes of one: a bit for each value.
    first_map: usize,
    map_size: usize,
    /// The first value here, and the one after the last.
    span: (usize, usize),
    history: usize,
}

/// Bytes of memory to be had without swapping; all there can be where the system does not say.
fn available_memory() -> u64 {
    let told = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    meminfo(&told, "MemAvailable").unwrap_or(u64::MAX)
}

impl Shared {
    /// Makes the file, with memory for the slabs, and gives it its name; one that a killed receiver has left is replaced.
    ///
    /// # Errors
    /// When there is no room.
    pub fn create(
        name: &Name,
        shape: Shape,
        slabs: &[(u32, Slab)],
        volumes: usize,
        title: &str,
    ) -> Result<Self, Error> {
        let path = name.path.clone();
        let io = |doing| {
            let path = path.clone();
            move |error: io::Error| Error::Io { doing, path, error }
        };
        let history = (HEAD + slabs.len() * SLAB).next_multiple_of(ENTRY);
        let first_volume = (history + HISTORY as usize * ENTRY).next_multiple_of(ALIGN);
        let volume_size = (shape.values() as usize * VALUE).next_multiple_of(ALIGN);
        let first_map = first_volume + volumes * volume_size;
        let map_size = (shape.values() as usize).div_ceil(8).next_multiple_of(PAGE);
        let size = first_map + volumes * map_size;
        let (begin, end) = span(slabs);
        let needed = (first_volume + volumes * ((end - begin) * VALUE + (end - begin) / 8 + PAGE)) as u64;
        let room = rustix::fs::statvfs(DIR).map_err(|e| io("stat")(e.into()))?;
        // The directory may be as large as the memory, and a sender without a key may name any shape.
        let room = room.f_bavail.saturating_mul(room.f_frsize).min(available_memory() / 8 * 7);
        if room < needed {
            return Err(Error::Full(needed));
        }
        // Without a name until it is complete: readers find all of it or nothing.
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(
            rustix::fs::open(DIR, flags, Mode::RUSR | Mode::WUSR).map_err(|e| io("create")(e.into()))?,
        );
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|e| io("lock")(e.into()))?;
        file.set_len(size as u64).map_err(io("set the size of"))?;
        let reserve = |offset: usize, len: usize| {
            // Taken now, for to write into memory that is not there is a fault later on.
            let taken = rustix::fs::fallocate(&file, FallocateFlags::empty(), offset as u64, len as u64);
            taken.map_err(|_| Error::Full(len as u64))
        };
        reserve(0, first_volume)?;
        for volume in 0..volumes {
            reserve(first_volume + volume * volume_size + begin * VALUE, (end - begin) * VALUE)?;
            reserve(first_map + volume * map_size + begin / 8, end.div_ceil(8) - begin / 8)?;
        }
        let map = MmapOptions::new().len(size).map_raw(&file).map_err(io("map"))?;
        // Fewer faults where the system has large pages for shared memory; else nothing is lost.
        let _ = map.advise(Advice::HugePage);
        let shared = Self {
            map,
            _file: file,
            path,
            slabs: slabs.len(),
            volumes,
            first_volume,
            volume_size,
            first_map,
            map_size,
            span: (begin, end),
            history,
        };
        shared.fill_head(shape, slabs, title);
        shared.appear()?;
        Ok(shared)
    }

    fn fill_head(&self, shape: Shape, slabs: &[(u32, Slab)], title: &str) {
        let (nx, ny, nz) = shape.sides();
        let made = now();
        let words = [
            (head::MAGIC, u64::from_le_bytes(MAGIC)),
            (head::VERSION, VERSION),
            (head::SHAPE, nx.into()),
            (head::SHAPE + 8, ny.into()),
            (head::SHAPE + 16, nz.into()),
            (head::SLABS, slabs.len() as u64),
            (head::SLABS + 8, HEAD as u64),
            (head::SLABS + 16, SLAB as u64),
            (head::VOLUMES, self.volumes as u64),
            (head::VOLUMES + 8, self.first_volume as u64),
            (head::VOLUMES + 16, self.volume_size as u64),
            (head::STATE, 1),
            (head::MADE, made),
            (head::HISTORY, self.history as u64),
            (head::HISTORY + 8, HISTORY),
            (head::MAPS, self.first_map as u64),
            (head::MAPS + 8, self.map_size as u64),
        ];
        words.iter().for_each(|(offset, value)| self.set(*offset, *value));
        self.set_title(title);
        (0..self.volumes).for_each(|volume| self.set_holes(volume, (self.span.1 - self.span.0) as u64));
        for (number, (stream, part)) in slabs.iter().enumerate() {
            self.set_slab(number, slab::Z0, part.begin.into());
            self.set_slab(number, slab::Z1, part.end.into());
            self.set_slab(number, slab::STREAM, (*stream).into());
        }
    }

    /// Gives the file its name, in the place of one that was left behind.
    fn appear(&self) -> Result<(), Error> {
        let io = |error: rustix::io::Errno| Error::Io {
            doing: "name",
            path: self.path.clone(),
            error: error.into(),
        };
        let fresh = self.path.with_added_extension(format!("new{}", std::process::id()));
        let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&self._file));
        let _ = std::fs::remove_file(&fresh);
        rustix::fs::linkat(
            rustix::fs::CWD,
            own,
            rustix::fs::CWD,
            &fresh,
            rustix::fs::AtFlags::SYMLINK_FOLLOW,
        )
        .map_err(io)?;
        rustix::fs::rename(&fresh, &self.path).map_err(io)
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many volumes it has.
    pub fn volumes(&self) -> usize {
        self.volumes
    }

    /// Sets the name of the field.
    pub fn set_title(&self, title: &str) {
        for (number, word) in padded_name(title).as_chunks().0.iter().enumerate() {
            self.set(head::TITLE + 8 * number, u64::from_le_bytes(*word));
        }
    }

    /// Tells readers that nothing comes here any more, and takes the name away unless another file has it by now.
    pub fn retire(&self, remove: bool) {
        self.set(head::STATE, 2);
        if remove {
            // A reader keeps its mapping.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// A word of the head.
    pub fn get(&self, offset: usize) -> u64 {
        u64::from_le(self.word(offset).load(Ordering::Acquire))
    }

    /// Writes a word of the head.
    pub fn set(&self, offset: usize, value: u64) {
        self.word(offset).store(value.to_le(), Ordering::Release);
    }

    /// Writes a word of a slab's header.
    pub fn set_slab(&self, slab: usize, offset: usize, value: u64) {
        debug_assert!(slab < self.slabs && offset < SLAB);
        self.set(HEAD + slab * SLAB + offset, value);
    }

    /// The sequence of a volume: odd while it is written.
    pub fn sequence(&self, volume: usize) -> u64 {
        self.get(head::SEQUENCES + 8 * volume)
    }

    /// Marks a volume as being written from now on, or as no longer.
    pub fn mark(&self, volume: usize, written: bool) {
        let now = self.sequence(volume);
        if (now % 2 == 1) != written {
            self.set(head::SEQUENCES + 8 * volume, now + 1);
        }
    }

    /// Adds an entry to the history.
    pub fn record(&self, entry: [u64; ENTRY / 8]) {
        let written = self.get(head::WRITTEN);
        let at = self.history + (written % HISTORY) as usize * ENTRY;
        entry.iter().enumerate().for_each(|(i, value)| self.set(at + 8 * i, *value));
        self.set(head::WRITTEN, written + 1);
    }

    /// Copies values into a volume, from the value at `place` on.
    #[inline]
    pub fn write(&self, volume: usize, place: usize, values: &[u8]) {
        let Some(to) = self.at(volume, place, values.len()) else { return };
        // SAFETY: `at` has checked that this many bytes lie within the map, which outlives the call; `values` is memory of this process
        // and not of the map, so the two do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), to, values.len()) }
    }

    /// Copies values out of a volume.
    pub fn read(&self, volume: usize, place: usize, values: &mut [u8]) {
        let Some(from) = self.at(volume, place, values.len()) else { return };
        // SAFETY: as in `write`, the other way round.
        unsafe { std::ptr::copy_nonoverlapping(from, values.as_mut_ptr(), values.len()) }
    }

    /// Copies values from one volume to the same place of another.
    pub fn carry(&self, from: usize, to: usize, place: usize, values: usize) {
        let bytes = values * VALUE;
        let (Some(source), Some(target)) = (self.at(from, place, bytes), self.at(to, place, bytes)) else {
            return;
        };
        if from != to {
            // SAFETY: both ranges lie within the map, in different volumes, so they do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(source, target, bytes) }
        }
    }

    /// Sets how many values here are not of the step that a volume has; of a live volume, whether there may
    /// be any.
    pub fn set_holes(&self, volume: usize, holes: u64) {
        debug_assert!(volume < self.volumes);
        self.set(head::HOLES + 8 * volume, holes);
    }

    /// Marks whether the values of all slabs here are of the step that a volume has.
    pub fn map_all(&self, volume: usize, of_step: bool) {
        self.map_values(volume, self.span.0, self.span.1 - self.span.0, of_step);
    }

    /// Marks whether values from `place` on are of the step that a volume has. Adjacent slabs may do so at
    /// the same time.
    pub fn map_values(&self, volume: usize, place: usize, values: usize, of_step: bool) {
        let (mut place, end) = (place, place.saturating_add(values));
        while place < end {
            let bit = place % 64;
            let count = (64 - bit).min(end - place);
            let bits = (u64::MAX >> (64 - count) << bit).to_le();
            let Some(word) = self.map_word(volume, place) else { return };
            match (count, of_step) {
                (64, true) => word.store(u64::MAX, Ordering::Relaxed),
                (_, true) => drop(word.fetch_or(bits, Ordering::Relaxed)),
                (_, false) => drop(word.fetch_and(!bits, Ordering::Relaxed)),
            }
            place += count;
        }
    }

    /// Names the values, of this many from `place` on, that are not of the step that a volume has.
    pub fn each_hole(&self, volume: usize, place: usize, values: usize, mut found: impl FnMut(usize)) {
        let (mut at, end) = (place, place.saturating_add(values));
        while at < end {
            let next = (at - at % 64 + 64).min(end);
            let Some(word) = self.map_word(volume, at) else { return };
            let bits = u64::from_le(word.load(Ordering::Relaxed));
            if bits != u64::MAX {
                (at..next).filter(|at| bits >> (at % 64) & 1 == 0).for_each(&mut found);
            }
            at = next;
        }
    }

    fn map_word(&self, volume: usize, place: usize) -> Option<&AtomicU64> {
        let within = place / 64 * 8;
        let offset = self.first_map + volume * self.map_size + within;
        if volume >= self.volumes || within + 8 > self.map_size {
            return None;
        }
        // SAFETY: aligned, for the map begins on a page, and so do volumes' maps within it; within the map, by the check above and by the
        // length that `create` gave it; reached as atomic words only; the map lives as long as `self`.
        Some(unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(offset).cast()) })
    }

    /// Where the value at `place` of a volume is, if this many bytes from there are within the volume.
    #[inline]
    fn at(&self, volume: usize, place: usize, bytes: usize) -> Option<*mut u8> {
        let offset = place.checked_mul(VALUE)?;
        let inside = volume < self.volumes && offset.checked_add(bytes)? <= self.volume_size;
        debug_assert!(inside, "{volume} {place} {bytes}");
        // The volumes are within the map: `create` made it this long.
        inside.then(|| {
            self.map.as_mut_ptr().wrapping_add(self.first_volume + volume * self.volume_size + offset)
        })
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        let offset = if offset.is_multiple_of(8) && offset < self.first_volume { offset } else { 0 };
        // SAFETY: aligned, for the map begins on a page; within the map, before the volumes, where memory is reached as atomic words only;
        // the map lives as long as `self`.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(offset).cast()) }
    }
}

/// The first value of all these adjacent slabs, and the one after the last.
fn span(slabs: &[(u32, Slab)]) -> (usize, usize) {
    let begin = slabs.iter().map(|(_, slab)| slab.offset()).min().unwrap_or_default();
    let end =
        slabs.iter().map(|(_, slab)| slab.offset() + u64::from(slab.values())).max().unwrap_or_default();
    (begin as usize, end as usize)
}

/// Nanoseconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(name: &Name, volumes: usize) -> Result<Shared, Error> {
        let shape = Shape::new(4, 4, 4).unwrap();
        let slabs = [(2, shape.slab(2, 4).unwrap()), (3, shape.slab(3, 4).unwrap())];
        Shared::create(name, shape, &slabs, volumes, "density")
    }

    #[test]
    fn a_link_in_place_of_the_lock_is_refused() {
        let name = format!("test-link-{}", std::process::id());
        let lock = Path::new(DIR).join(format!(".{PREFIX}{name}.lock"));
        std::os::unix::fs::symlink("/nonexistent/x", &lock).unwrap();
        let taken = Name::take(&name);
        std::fs::remove_file(&lock).unwrap();
        assert!(matches!(taken, Err(Error::Io { .. })), "{taken:?}");
    }

    fn unique(what: &str) -> Name {
        Name::take(&format!("test-{what}-{}", std::process::id())).unwrap()
    }

    #[test]
    fn the_map_has_a_bit_for_each_value() {
        let name = unique("map");
        let shape = Shape::new(16, 16, 4).unwrap();
        let slabs = [(2, shape.slab(2, 4).unwrap()), (3, shape.slab(3, 4).unwrap())];
        let shared = Shared::create(&name, shape, &slabs, 3, "").unwrap();
        let (begin, end) = shared.span;
        let holes = |volume| {
            let mut holes = Vec::new();
            shared.each_hole(volume, begin, end - begin, |place| holes.push(place));
            holes
        };
        assert_eq!(holes(1), (begin..end).collect::<Vec<_>>(), "nothing has come yet");
        shared.map_all(1, true);
        assert!(holes(1).is_empty());
        shared.map_values(1, begin + 3, 130, false);
        shared.map_values(1, begin + 60, 10, true);
        let expected: Vec<_> = (3..60).chain(70..133).map(|n| begin + n).collect();
        assert_eq!(holes(1), expected);
        assert_eq!(holes(0).len(), end - begin, "each volume has its own");
        // Values outside are skipped.
        shared.map_values(1, shared.map_size * 8, 10, true);
        shared.map_values(7, 0, 10, true);
        shared.retire(true);
    }

    #[test]
    fn the_head_is_as_the_format_says() {
        let name = unique("head");
        let shared = make(&name, 3).unwrap();
        shared.write(2, 33, &1.5f32.to_le_bytes());
        shared.record([7, 1, 2, 3, 4, 5, 6, 8]);
        let bytes = std::fs::read(shared.path()).unwrap();
        let word = |offset: usize| u64::from_le_bytes(bytes[offset..offset + 8].try_into().unwrap()) as usize;
        assert_eq!(&bytes[..8], b"TCFIELD1");
        assert_eq!([8, 16, 24, 32, 40, 64, 112].map(word), [1, 4, 4, 4, 2, 3, 1]);
        assert_eq!(&bytes[136..144], b"density\0");
        let slab = word(48) + word(56);
        assert_eq!([slab, slab + 8, slab + 144].map(word), [3, 4, 3]);
        assert_eq!((word(word(200)), word(216)), (7, 1));
        let place = word(72) + 2 * word(80) + 33 * 4;
        assert!(word(72).is_multiple_of(ALIGN) && bytes[place..place + 4] == 1.5f32.to_le_bytes());
        shared.retire(true);
        assert!(!shared.path().exists());
    }

    #[test]
    fn one_receiver_a_name() {
        let name = format!("test-one-{}", std::process::id());
        let first = Name::take(&name).unwrap();
        assert!(matches!(Name::take(&name), Err(Error::Taken(_))), "before there is memory");
        let killed = make(&first, 1).unwrap();
        let lock = first.lock.clone();
        drop(killed);
        drop(first);
        assert!(!lock.exists());
        // Files left by a killed receiver, including its lock, are taken over.
        std::fs::write(&lock, "").unwrap();
        let second = Name::take(&name).unwrap();
        make(&second, 1).unwrap().retire(true);
        for wrong in ["", "a/b", "..//x", &"x".repeat(65)] {
            assert!(matches!(Name::take(wrong), Err(Error::Name(_))), "{wrong}");
        }
    }

    #[test]
    fn a_reader_sees_whether_a_receiver_lives() {
        let name = unique("lives");
        let shared = make(&name, 1).unwrap();
        let reader = File::open(shared.path()).unwrap();
        let free = || rustix::fs::flock(&reader, FlockOperation::NonBlockingLockShared).is_ok();
        assert!(!free());
        // As a receiver that is killed.
        drop(shared);
        assert!(free());
        // A reader that looks does not keep the next one from starting.
        make(&name, 1).unwrap().retire(true);
    }

    #[test]
    fn sequences_and_copies() {
        let name = unique("copies");
        let shared = make(&name, 3).unwrap();
        assert_eq!(shared.sequence(1), 0);
        shared.mark(1, true);
        shared.mark(1, true);
        assert_eq!(shared.sequence(1), 1);
        shared.write(1, 40, &[1, 2, 3, 4, 5, 6, 7, 8]);
        shared.carry(1, 0, 40, 2);
        shared.mark(1, false);
        assert_eq!(shared.sequence(1), 2);
        let mut back = [0; 8];
        shared.read(0, 40, &mut back);
        assert_eq!(back, [1, 2, 3, 4, 5, 6, 7, 8]);
        shared.retire(true);
    }
}
