//! Rendezvous hashing (Thaler and Ravishankar, 1998) selects the members that keep the records of a key.
//!
//! Every member has a score for every key, and the members with the highest scores keep it. Members with the same list
//! agree without communication. When a member joins or leaves, only the records that it keeps move. The k copies of a
//! key are on unrelated members.

use tidecast_identity::NodeId;

use crate::Key;

fn word(bytes: &[u8; 32], at: usize) -> u64 {
    bytes.iter().skip(at * 8).take(8).fold(0, |all, b| all << 8 | u64::from(*b))
}

/// Both halves of a product, folded: the mixing step of wyhash and similar hashes.
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// The score of `node` for `key`. Keys are hashes, so a few multiplications are enough.
pub(crate) fn score(key: &Key, node: &NodeId) -> u64 {
    let fold = |all, at| mix(all ^ word(&key.0, at), word(&node.0, at) ^ 0x9e37_79b9_7f4a_7c15);
    let all = (0..4).fold(0xa076_1d64_78bd_642f, fold);
    mix(all ^ 0xe703_7ed1_a0b4_28db, 0x8ebc_6af0_9c88_c6e3)
}

/// The `most` members with the highest scores for `key`, highest first.
pub(crate) fn best(key: &Key, members: impl Iterator<Item = NodeId>, most: usize) -> Vec<(u64, NodeId)> {
    let mut best: Vec<(u64, NodeId)> = Vec::with_capacity(most + 1);
    for node in members {
        enter(&mut best, (score(key, &node), node), most);
    }
    best
}

/// Inserts an entry into a list from [`best`], if its score is high enough; true if it was inserted.
pub(crate) fn enter(best: &mut Vec<(u64, NodeId)>, one: (u64, NodeId), most: usize) -> bool {
    let at = best.partition_point(|other| *other > one);
    if at >= most || best.get(at) == Some(&one) {
        return false;
    }
    best.insert(at, one);
    best.truncate(most);
    true
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn node(i: u32) -> NodeId {
        NodeId(tidecast_hash::sha256(&i.to_be_bytes()))
    }

    #[test]
    fn all_members_bear_about_the_same() {
        let (members, keys) = (100u32, 10_000u32);
        let mut kept = vec![0u32; 100];
        for key in 0..keys {
            let key = Key(tidecast_hash::sha256(&[&b"key"[..], &key.to_be_bytes()].concat()));
            for (_, chosen) in best(&key, (0..members).map(node), 5) {
                let at = (0..members).position(|i| node(i) == chosen).unwrap();
                kept[at] += 1;
            }
        }
        assert_eq!(kept.iter().sum::<u32>(), 5 * keys);
        let (least, most) = (kept.iter().min().unwrap(), kept.iter().max().unwrap());
        assert!(*least > 400 && *most < 600, "{least} to {most} of about 500");
    }

    #[test]
    fn who_leaves_moves_only_what_it_kept() {
        for i in 0..200u32 {
            let key = Key(tidecast_hash::sha256(&i.to_be_bytes()));
            let names = |all: Vec<(u64, NodeId)>| all.into_iter().map(|(_, n)| n).collect::<Vec<_>>();
            let before = names(best(&key, (0..50).map(node), 5));
            let after = names(best(&key, (1..50).map(node), 5));
            let stayed = before.iter().filter(|n| after.contains(n)).count();
            assert_eq!(stayed, if before.contains(&node(0)) { 4 } else { 5 });
        }
    }
}
