//! Capacity: lowered below the store's content, full stores that are opened, and leftovers of eviction.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use tidecast_depot::{Config, Declare, Depot};

#[test]
fn a_lower_capacity_takes_what_was_made_here_only_when_its_lease_is_over() {
    let tmp = tempfile::tempdir().unwrap();
    let mut config = small(1 << 30);
    (config.origin, config.high, config.low) = (Some("here".into()), 95, 90);
    let depot = Depot::open(&tmp.path().join("depot"), config.clone()).unwrap();
    let file = |name: &str, n: u8| tree(&tmp.path().join(name), &[("f", &[n; 100_000])]);
    let lease = |seconds| Declare { lease: Some(seconds), ..named(&format!("lease{seconds}")) };
    let there = Declare { origin: "there".into(), version: Some(1), ..lease(3000) };
    let long = put(&depot, lease(1000), &file("long", 1), 1);
    let short = put(&depot, lease(10), &file("short", 2), 2);
    let copy = put(&depot, there, &file("copy", 3), 3);
    let least = depot.least_capacity(4);
    assert!((2 * 100_000..3 * 100_000).contains(&least), "{least}");
    config.max_bytes = Some(least);
    depot.configure(config.clone());
    assert_eq!(depot.sweep(4).unwrap().gone, [copy.id], "it can be had again");
    assert!(depot.least_capacity(20) < least);
    config.max_bytes = Some(depot.least_capacity(20));
    depot.configure(config.clone());
    assert_eq!(depot.sweep(20).unwrap().gone, [short.id]);
    assert!(depot.cache(long.id).is_some());
    config.max_bytes = Some(1000);
    depot.configure(config);
    assert_eq!((depot.sweep(1001).unwrap().gone, depot.least_capacity(1001)), (vec![long.id], 0));
}

#[test]
fn a_lowered_capacity_holds_in_the_end_and_is_never_raised() {
    let tmp = tempfile::tempdir().unwrap();
    let limits = |max| Config { origin: Some("here".into()), high: 95, low: 90, ..small(max) };
    let at = tmp.path().join("depot");
    let depot = Depot::open(&at, limits(1_000_000)).unwrap();
    let make = |depot: &Depot, n: u8, now| {
        put(
            depot,
            named(&format!("c{n}")),
            &tree(&tmp.path().join(n.to_string()), &[("f", &[n; 90_000])]),
            now,
        )
    };
    // Full, it stands near the high watermark: opened again and again, it has the capacity that it had.
    for n in 0..14 {
        make(&depot, n, 10 + u64::from(n));
    }
    drop(depot);
    for _ in 0..3 {
        let depot = Depot::open(&at, limits(1_000_000)).unwrap();
        assert_eq!((depot.allow_excess(30), depot.usage().unwrap().capacity.bytes), (None, 1_000_000));
        assert_eq!(depot.sweep(30).unwrap().gone, []);
    }
    let kept = |depot: &Depot| depot.usage().unwrap().kept.bytes;
    let depot = Depot::open(&at, limits(400_000)).unwrap();
    let before = kept(&depot);
    assert!(before > 850_000, "{before}");
    // Caches with valid leases keep their room until transfers need it; each new cache replaces more than
    // one.
    assert!(depot.allow_excess(30).is_some_and(|capacity| capacity > 850_000));
    assert_eq!(depot.sweep(30).unwrap().gone, []);
    for n in 20..40 {
        make(&depot, n, 100 + u64::from(n));
        depot.sweep(100 + u64::from(n)).unwrap();
        assert!(kept(&depot) <= before);
    }
    assert!(kept(&depot) <= 400_000, "{}", kept(&depot));
    assert_eq!(depot.usage().unwrap().capacity.bytes, 400_000);
}

#[test]
fn directories_without_objects_go() {
    let tmp = tempfile::tempdir().unwrap();
    let at = tmp.path().join("depot");
    let depot = open(&at);
    let dirs = || std::fs::read_dir(at.join("objects")).unwrap().count();
    let files: Vec<(String, Vec<u8>)> = (0..40u8).map(|n| (n.to_string(), vec![n; 10])).collect();
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, data)| (name.as_str(), &data[..])).collect();
    let all = put(&depot, named("all"), &tree(&tmp.path().join("all"), &files), 1);
    let one = put(&depot, named("one"), &tree(&tmp.path().join("one"), &files[..1]), 1);
    assert!(dirs() > 20);
    depot.remove(all.id, 2).unwrap();
    assert_eq!(dirs(), 1);
    depot.remove(one.id, 2).unwrap();
    assert_eq!(dirs(), 0);
    drop(depot);
    // Leftovers of an older program are removed when the store is opened.
    std::fs::create_dir(at.join("objects/ab")).unwrap();
    let depot = open(&at);
    assert_eq!(dirs(), 0);
    put(&depot, named("all"), &tmp.path().join("all"), 3);
    assert_clean(&depot);
}
