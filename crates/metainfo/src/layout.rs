//! Where the bytes of pieces lie in files, for v1, v2 and hybrid alike.
//!
//! All three are one picture: files are placed in a *torrent space* in which piece `p` begins at `p *
//! piece_length`. In v1 they are packed and pad files are gaps; in v2 (and hybrid) every file starts at a
//! piece boundary and the space between two files is a gap. A gap reads as zeros and is never written to
//! disk.
//!
//! Promise: 24 bytes a file, lookups by binary search, no arithmetic that overflows for any
//! layout that the constructors accept.

use crate::Error;
use std::ops::Range;
use tidecast_hash::LEAF;

/// Most pieces in a manifest: piece numbers are 32 bits on the wire, and signed in many clients.
pub const MAX_PIECES: u64 = i32::MAX as u64;

const LEAF_BYTES: u64 = LEAF as u64;

/// One stretch of a piece: bytes of a file, or padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Index of the file; [`Span::PAD`] for padding.
    pub file: u32,
    /// Offset in the file, in bytes; 0 for padding.
    pub offset: u64,
    /// Length in bytes, never 0.
    pub len: u32,
    /// True for padding: these bytes are zeros and belong to no file.
    pub pad: bool,
}

impl Span {
    /// The `file` of a span of padding.
    pub const PAD: u32 = u32::MAX;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    start: u64,
    len: u64,
    /// Leaves of all files before this one (aligned layouts).
    leaves: u64,
}

/// The place of every file among the pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    piece_length: u32,
    aligned: bool,
    extents: Vec<Extent>,
    /// End of the torrent space.
    space: u64,
    total: u64,
}

impl Layout {
    /// The layout of v2 and hybrid: each file starts at a piece boundary. `piece_length` in
    /// bytes, not 0; `lens` are the files' lengths in manifest order.
    pub fn aligned(piece_length: u32, lens: impl IntoIterator<Item = u64>) -> Result<Self, Error> {
        let mut layout = Self::empty(piece_length, true)?;
        for len in lens {
            layout.push_file(len)?;
        }
        layout.finish()
    }

    /// The layout of v1: files one after another; an item `(len, true)` is a pad file, which
    /// leaves a gap and gets no index.
    pub fn packed(piece_length: u32, lens: impl IntoIterator<Item = (u64, bool)>) -> Result<Self, Error> {
        let mut layout = Self::empty(piece_length, false)?;
        for (len, pad) in lens {
            if pad {
                layout.push_pad(len)?;
            } else {
                layout.push_file(len)?;
            }
        }
        layout.finish()
    }

    pub(crate) fn empty(piece_length: u32, aligned: bool) -> Result<Self, Error> {
        if piece_length == 0 {
            return Err(Error::PieceLength { value: 0, why: "it must not be zero" });
        }
        Ok(Layout { piece_length, aligned, extents: Vec::new(), space: 0, total: 0 })
    }

    pub(crate) fn push_pad(&mut self, len: u64) -> Result<(), Error> {
        self.space = self.space.checked_add(len).ok_or(Error::Overflow)?;
        Ok(())
    }

    pub(crate) fn push_file(&mut self, len: u64) -> Result<(), Error> {
        let start = if self.aligned {
            self.space.checked_next_multiple_of(u64::from(self.piece_length)).ok_or(Error::Overflow)?
        } else {
            self.space
        };
        let leaves = if self.aligned { self.leaf_count() } else { 0 };
        self.extents.push(Extent { start, len, leaves });
        self.space = start.checked_add(len).ok_or(Error::Overflow)?;
        self.total = self.total.checked_add(len).ok_or(Error::Overflow)?;
        Ok(())
    }

    /// Extends the space over the padding that some v1 writers put after the last file.
    pub(crate) fn pad_tail(&mut self, space: u64) {
        debug_assert_eq!(
            space.div_ceil(u64::from(self.piece_length)),
            self.space.div_ceil(u64::from(self.piece_length))
        );
        self.space = self.space.max(space);
    }

    pub(crate) fn finish(mut self) -> Result<Self, Error> {
        if self.aligned && self.extents.last().is_some_and(|e| e.len == 0) {
            // Empty files at the end take no room.
            let end = |e: &Extent| if e.len == 0 { 0 } else { e.start + e.len };
            self.space = self.extents.iter().rev().map(end).find(|e| *e > 0).unwrap_or(0);
        }
        let pieces = self.space.div_ceil(u64::from(self.piece_length));
        if pieces > MAX_PIECES {
            return Err(Error::TooMany { what: "pieces", count: pieces, max: MAX_PIECES });
        }
        self.extents.shrink_to_fit();
        Ok(self)
    }

    /// Length of a piece in bytes.
    pub fn piece_length(&self) -> u32 {
        self.piece_length
    }

    /// True if every file starts at a piece boundary (v2, hybrid).
    pub fn is_aligned(&self) -> bool {
        self.aligned
    }

    /// Number of pieces.
    pub fn piece_count(&self) -> u32 {
        // Checked against MAX_PIECES on construction.
        self.space.div_ceil(u64::from(self.piece_length)) as u32
    }

    /// Number of files.
    pub fn file_count(&self) -> u32 {
        self.extents.len() as u32
    }

    /// Sum of the files' lengths, without padding.
    pub fn total_len(&self) -> u64 {
        self.total
    }

