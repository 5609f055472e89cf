//! Measures how soon all members know deaths, and checks that no live member is declared dead.
//!
//! Seeds are fixed here, so that a test that passes once passes always; `MEMBERS_SEEDS=1000` tries more of them.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod world;

use std::collections::BTreeSet;

use tidecast_members::Limits;
use world::{SECOND, Seed, World};

/// A death is known everywhere within this time.
const KNOWN: u64 = 20 * SECOND;

/// How members end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// The process; its host ends the channels.
    Killed,
    /// The host, or its link: no further messages arrive.
    CutOff,
}

fn seeds() -> impl Iterator<Item = Seed> {
    let count = std::env::var("MEMBERS_SEEDS").map_or(10, |count| count.parse().unwrap());
    (1..=count).map(Seed)
}

/// This many of them where each takes long.
fn few() -> usize {
    seeds().count().div_ceil(3)
}

/// A settled site.
fn site(size: usize, seed: &Seed) -> World {
    let mut world = World::with(Limits::default(), size, 5, seed);
    world.converge(60 * SECOND, None);
    world.run(30 * SECOND);
    assert_eq!(world.declared, [], "{seed:?} while all live");
    world
}

fn some(world: &mut World, count: usize) -> BTreeSet<usize> {
    let (living, mut some) = (world.living(), BTreeSet::new());
    while some.len() < count {
        some.insert(living[world.random(living.len())]);
    }
    some
}

fn die(world: &mut World, count: usize, how: End) {
    for i in some(world, count) {
        world.kill(i);
        if how == End::Killed {
            world.end_channels(i);
        }
    }
}

/// Checks that no live member was declared dead.
fn assert_none_wronged(world: &World, context: &str) {
    let living: BTreeSet<_> = world.living().into_iter().collect();
    let wronged: Vec<_> = world.declared.iter().filter(|(_, dead)| living.contains(dead)).collect();
    assert!(wronged.is_empty(), "{context}: {wronged:?} (by whom, who)");
}

/// Kills `waves` of members of a site of `size`, 5 s apart; when all know after the last.
fn known_after(size: usize, waves: &[usize], how: End) {
    let mut took = Vec::new();
    for seed in seeds() {
        let context = format!("{seed:?}: {waves:?} of {size} {how:?}");
        let mut world = site(size, &seed);
        for (at, count) in waves.iter().enumerate() {
            world.run(if at > 0 { 5 * SECOND } else { 0 });
            die(&mut world, *count, how);
        }
        took.push(world.until_known(60 * SECOND));
        assert!(took.last().is_some_and(|took| *took <= KNOWN), "{context}: after {took:?} ms");
        world.run(30 * SECOND);
        assert_none_wronged(&world, &context);
    }
    took.sort_unstable();
    let (median, most) = (took[took.len() / 2], took.last().unwrap());
    println!("{waves:?} of {size} {how:?}: known after {median} ms in the median, {most} ms at most");
}

#[test]
fn half_of_forty_are_killed() {
    known_after(40, &[20], End::Killed);
}

#[test]
fn half_of_forty_are_cut_off() {
    known_after(40, &[20], End::CutOff);
}

#[test]
fn most_of_sixteen_die() {
    known_after(16, &[12], End::Killed);
    known_after(16, &[12], End::CutOff);
}

#[test]
fn one_dies() {
    known_after(40, &[1], End::Killed);
    known_after(40, &[1], End::CutOff);
    known_after(3, &[1], End::Killed);
    known_after(2, &[1], End::CutOff);
}

#[test]
fn all_but_one_die() {
    known_after(40, &[39], End::Killed);
    known_after(40, &[39], End::CutOff);
}

#[test]
fn they_die_in_two_waves() {
    known_after(40, &[10, 10], End::Killed);
    known_after(40, &[10, 10], End::CutOff);
}

