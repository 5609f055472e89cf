//! The layout of a field's shared memory, defined only here; "Shared memory" in `docs/field-format.md`
//! explains each word.
//!
//! The receiver writes by it and the viewer reads by it; `python/tidecast/_field_layout.py` is generated from it, and
//! `tests/layout.rs` holds that file and the document to it. Offsets stay as they are: programs of two versions share memory.

/// Where shared memory is.
pub const DIR: &str = "/dev/shm";
/// How names of its files begin.
pub const PREFIX: &str = "tidecast-field-";
/// The first bytes of a file.
pub const MAGIC: [u8; 8] = *b"TCFIELD1";
/// The version of this layout.
pub const VERSION: u64 = 1;
/// Bytes of the head; the first slab's header follows it.
pub const HEAD: usize = 4096;
/// Bytes of a slab's header.
pub const SLAB: usize = 256;
/// Bytes of an entry of the history.
pub const ENTRY: usize = 64;
/// Bytes of the name of the field, padded with zeros.
pub const TITLE: usize = 64;
/// Volumes at most.
pub const VOLUMES: u64 = 4;

/// Offsets, each of a word of 64 bits, and all of them by name.
macro_rules! offsets {
    ($($(#[$doc:meta])* $name:ident = $offset:literal;)*) => {
        $($(#[$doc])* pub const $name: usize = $offset;)*
        /// All of them, by name.
        pub const ALL: &[(&str, usize)] = &[$((stringify!($name), $offset)),*];
    };
}

/// Offsets of words of the head.
pub mod head {
    offsets! {
        /// [`MAGIC`](super::MAGIC).
        MAGIC = 0;
        /// [`VERSION`](super::VERSION).
        VERSION = 8;
        /// Values along x, y and z: three words.
        SHAPE = 16;
        /// Number of slabs, offset of the first slab's header, bytes of one.
        SLABS = 40;
        /// Number of volumes, offset of the first, from each to the next.
        VOLUMES = 64;
        /// The volume to read.
        FRONT = 88;
        /// The step in front.
        STEP = 96;
        /// Steps closed so far.
        CLOSED = 104;
        /// 1 receiving, 2 closed or replaced.
        STATE = 112;
        /// When it was made.
        MADE = 120;
        /// When a packet last came.
        LAST = 128;
        /// Name of the field, of [`TITLE`](super::TITLE) bytes.
        TITLE = 136;
        /// Offset of the history, and its entries.
        HISTORY = 200;
        /// Entries written so far.
        WRITTEN = 216;
        /// The sequence of each volume.
        SEQUENCES = 224;
        /// Bits a second, as announced by the sender.
        RATE = 256;
        /// Offset of the first volume's map, from each to the next.
        MAPS = 264;
        /// For each volume the number of values that are not of its step.
        HOLES = 280;
    }
}

/// Offsets within a slab's header.
pub mod slab {
    offsets! {
        /// The first plane.
        Z0 = 0;
        /// The plane after the last.
        Z1 = 8;
        /// Which sending of a step.
        BATCH = 16;
        /// The step.
        STEP = 24;
        /// Packets of it.
        EXPECTED = 32;
        /// Those that came.
        RECEIVED = 40;
        /// Those that parity has brought back.
        RECOVERED_NOW = 48;
        /// Packets in all; the next nine are of all steps, too.
        PACKETS = 56;
        /// Their bytes.
        BYTES = 64;
        /// Packets that have not come.
        LOST = 72;
        /// Those that parity has brought back.
        RECOVERED = 80;
        /// Packets that were received before.
        DUPLICATE = 88;
        /// Packets of an old step.
        STALE = 96;
        /// Packets that were rejected.
        REJECTED = 104;
        /// Packets that arrived after a later one.
        REORDERED = 112;
        /// Steps complete.
        COMPLETE = 120;
        /// Steps not complete.
        INCOMPLETE = 128;
        /// When the last packet came.
        LAST = 136;
        /// The stream's number.
        STREAM = 144;
        /// 1 open, 0 silent.
        IS_OPEN = 152;
    }
}

/// Offsets within an entry of the history.
pub mod entry {
    offsets! {
        /// The step.
        STEP = 0;
        /// Which sending of it.
        BATCH = 8;
        /// When it closed.
        WHEN = 16;
        /// Packets of it.
        EXPECTED = 24;
        /// Those that came.
        RECEIVED = 32;
        /// Those that parity has brought back.
        RECOVERED = 40;
        /// Values that have not come.
        MISSING = 48;
        /// Bytes received.
        BYTES = 56;
    }
}

/// The file of this name of a field, below [`DIR`].
#[must_use]
pub fn file_name(name: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let good = !name.is_empty() && name.len() <= 64 && name.chars().all(plain);
    good.then(|| format!("{PREFIX}{name}"))
}
