//! Parts of a piece.

use std::ops::Range;

use crate::api::Block;

/// The rest of `range` without these parts, in order.
pub(crate) fn without(range: Range<u32>, parts: &[Range<u32>]) -> Vec<Range<u32>> {
    let mut parts = parts.to_vec();
    parts.sort_unstable_by_key(|p| p.start);
    let (mut at, mut out) = (range.start, Vec::new());
    for part in parts.into_iter().chain([range.end..range.end]) {
        let end = part.start.min(range.end);
        if end > at {
            out.push(at..end);
        }
        at = at.max(part.end);
    }
    out
}

/// A block in requests of at most `size` bytes.
pub(crate) fn chunks(block: Block, size: u32) -> impl Iterator<Item = Block> {
    let end = block.begin + block.len;
    (block.begin..end).step_by(size as usize).map(move |begin| Block {
        piece: block.piece,
        begin,
        len: size.min(end - begin),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init)]
    use super::*;

    #[test]
    fn parts_that_are_declined_are_left_out() {
        assert_eq!(without(4..9, &[]), [4..9]);
        assert_eq!(without(4..4, &[]), []);
        assert_eq!(without(4..20, &[12..15, 0..5, 6..8, 7..9]), [5..6, 9..12, 15..20]);
        assert_eq!(without(4..20, &[0..30]), []);
        assert_eq!(without(4..20, &[18..30]), [4..18]);
    }
}