    /// Bytes of padding that a v1 reader of this layout sees between the files.
    pub fn padding(&self) -> u64 {
        self.space - self.total
    }

    /// End of the torrent space in bytes: all files and the padding between them.
    pub fn space(&self) -> u64 {
        self.space
    }

    /// Length of a file in bytes; 0 for an index that does not exist.
    pub fn file_len(&self, file: u32) -> u64 {
        self.extents.get(file as usize).map_or(0, |e| e.len)
    }

    /// Where a file starts in the torrent space.
    pub fn file_start(&self, file: u32) -> u64 {
        self.extents.get(file as usize).map_or(self.space, |e| e.start)
    }

    /// The pieces that hold bytes of a file; empty for an empty file. In v1 the first and the
    /// last may be shared with other files.
    pub fn file_pieces(&self, file: u32) -> Range<u32> {
        let Some(e) = self.extents.get(file as usize) else {
            return 0..0;
        };
        let length = u64::from(self.piece_length);
        let first = e.start / length;
        let end = if e.len == 0 { first } else { (e.start + e.len).div_ceil(length) };
        first as u32..end as u32
    }

    /// Index of the last file that starts at or before `pos`.
    fn file_at(&self, pos: u64) -> Option<usize> {
        self.extents.partition_point(|e| e.start <= pos).checked_sub(1)
    }

    /// The file that a piece belongs to, in an aligned layout.
    pub(crate) fn owner(&self, piece: u32) -> Option<u32> {
        let pos = u64::from(piece) * u64::from(self.piece_length);
        let at = self.file_at(pos).filter(|_| self.aligned && pos < self.space)?;
        Some(at as u32)
    }

    /// Bytes of a piece: payload only if aligned, with inner padding if packed; 0 for a piece
    /// that does not exist.
    pub fn piece_len(&self, piece: u32) -> u32 {
        let pos = u64::from(piece) * u64::from(self.piece_length);
        let end = match self.owner(piece).and_then(|f| self.extents.get(f as usize)) {
            Some(e) => e.start + e.len,
            None => self.space,
        };
        end.saturating_sub(pos).min(u64::from(self.piece_length)) as u32
    }

    /// The files' bytes under `len` bytes of a piece from `begin` on, in order, padding included. Bytes
    /// beyond the piece or the torrent space are left out.
    pub fn spans(&self, piece: u32, begin: u32, len: u32) -> Spans<'_> {
        let length = u64::from(self.piece_length);
        let base = u64::from(piece) * length;
        let pos = base + u64::from(begin);
        let end = (pos + u64::from(len)).min(base + length).min(self.space);
        Spans { extents: &self.extents, next: self.file_at(pos), pos, end }
    }

    /// Leaves of the whole leaf table.
    pub fn leaf_count(&self) -> u64 {
        match (self.aligned, self.extents.last()) {
            (true, Some(e)) => e.leaves + e.len.div_ceil(LEAF_BYTES),
            (true, None) => 0,
            (false, _) => self.leaf_range(self.piece_count().saturating_sub(1)).end,
        }
    }

    /// The place of a piece's leaves in one table of all leaves. Aligned: file after file, each
    /// with its own leaves and none for padding. Packed: piece after piece, leaves counted from
    /// the start of the piece.
    pub fn leaf_range(&self, piece: u32) -> Range<u64> {
        let leaves = u64::from(self.piece_len(piece)).div_ceil(LEAF_BYTES);
        let per_piece = u64::from(self.piece_length).div_ceil(LEAF_BYTES);
        let first = match self.owner(piece).and_then(|f| self.extents.get(f as usize)) {
            Some(e) => {
                let in_file = u64::from(piece) - e.start / u64::from(self.piece_length);
                e.leaves + in_file * per_piece
            }
            None => u64::from(piece) * per_piece,
        };
        first..first + leaves
    }
}

/// Iterator over the [`Span`]s of a range of a piece; see [`Layout::spans`].
#[derive(Debug, Clone)]
pub struct Spans<'a> {
    extents: &'a [Extent],
    /// The last file that starts at or before `pos`.
    next: Option<usize>,
    pos: u64,
    end: u64,
}

impl Iterator for Spans<'_> {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        if self.pos >= self.end {
            return None;
        }
        // Step to the last file that starts here; empty ones are skipped.
        let mut following = self.next.map_or(0, |i| i + 1);
        while self.extents.get(following).is_some_and(|e| e.start <= self.pos) {
            following += 1;
        }
        self.next = following.checked_sub(1);
        let current = self.next.and_then(|i| self.extents.get(i));
        let left = self.end - self.pos;
        let inside = current.and_then(|e| {
            let offset = self.pos - e.start;
            let rest = e.len.checked_sub(offset).filter(|r| *r > 0)?;
            Some((offset, rest))
        });
        let span = match (self.next, inside) {
            (Some(index), Some((offset, rest))) => {
                Span { file: index as u32, offset, len: rest.min(left) as u32, pad: false }
            }
            _ => {
                let gap_end = self.extents.get(following).map_or(self.end, |e| e.start);
                Span { file: Span::PAD, offset: 0, len: (gap_end - self.pos).min(left) as u32, pad: true }
            }
        };
        debug_assert!(span.len > 0);
        self.pos += u64::from(span.len);
        Some(span)
    }
}
