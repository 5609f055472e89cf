//! Helpers of the tests: hash a tree in memory and build its manifest.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, unreachable_pub)]

use std::collections::BTreeMap;
use tidecast_hash::{Digest, LEAF, Sha1Digest, leaves, sha1};
use tidecast_metainfo::{Builder, Content, Entry, Layout, Manifest, Version, merkle};

pub const VERSIONS: [Version; 3] = [Version::V1, Version::V2, Version::Hybrid];

/// Contents of files by path below the root.
pub type Tree = BTreeMap<Vec<u8>, Vec<u8>>;

/// Bytes that look like nothing, the same for the same seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

pub fn entry(path: &[u8], content: Content) -> Entry {
    Entry { path: path.to_vec(), content, mode: None, mtime: None, xattrs: Vec::new() }
}

pub fn file(path: &str, len: usize) -> Entry {
    let content = Content::File { len: len as u64, executable: false, holes: Vec::new(), hard_link: None };
    entry(path.as_bytes(), content)
}

pub fn symlink(path: &str, target: &str) -> Entry {
    entry(path.as_bytes(), Content::Symlink(target.into()))
}

pub fn directory(path: &str) -> Entry {
    entry(path.as_bytes(), Content::Directory)
}

pub fn plain(path: &[u8], len: usize) -> Entry {
    Entry { path: path.to_vec(), ..file("", len) }
}

pub fn entries(tree: &Tree) -> Vec<Entry> {
    tree.iter().map(|(path, data)| plain(path, data.len())).collect()
}

pub fn leaf_digests(data: &[u8]) -> Vec<Digest> {
    let mut out = vec![[0; 32]; data.len().div_ceil(LEAF)];
    leaves(data, &mut out);
    out
}

/// The bytes of a piece, padding as zeros, by the layout under test.
pub fn piece_bytes(layout: &Layout, piece: u32, len: u32, file: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    let mut out = Vec::new();
    for span in layout.spans(piece, 0, len) {
        if span.pad {
            out.resize(out.len() + span.len as usize, 0);
        } else {
            let data = file(span.file);
            let start = span.offset as usize;
            out.extend_from_slice(&data[start..start + span.len as usize]);
        }
    }
    out
}

/// Gives a builder the hashes of its files, whose contents are `tree`.
pub fn hash(builder: &mut Builder, tree: &Tree, version: Version) {
    let piece_length = builder.layout().piece_length();
    let files: Vec<Vec<u8>> =
        builder.files().iter().map(|f| tree.get(&f.path).cloned().unwrap_or_default()).collect();
    for (i, data) in files.iter().enumerate() {
        if let Some((root, layer)) = merkle::file(&leaf_digests(data), piece_length) {
            builder.set_root(i as u32, root, layer);
        }
    }
    if version != Version::V2 {
        let layout = builder.layout().clone();
        let pieces: Vec<Sha1Digest> = (0..layout.piece_count())
            .map(|p| sha1(&piece_bytes(&layout, p, piece_length, |f| files[f as usize].clone())))
            .collect();
        builder.set_v1(pieces);
    }
}

pub fn build_entries(
    version: Version,
    piece_length: u32,
    tree: &Tree,
    entries: Vec<Entry>,
    change: impl FnOnce(&mut Builder),
) -> Manifest {
    let mut builder = Builder::new(b"root", version, piece_length, entries).unwrap();
    hash(&mut builder, tree, version);
    change(&mut builder);
    builder.build().unwrap()
}

pub fn build(version: Version, piece_length: u32, tree: &Tree) -> Manifest {
    build_entries(version, piece_length, tree, entries(tree), |_| {})
}
