//! The manifest: a metainfo file in memory, validated, immutable and compact. (The fields of a draft never
//! change either; hashes are added over time.)
//!
//! Names and v1 hashes stay in place in the info dictionary and are pointed to; a file costs about 60 bytes
//! beyond its share of that. Promise: all paths, sizes and hashes of a `Manifest` have been checked when it
//! was made.

use crate::bencode::Writer;
use crate::draft::Roots;
use crate::error::printable;
use crate::extra::Extra;
use crate::files::{DirRef, FileRef};
use crate::tree::Tree;
use crate::web_seed::WebSeeds;
use crate::{Error, Excluded, Layout, Magnet, Spans, merkle, parse};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use tidecast_hash::{Digest, Sha1Digest};

/// Largest metainfo file that is read, in bytes.
pub const MAX_LEN: usize = 1 << 30;

/// Which metainfo versions a manifest carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// BEP 3 only: SHA-1 pieces across files.
    V1,
    /// BEP 52 only: SHA-256 Merkle trees, one a file.
    V2,
    /// Both, describing the same files.
    Hybrid,
}

impl Version {
    /// True if there are v1 pieces.
    pub fn has_v1(self) -> bool {
        self != Version::V2
    }

    /// True if there are Merkle trees.
    pub fn has_v2(self) -> bool {
        self != Version::V1
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Version::V1 => "v1",
            Version::V2 => "v2",
            Version::Hybrid => "hybrid",
        })
    }
}

/// The expected hash of a piece. At least one is known, except in a pure v2 manifest that came without its
/// piece layers, and in a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Root over the piece's leaves, padded to [`Manifest::piece_width`]; `None` in v1, while the file's piece layer is
    /// missing, and while a draft's root is not known.
    pub v2: Option<Digest>,
    /// SHA-1 over the piece as v1 sees it, [`Manifest::wire_len`] bytes with padding as zeros.
    pub v1: Option<Sha1Digest>,
}

/// A file whose piece layer has yet to be fetched (BEP 52 hash requests).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingLayer {
    /// The file.
    pub file: u32,
    /// The root that its layer must hash to.
    pub pieces_root: Digest,
    /// Number of pieces, so of hashes in the layer.
    pub pieces: u32,
}

/// A condition of a manifest that is not an error but worth a line to the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// Stock clients refuse so large an info dictionary.
    #[error("the info dictionary has {0} bytes; stock clients refuse more than {max} (30 MiB)", max = Manifest::STOCK_MAX_INFO)]
    ManyBytes(u64),
    /// Stock clients refuse this many pieces.
    #[error("the manifest has {0} pieces; stock clients refuse more than {max}", max = Manifest::STOCK_MAX_PIECES)]
    ManyPieces(u32),
    /// Tidecast's key is of a version not known here; modes, times and the like are not restored.
    #[error(
        "unknown version {0} of the `tidecast` key; modes, times, links and attributes will not be restored"
    )]
    UnknownExtra(i64),
    /// The halves of a hybrid list the same files in different orders.
    #[error(
        "the v1 and v2 halves of this hybrid manifest list files in different orders; only the v1 half is used"
    )]
    OtherOrder,
    /// Piece layers are not in the file and must come from peers.
    #[error(
        "{0} files have no piece layer in the manifest; peers supply it, or in a hybrid the v1 hashes verify the files"
    )]
    MissingLayers(u32),
    /// Symbolic links lead out of the tree.
    #[error(
        "{links} symbolic link{s} lead{verb} out of the tree ({first}`{path}` -> `{target}`); the target must exist on each node",
        s = if *links == 1 { "" } else { "s" },
        verb = if *links == 1 { "s" } else { "" },
        first = if *links == 1 { "" } else { "first " },
    )]
    OutsideLinks {
        /// How many.
        links: u32,
        /// The first, below the root of the tree.
        path: String,
        /// Its text.
        target: String,
    },
    /// Symbolic links name the place that the tree was built for, as a Conda environment's do.
    #[error(
        "{links} symbolic link{s} lead{verb} to the location that the tree was built for ({first}`{path}` -> `{target}`); put the tree there, or use `run`, which mounts it there",
        s = if *links == 1 { "" } else { "s" },
        verb = if *links == 1 { "s" } else { "" },
        first = if *links == 1 { "" } else { "first " },
    )]
    LinksToPrefix {
        /// How many.
        links: u32,
        /// The first, below the root of the tree.
        path: String,
        /// Its text.
        target: String,
    },
    /// Web seeds of another scheme.
    #[error(
        "{0} web seeds are ignored; only URLs that start with http:// or https:// are used, and at most 64"
    )]
    OtherSeeds(u32),
    /// HTTP seeds of BEP 17.
    #[error(
        "{0} HTTP seeds of BEP 17 (`httpseeds`) are ignored; only web seeds of BEP 19 (`url-list`) are used"
    )]
    HttpSeeds(u32),
}

