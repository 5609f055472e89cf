//! SHA-256 in plain Rust: the code shared by all lane widths, with one lane, for any CPU. It is the version
//! to read and debug, and it tests that code on CPUs without vectors.

use super::lanes::lanes;
use crate::{BLOCK, Digest, constants::START};

/// Messages at once.
pub(super) const LANES: usize = 1;

/// One 32-bit word of the only lane.
type Word = u32;

/// SHA-256 of one message, whose length is a multiple of 64; `kw` is its closing block.
pub(super) fn hash([message]: &[&[u8]; LANES], kw: &[u32; 64]) -> [Digest; LANES] {
    let mut state = START;
    for bytes in message.as_chunks::<BLOCK>().0 {
        let words = bytes.as_chunks::<4>().0;
        let mut w = [0; 16];
        for (w, bytes) in w.iter_mut().zip(words) {
            *w = u32::from_be_bytes(*bytes);
        }
        block(&mut state, w);
    }
    closing(&mut state, kw);
    let mut digest = [0; 32];
    for (bytes, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(&state) {
        *bytes = word.to_be_bytes();
    }
    [digest]
}

lanes! {}

fn splat(word: u32) -> Word {
    word
}

fn add(a: Word, b: Word) -> Word {
    a.wrapping_add(b)
}

fn rotr<const RIGHT: u32, const LEFT: u32>(a: Word) -> Word {
    a.rotate_right(RIGHT)
}

fn shr<const N: u32>(a: Word) -> Word {
    a >> N
}

fn xor3(a: Word, b: Word, c: Word) -> Word {
    a ^ b ^ c
}

fn choose(e: Word, f: Word, g: Word) -> Word {
    g ^ (e & (f ^ g))
}

fn majority(a: Word, b: Word, c: Word) -> Word {
    (a & b) | (c & (a | b))
}
