//! The choices that a publisher leaves to Tidecast: piece length, and whether v1 is added.
//!
//! Promise: the same sizes give the same choice.

use tidecast_hash::LEAF;

use crate::parse::MAX_PIECE_LENGTH;
use crate::{Layout, Manifest, Version};

const MIN: u32 = 64 << 10;
/// A piece is at least this where that leaves `FEW` pieces: sixteen leaves, as many as are hashed at once and as the
/// largest block between Tidecast peers usually has.
const BATCH: u32 = 256 << 10;
/// A swarm begins slowly with fewer: until every peer has a piece to give takes as long as its pieces do.
const FEW: u64 = 512;
const USUAL_MAX: u32 = 16 << 20;
const MAX: u32 = 128 << 20;

/// Pieces to aim at. A pipeline over N nodes costs about (depth + 1) piece times beyond the
/// bound, so 16,384 pieces keep that under 0.1% for any shallow tree, while their hashes (512 KiB)
/// are small beside any data that has this many.
const TARGET_PIECES: u64 = 16_384;

/// v1 is added to a v2 manifest if the padding it needs is at most this fraction of the data.
pub const MAX_AUTO_PADDING: f64 = 0.05;

/// Whether a new manifest may have pieces of so many bytes: a power of two from 16 KiB to 512 MiB, which every format
/// and [`Manifest::parse`] allow.
#[must_use]
pub fn is_new_piece_length(bytes: u64) -> bool {
    bytes.is_power_of_two() && (LEAF as u64..=MAX_PIECE_LENGTH).contains(&bytes)
}

/// A piece length in bytes for files of these sizes: a power of two, 64 KiB (128 KiB from 64 MiB of
/// data on, 256 KiB from 128 MiB) to 16 MiB, so that there are 16,384 to 32,768 pieces where the data
/// allows. Beyond 32 TiB it grows, to at most 128 MiB, to stay below the number of pieces that stock clients accept.
pub fn choose_piece_length(total: u64, sizes: impl Iterator<Item = u64> + Clone) -> u32 {
    let mut length = MIN;
    while length < BATCH && total / u64::from(length) >= 2 * FEW {
        length *= 2;
    }
    while length < USUAL_MAX && total / u64::from(length) >= 2 * TARGET_PIECES {
        length *= 2;
    }
    let limit = u64::from(Manifest::STOCK_MAX_PIECES);
    let pieces = |length: u32| sizes.clone().map(|s| s.div_ceil(u64::from(length))).sum();
    // Larger pieces do not help when there are too many files; then they stay as they are.
    let fits = |length: u32| -> bool { limit >= pieces(length) };
    let files = sizes.clone().filter(|s| *s > 0).count() as u64;
    if files < limit {
        while length < MAX && !fits(length) {
            length *= 2;
        }
    }
    length
}

/// The version that `--format auto` takes for a v2 layout, and why, as a line for the user:
/// hybrid if the padding that v1 needs is at most 5% of the data, v2 otherwise.
pub fn choose_version(layout: &Layout) -> (Version, String) {
    let (padding, total) = (layout.padding(), layout.total_len());
    let part = padding as f64 / total.max(1) as f64;
    let percent = 100.0 * part;
    if padding == 0 || padding as f64 <= MAX_AUTO_PADDING * total as f64 {
        let why = format!("hybrid (v1 and v2): v1 padding is {percent:.1}% of the data, at most 5%");
        (Version::Hybrid, why)
    } else {
        let padding =
            if part < 1.0 { format!("{percent:.1}% of") } else { format!("{part:.0} times the data in") };
        let why =
            format!("v2 only: v1 would add {padding} padding, more than 5% (--format hybrid forces it)");
        (Version::V2, why)
    }
}
