//! BitTorrent metainfo for Tidecast: reads and writes manifests.
//!
//! A [`Manifest`] is a parsed, validated, immutable metainfo file: v1 (BEP 3), v2 (BEP 52) or
//! hybrid, with BEP 12, 27 and 47 and Tidecast's own key in the info dictionary (mode, mtime,
//! extended attributes, hard links, sparse maps, empty directories, original prefix; described in
//! `docs/manifest-format.md`). [`Builder`] makes one; [`Layout`] says where pieces lie in files;
//! [`merkle`] proves hashes; a *draft* ([`Builder::draft`]) is a manifest whose hashes come later; [`Magnet`] reads and writes magnet links.
//!
//! Promise: pure (no I/O, clock or thread); any input is either a valid manifest or a clear
//! [`Error`], never a panic; memory stays within a small multiple of the input; names that could
//! reach outside the published tree never get through.

pub mod bencode;
mod builder;
mod defaults;
mod draft;
mod encode;
mod error;
mod excluded;
mod extra;
mod files;
mod layout;
mod magnet;
mod manifest;
pub mod merkle;
mod parse;
mod proof;
mod symlink;
mod tree;
mod web_seed;

pub use builder::{Builder, Content, Entry};
pub use defaults::{MAX_AUTO_PADDING, choose_piece_length, choose_version, is_new_piece_length};
pub use error::Error;
pub use excluded::Excluded;
pub use extra::Mtime;
pub use files::{DirRef, FileRef, TreePath};
pub use layout::{Layout, MAX_PIECES, Span, Spans};
pub use magnet::{Magnet, MagnetError};
pub use manifest::{Expected, MAX_LEN, Manifest, MissingLayer, Version, Warning};
pub use tree::MAX_COMPONENTS;
pub use web_seed::{ContentRange, clean as clean_web_seed};
