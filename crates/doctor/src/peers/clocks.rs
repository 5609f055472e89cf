//! The clocks of all hosts on one scale, from differences of pairs. Pure.

use std::collections::BTreeMap;

/// Of a pair of hosts: the clock of the second minus that of the first, and the error, seconds.
pub(crate) type Differences = Vec<((usize, usize), f64, f64)>;

/// By host, its clock compared with the median of all, and the error, seconds. Hosts that no difference connects with the
/// most connected hosts have none.
#[must_use]
pub(crate) fn clocks(hosts: usize, differences: &Differences) -> BTreeMap<usize, (f64, f64)> {
    let mut best = BTreeMap::new();
    for start in 0..hosts {
        if !best.contains_key(&start) {
            let reached = from(start, differences);
            if reached.len() > best.len() {
                best = reached;
            }
        }
    }
    if best.len() < 2 {
        return BTreeMap::new();
    }
    let mut all: Vec<f64> = best.values().map(|(clock, _)| *clock).collect();
    all.sort_by(f64::total_cmp);
    // The lower median of an even number: a clock that a host really has.
    let median = all.get((all.len() - 1) / 2).copied().unwrap_or(0.0);
    best.into_iter().map(|(host, (clock, error))| (host, (clock - median, error))).collect()
}

/// Clocks relative to one host, each by the differences with the smallest errors (Prim).
fn from(start: usize, differences: &Differences) -> BTreeMap<usize, (f64, f64)> {
    let mut known = BTreeMap::from([(start, (0.0, 0.0))]);
    loop {
        let next = differences
            .iter()
            .flat_map(|((a, b), clock, error)| [(*a, *b, *clock, *error), (*b, *a, -*clock, *error)]);
        let open = next.filter(|(a, b, ..)| known.contains_key(a) && !known.contains_key(b));
        let Some((a, b, clock, error)) = open.min_by(|x, y| x.3.total_cmp(&y.3)) else { return known };
        let (base, before) = known.get(&a).copied().unwrap_or_default();
        known.insert(b, (base + clock, before + error));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::peers::pairs::rounds;

    #[test]
    fn one_clock_that_is_ahead_is_found() {
        let difference = |a, b| {
            (
                (a, b),
                if b == 2 {
                    7.0
                } else if a == 2 {
                    -7.0
                } else {
                    0.0
                },
                0.001,
            )
        };
        let found = clocks(4, &vec![difference(0, 1), difference(1, 2), difference(2, 3)]);
        assert!((found[&2].0 - 7.0).abs() < 1e-9, "{found:?}");
        assert!([0, 1, 3].iter().all(|host| found[host].0.abs() < 1e-9));
        assert!(clocks(3, &Differences::new()).is_empty());
    }

    proptest! {
        #[test]
        fn clocks_are_found_within_their_errors(real in prop::collection::vec(-100.0f64..100.0, 2..40), noise in prop::collection::vec(-1.0f64..1.0, 50)) {
            let measured = |(a, b): (usize, usize)| {
                let error = 0.001;
                ((a, b), real[b] - real[a] + error * noise[(a * 7 + b) % noise.len()], error)
            };
            let differences: Differences = rounds(real.len()).into_iter().flatten().map(measured).collect();
            let found = clocks(real.len(), &differences);
            prop_assert_eq!(found.len(), real.len());
            for (a, (clock, error)) in &found {
                for (b, (other, more)) in &found {
                    let wrong = (clock - other - (real[*a] - real[*b])).abs();
                    prop_assert!(wrong <= error + more + 1e-9, "{wrong} {error} {more}");
                }
            }
        }
    }
}
