//! Digests: of parts in transit and on disk, which detect corruption; and of contents that are compared.
//!
//! The sender is trusted, and TLS admits no other. So the digests of parts only guard against accidents, and
//! XXH3 with 128 bits does that at memory speed. Contents compared by `--checksum` may come from an attacker:
//! they use the Merkle trees of BEP 52.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use tidecast_hash::{Digest, LEAF, leaves};
use tidecast_metainfo::merkle;
use tidecast_paths::PageBuffer;
use twox_hash::XxHash3_128;

use crate::part::BLOCK;

/// Leaves of a block.
const LEAVES: usize = BLOCK / LEAF;
/// Bytes read and then hashed at a time: they are still in the core's cache.
const STEP: usize = 256 << 10;

/// The digest of a part, to check that it arrived as it was read.
#[must_use]
pub fn part(data: &[u8]) -> Digest {
    of(XxHash3_128::oneshot(data))
}

/// The same for the data that `read` puts into `room`; it is given one stretch of it after another, with its
/// offset.
///
/// # Errors
/// Those of `read`.
pub fn read<E>(
    room: &mut [u8],
    mut read: impl FnMut(&mut [u8], usize) -> Result<(), E>,
) -> Result<Digest, E> {
    if room.len() <= STEP {
        read(room, 0)?;
        return Ok(part(room));
    }
    let mut hasher = XxHash3_128::new();
    for (n, step) in room.chunks_mut(STEP).enumerate() {
        read(step, n * STEP)?;
        hasher.write(step);
    }
    Ok(of(hasher.finish_128()))
}

/// The same of a stretch of a file; None if it ends before.
///
/// # Errors
/// Those of the file.
pub fn at(file: &File, offset: u64, len: usize) -> io::Result<Option<Digest>> {
    let mut hasher = XxHash3_128::new();
    let mut room = PageBuffer::new(STEP.min(len));
    for done in (0..len).step_by(STEP) {
        let step = &mut room[..STEP.min(len - done)];
        match file.read_exact_at(step, offset + done as u64) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        hasher.write(step);
    }
    Ok(Some(of(hasher.finish_128())))
}

fn of(hash: u128) -> Digest {
    let mut digest = [0; 32];
    digest[..16].copy_from_slice(&hash.to_le_bytes());
    digest
}

/// The digest of a block of a file's content, to be compared with others: of a file no longer than that its root, else the root of the
/// block's leaves.
#[must_use]
pub fn content(data: &[u8], file_len: u64) -> Digest {
    if data.is_empty() {
        return [0; 32];
    }
    let mut digests = [[0; 32]; LEAVES];
    let count = data.len().div_ceil(LEAF);
    leaves(data, &mut digests[..count]);
    let width = if file_len > BLOCK as u64 { LEAVES } else { count.next_power_of_two() };
    if width == 1 { digests[0] } else { merkle::root(&digests[..count], width) }
}

/// The digests of a longer file's parts, as they come.
#[derive(Debug)]
pub struct Layer {
    digests: Vec<Option<Digest>>,
    left: usize,
    failed: bool,
}

impl Layer {
    /// Of a file of this many bytes.
    #[must_use]
    pub fn new(len: u64) -> Self {
        let parts = usize::try_from(len.div_ceil(BLOCK as u64)).unwrap_or(usize::MAX);
        Self { digests: vec![None; parts], left: parts, failed: false }
    }

    /// One of them, by its number.
    pub fn set(&mut self, part: u64, digest: Digest) {
        let place = usize::try_from(part).ok().and_then(|part| self.digests.get_mut(part));
        if let Some(place) = place
            && place.replace(digest).is_none()
        {
            self.left -= 1;
        }
    }

    /// Whether this one has arrived.
    #[must_use]
    pub fn has(&self, part: u64) -> bool {
        self.get(part).is_some()
    }

    /// This one, if it has arrived.
    #[must_use]
    pub fn get(&self, part: u64) -> Option<Digest> {
        usize::try_from(part).ok().and_then(|part| self.digests.get(part).copied().flatten())
    }

    /// The file cannot be had as a whole any more; whether that was known.
    pub fn fail(&mut self) -> bool {
        std::mem::replace(&mut self.failed, true)
    }

    /// Whether [`Layer::fail`] was called.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// The file's root, when all have arrived.
    #[must_use]
    pub fn root(&self) -> Option<Digest> {
        if self.left > 0 {
            return None;
        }
        let layer: Vec<Digest> = self.digests.iter().copied().flatten().collect();
        Some(merkle::root_of_layer(&layer, BLOCK as u32))
    }
}

/// The digest of a part of zeros that is `len` bytes long.
#[must_use]
pub fn zeros(len: usize) -> Digest {
    static FULL: std::sync::OnceLock<Digest> = std::sync::OnceLock::new();
    let zeros = || part(&vec![0; len]);
    if len == BLOCK { *FULL.get_or_init(zeros) } else { zeros() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidecast_metainfo::merkle;

    #[test]
    fn roots_are_those_of_a_manifest() {
        for len in [1, 100, LEAF, LEAF + 1, 5 * LEAF, BLOCK, BLOCK + 1, 3 * BLOCK + 77] {
            let data: Vec<u8> = (0..len).map(|i| (i * 7 / 3) as u8).collect();
            let mut all = vec![[0; 32]; len.div_ceil(LEAF)];
            leaves(&data, &mut all);
            let whole = merkle::root(&all, all.len().next_power_of_two());
            let ours = if len <= BLOCK {
                content(&data, len as u64)
            } else {
                let mut layer = Layer::new(len as u64);
                for (n, chunk) in data.chunks(BLOCK).enumerate() {
                    assert_eq!(layer.root(), None);
                    layer.set(n as u64, content(chunk, len as u64));
                    layer.set(n as u64, content(chunk, len as u64));
                }
                layer.root().unwrap()
            };
            assert_eq!(ours, whole, "{len}");
        }
    }

    #[test]
    fn parts_are_told_apart() {
        // XXH3's own reference value of nothing at all, with seed 0.
        let empty = 0x99aa_06d3_0147_98d8_6001_c324_468d_497f_u128;
        assert_eq!(part(&[])[..16], empty.to_le_bytes());
        for len in [1, 100, BLOCK - 1, BLOCK] {
            let mut data = vec![0; len];
            assert_eq!(zeros(len), part(&data));
            data[len / 2] ^= 1;
            assert_ne!(zeros(len), part(&data));
            let mut room = vec![0; len];
            let copy = |step: &mut [u8], at: usize| {
                step.copy_from_slice(&data[at..at + step.len()]);
                Ok::<(), ()>(())
            };
            assert_eq!(read(&mut room, copy), Ok(part(&data)));
            assert!(room == data);
        }
    }
}
