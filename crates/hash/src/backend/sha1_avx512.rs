//! SHA-1 of sixteen messages at once with AVX-512, in parts: three to four times the speed of one stream with
//! SHA instructions.
#![allow(unsafe_code, reason = "calls into code for a CPU feature, and loads: see the crate's head")]

use std::arch::x86_64::*;

use super::avx512::{LANES, Word, add, choose, majority, rotr, splat, stored, transposed, xor3};
use crate::{BLOCK, constants::SHA1_START};

/// Whether this CPU has the instructions that this file needs.
pub(crate) fn available() -> bool {
    super::avx512::available()
}

/// The five words of every lane's state.
pub(crate) type State = [[u32; LANES]; 5];

/// The state before the first block.
pub(crate) const START: State = {
    let [a, b, c, d, e] = SHA1_START;
    [[a; LANES], [b; LANES], [c; LANES], [d; LANES], [e; LANES]]
};

/// Works the next part of every message into the state: all of one length, a multiple of 64.
///
/// # Panics
/// When this CPU has no AVX-512.
pub(crate) fn update(state: &mut State, parts: &[&[u8]; LANES]) {
    assert!(available(), "this CPU has no AVX-512");
    // SAFETY: the CPU has the features that the function is compiled for.
    unsafe { run(state, parts) }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn run(state: &mut State, parts: &[&[u8]; LANES]) {
    let mut words = state.each_ref().map(|word| loaded(word));
    let lanes = parts.map(|part| part.as_chunks::<BLOCK>().0);
    for at in 0..lanes[0].len() {
        block(&mut words, transposed(&lanes, at));
    }
    *state = words.map(|word| stored(word));
}

/// Works one block of every lane into `state`.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn block(state: &mut [Word; 5], mut w: [Word; 16]) {
    let before = *state;
    twenty::<0>(state, &mut w, 0x5a82_7999, |b, c, d| choose(b, c, d));
    twenty::<20>(state, &mut w, 0x6ed9_eba1, |b, c, d| xor3(b, c, d));
    twenty::<40>(state, &mut w, 0x8f1b_bcdc, |b, c, d| majority(b, c, d));
    twenty::<60>(state, &mut w, 0xca62_c1d6, |b, c, d| xor3(b, c, d));
    for (now, before) in state.iter_mut().zip(before) {
        *now = add(*now, before);
    }
}

/// Twenty rounds from `FIRST` on, which share a function and a constant. After each five, every word of the state is
/// back under its own name.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn twenty<const FIRST: usize>(
    state: &mut [Word; 5],
    w: &mut [Word; 16],
    k: u32,
    f: impl Fn(Word, Word, Word) -> Word,
) {
    let k = splat(k);
    five::<FIRST>(state, w, k, &f);
    match FIRST {
        0 => {
            five::<5>(state, w, k, &f);
            five::<10>(state, w, k, &f);
            five::<15>(state, w, k, &f);
        }
        20 => {
            five::<25>(state, w, k, &f);
            five::<30>(state, w, k, &f);
            five::<35>(state, w, k, &f);
        }
        40 => {
            five::<45>(state, w, k, &f);
            five::<50>(state, w, k, &f);
            five::<55>(state, w, k, &f);
        }
        _ => {
            five::<65>(state, w, k, &f);
            five::<70>(state, w, k, &f);
            five::<75>(state, w, k, &f);
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn five<const FIRST: usize>(
    state: &mut [Word; 5],
    w: &mut [Word; 16],
    k: Word,
    f: &impl Fn(Word, Word, Word) -> Word,
) {
    let [a, b, c, d, e] = state;
    round(*a, b, *c, *d, e, scheduled(w, FIRST), k, f);
    round(*e, a, *b, *c, d, scheduled(w, FIRST + 1), k, f);
    round(*d, e, *a, *b, c, scheduled(w, FIRST + 2), k, f);
    round(*c, d, *e, *a, b, scheduled(w, FIRST + 3), k, f);
    round(*b, c, *d, *e, a, scheduled(w, FIRST + 4), k, f);
}

/// One round. The caller renames the five words instead of moving them.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
#[allow(clippy::too_many_arguments, reason = "the state of SHA-1 has five words")]
fn round(
    a: Word,
    b: &mut Word,
    c: Word,
    d: Word,
    e: &mut Word,
    w: Word,
    k: Word,
    f: &impl Fn(Word, Word, Word) -> Word,
) {
    *e = add(add(*e, add(w, k)), add(rotr::<27, 5>(a), f(*b, c, d)));
    *b = rotr::<2, 30>(*b);
}

/// The word of round `t`, in place of the one sixteen rounds before.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn scheduled(w: &mut [Word; 16], t: usize) -> Word {
    if t >= 16 {
        let mixed = xor3(w[(t + 13) % 16], w[(t + 8) % 16], w[(t + 2) % 16]);
        w[t % 16] = rotr::<31, 1>(_mm512_xor_si512(mixed, w[t % 16]));
    }
    w[t % 16]
}

#[target_feature(enable = "avx512f")]
#[inline]
fn loaded(word: &[u32; LANES]) -> Word {
    // SAFETY: reads 64 bytes at any alignment, and the reference is to 64.
    unsafe { _mm512_loadu_si512(word.as_ptr().cast()) }
}
