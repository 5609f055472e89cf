//! Leaves of a new version are found in an old one, wherever they lie, and nothing else is taken for them.

use proptest::prelude::*;
use tidecast_hash::{Fingerprint, LEAF, Search, sha256};

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

fn search(new: &[u8]) -> Search {
    Search::new((0..).zip(new.chunks_exact(LEAF)).map(|(number, leaf)| (number, Fingerprint::of(leaf))))
}

/// Where the leaves of `new` are in `old`, which comes in parts of this length.
fn found(new: &[u8], old: &[u8], part: usize) -> Vec<Option<usize>> {
    let mut all = vec![None; new.len() / LEAF];
    let (mut search, mut at) = (search(new), 0);
    while old.len() - at >= LEAF {
        let data = &old[at..(at + part).min(old.len())];
        let next = search.scan(data, |offset, numbers| {
            for number in numbers {
                assert_eq!(all[*number as usize].replace(at + offset), None, "each once");
            }
        });
        assert!(next > 0);
        at += next;
    }
    for (number, offset) in all.iter().enumerate() {
        if let Some(offset) = offset {
            assert_eq!(new[number * LEAF..][..LEAF], old[*offset..][..LEAF]);
        }
    }
    all
}

#[test]
fn what_has_moved_is_found() {
    let old = noise(1, 6 * LEAF + 77);
    for inserted in [0, 1, 5, LEAF - 1, LEAF, LEAF + 9] {
        let at = 2 * LEAF + 100;
        let new = [&old[..at], &noise(2, inserted), &old[at..]].concat();
        for part in [LEAF, LEAF + 1, 3 * LEAF, 100 * LEAF] {
            let all = found(&new, &old, part);
            let lost = all.iter().filter(|offset| offset.is_none()).count();
            let touched = if inserted == 0 { 0 } else { (at + inserted).div_ceil(LEAF) - at / LEAF };
            assert!(lost <= touched, "{inserted} bytes: {all:?}");
            assert_eq!(all[..2], [Some(0), Some(LEAF)]);
        }
        // And the other way round: bytes that went.
        let lost = found(&old, &new, 3 * LEAF).iter().filter(|offset| offset.is_none()).count();
        assert!(lost <= 2, "{inserted} bytes gone");
    }
}

#[test]
fn equal_leaves_are_found_at_one_place() {
    let old = [noise(1, 3), vec![0; 2 * LEAF], noise(2, LEAF)].concat();
    let new = [vec![0; 5 * LEAF], noise(2, LEAF), vec![1; LEAF]].concat();
    let all = found(&new, &old, 2 * LEAF);
    assert_eq!(all, [Some(3), Some(3), Some(3), Some(3), Some(3), Some(3 + 2 * LEAF), None]);
}

#[test]
fn fingerprints_are_read_as_they_are_written() {
    let leaf = noise(9, LEAF);
    let known = Fingerprint::of(&leaf);
    assert_eq!(Fingerprint::from_bytes(known.to_bytes()), known);
    assert!(known.has(&sha256(&leaf)) && !known.has(&sha256(&leaf[1..])));
    assert_eq!(Fingerprint::with(&leaf, &sha256(&leaf)), known);
}

#[test]
fn whoever_lies_about_leaves_is_not_looked_for_without_end() {
    // The right sum, and another content: of a file of zeros every window has it.
    let old = vec![0; 300 * LEAF];
    let mut bytes = Fingerprint::of(&old[..LEAF]).to_bytes();
    bytes[15] ^= 1;
    let mut search = Search::new([(0, Fingerprint::from_bytes(bytes))]);
    assert_eq!(search.scan(&old, |_, _| panic!("nothing is there")), old.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn an_edit_costs_the_leaves_around_it(
        seed: u64, at in 0usize..5 * LEAF, cut in 0usize..2000, put in 0usize..2000, part in LEAF..4 * LEAF
    ) {
        let old = noise(seed, 7 * LEAF);
        let new = [&old[..at], &noise(seed ^ 1, put), &old[at + cut..]].concat();
        let lost = found(&new, &old, part).iter().filter(|offset| offset.is_none()).count();
        prop_assert!(lost <= put.div_ceil(LEAF) + 1, "{} of {}", lost, new.len() / LEAF);
    }
}