#[test]
fn half_die_and_start_again_and_again() {
    for seed in seeds().take(few()) {
        let mut world = site(40, &seed);
        for round in 0..6 {
            // Those that start call one of the first three.
            let mut dead = some(&mut world, 23);
            dead.retain(|i| *i > 2);
            for i in &dead {
                world.kill(*i);
                world.end_channels(*i);
            }
            let took = world.until_known(60 * SECOND);
            assert!(took <= KNOWN, "{seed:?}, round {round}: after {took} ms");
            assert_none_wronged(&world, &format!("{seed:?}, round {round}"));
            dead.iter().for_each(|i| world.start(*i));
            world.converge(60 * SECOND, None);
            world.run(10 * SECOND);
            world.declared.clear();
        }
    }
}

#[test]
fn who_was_stopped_for_8_s_is_alive_afterwards() {
    for seed in seeds().take(few()) {
        let mut world = site(40, &seed);
        let stopped = some(&mut world, 10);
        stopped.iter().for_each(|i| world.stop(*i));
        world.run(8 * SECOND);
        stopped.iter().for_each(|i| world.go_on(*i));
        world.run(40 * SECOND);
        assert_eq!(world.declared, [], "{seed:?} (by whom, who)");
    }
}

#[test]
fn who_was_cut_off_for_8_s_is_alive_afterwards() {
    for seed in seeds().take(few()) {
        let mut world = site(40, &seed);
        let cut = some(&mut world, 5);
        let sides = (1..).zip(&cut);
        sides.for_each(|(side, i)| world.nodes[*i].as_mut().unwrap().side = side);
        world.run(8 * SECOND);
        cut.iter().for_each(|i| world.nodes[*i].as_mut().unwrap().side = 0);
        world.run(40 * SECOND);
        assert_eq!(world.declared, [], "{seed:?} (by whom, who)");
    }
}

/// Meanwhile it considers all others dead, and reports that when it is back: the others must not accept it.
#[test]
fn who_was_cut_off_for_long_brings_no_deaths() {
    for seed in seeds().take(few()) {
        let mut world = site(40, &seed);
        world.nodes[7].as_mut().unwrap().side = 1;
        world.run(40 * SECOND);
        assert_eq!(world.sees(7).len(), 1, "{seed:?}: it is alone");
        assert_eq!(world.sees(8).len(), 39, "{seed:?}: it was given up");
        world.declared.clear();
        world.nodes[7].as_mut().unwrap().side = 0;
        world.converge(120 * SECOND, None);
        world.run(30 * SECOND);
        let wronged: Vec<_> = world.declared.iter().filter(|(_, dead)| *dead != 7).collect();
        assert!(wronged.is_empty(), "{seed:?}: {wronged:?} (by whom, who)");
    }
}

/// Members that get a processor now and then, on a network that is slow.
#[test]
fn nobody_dies_of_load() {
    for seed in seeds().take(few()) {
        let mut world = site(40, &seed);
        world.latency = 600;
        for _ in 0..40 {
            let busy = some(&mut world, 12);
            busy.iter().for_each(|i| world.stop(*i));
            let span = 200 + world.random(3_000) as u64;
            world.run(span);
            busy.iter().for_each(|i| world.go_on(*i));
            world.run(300);
        }
        world.run(20 * SECOND);
        assert_eq!(world.declared, [], "{seed:?} (by whom, who)");
    }
}

#[test]
fn who_leaves_is_known_at_once() {
    for seed in seeds() {
        let mut world = site(40, &seed);
        let now = world.now;
        world.act(5, |m| m.leave(now));
        world.run(100);
        world.kill(5);
        world.end_channels(5);
        let took = world.until_known(60 * SECOND);
        assert!(took <= 5 * SECOND, "{seed:?}: {took} ms");
    }
}

#[test]
fn who_starts_again_was_never_dead() {
    for seed in seeds() {
        let mut world = site(40, &seed);
        world.kill(9);
        world.end_channels(9);
        world.run(3 * SECOND);
        world.start(9);
        world.converge(60 * SECOND, None);
        world.run(20 * SECOND);
        assert_eq!(world.declared, [], "{seed:?} (by whom, who)");
    }
}

#[test]
fn a_settled_site_says_little() {
    for size in [16, 50] {
        let mut world = site(size, &Seed(1));
        let before = world.sent;
        world.run(60 * SECOND);
        let rate = (world.sent - before) / 60 / size as u64;
        println!("{size} members: {rate} bytes/s each");
        assert!(rate < 2_000, "{size} members: {rate} bytes/s each");
    }
}
