//! The root of a file's content, read from disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use tidecast_hash::{Digest, LEAF, leaves};
use tidecast_metainfo::merkle;
use tidecast_paths::PageBuffer;

/// Bytes read at once, a power of two.
const CHUNK: usize = 1 << 20;
const CHUNK_LEAVES: usize = CHUNK / LEAF;

/// The Merkle root of the first `len` bytes of a file, as a manifest names it. A shorter file is an error; an empty one
/// has no root, so `len` must not be 0.
///
/// # Errors
/// It cannot be read, or is shorter.
pub fn root_of(file: &File, len: u64) -> io::Result<Digest> {
    let mut buf = PageBuffer::new(CHUNK.min(usize::try_from(len).unwrap_or(CHUNK)).max(1));
    let mut digests = vec![[0; 32]; CHUNK_LEAVES];
    let mut chunks = Vec::new();
    let mut at = 0;
    while at < len {
        let size = (len - at).min(CHUNK as u64) as usize;
        let data = &mut buf[..size];
        file.read_exact_at(data, at)?;
        at += size as u64;
        let digests = &mut digests[..size.div_ceil(LEAF)];
        leaves(data, digests);
        if len <= CHUNK as u64 {
            return Ok(merkle::root(digests, digests.len().next_power_of_two()));
        }
        chunks.push(merkle::root(digests, CHUNK_LEAVES));
    }
    Ok(merkle::root_of_layer(&chunks, CHUNK as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_root_that_a_manifest_has() {
        let dir = tempfile::tempdir().unwrap();
        for len in [1, LEAF - 1, LEAF, LEAF + 1, 3 * LEAF, CHUNK, CHUNK + 1, 5 * CHUNK - 7] {
            let data: Vec<u8> = (0..len).map(|i| (i * 31 % 251) as u8).collect();
            let path = dir.path().join(len.to_string());
            std::fs::write(&path, &data).unwrap();
            let mut all = vec![[0; 32]; len.div_ceil(LEAF)];
            leaves(&data, &mut all);
            let file = File::open(&path).unwrap();
            for piece in [16 << 10, 64 << 10, 4 << 20] {
                let (root, _) = merkle::file(&all, piece).unwrap();
                assert_eq!(root_of(&file, len as u64).unwrap(), root, "{len} in pieces of {piece}");
            }
            assert!(root_of(&file, len as u64 + 1).is_err());
        }
    }
}