/// A parsed metainfo file. See the crate's documentation.
#[derive(Debug, Clone)]
pub struct Manifest {
    /// The info dictionary as it is read here.
    pub(crate) info: Box<[u8]>,
    /// The original info dictionary, byte for byte, if names in `info` were changed to valid names.
    pub(crate) original: Option<Box<[u8]>>,
    pub(crate) version: Version,
    pub(crate) layout: Layout,
    pub(crate) tree: Tree,
    /// Place of the v1 `pieces` string in `info`.
    pub(crate) v1_pieces: Range<usize>,
    /// Piece layers, one after the other; files point into it.
    pub(crate) layers: Vec<Digest>,
    pub(crate) private: bool,
    /// Place of `ssl-cert` in `info`.
    pub(crate) ssl_cert: Option<Range<usize>>,
    pub(crate) extra: Extra,
    pub(crate) unknown_extra: Option<i64>,
    /// The first symbolic link that leads out of the tree, and how many do.
    pub(crate) outside: Option<(u32, u32)>,
    /// The first of those that lead to the place that the tree was built for instead, and how many do.
    pub(crate) to_prefix: Option<(u32, u32)>,
    /// It is a hybrid whose halves list files in different orders, read as v1.
    pub(crate) other_order: bool,
    pub(crate) hash_v1: Option<Sha1Digest>,
    pub(crate) hash_v2: Option<Digest>,
    /// Of a draft: the roots known by now. Shared by its copies.
    pub(crate) roots: Option<Arc<Roots>>,
    pub(crate) outer: Outer,
}

/// The part of a metainfo file that no hash covers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Outer {
    pub(crate) trackers: Vec<Vec<String>>,
    pub(crate) comment: Option<String>,
    pub(crate) created_by: Option<String>,
    pub(crate) creation_date: Option<i64>,
    pub(crate) left_out: Excluded,
    pub(crate) web_seeds: WebSeeds,
}

impl Manifest {
    /// Largest info dictionary that stock clients accept, in bytes (30 MiB).
    pub const STOCK_MAX_INFO: u64 = 30 << 20;
    /// Most pieces that stock clients accept.
    pub const STOCK_MAX_PIECES: u32 = 2_097_152;

    /// The info dictionary, the exact bytes that are hashed.
    pub fn info_bytes(&self) -> &[u8] {
        self.original.as_ref().unwrap_or(&self.info)
    }

    /// The files by their numbers in a list that counts as other clients do: where there is a v1 half, by its `files`, in which
    /// padding has numbers too (`None`); else by the file tree.
    pub fn listed(&self) -> Vec<Option<u32>> {
        match self.version.has_v1().then(|| parse::listed(&self.info)) {
            Some(Ok(list)) => list,
            _ => (0..self.file_count()).map(Some).collect(),
        }
    }

    /// Which versions the manifest carries.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The v1 info-hash (SHA-1).
    pub fn hash_v1(&self) -> Option<[u8; 20]> {
        self.hash_v1
    }

    /// The v2 info-hash (SHA-256).
    pub fn hash_v2(&self) -> Option<[u8; 32]> {
        self.hash_v2
    }

    /// The 20-byte swarm ids for handshakes and trackers: the v1 hash, then the truncated v2 one.
    pub fn swarm_hashes(&self) -> Vec<[u8; 20]> {
        let short = self.hash_v2.map(|hash| {
            let mut id = [0; 20];
            id.copy_from_slice(&hash[..20]);
            id
        });
        self.hash_v1.into_iter().chain(short).collect()
    }

