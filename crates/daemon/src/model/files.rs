//! The space that files of a manifest need, and which of them must be transferred.

use tidecast_depot::Size;
use tidecast_metainfo::Manifest;

/// The maximum of space for a manifest's files, links and directories.
pub(crate) fn size_of(manifest: &Manifest) -> Size {
    let inodes = u64::from(manifest.file_count()) + manifest.dirs().len() as u64;
    Size { bytes: manifest.total_len(), inodes }
}

/// The files to transfer, in the order of the manifest: of equal files the first, unless its content is in
/// the store.
pub(crate) fn missing(manifest: &Manifest, reused: &[u32]) -> Vec<u32> {
    let reused: std::collections::HashSet<u32> = reused.iter().copied().collect();
    let comes = manifest.files().filter(|f| !f.is_empty() && !f.is_symlink() && f.same_as() == f.index());
    comes.map(|f| f.index()).filter(|index| !reused.contains(index)).collect()
}
