//! Errors of manifests, worded so that the reader knows what to do.

use crate::bencode;

/// Why a manifest cannot be read or made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is larger than any manifest that is read.
    #[error("the manifest has {len} bytes, more than the limit of {max}; check that it is a .torrent file")]
    TooBig {
        /// Its length in bytes.
        len: u64,
        /// The limit in bytes.
        max: u64,
    },
    /// It is not bencode.
    #[error(transparent)]
    Bencode(#[from] bencode::Error),
    /// A key that must be there is not.
    #[error("the manifest has no `{key}` in its {place}")]
    Missing {
        /// The key.
        key: &'static str,
        /// The dictionary that lacks it.
        place: &'static str,
    },
    /// A key occurs twice in one dictionary.
    #[error("the key `{key}` occurs twice in the {place}")]
    Twice {
        /// The key.
        key: String,
        /// The dictionary.
        place: &'static str,
    },
    /// A value that cannot be.
    #[error("invalid `{key}`: {why}")]
    Value {
        /// The key.
        key: &'static str,
        /// The defect of its value.
        why: String,
    },
    /// `meta version` beyond 2.
    #[error("unknown metainfo version {0}; a newer Tidecast may read it")]
    MetaVersion(i64),
    /// A file or directory name that must not reach a file system.
    #[error("invalid name `{name}` in `{path}`: {why}")]
    Name {
        /// The name, made printable.
        name: String,
        /// The path it stands in, made printable.
        path: String,
        /// Why it is refused.
        why: &'static str,
    },
    /// Two files of the same path.
    #[error("file `{0}` occurs twice")]
    Duplicate(String),
    /// One path is both a file and a directory.
    #[error("`{0}` is both a file and a directory")]
    FileAndDirectory(String),
    /// A symbolic link that leads out of the tree.
    #[error("invalid symbolic link `{path}` -> `{target}`: {why}")]
    Symlink {
        /// The link.
        path: String,
        /// Its target.
        target: String,
        /// Why it is refused.
        why: &'static str,
    },
    /// More of something than can be handled.
    #[error("{count} {what}, more than the limit of {max}")]
    TooMany {
        /// The kind of items.
        what: &'static str,
        /// How many.
        count: u64,
        /// The limit.
        max: u64,
    },
    /// A piece length that BEP 3 or BEP 52 does not allow.
    #[error("invalid piece length {value}: {why}")]
    PieceLength {
        /// The length in bytes.
        value: i64,
        /// Why it is refused.
        why: &'static str,
    },
    /// The number of piece hashes does not fit the sizes of the files.
    #[error("the file sizes give {expected} pieces, but the manifest has {found} piece hashes")]
    PieceCount {
        /// As computed from sizes.
        expected: u64,
        /// As found.
        found: u64,
    },
    /// Sizes that add up beyond 64 bits.
    #[error("the total size of the files exceeds 64 bits")]
    Overflow,
    /// A piece layer that does not belong to its file.
    #[error("invalid piece layer of `{path}`: {why}")]
    Layer {
        /// The file.
        path: String,
        /// The defect.
        why: &'static str,
    },
    /// The v1 and v2 halves of a hybrid describe different files.
    #[error("the v1 and v2 halves of this hybrid manifest disagree: {0}")]
    Hybrid(String),
    /// Tidecast's own key is malformed.
    #[error("the `tidecast` key of the manifest is damaged: {0}")]
    Extra(String),
    /// A draft where none is allowed, or the other way round.
    #[error("invalid draft manifest (a manifest whose data is not hashed yet): {0}")]
    Draft(&'static str),
    /// The builder lacks an input.
    #[error("cannot build the manifest: {0}")]
    Build(String),
}

impl Error {
    pub(crate) fn value(key: &'static str, why: impl Into<String>) -> Self {
        Error::Value { key, why: why.into() }
    }
}

/// Bytes of a hostile input as text that is safe to print: lossy UTF-8, control characters
/// escaped, at most about 200 characters.
pub(crate) fn printable(bytes: &[u8]) -> String {
    const MAX: usize = 200;
    let cut = &bytes[..bytes.len().min(MAX)];
    let mut out = String::with_capacity(cut.len());
    for c in String::from_utf8_lossy(cut).chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    if bytes.len() > MAX {
        out.push('…');
    }
    out
}
