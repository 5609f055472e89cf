//! The source: its manifest, and its hashing, once, while it is sent or before.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidecast_metainfo::{Manifest, Version};
use tidecast_publish::{Format, HashOptions, Progress, ScanOptions, Tree, draft, hash, scan};
use tidecast_store::{Opened, SeedOptions, Store};

use crate::error::{Error, system};
use crate::temporary;

/// Pieces that each relay should have of its stripe, so that filling the pipeline takes little of the transfer time.
const PIECES_A_STRIPE: u64 = 64;
/// Stripes assumed for the piece length.
const STRIPES: u64 = 8;
/// Bounds of a piece, bytes.
const LEAST: u32 = 16 << 10;
const MOST: u32 = 4 << 20;

/// The piece length of a broadcast of `total` bytes: a power of two from 16 KiB to 4 MiB.
///
/// Smaller than for `publish`: a broadcast is short, and a relay sends a piece on only when it is verified.
#[must_use]
pub fn piece_length(total: u64) -> u32 {
    let wish = total / (PIECES_A_STRIPE * STRIPES);
    let power = u32::try_from(wish.min(MOST.into())).unwrap_or(MOST).max(1).next_power_of_two();
    power.clamp(LEAST, MOST)
}

/// A source that is ready to be served.
pub(crate) struct Source {
    /// A draft if the source is hashed while it is sent.
    pub(crate) manifest: Arc<Manifest>,
    /// The open files, until the origin takes them.
    pub(crate) opened: Option<Opened>,
    /// Warnings about the source.
    pub(crate) warnings: Vec<String>,
    /// The time of the preparation.
    pub(crate) took: Duration,
}

/// Scans the source and opens it for serving; it is hashed while it is sent.
pub(crate) fn as_draft(path: &Path, progress: &Progress) -> Result<Source, Error> {
    let began = Instant::now();
    let (whole, tree) = look(path, progress)?;
    let mut warnings: Vec<String> = tree.warnings.iter().map(ToString::to_string).collect();
    let manifest = Arc::new(draft(&tree, piece_length(tree.total_len()))?);
    warnings.extend(manifest.warnings().iter().map(ToString::to_string));
    let opened = Store::seed(manifest.clone(), &whole, &SeedOptions::default())?;
    Ok(Source { manifest, opened: Some(opened), warnings, took: began.elapsed() })
}

fn look(path: &Path, progress: &Progress) -> Result<(PathBuf, Tree), Error> {
    let found = std::fs::canonicalize(path);
    let whole = found.map_err(|source| Error::NoSource { path: path.to_owned(), source })?;
    let tree = scan(&whole, &ScanOptions::default(), progress)?;
    Ok((whole, tree))
}

/// Hashes the source, and opens it for serving. `any_client`: the manifest must suit other BitTorrent clients too.
pub(crate) fn publish(
    path: &Path,
    threads: usize,
    any_client: bool,
    progress: &Progress,
) -> Result<Source, Error> {
    let began = Instant::now();
    let (whole, tree) = look(path, progress)?;
    let mut warnings: Vec<String> = tree.warnings.iter().map(ToString::to_string).collect();
    let leaves = temporary::file("tidecast-leaves-").map_err(system("create a temporary file"))?;
    let options = HashOptions {
        format: if any_client { Format::Auto } else { Format::Exactly(Version::V2) },
        piece_length: Some(piece_length(tree.total_len())),
        threads: NonZero::new(threads),
        state: None,
        leaves: Some(leaves.path().to_owned()),
    };
    let published = hash(&tree, &options, progress, |_| {})?;
    warnings.extend(published.manifest.warnings().iter().map(ToString::to_string));
    let manifest = Arc::new(published.manifest);
    let mut opened = Store::seed(manifest.clone(), &whole, &SeedOptions::default())?;
    opened.accept_hashes(leaves.as_file())?;
    Ok(Source { manifest, opened: Some(opened), warnings, took: began.elapsed() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_many_and_not_tiny() {
        assert_eq!(piece_length(0), 16 << 10);
        assert_eq!(piece_length(1_000_000), 16 << 10);
        assert_eq!(piece_length(50_000_000), 128 << 10);
        assert_eq!(piece_length(1 << 30), 2 << 20);
        assert_eq!(piece_length(u64::MAX), 4 << 20);
    }
}