    /// The name of the published file or directory, made valid UTF-8 where it is not.
    pub fn name(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.name_bytes())
    }

    /// The name of the published file or directory, exactly.
    pub fn name_bytes(&self) -> &[u8] {
        self.tree.root_name(&self.info)
    }

    /// True if a single file was published, not a directory.
    pub fn is_single_file(&self) -> bool {
        self.tree.is_single()
    }

    /// BEP 27: peers come from the trackers only (no DHT, no peer exchange, no local discovery).
    pub fn private(&self) -> bool {
        self.private
    }

    /// BEP 12: tiers of tracker URLs; the plain `announce` counts as one tier.
    pub fn trackers(&self) -> &[Vec<String>] {
        &self.outer.trackers
    }

    /// The program that made the file, as the file claims.
    pub fn created_by(&self) -> Option<&str> {
        self.outer.created_by.as_deref()
    }

    /// When it was made, seconds since 1970, by its own word.
    pub fn creation_date(&self) -> Option<i64> {
        self.outer.creation_date
    }

    /// Free text.
    pub fn comment(&self) -> Option<&str> {
        self.outer.comment.as_deref()
    }

    /// libtorrent's SSL torrents: the root certificate, PEM, that signs every peer's certificate.
    pub fn ssl_cert(&self) -> Option<&[u8]> {
        self.ssl_cert.clone().and_then(|range| self.info.get(range))
    }

    /// Where pieces lie in files.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Length of every piece but the last of a file (v2) or of all (v1), in bytes.
    pub fn piece_length(&self) -> u32 {
        self.layout.piece_length()
    }

    /// Number of pieces.
    pub fn piece_count(&self) -> u32 {
        self.layout.piece_count()
    }

    /// Bytes in a piece: payload only in v2 and hybrid; in v1, the padding inside it too.
    pub fn piece_len(&self, piece: u32) -> u32 {
        self.layout.piece_len(piece)
    }

    /// Bytes of a piece as a v1 peer counts them: in a hybrid the padding after a file too. Requests of v1
    /// peers may reach that far; their zeros are spans with `pad` set.
    pub fn wire_len(&self, piece: u32) -> u32 {
        if self.version != Version::Hybrid {
            return self.piece_len(piece);
        }
        let length = u64::from(self.piece_length());
        let rest = self.layout.space().saturating_sub(u64::from(piece) * length);
        rest.min(length) as u32
    }

    /// Payload in bytes, without padding. Hard links and duplicates count each time; see
    /// [`Manifest::unique_len`].
    pub fn total_len(&self) -> u64 {
        self.layout.total_len()
    }

    /// Payload that has to be moved: files of equal content count once.
    pub fn unique_len(&self) -> u64 {
        self.files().filter(|f| f.same_as() == f.index()).map(|f| f.len()).sum()
    }

    /// Number of files, symbolic links included, pad files not.
    pub fn file_count(&self) -> u32 {
        self.layout.file_count()
    }

    /// The files in manifest order, symbolic links among them; pad files are not shown.
    pub fn files(&self) -> impl ExactSizeIterator<Item = FileRef<'_>> + Clone {
        (0..self.file_count()).map(|index| FileRef::new(self, index))
    }

    /// One file.
    pub fn file(&self, index: u32) -> Option<FileRef<'_>> {
        (index < self.file_count()).then(|| FileRef::new(self, index))
    }

    /// Every directory, parents before children, the published one first; none for a single
    /// file. Those that the file paths imply and the empty ones alike.
    pub fn dirs(&self) -> impl ExactSizeIterator<Item = DirRef<'_>> + Clone {
        (0..self.tree.dir_count()).map(|index| DirRef::new(self, index))
    }

    /// One directory, by its place among [`Manifest::dirs`].
    pub fn dir(&self, index: u32) -> Option<DirRef<'_>> {
        (index < self.tree.dir_count()).then(|| DirRef::new(self, index))
    }

    /// The absolute path that the tree was built for, if its publisher recorded it.
    pub fn prefix(&self) -> Option<&[u8]> {
        self.extra.prefix.clone().and_then(|r| self.info.get(r))
    }

    /// True if Tidecast's own key is there and understood.
    pub fn has_extra(&self) -> bool {
        self.extra.present
    }

    /// File bytes under a range of a piece, in order, padding included; bytes beyond [`Manifest::wire_len`]
    /// are left out.
    pub fn spans(&self, piece: u32, begin: u32, len: u32) -> Spans<'_> {
        let rest = self.wire_len(piece).saturating_sub(begin);
        self.layout.spans(piece, begin, len.min(rest))
    }

    /// The pieces that hold bytes of a file.
    pub fn file_pieces(&self, file: u32) -> Range<u32> {
        self.layout.file_pieces(file)
    }

    /// The place of a piece's leaves in one table of all leaves; see [`Layout::leaf_range`].
    pub fn leaf_range(&self, piece: u32) -> Range<u64> {
        self.layout.leaf_range(piece)
    }

    /// The expected hash of a piece.
    pub fn expected(&self, piece: u32) -> Expected {
        Expected { v2: self.expected_v2(piece), v1: self.expected_v1(piece) }
    }

    fn expected_v1(&self, piece: u32) -> Option<Sha1Digest> {
        let all = self.info.get(self.v1_pieces.clone())?;
        all.as_chunks::<20>().0.get(piece as usize).copied()
    }

    fn expected_v2(&self, piece: u32) -> Option<Digest> {
        if let Some(roots) = &self.roots {
            return roots.get(piece);
        }
        let file = FileRef::new(self, self.layout.owner(piece)?);
        let pieces = file.pieces();
        if pieces.len() == 1 {
            return file.pieces_root();
        }
        file.layer()?.get(piece.checked_sub(pieces.start)? as usize).copied()
    }

    /// Leaves in the Merkle tree of a piece, padding included: those of a whole piece, or, for a file of one
    /// piece, the next power of two of its leaves. 0 in v1.
    pub fn piece_width(&self, piece: u32) -> u32 {
        let Some(owner) = self.layout.owner(piece).filter(|_| self.version.has_v2()) else {
            return 0;
        };
        if self.file_pieces(owner).len() > 1 {
            return 1 << merkle::piece_level(self.piece_length());
        }
        self.leaf_count(piece).next_power_of_two()
    }

    fn leaf_count(&self, piece: u32) -> u32 {
        self.piece_len(piece).div_ceil(tidecast_hash::LEAF as u32)
    }

    /// Whether these leaf digests are those of the piece; `None` if the manifest cannot tell
    /// (v1, the piece layer is missing, or a draft's root is not known yet).
    pub fn check_leaves(&self, piece: u32, leaves: &[Digest]) -> Option<bool> {
        let expected = self.expected_v2(piece)?;
        Some(self.root_of_leaves(piece, leaves) == Some(expected))
    }

    /// The files whose piece layer is not known yet (one for each distinct content).
    pub fn missing_layers(&self) -> Vec<MissingLayer> {
        if !self.version.has_v2() {
            return Vec::new();
        }
        self.files()
            .filter(|f| f.same_as() == f.index() && f.pieces().len() > 1 && f.layer().is_none())
            .filter_map(|f| {
                Some(MissingLayer {
                    file: f.index(),
                    pieces_root: f.pieces_root()?,
                    pieces: f.pieces().len() as u32,
                })
            })
            .collect()
    }

    /// Adds the piece layer of a file (and of all files of the same content), checked against its
    /// `pieces root`.
    pub fn add_layer(&mut self, file: u32, layer: &[Digest]) -> Result<(), Error> {
        let Some((path, root, pieces)) = self.file(file).and_then(|f| {
            let path = f.path().to_string();
            Some((path, f.pieces_root()?, f.pieces().len()))
        }) else {
            let (path, why) = (format!("file {file}"), "no file of this number has a pieces root");
            return Err(Error::Layer { path, why });
        };
        let why = if layer.len() != pieces {
            "the number of hashes differs from the number of pieces"
        } else if merkle::root_of_layer(layer, self.piece_length()) != root {
            "it does not hash to the pieces root"
        } else {
            self.tree.set_layer(file, &mut self.layers, layer);
            return Ok(());
        };
        Err(Error::Layer { path, why })
    }

    /// The first file with this `pieces root`.
    pub fn file_of_root(&self, root: &Digest) -> Option<u32> {
        self.tree.find_root(&self.info, root)
    }

    /// Warnings for the user: limits of stock clients exceeded, an unknown version of Tidecast's key, layers
    /// yet to be fetched, links out of the tree.
    pub fn warnings(&self) -> Vec<Warning> {
        let mut all = Vec::new();
        let len = self.info_bytes().len() as u64;
        if len > Self::STOCK_MAX_INFO {
            all.push(Warning::ManyBytes(len));
        }
        if self.piece_count() > Self::STOCK_MAX_PIECES {
            all.push(Warning::ManyPieces(self.piece_count()));
        }
        all.extend(self.unknown_extra.map(Warning::UnknownExtra));
        all.extend(self.other_order.then_some(Warning::OtherOrder));
        match self.missing_layers().len() {
            0 => {}
            n => all.push(Warning::MissingLayers(n as u32)),
        }
        let shown = |first: u32| {
            let file = FileRef::new(self, first);
            let target = printable(&file.symlink().unwrap_or_default());
            (printable(&file.path().inner().join(&b'/')), target)
        };
        if let Some((first, links)) = self.outside {
            let (path, target) = shown(first);
            all.push(Warning::OutsideLinks { links, path, target });
        }
        if let Some((first, links)) = self.to_prefix {
            let (path, target) = shown(first);
            all.push(Warning::LinksToPrefix { links, path, target });
        }
        let seeds = &self.outer.web_seeds;
        all.extend((seeds.unusable > 0).then_some(Warning::OtherSeeds(seeds.unusable)));
        all.extend((seeds.bep17 > 0).then_some(Warning::HttpSeeds(seeds.bep17)));
        all
    }

    /// The names that the publisher claims to have excluded from the tree; no hash covers them.
    pub fn left_out(&self) -> &Excluded {
        &self.outer.left_out
    }

    /// The magnet link of the manifest, with its first trackers.
    pub fn magnet(&self) -> Magnet {
        Magnet {
            v1: self.hash_v1,
            v2: self.hash_v2,
            name: Some(self.name().into_owned()),
            trackers: self.trackers().iter().flatten().take(20).cloned().collect(),
            web_seeds: self.web_seeds().to_vec(),
            ..Magnet::default()
        }
    }

    /// The same manifest with other trackers; the info-hash does not change.
    pub fn with_trackers(mut self, trackers: Vec<Vec<String>>) -> Self {
        self.outer.trackers = trackers;
        self
    }

    /// The whole metainfo file, canonical except for the info dictionary, which is kept as it
    /// was. Piece layers that are missing are left out.
    pub fn to_bytes(&self) -> Vec<u8> {
        let outer = &self.outer;
        let mut w = Writer::new();
        w.dict(|d| {
            if let Some(url) = outer.trackers.iter().flatten().next() {
                d.key(b"announce").bytes(url.as_bytes());
            }
            if outer.trackers.iter().flatten().nth(1).is_some() {
                d.key(b"announce-list").list(|list| {
                    for tier in outer.trackers.iter().filter(|t| !t.is_empty()) {
                        list.list(|l| tier.iter().for_each(|url| l.bytes(url.as_bytes())));
                    }
                });
            }
            if let Some(text) = &outer.comment {
                d.key(b"comment").bytes(text.as_bytes());
            }
            if let Some(text) = &outer.created_by {
                d.key(b"created by").bytes(text.as_bytes());
            }
            if let Some(time) = outer.creation_date {
                d.key(b"creation date").int(time);
            }
            d.key(b"info").raw(self.info_bytes());
            if self.version.has_v2() {
                d.key(b"piece layers").dict(|layers| self.write_layers(layers));
            }
            outer.left_out.write(d);
            if !outer.web_seeds.urls.is_empty() {
                let urls = outer.web_seeds.urls.iter();
                d.key(b"url-list").list(|l| urls.for_each(|url| l.bytes(url.as_bytes())));
            }
        });
        w.into_bytes()
    }

    fn write_layers(&self, w: &mut Writer) {
        let mut known: Vec<(Digest, u32)> = self
            .files()
            .filter(|f| f.pieces().len() > 1 && f.layer().is_some())
            .filter_map(|f| Some((f.pieces_root()?, f.index())))
            .collect();
        known.sort_unstable();
        known.dedup_by_key(|(root, _)| *root);
        for (root, index) in known {
            let layer = FileRef::new(self, index).layer().unwrap_or_default();
            w.key(&root).bytes(layer.as_flattened());
        }
    }
}
