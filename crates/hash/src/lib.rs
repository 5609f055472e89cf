//! Hashing for Tidecast: SHA-256 of many equal messages at once, and SHA-1.
//!
//! BEP 52 hashes a file in leaves of 16 KiB and pairs of digests above them: thousands of independent
//! messages of one length. One SHA-256 is a chain of dependent steps that leaves most of a core idle; many
//! side by side do not. So [`leaves`], [`parents`] and [`equal`] run as many messages at once as the CPU has
//! lanes, with the [`Backend`] that is fastest among those that this CPU has, found at run time. Every backend gives
//! the digests of the `sha2` crate; the tests hold them to it.
//!
//! SHA-1, for v1, has the same with AVX-512: [`Sha1Lanes`].
//!
//! [`Search`] finds leaves of a new version of a file in an old one, wherever they lie.
//!
//! The crate does no I/O and starts no thread; only [`Sha1Lanes`] and [`Search`] allocate.
//!
//! # Why `unsafe`
//! Vector and SHA instructions exist only as intrinsics of the target, and the compiler cannot check two
//! conditions for them: that the CPU has them, and that a load through a pointer is in bounds. Each backend
//! is one file under `backend/`, which allows `unsafe` for exactly these two, behind a safe function that
//! asserts that the CPU has the instructions. No other code in the crate may use it.

mod backend;
mod constants;
mod rolling;
mod sha1;

pub use backend::Backend;
pub use rolling::{Fingerprint, Search};
pub use sha1::{Sha1, Sha1Lanes, sha1};

/// Length in bytes of a leaf of a BEP 52 Merkle tree: 16 KiB. The last leaf of a file may be shorter.
pub const LEAF: usize = 16_384;

/// A SHA-256 digest.
pub type Digest = [u8; 32];

/// A SHA-1 digest.
pub type Sha1Digest = [u8; 20];

/// Bytes that SHA-256 works on at a time.
const BLOCK: usize = 64;

/// Most messages that any backend takes at once.
const MAX_LANES: usize = 16;

/// SHA-256 of one message, with the best single-stream code of the `sha2` crate.
#[must_use]
pub fn sha256(data: &[u8]) -> Digest {
    use sha2::Digest as _;
    sha2::Sha256::digest(data).into()
}

/// The backend that the functions of this crate use on this CPU: the fastest that it has.
#[must_use]
pub fn backend() -> Backend {
    Backend::best()
}

/// One SHA-256 for each 16 KiB of `data` (the last may be shorter), in order: the leaves of BEP 52.
///
/// # Panics
/// When `out.len() != data.len().div_ceil(LEAF)`.
pub fn leaves(data: &[u8], out: &mut [Digest]) {
    leaves_with(backend(), data, out);
}

/// [`leaves`], in a vector of their own.
#[must_use]
pub fn leaf_digests(data: &[u8]) -> Vec<Digest> {
    let mut all = vec![Digest::default(); data.len().div_ceil(LEAF)];
    leaves(data, &mut all);
    all
}

/// [`leaves`] with a backend of the caller's choice, for tests and measurements.
///
/// # Panics
/// As [`leaves`], and when this CPU lacks `backend`.
pub fn leaves_with(backend: Backend, data: &[u8], out: &mut [Digest]) {
    assert_eq!(out.len(), data.len().div_ceil(LEAF), "one digest for each leaf");
    let whole = data.len() / LEAF;
    let (full, last) = data.split_at(whole * LEAF);
    let (out, out_last) = out.split_at_mut(whole);
    contiguous(backend, full, LEAF, out);
    if let [digest] = out_last {
        *digest = sha256(last);
    }
}

/// SHA-256 of each adjacent pair in `children`: the layer above them in a Merkle tree.
///
/// # Panics
/// When `children.len() != 2 * out.len()`.
pub fn parents(children: &[Digest], out: &mut [Digest]) {
    parents_with(backend(), children, out);
}

/// [`parents`] with a backend of the caller's choice, for tests and measurements.
///
/// # Panics
/// As [`parents`], and when this CPU lacks `backend`.
pub fn parents_with(backend: Backend, children: &[Digest], out: &mut [Digest]) {
    assert_eq!(children.len(), 2 * out.len(), "two children for each parent");
    contiguous(backend, children.as_flattened(), BLOCK, out);
}

/// SHA-256 of each of `messages`, which lie anywhere but have one length: for leaves in separate buffers.
///
/// Lengths that differ are not an error, only slower: such messages are hashed one by one.
///
/// # Panics
/// When `messages.len() != out.len()`.
pub fn equal(messages: &[&[u8]], out: &mut [Digest]) {
    equal_with(backend(), messages, out);
}

/// [`equal`] with a backend of the caller's choice, for tests and measurements.
///
/// # Panics
/// As [`equal`], and when this CPU lacks `backend`.
pub fn equal_with(backend: Backend, messages: &[&[u8]], out: &mut [Digest]) {
    assert_eq!(messages.len(), out.len(), "one digest for each message");
    for (group, out) in messages.chunks(MAX_LANES).zip(out.chunks_mut(MAX_LANES)) {
        let len = group.first().map_or(0, |m| m.len());
        if len.is_multiple_of(BLOCK) && group.iter().all(|m| m.len() == len) {
            let closing = constants::closing(len as u64);
            backend.group(group, &closing, out);
        } else {
            for (message, digest) in group.iter().zip(out) {
                *digest = sha256(message);
            }
        }
    }
}

/// Hashes messages of `len` bytes (a multiple of [`BLOCK`]) that follow each other in `data`.
fn contiguous(backend: Backend, data: &[u8], len: usize, out: &mut [Digest]) {
    debug_assert_eq!(data.len(), len * out.len());
    let closing = constants::closing(len as u64);
    for (data, out) in data.chunks(len * MAX_LANES).zip(out.chunks_mut(MAX_LANES)) {
        let mut group: [&[u8]; MAX_LANES] = [&[]; MAX_LANES];
        for (slot, message) in group.iter_mut().zip(data.chunks_exact(len)) {
            *slot = message;
        }
        backend.group(&group[..out.len()], &closing, out);
    }
}
