//! The leaf sidecar: 32 bytes for each 16 KiB leaf, at the place given by the manifest.
//!
//! It lets leaf hashes travel ahead of data without reading the data again. A piece without leaves reads as zeros,
//! which no SHA-256 digest is; digests are checked against the manifest where possible, so a stale or torn sidecar
//! is never used.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use tidecast_hash::Digest;

use crate::disk::DiskFile;

/// Bytes of a digest.
const WIDTH: u64 = 32;

/// The open sidecar.
pub(crate) struct Leaves(pub(crate) Arc<dyn DiskFile>);

impl Leaves {
    /// Writes the digests of one piece.
    pub(crate) fn put(&self, at: Range<u64>, digests: &[Digest]) -> io::Result<()> {
        self.0.write_at(digests.as_flattened(), at.start * WIDTH)
    }

    /// Reads the digests of one piece; `None` if they were never written.
    pub(crate) fn get(&self, at: Range<u64>) -> io::Result<Option<Vec<Digest>>> {
        let count = usize::try_from(at.end.saturating_sub(at.start)).map_err(io::Error::other)?;
        let mut digests = vec![Digest::default(); count];
        self.0.read_at(digests.as_flattened_mut(), at.start * WIDTH)?;
        let unset = digests.contains(&Digest::default());
        Ok((!unset).then_some(digests))
    }
}
