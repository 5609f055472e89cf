//! One seed is one run, bit for bit.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use tidecast_sim::scenario::Scenario;
use tidecast_sim::soak;

fn traces(seeds: std::ops::Range<u64>) -> Vec<(u64, u64, u64)> {
    let run = |seed| soak::job(&Scenario::new(seed).job).unwrap().outcome;
    seeds.map(run).map(|o| (o.trace, o.events, o.ended.0)).collect()
}

#[test]
fn a_seed_gives_the_same_run_again() {
    // Each thread has hash tables of its own order, should anybody use one.
    let other = std::thread::spawn(|| traces(0..24));
    let (here, there) = (traces(0..24), other.join().unwrap());
    assert_eq!(here, there);
    let different: BTreeSet<_> = here.iter().collect();
    assert_eq!(different.len(), here.len());
}
