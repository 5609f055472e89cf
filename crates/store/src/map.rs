//! Maps pieces to places: the bytes of files that a piece has, under a selection.
//!
//! The manifest defines where pieces lie in files (v1, v2 and hybrid alike); here bytes of files that are not
//! selected go to slots of the spill file, one slot per piece that has such an edge, and the holes of sparse files
//! are left unwritten.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidecast_metainfo::Manifest;

use crate::bits::Bits;
use crate::error::Error;
use crate::open::Select;

/// Where bytes of a piece are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nowhere: padding.
    Zeros,
    /// At an offset of the spill file.
    Spill(u64),
    /// At an offset of a file.
    File(u32, u64),
}

/// A manifest seen through a selection.
pub(crate) struct Map {
    manifest: Arc<Manifest>,
    /// `None`: all.
    selected: Option<Bits>,
    wanted: Bits,
    wanted_count: u64,
    /// Pieces with edge bytes of files not selected, ascending; their slots in the spill file.
    edges: Vec<u32>,
    /// Files that may hold something other than zeros in a declared hole.
    holes_used: Bits,
}

impl Map {
    pub(crate) fn new(manifest: Arc<Manifest>, select: &Select) -> Result<Self, Error> {
        let selected = match select {
            Select::All => None,
            Select::Files(files) => {
                let bits = Bits::new(manifest.file_count());
                for file in files {
                    if *file >= manifest.file_count() {
                        return Err(Error::Selection);
                    }
                    bits.set(*file);
                }
                if files.is_empty() {
                    return Err(Error::Selection);
                }
                let all = (0..manifest.file_count()).all(|f| bits.get(f));
                (!all).then_some(bits)
            }
        };
        let wanted = Bits::new(manifest.piece_count());
        let holes_used = Bits::new(manifest.file_count());
        let mut map = Map { manifest, selected, wanted, wanted_count: 0, edges: Vec::new(), holes_used };
        let pieces = || map.files().flat_map(|f| map.manifest.file_pieces(f));
        let count = pieces().filter(|p| map.wanted.set(*p)).count() as u64;
        // A v1 piece of nothing but padding belongs to no file, and to a whole download.
        let padding = (0..map.manifest.piece_count())
            .filter(|p| map.selected.is_none() && map.wanted.set(*p))
            .count() as u64;
        map.wanted_count = count + padding;
        map.edges = map.find_edges();
        Ok(map)
    }

    fn find_edges(&self) -> Vec<u32> {
        if self.selected.is_none() || self.manifest.layout().is_aligned() {
            return Vec::new();
        }
        let is_edge = |p: &u32| {
            let mut spans = self.manifest.spans(*p, 0, self.manifest.piece_len(*p));
            spans.any(|s| !s.pad && !self.is_selected(s.file))
        };
        let ends = self.files().flat_map(|f| {
            let pieces = self.manifest.file_pieces(f);
            [pieces.start, pieces.end.saturating_sub(1)].into_iter().filter(move |p| pieces.contains(p))
        });
        let mut edges: Vec<u32> = ends.filter(is_edge).collect();
        edges.sort_unstable();
        edges.dedup();
        edges
    }

