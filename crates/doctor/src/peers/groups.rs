//! Which hosts are near each other, by round-trip times: hosts behind one switch answer in about the same short time, a link
//! between sites adds to it. Pure.
//!
//! Pairs are near if their time is below a gap in all measured times: neighbouring times (sorted) of which the upper is at
//! least [`RATIO`] times the lower and [`LEAST`] longer. Without such a gap all hosts are one group, because times within one
//! network scatter.

use std::time::Duration;

/// A gap is at least this ratio of two neighbouring times.
const RATIO: f64 = 2.0;
/// A gap is at least this long; a busy host adds less to its lowest time.
const LEAST: Duration = Duration::from_micros(1500);

/// Lowest round-trip times of pairs of hosts by number.
pub(crate) type Times = Vec<((usize, usize), Duration)>;

/// The time below which a pair is near; `None` if the times have no gap.
#[must_use]
pub(crate) fn gap(times: &Times) -> Option<Duration> {
    let mut sorted: Vec<Duration> = times.iter().map(|(_, time)| *time).collect();
    sorted.sort_unstable();
    let is_gap = |low: Duration, high: Duration| {
        high >= low + LEAST && high.as_secs_f64() >= RATIO * low.as_secs_f64()
    };
    let first = sorted.iter().zip(sorted.iter().skip(1)).find(|(low, high)| is_gap(**low, **high))?;
    Some(*first.0 + (*first.1 - *first.0) / 2)
}

/// By host the number of its group; numbers are those of first appearance. Hosts without a near pair are a group each.
#[must_use]
pub(crate) fn groups(hosts: usize, times: &Times) -> Vec<usize> {
    let Some(gap) = gap(times) else { return vec![0; hosts] };
    let mut parent: Vec<usize> = (0..hosts).collect();
    for ((a, b), time) in times {
        if *time < gap {
            let (a, b) = (root(&parent, *a), root(&parent, *b));
            if let Some(above) = parent.get_mut(a.max(b)) {
                *above = a.min(b);
            }
        }
    }
    let roots: Vec<usize> = (0..hosts).map(|host| root(&parent, host)).collect();
    numbered(&roots)
}

/// The groups that both divisions have: hosts stay together that are together in both.
#[must_use]
pub(crate) fn both(first: &[usize], second: &[usize]) -> Vec<usize> {
    let pairs: Vec<(usize, usize)> = first.iter().copied().zip(second.iter().copied()).collect();
    numbered(&pairs)
}

/// Pairs of hosts, one of each of two groups, of which none was measured: those that may join groups. At most `most`.
#[must_use]
pub(crate) fn open(groups: &[usize], times: &Times, most: usize) -> Vec<(usize, usize)> {
    let count = groups.iter().max().map_or(0, |max| max + 1);
    let first = |group: usize| groups.iter().position(|of| *of == group);
    let of = |host: usize| groups.get(host).copied();
    let met = |a: usize, b: usize| {
        times.iter().any(|((x, y), _)| {
            let ends = (of(*x), of(*y));
            ends == (Some(a), Some(b)) || ends == (Some(b), Some(a))
        })
    };
    let pairs = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
    pairs.filter(|(a, b)| !met(*a, *b)).filter_map(|(a, b)| Some((first(a)?, first(b)?))).take(most).collect()
}

fn root(parent: &[usize], mut host: usize) -> usize {
    while let Some(above) = parent.get(host).filter(|above| **above != host) {
        host = *above;
    }
    host
}

/// Equal keys as equal numbers, in the order of their first appearance.
fn numbered<K: PartialEq + Copy>(keys: &[K]) -> Vec<usize> {
    let mut seen: Vec<K> = Vec::new();
    let number = |key: &K| {
        seen.iter().position(|k| k == key).unwrap_or_else(|| {
            seen.push(*key);
            seen.len() - 1
        })
    };
    keys.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::peers::pairs::rounds;

    fn micros(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    #[test]
    fn times_without_a_gap_are_one_group() {
        assert_eq!(groups(3, &Times::new()), [0, 0, 0]);
        let times = vec![((0, 1), micros(50)), ((1, 2), micros(90)), ((0, 2), micros(900))];
        assert_eq!(groups(3, &times), [0, 0, 0]);
    }

    proptest! {
        /// Sites whose hosts answer in up to 1 ms, and other sites in 5 ms or more: the sites are found, whatever pairs the
        /// schedule measures, when open pairs of groups are measured too.
        #[test]
        fn sites_are_found(sizes in prop::collection::vec(1usize..20, 1..5), noise in prop::collection::vec(0u64..500, 400)) {
            let site: Vec<usize> = sizes.iter().enumerate().flat_map(|(site, size)| vec![site; *size]).collect();
            let hosts = site.len();
            let time = |a: usize, b: usize| {
                let extra = noise[(a * 31 + b * 17) % noise.len()];
                ((a, b), micros(if site[a] == site[b] { 300 + extra } else { 5000 + extra }))
            };
            let mut times: Times = rounds(hosts).into_iter().flatten().map(|(a, b)| time(a, b)).collect();
            for _ in 0..20 {
                let more = open(&groups(hosts, &times), &times, 64);
                times.extend(more.into_iter().map(|(a, b)| time(a, b)));
            }
            let near = times.iter().any(|(_, t)| *t < micros(1000));
            let far = times.iter().any(|(_, t)| *t > micros(1000));
            let found = groups(hosts, &times);
            if near && far {
                prop_assert_eq!(found, numbered(&site));
            } else {
                prop_assert_eq!(found, vec![0; hosts], "times of one kind do not show groups");
            }
        }

        #[test]
        fn both_divides_as_finely_as_either(a in prop::collection::vec(0usize..4, 30), b in prop::collection::vec(0usize..4, 30)) {
            let found = both(&a, &b);
            for i in 0..30 {
                for j in 0..30 {
                    prop_assert_eq!(found[i] == found[j], a[i] == a[j] && b[i] == b[j]);
                }
            }
        }
    }
}
