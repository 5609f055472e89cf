//! Bencode (BEP 3): a borrowed, bounded decoder and a canonical encoder.
//!
//! [`Cursor`] walks an input in one pass without building anything, which keeps the memory of a
//! million-file manifest at the size of the manifest; [`Value`] is a small tree for messages and
//! tracker answers; [`Writer`] produces canonical bytes.
//!
//! Strictness. Integers must be canonical (no leading zero, no `-0`, 64-bit signed) and so must string
//! lengths; a string longer than the rest of the input is rejected before anything is allocated; nesting is
//! bounded. Dictionary keys out of order are *tolerated* on reading, because real torrents have them and the
//! info-hash is taken over the bytes as they are; duplicate keys are rejected by the code that interprets the
//! dictionary ([`Value`] does so itself).

mod cursor;
mod value;
mod writer;

pub use cursor::{Cursor, Kind};
pub use value::{Limits, Value};
pub use writer::Writer;

/// Deepest nesting of lists and dictionaries that is read.
pub const MAX_DEPTH: usize = 300;

/// Why an input is not bencode. `at` is the offset in bytes from the start of the input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not valid bencode: {what} at byte {at}")]
pub struct Error {
    /// Offset of the first byte that is wrong.
    pub at: usize,
    /// The defect there.
    pub what: Fault,
}

/// The ways in which bencode can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The input stops in the middle of a value.
    #[error("the input ends too early; the file may be truncated")]
    Truncated,
    /// A byte that starts no value.
    #[error("unexpected byte 0x{0:02x}")]
    Unexpected(u8),
    /// A value of another type than the one that belongs here.
    #[error("expected {expected}, found {found}")]
    Type {
        /// The expected type.
        expected: Kind,
        /// The type found.
        found: Kind,
    },
    /// An integer that is empty, not canonical, or beyond 64 bits.
    #[error("malformed integer")]
    Integer,
    /// A string length that is not canonical or longer than the rest of the input.
    #[error("string length of {0} bytes exceeds the input")]
    Length(u64),
    /// A string length that is not a number.
    #[error("malformed string length")]
    LengthSyntax,
    /// Lists and dictionaries nested deeper than [`MAX_DEPTH`].
    #[error("nesting deeper than {MAX_DEPTH} levels")]
    Depth,
    /// More values than the caller allows.
    #[error("more than {0} values")]
    Count(usize),
    /// A dictionary key that occurs twice.
    #[error("duplicate dictionary key")]
    DuplicateKey,
    /// Bytes after the end of the value.
    #[error("extra bytes after the end of the value")]
    Trailing,
}
