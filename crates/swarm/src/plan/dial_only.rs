//! Relays that accept no connections feed the members that they connect to themselves, and no other relay of
//! their kind.

use std::collections::BTreeMap;

use super::epoch::{Epoch, Part};
use super::layout::NOBODY;

/// Gives each caller that a caller feeds to another parent: the relay among the first one's
/// children that has the least to do, or failing that the first one's parent.
pub(super) fn part_callers(epoch: &Epoch, parents: &mut [u32]) {
    let calls: Vec<bool> = epoch.members.iter().map(|m| m.part == Part::Caller).collect();
    if !calls.contains(&true) {
        return;
    }
    let mut load = vec![0_u32; calls.len()];
    for &parent in parents.iter().filter(|&&p| p != NOBODY) {
        load[parent as usize] += 1;
    }
    for row in parents.chunks_mut(calls.len()) {
        let calls = |m: u32| calls.get(m as usize).is_some_and(|c| *c);
        let relays = |m: u32| epoch.members.get(m as usize).is_some_and(|member| member.part == Part::Relay);
        let mut open: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (member, &parent) in
            (0..).zip(row.iter()).filter(|&(member, &parent)| calls(parent) && relays(member))
        {
            open.entry(parent).or_default().push(member);
        }
        for caller in (0..row.len() as u32).filter(|&m| calls(m)) {
            // Upwards, until a member that accepts connections.
            while let Some(parent) = Some(row[caller as usize]).filter(|&p| calls(p)) {
                let siblings = open.get(&parent).map_or(&[][..], Vec::as_slice).iter().copied();
                let other = siblings.min_by_key(|&m| (load[m as usize], m)).unwrap_or(row[parent as usize]);
                row[caller as usize] = other;
                load[parent as usize] -= 1;
                if let Some(load) = load.get_mut(other as usize) {
                    *load += 1;
                }
            }
        }
    }
}