    /// The selected files, ascending.
    pub(crate) fn files(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.manifest.file_count()).filter(|f| self.is_selected(*f))
    }

    pub(crate) fn is_selected(&self, file: u32) -> bool {
        self.selected.as_ref().is_none_or(|s| s.get(file))
    }

    /// Whether every file is selected.
    pub(crate) fn is_whole(&self) -> bool {
        self.selected.is_none()
    }

    pub(crate) fn wanted(&self, piece: u32) -> bool {
        self.wanted.get(piece)
    }

    pub(crate) fn wanted_count(&self) -> u64 {
        self.wanted_count
    }

    /// Bytes of the spill file; 0 without one.
    pub(crate) fn spill_len(&self) -> u64 {
        self.edges.len() as u64 * u64::from(self.manifest.piece_length())
    }

    /// Where a range of a piece is, in order, with the length of each part.
    pub(crate) fn places(&self, piece: u32, begin: u32, len: u32) -> impl Iterator<Item = (Place, u32)> + '_ {
        let mut at = begin;
        self.manifest.spans(piece, begin, len).map(move |span| {
            let here = at;
            at += span.len;
            let place = if span.pad {
                Place::Zeros
            } else if self.is_selected(span.file) {
                Place::File(span.file, span.offset)
            } else {
                let slot = self.edges.binary_search(&piece).unwrap_or(self.edges.len());
                let base = slot as u64 * u64::from(self.manifest.piece_length());
                Place::Spill(base + u64::from(here))
            };
            (place, span.len)
        })
    }

    /// The whole of a piece; see [`Map::places`].
    pub(crate) fn piece(&self, piece: u32) -> impl Iterator<Item = (Place, u32)> + '_ {
        self.places(piece, 0, self.manifest.piece_len(piece))
    }

    /// The selected files that a piece has bytes of.
    pub(crate) fn piece_files(&self, piece: u32) -> impl Iterator<Item = u32> + '_ {
        self.piece(piece).filter_map(|(place, _)| match place {
            Place::File(file, _) => Some(file),
            _ => None,
        })
    }

    /// The piece that holds a byte of the spill file.
    pub(crate) fn spill_piece(&self, offset: u64) -> Option<u32> {
        let slot = offset / u64::from(self.manifest.piece_length());
        self.edges.get(usize::try_from(slot).ok()?).copied()
    }

    /// The piece that holds a byte of a file.
    pub(crate) fn file_piece(&self, file: u32, offset: u64) -> u32 {
        let at = self.manifest.layout().file_start(file).saturating_add(offset);
        u32::try_from(at / u64::from(self.manifest.piece_length())).unwrap_or(u32::MAX)
    }

    /// The pieces that hold bytes of a file.
    pub(crate) fn file_pieces(&self, file: u32) -> Range<u32> {
        self.manifest.file_pieces(file)
    }

    pub(crate) fn file_len(&self, file: u32) -> u64 {
        self.manifest.layout().file_len(file)
    }

    /// The file's path when `root` is the published file or directory itself.
    pub(crate) fn file_path(&self, root: &Path, file: u32) -> PathBuf {
        self.manifest.file(file).map_or_else(PathBuf::new, |f| f.path().below(root))
    }

    pub(crate) fn has_holes(&self, file: u32) -> bool {
        !self.holes(file).is_empty()
    }

    /// The declared holes of a file, ascending.
    pub(crate) fn holes(&self, file: u32) -> &[Range<u64>] {
        self.manifest.file(file).map_or(&[], |f| f.holes())
    }

    /// From here on zeros are written to the file's holes, because something may be there.
    pub(crate) fn mark_holes_used(&self, file: u32) {
        self.holes_used.set(file);
    }

    /// Bytes of a file outside its holes.
    pub(crate) fn data_len(&self, file: u32) -> u64 {
        let holes = self.holes(file);
        let hollow: u64 = holes.iter().map(|h| h.end.saturating_sub(h.start)).sum();
        self.file_len(file).saturating_sub(hollow)
    }

    /// Whether a range of a file lies wholly in one hole.
    pub(crate) fn in_hole(&self, file: u32, offset: u64, len: u64) -> bool {
        let holes = self.holes(file);
        let next = holes.partition_point(|h| h.end <= offset);
        holes.get(next).is_some_and(|h| h.start <= offset && offset + len <= h.end)
    }

    /// Calls `write` for the parts of `data` at `offset` that must be written: all but the zeros in declared holes.
    /// The sparse map is a hint, so nonzero bytes there are written; from then on the file's holes may have data, and
    /// zeros are written too: they may overwrite something.
    pub(crate) fn outside_holes<E>(
        &self,
        file: u32,
        offset: u64,
        data: &[u8],
        mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.holes_used.get(file) {
            return write(offset, data);
        }
        let holes = self.holes(file);
        let (mut at, mut rest) = (offset, data);
        for hole in holes.iter().skip(holes.partition_point(|h| h.end <= offset)) {
            let end = at + rest.len() as u64;
            if hole.start >= end {
                break;
            }
            let hole = whole_blocks(hole);
            if hole.start >= end || hole.end <= at {
                continue;
            }
            // Both are within `rest`, whose length fits a usize.
            let before = hole.start.saturating_sub(at) as usize;
            let within = (hole.end.min(end) - hole.start.max(at)) as usize;
            let (solid, after) = rest.split_at(before);
            let (hollow, after) = after.split_at(within);
            if !solid.is_empty() {
                write(at, solid)?;
            }
            if !is_zero(hollow) {
                self.holes_used.set(file);
                write(at + before as u64, hollow)?;
            }
            at += (before + within) as u64;
            rest = after;
        }
        if rest.is_empty() { Ok(()) } else { write(at, rest) }
    }
}

/// Unit in which file systems make holes, bytes; where it is larger, holes just get smaller.
const BLOCK: u64 = 4096;

/// The part of a hole that can be one on disk: its edges share blocks with data, and are written. May be empty.
pub(crate) fn whole_blocks(hole: &Range<u64>) -> Range<u64> {
    let start = hole.start.div_ceil(BLOCK).saturating_mul(BLOCK);
    start..(hole.end / BLOCK * BLOCK).max(start)
}

fn is_zero(data: &[u8]) -> bool {
    const ZEROS: [u8; 4096] = [0; 4096];
    data.chunks(ZEROS.len()).all(|c| ZEROS.starts_with(c))
}
