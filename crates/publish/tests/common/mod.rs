//! Trees to publish, and hashes computed the plain way.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tidecast_hash::{Digest, Sha1Digest, sha1, sha256};
use tidecast_metainfo::{Manifest, Version};
use tidecast_publish::{Format, HashOptions, Progress, ScanOptions, Tree, hash, scan};

/// Bytes without structure.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A directory `name` in a temporary one, with a file for each (path, length).
pub fn tree(name: &str, files: &[(&str, usize)]) -> (TempDir, PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join(name);
    fs::create_dir(&root).unwrap();
    for (i, (path, len)) in files.iter().enumerate() {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, noise(*len, i as u64 + 1)).unwrap();
    }
    (temp, root)
}

/// A tree with one of everything, whose order by component is not that of whole paths.
pub fn rich() -> (TempDir, PathBuf) {
    let (temp, root) = tree(
        "rich",
        &[
            ("a/x", 100_000),
            ("a-b", 5),
            ("a/empty", 0),
            ("b", 16_384),
            ("big", 3_000_001),
            ("c/d/e", 65_536),
            ("c/d/f", 65_537),
            ("z", 1),
        ],
    );
    fs::create_dir(root.join("hollow")).unwrap();
    fs::set_permissions(root.join("b"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("../b", root.join("a/link")).unwrap();
    fs::hard_link(root.join("big"), root.join("c/again")).unwrap();
    (temp, root)
}

pub fn scanned(root: &Path) -> Tree {
    scan(root, &ScanOptions::default(), &Progress::new()).unwrap()
}

pub fn options(version: Version, piece_length: u32) -> HashOptions {
    HashOptions {
        format: Format::Exactly(version),
        piece_length: Some(piece_length),
        ..HashOptions::default()
    }
}

pub fn publish(root: &Path, version: Version, piece_length: u32) -> Manifest {
    let options = options(version, piece_length);
    hash(&scanned(root), &options, &Progress::new(), |_| ()).unwrap().manifest
}

/// Pairs of digests up to the root; `nodes` is a power of two long.
fn top(mut nodes: Vec<Digest>) -> Digest {
    while nodes.len() > 1 {
        nodes = nodes.chunks(2).map(|pair| sha256(&pair.concat())).collect();
    }
    nodes[0]
}

fn leaf_digests(bytes: &[u8]) -> Vec<Digest> {
    bytes.chunks(16_384).map(sha256).collect()
}

/// The hashes of a file by BEP 52: its root and its piece layer.
pub fn plain_v2(bytes: &[u8], piece_length: usize) -> (Option<Digest>, Vec<Digest>) {
    if bytes.is_empty() {
        return (None, vec![]);
    }
    let mut leaves = leaf_digests(bytes);
    leaves.resize(leaves.len().next_power_of_two(), [0; 32]);
    let root = top(leaves);
    let layer = if bytes.len() > piece_length {
        let piece = |bytes: &[u8]| {
            let mut leaves = leaf_digests(bytes);
            leaves.resize(piece_length / 16_384, [0; 32]);
            top(leaves)
        };
        bytes.chunks(piece_length).map(piece).collect()
    } else {
        vec![]
    };
    (Some(root), layer)
}

/// The SHA-1 of the pieces of these files; padded to whole pieces between files for a hybrid.
pub fn plain_v1(files: &[Vec<u8>], piece_length: usize, hybrid: bool) -> Vec<Sha1Digest> {
    let mut all = Vec::new();
    for file in files.iter().filter(|f| !f.is_empty()) {
        if hybrid {
            all.resize(all.len().next_multiple_of(piece_length), 0);
        }
        all.extend_from_slice(file);
    }
    all.chunks(piece_length).map(sha1).collect()
}

/// The contents of a manifest's files, in its order, from disk; links are empty.
pub fn contents(manifest: &Manifest, root: &Path) -> Vec<Vec<u8>> {
    let read = |f: tidecast_metainfo::FileRef<'_>| {
        if f.is_symlink() { vec![] } else { fs::read(f.path().below(root)).unwrap() }
    };
    manifest.files().map(read).collect()
}

/// Holds every hash in a manifest to the plain computation.
pub fn assert_hashes(manifest: &Manifest, root: &Path) {
    let (version, length) = (manifest.version(), manifest.piece_length() as usize);
    let files = contents(manifest, root);
    if version.has_v2() {
        for (file, bytes) in manifest.files().zip(&files) {
            let (root, layer) = plain_v2(bytes, length);
            assert_eq!(file.pieces_root(), root, "root of {}", file.path());
            assert_eq!(file.layer().unwrap_or_default(), layer, "layer of {}", file.path());
        }
    }
    let expected = plain_v1(&files, length, version.has_v2());
    let found = (0..manifest.piece_count()).map(|p| manifest.expected(p).v1);
    if version.has_v1() {
        let expected: Vec<_> = expected.into_iter().map(Some).collect();
        assert_eq!(found.collect::<Vec<_>>(), expected, "v1 pieces");
    } else {
        assert!(found.into_iter().all(|v1| v1.is_none()));
    }
}
