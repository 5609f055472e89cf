//! The pieces that a peer has, in few bytes: a watermark (all below it) with ranges of exceptions, or bits
//! where there would be too many ranges. Either describes a set; the mode says how it changes the set known
//! so far.

use std::ops::Range;

use bytes::Bytes;

use super::{MAX_BITS, MAX_RANGES, Message};

/// The effect of a described set on the set known of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// It is the set.
    Reset,
    /// It is added.
    Add,
    /// It is taken away.
    Remove,
}

/// A set of pieces as a watermark with exceptions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Availability {
    /// The swarm.
    pub channel: u16,
    /// The use of the set.
    pub mode: Mode,
    /// Pieces below this are in the set, others not, ...
    pub watermark: u32,
    /// ... but in these ranges the other way round. Ascending, not empty, apart, none across the watermark.
    pub exceptions: Vec<Range<u32>>,
}

impl Availability {
    /// The set as ascending ranges. The receiver compares their end with its number of pieces.
    pub fn pieces(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        let below = self.exceptions.partition_point(|e| e.end <= self.watermark);
        let (missing, held) = self.exceptions.split_at_checked(below).unwrap_or_default();
        let starts = std::iter::once(0).chain(missing.iter().map(|e| e.end));
        let ends = missing.iter().map(|e| e.start).chain(std::iter::once(self.watermark));
        starts.zip(ends).map(|(start, end)| start..end).chain(held.iter().cloned()).filter(|r| !r.is_empty())
    }
}

/// A set of pieces as bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AvailabilityBits {
    /// The swarm.
    pub channel: u16,
    /// The use of the set.
    pub mode: Mode,
    /// The piece of the first bit, a multiple of 8.
    pub first: u32,
    /// One bit a piece, the high bit of the first byte first; spare bits at the end are zero. 1 to
    /// [`MAX_BITS`] bytes.
    pub bits: Bytes,
}

impl AvailabilityBits {
    /// The set as ascending ranges.
    pub fn pieces(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        let bit = |i: usize| self.bits.get(i / 8).is_some_and(|byte| byte << (i % 8) & 0x80 != 0);
        let piece = |i: usize| self.first.saturating_add(u32::try_from(i).unwrap_or(u32::MAX));
        let total = self.bits.len() * 8;
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = (at..total).find(|&i| bit(i))?;
            at = (start..total).find(|&i| !bit(i)).unwrap_or(total);
            Some(piece(start)..piece(at))
        })
    }
}

/// The messages that describe a set given as ascending, separate ranges: ranges or bits, whichever is
/// shorter, in as many messages as the bounds require (after the first, `Reset` continues as `Add`).
#[must_use]
pub fn describe(channel: u16, mode: Mode, held: &[Range<u32>]) -> Vec<Message> {
    debug_assert!(held.iter().all(|r| !r.is_empty()), "a range of no pieces");
    debug_assert!(held.windows(2).all(|w| w[0].end < w[1].start), "ranges not apart: {held:?}");
    let next = |first: &mut bool| if std::mem::take(first) || mode != Mode::Reset { mode } else { Mode::Add };
    let start = held.first().map_or(0, |r| r.start) / 8 * 8;
    let end = held.last().map_or(0, |r| r.end);
    let mut first = true;
    if held.len() * 8 <= (end - start) as usize / 8 || held.len() < 16 {
        let watermark = held.first().filter(|r| r.start == 0).map_or(0, |r| r.end);
        let exceptions = held.get(usize::from(watermark > 0)..).unwrap_or_default();
        let parts = exceptions.chunks(MAX_RANGES).map(<[_]>::to_vec);
        let parts = parts.chain(exceptions.is_empty().then(Vec::new));
        return parts
            .map(|exceptions| {
                let watermark = if first { watermark } else { 0 };
                Message::Availability(Availability { channel, mode: next(&mut first), watermark, exceptions })
            })
            .collect();
    }
    let mut bits = vec![0_u8; (end - start).div_ceil(8) as usize];
    for piece in held.iter().cloned().flatten() {
        let i = (piece - start) as usize;
        if let Some(byte) = bits.get_mut(i / 8) {
            *byte |= 0x80 >> (i % 8);
        }
    }
    bits.chunks(MAX_BITS)
        .scan(start, |at, bits| {
            let first = *at;
            *at = at.saturating_add(u32::try_from(bits.len() * 8).unwrap_or(u32::MAX));
            Some((first, Bytes::copy_from_slice(bits)))
        })
        .map(|(at, bits)| {
            Message::AvailabilityBits(AvailabilityBits { channel, mode: next(&mut first), first: at, bits })
        })
        .collect()
}
