//! SHA-256 of sixteen messages at once with AVX-512: its rotations (`vprord`) and three-operand logic
//! (`vpternlogd`) make a round seventeen instructions for sixteen lanes.
#![allow(unsafe_code, reason = "loads, and calls into code for a CPU feature: see the crate's head")]

use std::arch::x86_64::*;

use super::lanes::lanes;
use crate::{BLOCK, Digest, constants::START};

/// Messages at once.
pub(super) const LANES: usize = 16;

/// One 32-bit word of every lane.
pub(super) type Word = __m512i;

/// Whether this CPU has the instructions that this file needs.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
}

/// SHA-256 of sixteen messages of one length, a multiple of 64; `kw` is their closing block.
///
/// # Panics
/// When this CPU has no AVX-512.
pub(super) fn hash(messages: &[&[u8]; LANES], kw: &[u32; 64]) -> [Digest; LANES] {
    assert!(available(), "this CPU has no AVX-512");
    // SAFETY: the CPU has the features that the function is compiled for.
    unsafe { run(messages, kw) }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn run(messages: &[&[u8]; LANES], kw: &[u32; 64]) -> [Digest; LANES] {
    let mut state = START.map(|word| splat(word));
    let lanes = messages.map(|message| message.as_chunks::<BLOCK>().0);
    for at in 0..lanes[0].len() {
        block(&mut state, transposed(&lanes, at));
    }
    closing(&mut state, kw);
    let words: [[u32; LANES]; 8] = state.map(|word| stored(word));
    std::array::from_fn(|lane| {
        let mut digest = [0; 32];
        for (bytes, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(&words) {
            *bytes = word[lane].to_be_bytes();
        }
        digest
    })
}

lanes! {
    #[target_feature(enable = "avx512f,avx512bw")]
}

/// Block `at` of every lane, as sixteen words of every lane: a transposition of 16 x 16 words.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
pub(super) fn transposed(lanes: &[&[[u8; BLOCK]]; LANES], at: usize) -> [Word; 16] {
    let swap = _mm512_set4_epi32(0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203);
    let mut row = [_mm512_setzero_si512(); LANES];
    for (row, lane) in row.iter_mut().zip(lanes) {
        // Sixteen streams are more than the CPU's own prefetcher follows.
        if let Some(ahead) = lane.get(at + 4) {
            _mm_prefetch::<_MM_HINT_T0>(ahead.as_ptr().cast());
        }
        *row = _mm512_shuffle_epi8(loaded(&lane[at]), swap);
    }
    // Within each 128-bit quarter: word `j` of four rows next to each other.
    let mut four = row;
    for i in (0..16).step_by(4) {
        let (a, b, c, d) = (row[i], row[i + 1], row[i + 2], row[i + 3]);
        let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
        four[i] = _mm512_unpacklo_epi64(ab, cd);
        four[i + 1] = _mm512_unpackhi_epi64(ab, cd);
        let (ab, cd) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
        four[i + 2] = _mm512_unpacklo_epi64(ab, cd);
        four[i + 3] = _mm512_unpackhi_epi64(ab, cd);
    }
    // Now `four[i + j]` has, in quarter `q`, word `4q + j` of rows `i..i + 4`: gather the quarters.
    let mut word = row;
    for j in 0..4 {
        let (a, b, c, d) = (four[j], four[4 + j], four[8 + j], four[12 + j]);
        let (ab, cd) = (_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0x44>(c, d));
        word[j] = _mm512_shuffle_i32x4::<0x88>(ab, cd);
        word[4 + j] = _mm512_shuffle_i32x4::<0xdd>(ab, cd);
        let (ab, cd) = (_mm512_shuffle_i32x4::<0xee>(a, b), _mm512_shuffle_i32x4::<0xee>(c, d));
        word[8 + j] = _mm512_shuffle_i32x4::<0x88>(ab, cd);
        word[12 + j] = _mm512_shuffle_i32x4::<0xdd>(ab, cd);
    }
    word
}

#[target_feature(enable = "avx512f")]
#[inline]
fn loaded(bytes: &[u8; BLOCK]) -> Word {
    // SAFETY: reads 64 bytes at any alignment, and the reference is to 64.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn stored(word: Word) -> [u32; LANES] {
    let mut lanes = [0; LANES];
    // SAFETY: writes 64 bytes at any alignment, and the array has them.
    unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), word) }
    lanes
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn splat(word: u32) -> Word {
    _mm512_set1_epi32(word.cast_signed())
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn add(a: Word, b: Word) -> Word {
    _mm512_add_epi32(a, b)
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn rotr<const RIGHT: i32, const LEFT: i32>(a: Word) -> Word {
    _mm512_ror_epi32::<RIGHT>(a)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn shr<const N: u32>(a: Word) -> Word {
    _mm512_srli_epi32::<N>(a)
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn xor3(a: Word, b: Word, c: Word) -> Word {
    _mm512_ternarylogic_epi32::<0x96>(a, b, c)
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn choose(e: Word, f: Word, g: Word) -> Word {
    _mm512_ternarylogic_epi32::<0xca>(e, f, g)
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn majority(a: Word, b: Word, c: Word) -> Word {
    _mm512_ternarylogic_epi32::<0xe8>(a, b, c)
}
