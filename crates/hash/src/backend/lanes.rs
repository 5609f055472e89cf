//! SHA-256 over lanes: the text of the algorithm, once, for every width of vector.
//!
//! A backend that invokes `lanes!` has in scope: the type `Word` (one 32-bit word of every lane) and the
//! functions `splat`, `add`, `rotr::<RIGHT, LEFT>`, `shr::<N>`, `xor3`, `choose` and `majority` on it. It
//! gets `block` and `closing`, which carry the given attributes: `target_feature` must be on the code itself
//! for the intrinsics to become single instructions, and a macro is the way to give one text several.

macro_rules! lanes {
    ($(#[$attribute:meta])*) => {
        /// One round. The caller renames the eight words instead of moving them.
        $(#[$attribute])*
        #[inline]
        #[allow(clippy::too_many_arguments, reason = "the state of SHA-256 has eight words")]
        fn round(a: Word, b: Word, c: Word, d: &mut Word, e: Word, f: Word, g: Word, h: &mut Word, kw: Word) {
            let s1 = xor3(rotr::<6, 26>(e), rotr::<11, 21>(e), rotr::<25, 7>(e));
            let s0 = xor3(rotr::<2, 30>(a), rotr::<13, 19>(a), rotr::<22, 10>(a));
            let t1 = add(add(*h, kw), add(s1, choose(e, f, g)));
            *d = add(*d, t1);
            *h = add(t1, add(s0, majority(a, b, c)));
        }

        /// Eight rounds, after which every word is back under its own name. Round `i` calls `kw(i)` at that
        /// moment: few values are alive at a time, so that they stay in registers.
        $(#[$attribute])*
        #[inline]
        fn eight(state: &mut [Word; 8], mut kw: impl FnMut(usize) -> Word) {
            let [a, b, c, d, e, f, g, h] = state;
            round(*a, *b, *c, d, *e, *f, *g, h, kw(0));
            round(*h, *a, *b, c, *d, *e, *f, g, kw(1));
            round(*g, *h, *a, b, *c, *d, *e, f, kw(2));
            round(*f, *g, *h, a, *b, *c, *d, e, kw(3));
            round(*e, *f, *g, h, *a, *b, *c, d, kw(4));
            round(*d, *e, *f, g, *h, *a, *b, c, kw(5));
            round(*c, *d, *e, f, *g, *h, *a, b, kw(6));
            round(*b, *c, *d, e, *f, *g, *h, a, kw(7));
        }

        /// The scheduled word sixteen rounds after `w[i]`.
        $(#[$attribute])*
        #[inline]
        fn next(w: &[Word; 16], i: usize) -> Word {
            let (w15, w7, w2) = (w[(i + 1) % 16], w[(i + 9) % 16], w[(i + 14) % 16]);
            let s0 = xor3(rotr::<7, 25>(w15), rotr::<18, 14>(w15), shr::<3>(w15));
            let s1 = xor3(rotr::<17, 15>(w2), rotr::<19, 13>(w2), shr::<10>(w2));
            add(add(w[i], s0), add(w7, s1))
        }

        /// Works one block of every lane into `state`: `w` holds the block's words, in the CPU's byte order.
        $(#[$attribute])*
        #[inline]
        fn block(state: &mut [Word; 8], mut w: [Word; 16]) {
            let before = *state;
            let [first, later @ ..] = $crate::constants::K.as_chunks::<16>().0 else { return };
            eight(state, |i| add(w[i], splat(first[i])));
            eight(state, |i| add(w[8 + i], splat(first[8 + i])));
            for k in later {
                eight(state, |i| {
                    w[i] = next(&w, i);
                    add(w[i], splat(k[i]))
                });
                eight(state, |i| {
                    w[8 + i] = next(&w, 8 + i);
                    add(w[8 + i], splat(k[8 + i]))
                });
            }
            for (now, before) in state.iter_mut().zip(before) {
                *now = add(*now, before);
            }
        }

        /// Works in the block that ends every lane: see `constants::closing`.
        $(#[$attribute])*
        #[inline]
        fn closing(state: &mut [Word; 8], kw: &[u32; 64]) {
            let before = *state;
            for kw in kw.as_chunks::<8>().0 {
                eight(state, |i| splat(kw[i]));
            }
            for (now, before) in state.iter_mut().zip(before) {
                *now = add(*now, before);
            }
        }
    };
}
pub(super) use lanes;
