//! Which pairs of hosts are measured, in which rounds. Pure.
//!
//! The rounds are an edge colouring of the complete graph (circle method): each round pairs every host with at most one
//! other, so no host is in two transfers at once. Two consecutive rounds of the colouring form one path through all hosts,
//! so a few rounds already connect all hosts.

/// With up to so many hosts all pairs are measured.
pub(crate) const ALL_PAIRS: usize = 16;
/// Rounds beyond that.
const COVER: usize = 3;

/// Pairs of hosts by number, the lower one first.
pub(crate) type Round = Vec<(usize, usize)>;

/// The rounds for so many hosts: all pairs up to [`ALL_PAIRS`] hosts, beyond that some pairs of every host, which connect
/// all hosts.
#[must_use]
pub(crate) fn rounds(hosts: usize) -> Vec<Round> {
    let places = hosts.next_multiple_of(2);
    let last = places.saturating_sub(1);
    let numbers: Vec<usize> = match hosts <= ALL_PAIRS {
        true => (0..last).collect(),
        // The first two rounds connect all hosts; the third is far from them.
        false => [0, 1, last / 2].into_iter().take(COVER).collect(),
    };
    numbers.into_iter().map(|number| round(hosts, number)).filter(|round| !round.is_empty()).collect()
}

/// One round of the circle method: the last place stays, the others turn.
fn round(hosts: usize, number: usize) -> Round {
    let places = hosts.next_multiple_of(2);
    if places < 2 {
        return Round::new();
    }
    let turning = places - 1;
    let fixed = (number % turning, turning);
    let turned = (1..places / 2).map(|i| ((number + i) % turning, (number + turning - i) % turning));
    // With an odd number of hosts the last place is empty.
    let present = |(a, b): (usize, usize)| (a < hosts && b < hosts).then_some((a.min(b), a.max(b)));
    std::iter::once(fixed).chain(turned).filter_map(present).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn connected(hosts: usize, rounds: &[Round]) -> bool {
        let mut reached = BTreeSet::from([0]);
        for _ in 0..hosts {
            for &(a, b) in rounds.iter().flatten() {
                if reached.contains(&a) || reached.contains(&b) {
                    reached.extend([a, b]);
                }
            }
        }
        reached.len() == hosts
    }

    proptest! {
        #[test]
        fn no_host_is_twice_in_a_round_and_no_pair_is_measured_twice(hosts in 0usize..200) {
            let rounds = rounds(hosts);
            for round in &rounds {
                let ends: Vec<usize> = round.iter().flat_map(|&(a, b)| [a, b]).collect();
                prop_assert_eq!(ends.iter().collect::<BTreeSet<_>>().len(), ends.len());
                prop_assert!(ends.iter().all(|end| *end < hosts) && round.iter().all(|(a, b)| a < b));
                prop_assert!(round.len() >= hosts / 2 - usize::from(hosts % 2 == 0 && hosts == 0), "no host waits needlessly");
            }
            let pairs: Vec<_> = rounds.iter().flatten().collect();
            prop_assert_eq!(pairs.iter().collect::<BTreeSet<_>>().len(), pairs.len());
            if hosts <= ALL_PAIRS {
                prop_assert_eq!(pairs.len(), hosts * hosts.saturating_sub(1) / 2);
            } else {
                prop_assert!(pairs.len() <= COVER * hosts / 2);
                prop_assert!(connected(hosts, &rounds), "{hosts}");
            }
        }
    }
}
