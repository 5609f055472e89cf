//! SHA-256 of eight messages at once with AVX2, for CPUs that have neither AVX-512 nor SHA instructions.
#![allow(unsafe_code, reason = "loads, and calls into code for a CPU feature: see the crate's head")]

use std::arch::x86_64::*;

use super::lanes::lanes;
use crate::{BLOCK, Digest, constants::START};

/// Messages at once.
pub(super) const LANES: usize = 8;

/// One 32-bit word of every lane.
type Word = __m256i;

/// Whether this CPU has the instructions that this file needs.
pub(super) fn available() -> bool {
    is_x86_feature_detected!("avx2")
}

/// SHA-256 of eight messages of one length, a multiple of 64; `kw` is their closing block.
///
/// # Panics
/// When this CPU has no AVX2.
pub(super) fn hash(messages: &[&[u8]; LANES], kw: &[u32; 64]) -> [Digest; LANES] {
    assert!(available(), "this CPU has no AVX2");
    // SAFETY: the CPU has the features that the function is compiled for.
    unsafe { run(messages, kw) }
}

#[target_feature(enable = "avx2")]
fn run(messages: &[&[u8]; LANES], kw: &[u32; 64]) -> [Digest; LANES] {
    let mut state = START.map(|word| splat(word));
    let lanes = messages.map(|message| message.as_chunks::<BLOCK>().0);
    for at in 0..lanes[0].len() {
        let [low, high] = transposed(&lanes, at);
        let [a, b, c, d, e, f, g, h] = low;
        let [i, j, k, l, m, n, o, p] = high;
        block(&mut state, [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]);
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
    #[target_feature(enable = "avx2")]
}

/// Block `at` of every lane, as sixteen words of every lane: two transpositions of 8 x 8 words.
#[target_feature(enable = "avx2")]
#[inline]
fn transposed(lanes: &[&[[u8; BLOCK]]; LANES], at: usize) -> [[Word; 8]; 2] {
    let swap = _mm256_broadcastsi128_si256(_mm_set_epi32(0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203));
    let mut halves = [[_mm256_setzero_si256(); 8]; 2];
    for (half, words) in halves.iter_mut().enumerate() {
        let mut row = *words;
        for (row, lane) in row.iter_mut().zip(lanes) {
            *row = _mm256_shuffle_epi8(loaded(&lane[at].as_chunks::<32>().0[half]), swap);
        }
        for i in 0..4 {
            // Within each 128-bit half: word `i` of four rows next to each other.
            let lower = four(row[0], row[1], row[2], row[3], i);
            let upper = four(row[4], row[5], row[6], row[7], i);
            words[i] = _mm256_permute2x128_si256::<0x20>(lower, upper);
            words[4 + i] = _mm256_permute2x128_si256::<0x31>(lower, upper);
        }
    }
    halves
}

/// Word `i` of four rows next to each other, in each 128-bit half.
#[target_feature(enable = "avx2")]
#[inline]
fn four(a: Word, b: Word, c: Word, d: Word, i: usize) -> Word {
    let (ab, cd) = if i < 2 {
        (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d))
    } else {
        (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d))
    };
    if i.is_multiple_of(2) { _mm256_unpacklo_epi64(ab, cd) } else { _mm256_unpackhi_epi64(ab, cd) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn loaded(bytes: &[u8; 32]) -> Word {
    // SAFETY: reads 32 bytes at any alignment, and the reference is to 32.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn stored(word: Word) -> [u32; LANES] {
    let mut lanes = [0; LANES];
    // SAFETY: writes 32 bytes at any alignment, and the array has them.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), word) }
    lanes
}

#[target_feature(enable = "avx2")]
#[inline]
fn splat(word: u32) -> Word {
    _mm256_set1_epi32(word.cast_signed())
}

#[target_feature(enable = "avx2")]
#[inline]
fn add(a: Word, b: Word) -> Word {
    _mm256_add_epi32(a, b)
}

#[target_feature(enable = "avx2")]
#[inline]
fn rotr<const RIGHT: i32, const LEFT: i32>(a: Word) -> Word {
    _mm256_or_si256(_mm256_srli_epi32::<RIGHT>(a), _mm256_slli_epi32::<LEFT>(a))
}

#[target_feature(enable = "avx2")]
#[inline]
fn shr<const N: i32>(a: Word) -> Word {
    _mm256_srli_epi32::<N>(a)
}

#[target_feature(enable = "avx2")]
#[inline]
fn xor3(a: Word, b: Word, c: Word) -> Word {
    _mm256_xor_si256(_mm256_xor_si256(a, b), c)
}

#[target_feature(enable = "avx2")]
#[inline]
fn choose(e: Word, f: Word, g: Word) -> Word {
    _mm256_xor_si256(g, _mm256_and_si256(e, _mm256_xor_si256(f, g)))
}

#[target_feature(enable = "avx2")]
#[inline]
fn majority(a: Word, b: Word, c: Word) -> Word {
    _mm256_or_si256(_mm256_and_si256(a, b), _mm256_and_si256(c, _mm256_or_si256(a, b)))
}
