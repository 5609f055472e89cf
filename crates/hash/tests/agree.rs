//! Every backend against the `sha2` crate, for every number of messages that leaves lanes empty or not, and the
//! crate against published vectors.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use sha2::Digest as _;
use tidecast_hash::{
    Backend, Digest, LEAF, Sha1, Sha1Lanes, backend, equal_with, leaves, leaves_with, parents_with, sha1,
    sha256,
};

fn reference(data: &[u8]) -> Digest {
    sha2::Sha256::digest(data).into()
}

/// Bytes without structure that a wrong lane or block order could hide in.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn published_vectors() {
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(hex(&sha256(b"")), empty);
    assert_eq!(hex(&sha256(b"abc")), abc);
    assert_eq!(hex(&sha1(b"")), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    assert_eq!(hex(&sha1(b"abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
    // 16 KiB of zeros: the leaf of every sparse file; as printed by coreutils.
    let zeros = "4fe7b59af6de3b665b67788cc2f99892ab827efae3a467342b3bb4e3bc8e5bfe";
    for backend in Backend::available() {
        let mut out = [[0; 32]; 17];
        leaves_with(backend, &vec![0; 17 * LEAF], &mut out);
        assert!(out.iter().all(|leaf| hex(leaf) == zeros), "{backend:?}");
    }
}

#[test]
fn the_best_backend_is_the_first_and_is_available() {
    assert_eq!(Backend::available().next(), Some(backend()));
    assert!(backend().is_available());
    assert!(Backend::available().any(|b| b == Backend::Portable));
}

#[test]
fn leaves_of_every_count_and_tail() {
    let data = noise(35 * LEAF, 1);
    for backend in Backend::available() {
        for count in 0..=34 {
            for tail in [0, 1, 55, 64, LEAF - 1] {
                let data = &data[..count * LEAF + tail];
                let expected: Vec<Digest> = data.chunks(LEAF).map(reference).collect();
                let mut out = vec![[0; 32]; expected.len()];
                leaves_with(backend, data, &mut out);
                assert_eq!(out, expected, "{backend:?}, {count} leaves and {tail} bytes");
            }
        }
    }
}

#[test]
fn parents_of_every_count() {
    let digests: Vec<Digest> =
        noise(32 * 2 * 70, 2).chunks_exact(32).map(|chunk| chunk.try_into().unwrap()).collect();
    for backend in Backend::available() {
        for count in 0..=70 {
            let children = &digests[..2 * count];
            let expected: Vec<Digest> =
                children.chunks_exact(2).map(|pair| reference(&pair.concat())).collect();
            let mut out = vec![[0; 32]; count];
            parents_with(backend, children, &mut out);
            assert_eq!(out, expected, "{backend:?}, {count} pairs");
        }
    }
}

#[test]
fn messages_of_unlike_lengths_are_right_too() {
    let data = noise(4096, 3);
    for backend in Backend::available() {
        let messages: Vec<&[u8]> = (0..40).map(|i| &data[i..i + i * 64 % 300]).collect();
        let expected: Vec<Digest> = messages.iter().map(|m| reference(m)).collect();
        let mut out = vec![[0; 32]; messages.len()];
        equal_with(backend, &messages, &mut out);
        assert_eq!(out, expected, "{backend:?}");
    }
}

#[test]
fn empty_input_has_no_leaves_and_empty_messages_have_the_empty_digest() {
    leaves(&[], &mut []);
    for backend in Backend::available() {
        let mut out = [[1; 32]; 19];
        equal_with(backend, &[&[][..]; 19], &mut out);
        assert!(out.iter().all(|d| *d == reference(b"")), "{backend:?}");
    }
}

#[test]
#[should_panic(expected = "one digest for each leaf")]
fn a_wrong_number_of_digests_is_refused() {
    leaves(&[0; 10], &mut [[0; 32]; 2]);
}

#[test]
fn sha1_lanes_of_every_length() {
    for blocks in [0, 1, 2, 5, 17, 64] {
        let data = noise(16 * blocks * 64 + 16, 5);
        let message = |lane: usize| &data[lane * blocks * 64 + lane..][..blocks * 64];
        let expected: [_; 16] = std::array::from_fn(|lane| sha1(message(lane)));
        for lanes in [Sha1Lanes::new(), Sha1Lanes::single()] {
            let mut whole = lanes.clone();
            whole.update(&std::array::from_fn(message));
            assert_eq!(whole.finish(), expected, "{blocks} blocks");
            let (mut parts, cut) = (lanes, blocks / 3 * 64);
            parts.update(&std::array::from_fn(|lane| &message(lane)[..cut]));
            parts.update(&std::array::from_fn(|lane| &message(lane)[cut..]));
            assert_eq!(parts.finish(), expected, "{blocks} blocks in two parts");
        }
    }
}

#[test]
#[should_panic(expected = "parts of one length")]
fn unlike_parts_are_refused() {
    let mut parts = [&[0u8; 128][..]; 16];
    parts[3] = &[0; 64];
    Sha1Lanes::new().update(&parts);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any equal length and count, at any alignment.
    #[test]
    fn equal_messages(blocks in 0usize..6, odd in 0usize..2, count in 0usize..40, shift in 0usize..64, seed: u64) {
        let len = blocks * 64 + odd * 13;
        let data = noise(shift + len * count, seed);
        let messages: Vec<&[u8]> = (0..count).map(|i| &data[shift + i * len..][..len]).collect();
        let expected: Vec<Digest> = messages.iter().map(|m| reference(m)).collect();
        for backend in Backend::available() {
            let mut out = vec![[0; 32]; count];
            equal_with(backend, &messages, &mut out);
            prop_assert_eq!(&out, &expected, "{:?}", backend);
        }
    }

    /// SHA-1 does not depend on how the message is cut.
    #[test]
    fn sha1_in_parts(data in proptest::collection::vec(any::<u8>(), 0..300), cut in 0usize..300) {
        let (a, b) = data.split_at(cut.min(data.len()));
        let mut state = Sha1::new();
        state.update(a);
        state.update(b);
        let expected: [u8; 20] = sha1::Sha1::digest(&data).into();
        prop_assert_eq!(state.finish(), expected);
        prop_assert_eq!(sha1(&data), expected);
    }
}
