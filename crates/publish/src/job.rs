//! The files to hash and the consumer of the hashes: the part in which publishing and verifying differ.

use std::fs::File;
use std::io;
use std::num::NonZero;
use std::ops::Range;

use tidecast_hash::{Digest, LEAF, Sha1Digest};
use tidecast_metainfo::{Layout, Version, merkle};

use crate::{Error, Progress};

/// The files to hash, and the options.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) layout: &'a Layout,
    /// Which hashes pieces have.
    pub(crate) version: Version,
    /// Whether leaf digests are wanted although the version does not have them.
    pub(crate) leaves: bool,
    pub(crate) threads: Option<NonZero<usize>>,
    pub(crate) progress: &'a Progress,
}

/// One hashed piece.
pub(crate) struct Piece<'a> {
    pub(crate) index: u32,
    /// Root over its leaves, padded as in [`tidecast_metainfo::Expected::v2`].
    pub(crate) v2: Option<Digest>,
    /// SHA-1, with the padding that v1 sees.
    pub(crate) v1: Option<Sha1Digest>,
    /// Its leaves; none if they were not wanted.
    pub(crate) leaves: &'a [Digest],
}

/// The source of files and the consumer of hashes: the part in which publishing and verifying differ.
pub(crate) trait Target: Sync {
    /// Whether a piece is to be hashed at all.
    fn wants(&self, piece: u32) -> bool;
    /// Opens a file for reading.
    fn open(&self, file: u32) -> Result<File, Error>;
    /// Called when enough of an open file has been read: checks that it has not changed.
    fn check_unchanged(&self, file: u32, handle: &File) -> Result<(), Error>;
    /// An error of the system while reading a file.
    fn read_error(&self, file: u32, error: io::Error) -> Error;
    /// Takes a hashed piece.
    fn piece(&self, piece: Piece<'_>) -> Result<(), Error>;
    /// Something is wrong with a file, so that `pieces` cannot be hashed. An error from here ends the whole job.
    fn trouble(&self, file: u32, pieces: Range<u32>, error: Error) -> Result<(), Error>;
}

impl Job<'_> {
    /// Whether leaf digests are made.
    pub(crate) fn makes_leaves(&self) -> bool {
        self.version.has_v2() || self.leaves
    }
}

/// Bytes of a piece as v1 sees them: see [`tidecast_metainfo::Manifest::wire_len`].
pub(crate) fn wire_len(layout: &Layout, version: Version, piece: u32) -> u32 {
    if version != Version::Hybrid {
        return layout.piece_len(piece);
    }
    let length = u64::from(layout.piece_length());
    let rest = layout.space().saturating_sub(u64::from(piece) * length);
    rest.min(length) as u32
}

/// Leaves of a piece's tree, padding included, as in [`tidecast_metainfo::Manifest::piece_width`].
pub(crate) fn width(layout: &Layout, piece: u32) -> usize {
    let file = layout.spans(piece, 0, 1).next().map_or(0, |span| span.file);
    if layout.file_pieces(file).len() > 1 {
        1 << merkle::piece_level(layout.piece_length())
    } else {
        (layout.piece_len(piece) as usize).div_ceil(LEAF).next_power_of_two()
    }
}
