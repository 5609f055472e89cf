//! Objects: how the store keeps files of a manifest, and who may reuse them for a new cache.
//!
//! An object is an inode. Its key is the content (the root of the file's Merkle tree) and the other properties of
//! an inode that links share: the right to execute, the time, the attributes (the *variant*).

use std::collections::BTreeMap;
use std::path::PathBuf;

use data_encoding::HEXLOWER;
use tidecast_hash::{Digest, sha256};
use tidecast_metainfo::{FileRef, Manifest};

use crate::record::Reader;
use crate::{CacheRecord, Error, Size};

/// Bytes in an object's key.
pub(crate) const KEY: usize = 40;
/// Bytes in the key of a class's right to an object.
pub(crate) const RIGHT: usize = 16 + KEY;
/// Unit of disk usage, bytes: the allocation unit of nearly every file system.
const BLOCK: u64 = 4096;
/// Only these attributes are kept: the others are for the system to set.
const USER: &[u8] = b"user.";

/// Identity of an inode that caches share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectKey {
    pub(crate) root: Digest,
    pub(crate) variant: [u8; 8],
}

impl ObjectKey {
    /// The key of a file with content; `None` if the manifest names no root.
    pub(crate) fn of(file: FileRef<'_>) -> Option<Self> {
        Some(ObjectKey { root: file.pieces_root()?, variant: variant(file) })
    }

    pub(crate) fn bytes(&self) -> [u8; KEY] {
        let mut key = [0; KEY];
        key[..32].copy_from_slice(&self.root);
        key[32..].copy_from_slice(&self.variant);
        key
    }

    pub(crate) fn from_bytes(key: &[u8; KEY]) -> Self {
        let (mut root, mut variant) = ([0; 32], [0; 8]);
        root.copy_from_slice(&key[..32]);
        variant.copy_from_slice(&key[32..]);
        ObjectKey { root, variant }
    }

    /// Its place below `objects/`.
    pub(crate) fn path(&self) -> PathBuf {
        let hex = HEXLOWER.encode(&self.root);
        let dir = hex.get(..2).unwrap_or_default();
        [dir, &format!("{hex}-{}", HEXLOWER.encode(&self.variant))].iter().collect()
    }

    /// The key of a file name of [`ObjectKey::path`].
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let (root, variant) = name.split_once('-')?;
        let decode = |s: &str| HEXLOWER.decode(s.as_bytes()).ok();
        Some(ObjectKey { root: decode(root)?.try_into().ok()?, variant: decode(variant)?.try_into().ok()? })
    }
}

/// Whether a file can be executed: by its recorded mode, or by BEP 47.
pub(crate) fn executable(file: FileRef<'_>) -> bool {
    file.is_executable() || file.mode().is_some_and(|m| m & 0o111 != 0)
}

/// Permission bits of its inode in the store: read-only.
pub(crate) fn mode(file: FileRef<'_>) -> u32 {
    if executable(file) { 0o555 } else { 0o444 }
}

/// Its attributes that are kept.
pub(crate) fn xattrs(file: FileRef<'_>) -> impl Iterator<Item = (&[u8], &[u8])> {
    file.xattrs().filter(|(name, _)| name.starts_with(USER))
}

fn variant(file: FileRef<'_>) -> [u8; 8] {
    let mut text = vec![u8::from(executable(file))];
    if let Some(t) = file.mtime() {
        text.extend(t.secs.to_le_bytes());
        text.extend(t.nanos.to_le_bytes());
    }
    text.push(b'x');
    for (name, value) in xattrs(file) {
        for part in [name, value] {
            text.extend((part.len() as u64).to_le_bytes());
            text.extend(part);
        }
    }
    let mut short = [0; 8];
    short.copy_from_slice(&sha256(&text)[..8]);
    short
}

/// Bytes of disk that `len` bytes occupy.
pub(crate) fn on_disk(len: u64) -> u64 {
    len.div_ceil(BLOCK).saturating_mul(BLOCK)
}

/// The space of an object of `len` bytes.
pub(crate) fn object_size(len: u64) -> Size {
    Size { bytes: on_disk(len), inodes: 1 }
}

/// The objects of a manifest, and the space of its view.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    /// Each distinct object and its length in bytes.
    pub(crate) objects: BTreeMap<ObjectKey, u64>,
    /// Directories, links, empty files, the manifest itself.
    pub(crate) own: Size,
}

impl Parts {
    /// The parts of a manifest.
    ///
    /// # Errors
    /// [`Error::Unfit`] for one without roots, or without the layers by which a piece can be verified.
    pub(crate) fn of(manifest: &Manifest) -> Result<Self, Error> {
        if manifest.is_draft() || !manifest.version().has_v2() {
            return Err(Error::Unfit(
                "the manifest has no v2 roots of files: publish the data as v2 or hybrid",
            ));
        }
        if !manifest.missing_layers().is_empty() {
            return Err(Error::Unfit("the manifest lacks piece layers"));
        }
        let mut parts = Parts::default();
        let dirs = manifest.dirs().len() as u64;
        // Beside its own directories: `ID`, `ID/tree`, `ID/manifest`.
        parts.own.inodes = dirs + 3;
        parts.own.bytes = (dirs + 2) * BLOCK + on_disk(manifest_len(manifest));
        for file in manifest.files() {
            match ObjectKey::of(file) {
                Some(key) if !file.is_empty() => {
                    if parts.objects.insert(key, file.len()).is_some_and(|len| len != file.len()) {
                        return Err(Error::Unfit("two files have the same root and different lengths"));
                    }
                }
                _ => parts.own.inodes += 1,
            }
        }
        Ok(parts)
    }

    /// All of it, as if nothing were shared.
    pub(crate) fn size(&self) -> Size {
        self.objects.values().fold(self.own, |sum, len| sum.plus(object_size(*len)))
    }
}

/// Near the length of the manifest in bytes, without writing it.
fn manifest_len(manifest: &Manifest) -> u64 {
    let layers: usize = manifest.files().filter_map(|f| f.layer()).map(|l| l.len() * 32 + 40).sum();
    (manifest.info_bytes().len() + layers) as u64
}

/// A class of readers, hashed. A caller in a class that may read some cache with the object may reuse it.
pub(crate) type Class = [u8; 16];

fn class(kind: u8, name: &str) -> Class {
    let mut text = vec![kind, 0];
    text.extend(name.as_bytes());
    let mut short = [0; 16];
    short.copy_from_slice(&sha256(&text)[..16]);
    short
}

/// The class of an owner.
pub(crate) fn owner_class(owner: &str) -> Class {
    class(b'u', owner)
}

/// The classes that may read a cache. That of its owner comes first.
pub(crate) fn classes_of(record: &CacheRecord) -> Vec<Class> {
    let mut all = vec![owner_class(&record.owner)];
    if record.mode & 0o040 != 0 {
        all.extend(record.group.as_ref().map(|g| class(b'g', g)));
    }
    if record.mode & 0o004 != 0 {
        all.push(class(b'o', ""));
    }
    all
}

/// The classes that a reader is in.
pub(crate) fn classes_for(reader: &Reader) -> Vec<Class> {
    let groups = reader.groups.iter().map(|g| class(b'g', g));
    [owner_class(&reader.owner), class(b'o', "")].into_iter().chain(groups).collect()
}

/// Key of a class's right to an object.
pub(crate) fn right(class: &Class, key: &[u8; KEY]) -> [u8; RIGHT] {
    let mut all = [0; RIGHT];
    all[..16].copy_from_slice(class);
    all[16..].copy_from_slice(key);
    all
}
