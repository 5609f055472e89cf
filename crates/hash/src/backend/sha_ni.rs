//! SHA-256 of two messages at once with the x86 SHA instructions: the two chains are independent, so that each fills the
//! latency of the other.
#![allow(unsafe_code, reason = "loads, and calls into code for a CPU feature: see the crate's head")]

use std::arch::x86_64::*;

use crate::{
    BLOCK, Digest,
    constants::{K, START},
};

/// Messages at once.
pub(super) const LANES: usize = 2;

/// The eight words of one message's state, in the order of the instructions: `abef` and `cdgh`.
type State = [__m128i; 2];

/// Whether this CPU has the instructions that this file needs.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("sha") && is_x86_feature_detected!("ssse3") && is_x86_feature_detected!("sse4.1")
}

/// SHA-256 of two messages of one length, a multiple of 64; `kw` is their closing block.
///
/// # Panics
/// When this CPU has no SHA instructions.
pub(super) fn hash(messages: &[&[u8]; LANES], kw: &[u32; 64]) -> [Digest; LANES] {
    assert!(available(), "this CPU has no SHA instructions");
    // SAFETY: the CPU has the features that the function is compiled for.
    unsafe { run(messages, kw) }
}

#[target_feature(enable = "sha,ssse3,sse4.1")]
fn run(messages: &[&[u8]; LANES], kw: &[u32; 64]) -> [Digest; LANES] {
    let [a, b, c, d, e, f, g, h] = START;
    let start = [words([f, e, b, a]), words([h, g, d, c])];
    let mut state = [start; LANES];
    let lanes = messages.map(|message| message.as_chunks::<BLOCK>().0);
    for (x, y) in lanes[0].iter().zip(lanes[1]) {
        block(&mut state, [x, y]);
    }
    closing(&mut state, kw);
    state.map(|state| digest(state))
}

/// Works one block of both messages into their states.
#[target_feature(enable = "sha,ssse3,sse4.1")]
#[inline]
fn block(state: &mut [State; LANES], blocks: [&[u8; BLOCK]; LANES]) {
    let before = *state;
    let mut w = blocks.map(|block| loaded(block));
    let k = K.as_chunks::<4>().0;
    for (t, k) in k.iter().enumerate() {
        let k = words(*k);
        for (state, w) in state.iter_mut().zip(&mut w) {
            let [w0, w1, w2, w3] = *w;
            four(state, _mm_add_epi32(w0, k));
            if t < 12 {
                // Words 16 to 19 from 0 to 15; then the window moves by four.
                let sum = _mm_add_epi32(_mm_sha256msg1_epu32(w0, w1), _mm_alignr_epi8::<4>(w3, w2));
                *w = [w1, w2, w3, _mm_sha256msg2_epu32(sum, w3)];
            } else {
                *w = [w1, w2, w3, w0];
            }
        }
    }
    added(state, before);
}

/// Works in the block that ends both messages: see `constants::closing`.
#[target_feature(enable = "sha,ssse3,sse4.1")]
#[inline]
fn closing(state: &mut [State; LANES], kw: &[u32; 64]) {
    let before = *state;
    for kw in kw.as_chunks::<4>().0 {
        for state in state.iter_mut() {
            four(state, words(*kw));
        }
    }
    added(state, before);
}

/// Four rounds.
#[target_feature(enable = "sha,ssse3,sse4.1")]
#[inline]
fn four(state: &mut State, kw: __m128i) {
    let [abef, cdgh] = *state;
    let cdgh = _mm_sha256rnds2_epu32(cdgh, abef, kw);
    let abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32::<0x0e>(kw));
    *state = [abef, cdgh];
}

#[target_feature(enable = "sse2")]
#[inline]
fn added(state: &mut [State; LANES], before: [State; LANES]) {
    for (state, before) in state.as_flattened_mut().iter_mut().zip(before.as_flattened()) {
        *state = _mm_add_epi32(*state, *before);
    }
}

/// Four words, the first in the lowest place.
#[target_feature(enable = "sse2")]
#[inline]
fn words(w: [u32; 4]) -> __m128i {
    let [a, b, c, d] = w.map(u32::cast_signed);
    _mm_set_epi32(d, c, b, a)
}

/// The sixteen words of a block, in the CPU's byte order.
#[target_feature(enable = "ssse3")]
#[inline]
fn loaded(block: &[u8; BLOCK]) -> [__m128i; 4] {
    let swap = _mm_set_epi32(0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203);
    let quarters = block.as_chunks::<16>().0;
    let mut w = [_mm_setzero_si128(); 4];
    for (w, quarter) in w.iter_mut().zip(quarters) {
        // SAFETY: reads 16 bytes at any alignment, and the reference is to 16.
        let bytes = unsafe { _mm_loadu_si128(quarter.as_ptr().cast()) };
        *w = _mm_shuffle_epi8(bytes, swap);
    }
    w
}

#[target_feature(enable = "sse2")]
#[inline]
fn digest(state: State) -> Digest {
    let mut words = [[0u32; 4]; 2];
    for (words, half) in words.iter_mut().zip(state) {
        // SAFETY: writes 16 bytes at any alignment, and the array has them.
        unsafe { _mm_storeu_si128(words.as_mut_ptr().cast(), half) }
    }
    let [[f, e, b, a], [h, g, d, c]] = words;
    let mut digest = [0; 32];
    for (bytes, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *bytes = word.to_be_bytes();
    }
    digest
}
