//! Hundreds of members on a modelled network: loss, sudden death, partitions, frozen members, churn.
//!
//! Seeds are random and printed when a test fails; `MEMBERS_SEED=N` repeats one. `MEMBERS_SIZE=1000` (80 s, 1 GB)
//! tests larger groups.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod world;

use std::collections::BTreeSet;

use world::{SECOND, Seed, World};

#[test]
fn hundreds_find_each_other_in_a_minute() {
    let seed = Seed::new();
    let size = std::env::var("MEMBERS_SIZE").map_or(400, |size| size.parse().unwrap());
    let mut world = World::new(size, 10, &seed);
    world.converge(60 * SECOND, None);
}

#[test]
fn half_die_at_once() {
    let seed = Seed::new();
    let mut world = World::new(200, 20, &seed);
    world.converge(60 * SECOND, None);
    for i in 0..200 {
        world.hold(i, i);
    }
    world.run(20 * SECOND);
    let all = world.living();
    assert_eq!(world.findable(&all), 200);
    let mut dead = BTreeSet::new();
    while dead.len() < 100 {
        dead.insert(world.random(200));
    }
    dead.iter().for_each(|i| world.kill(*i));
    let left = world.living();
    // No member has noticed: of five copies at least one lies on a survivor, but for one key in 32.
    let found = world.findable(&left);
    assert!(found >= 88, "{found} of 100 found through the survivors");
    world.converge(120 * SECOND, None);
    world.run(30 * SECOND);
    assert_eq!(world.findable(&left), 100, "named anew, all are found");
    // The dead are still found for as long as their records last, and no longer.
    world.run(200 * SECOND);
    let dead: Vec<_> = dead.into_iter().collect();
    assert_eq!(world.findable(&dead), 0);
    assert_eq!(world.findable(&left), 100, "renewed");
}

#[test]
fn a_partition_heals_and_the_newest_holds() {
    let seed = Seed::new();
    let mut world = World::new(100, 10, &seed);
    world.converge(60 * SECOND, None);
    let old = world.name(10, 1, 1);
    let taken_back = world.name(12, 1, 1);
    let held = world.hold(14, 14);
    world.run(10 * SECOND);
    // Members of both halves carry the names.
    let now = world.now;
    for i in [11, 13] {
        assert!(world.act(i, |m| m.carry(old.clone(), now)));
        assert!(world.act(i, |m| m.carry(taken_back.clone(), now)));
    }
    for i in 0..100 {
        world.nodes[i].as_mut().unwrap().side = (i % 2) as u8;
    }
    world.converge(120 * SECOND, Some(0));
    world.converge(120 * SECOND, Some(1));
    world.run(20 * SECOND);
    // On one side the names change; on the other they are carried on as they were.
    let newer = world.name(10, 1, 2);
    let now = world.now;
    world.act(12, |m| m.withdraw(&taken_back.slot(), now));
    world.act(14, |m| m.withdraw(&held.slot(), now));
    world.hold(51, 51);
    world.run(20 * SECOND);
    let (key, gone) = (old.slot().key, taken_back.slot().key);
    let found = world.lookup(&[(0, key), (1, key), (0, gone), (1, gone)]);
    assert_eq!(found[0].records, std::slice::from_ref(&newer));
    assert_eq!(found[1].records, [old], "cut off, the others know what was said before");
    assert_eq!((found[2].records.len(), found[3].records.len()), (0, 1));
    world.nodes.iter_mut().flatten().for_each(|n| n.side = 0);
    world.converge(180 * SECOND, None);
    world.run(60 * SECOND);
    let asked: Vec<_> = (0..100).flat_map(|i| [(i, key), (i, gone), (i, held.slot().key)]).collect();
    for (found, (i, key)) in world.lookup(&asked).into_iter().zip(&asked) {
        if *key == newer.slot().key {
            assert_eq!(found.records, std::slice::from_ref(&newer), "{i}");
        } else {
            assert!(found.records.is_empty(), "{i} sees what was taken back: {:?}", found.records);
        }
    }
    assert_eq!(world.findable(&[51]), 1);
}

#[test]
fn frozen_members_come_back() {
    let seed = Seed::new();
    let mut world = World::new(120, 10, &seed);
    world.converge(60 * SECOND, None);
    for i in 0..120 {
        world.hold(i, i);
    }
    world.run(10 * SECOND);
    (0..120).step_by(5).for_each(|i| world.freeze(i, true));
    world.run(60 * SECOND);
    assert!(world.sees(1).len() < 120, "they were given up");
    (0..120).step_by(5).for_each(|i| world.freeze(i, false));
    world.converge(180 * SECOND, None);
    world.run(40 * SECOND);
    let all = world.living();
    assert_eq!(world.findable(&all), 120);
}

#[test]
fn members_come_and_go() {
    let seed = Seed::new();
    let mut world = World::new(100, 30, &seed);
    world.converge(60 * SECOND, None);
    // Three seeds stay; of the others one dies or comes again every two seconds.
    for _ in 0..80 {
        let i = 3 + world.random(97);
        if world.nodes[i].is_some() {
            let (now, polite) = (world.now, world.random(2) == 0);
            if polite {
                world.act(i, |m| m.leave(now));
            }
            world.kill(i);
        } else {
            world.start(i);
            world.hold(i, i);
        }
        world.run(2 * SECOND);
    }
    world.converge(180 * SECOND, None);
    world.run(40 * SECOND);
    let living = world.living();
    living.iter().for_each(|i| drop(world.hold(*i, *i)));
    world.run(20 * SECOND);
    assert_eq!(world.findable(&living), living.len());
}
