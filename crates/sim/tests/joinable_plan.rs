//! A tree that many nodes fetch at once, by a plan that they join: the origin sends about one copy, and the slowest node
//! takes little more time than the origin's link needs for one.

#![allow(clippy::unwrap_used)]

use tidecast_sim::Time;
use tidecast_sim::fault::Spec;
use tidecast_sim::job::{Host, Job, Protocols};
use tidecast_sim::network::Model;
use tidecast_sim::outcome::Outcome;
use tidecast_sim::planned::Knowledge;
use tidecast_sim::progress::Progress;
use tidecast_sim::topology::{NodeId, Topology};
use tidecast_sim::world::World;
use tidecast_swarm::{Limits, Policy};

const PIECE: u32 = 64 << 10;
const MS: u64 = 1_000_000;

/// All nodes but the origin get `pieces` as `cache get` does, and begin within `within` of one another.
fn job(form: &str, pieces: usize, within: u64, seed: u64, faults: &[String]) -> Job {
    let topology = Topology::parse(form).unwrap();
    let limits = Limits { origin_copies: 105, random_neighbours: 8, ..Limits::default() };
    let count = topology.len();
    let mut job = Job {
        model: Model::default(),
        policy: Policy { stays: true, ..Policy::TIDECAST },
        limits,
        protocols: Protocols::Tidecast,
        host: Host { settle: 1_000_000_000, think: 1_000_000 },
        plan: Some((Knowledge::Nothing, 18)),
        gathers: true,
        jitter: 5_000_000,
        spread: 0,
        until: Time(3_600_000 * MS),
        seed,
        ..Job::plain(topology, vec![PIECE; pieces])
    };
    let mut at = seed;
    for node in 1..count {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        job.joins.push((Time(((at >> 33) * within) >> 31), NodeId(node)));
    }
    for fault in faults {
        fault.parse::<Spec>().unwrap().apply(&mut job).unwrap();
    }
    job
}

/// Copies that the origin sends, and the slowest's time of that which one copy takes over the origin's wire; hundredths.
fn figures(job: &Job) -> (u64, u64, u64) {
    let outcome: Outcome = World::new(job).unwrap().run(&Progress::new()).unwrap();
    let size = outcome.size;
    let bound = size * 8 * 1000 * MS / job.topology.nodes[0].rate;
    let mut times: Vec<u64> =
        outcome.finished.iter().zip(&job.joins).flat_map(|(t, (at, _))| Some(t.as_ref()?.0 - at.0)).collect();
    times.sort_unstable();
    let missing = outcome.finished.iter().filter(|t| t.is_none()).count() as u32;
    assert_eq!(missing, outcome.lost, "somebody has not got it");
    (
        outcome.origin_sent * 100 / size,
        times.last().unwrap() * 100 / bound,
        times[times.len() / 2] * 100 / bound,
    )
}

/// How the origin's copies and the slowest's time are bounded.
fn within(case: &str, job: &Job, copies: u64, slowest: u64) {
    let (sent, last, middle) = figures(job);
    println!("{case}: {sent}% of a copy, slowest {last}% and middle {middle}% of the bound");
    assert!(sent <= copies && last <= slowest, "{case}: {sent}% of a copy, slowest {last}%");
}

#[test]
fn however_late_they_join_the_origin_sends_one_copy() {
    for (spread, seed) in [0, 500, 1000, 2000, 3000].into_iter().flat_map(|s| [(s, 1), (s, 2), (s, 3)]) {
        let job = job("single:40@8mbit", 256, spread * MS, seed, &[]);
        within(&format!("within {spread} ms, seed {seed}"), &job, 105, 125);
    }
}

/// A host that has too much to do stands still for a second, each at another time.
#[test]
fn hosts_that_stall_cost_the_origin_nothing() {
    let stalls: Vec<String> = (0..39).map(|i| format!("freeze:{}@{}ms+1s", 1 + i, 3000 + 300 * i)).collect();
    for (spread, seed) in [500, 3000].into_iter().flat_map(|s| [(s, 1), (s, 2), (s, 3)]) {
        let job = job("single:40@8mbit", 256, spread * MS, seed, &stalls);
        within(&format!("all stall, within {spread} ms, seed {seed}"), &job, 105, 142);
    }
}

/// Each silence makes a new epoch, and lasts a quarter of the whole.
#[test]
fn hosts_that_are_silent_for_four_seconds_are_gone_around() {
    let faults = |count: u64| -> Vec<String> {
        (0..count).map(|i| format!("freeze:{}@{}s+4s", 3 + 36 / count * i, 3 + 12 / count * i)).collect()
    };
    for (count, seed) in [1, 6, 12].into_iter().flat_map(|n| [(n, 1), (n, 2), (n, 3)]) {
        let job = job("single:40@8mbit", 256, 500 * MS, seed, &faults(count));
        within(&format!("{count} silent, seed {seed}"), &job, 112, 155);
    }
}

#[test]
fn whoever_leaves_with_everything_costs_the_others_nothing() {
    let faults = ["leave:3@18900ms".into(), "leave:12@19s".into(), "leave:30@19100ms".into()];
    for seed in 1..=3 {
        within(&format!("seed {seed}"), &job("single:40@8mbit", 256, 500 * MS, seed, &faults), 105, 130);
    }
}

#[test]
fn other_numbers_and_rates_do_as_well() {
    for (form, pieces) in [("single:8@8mbit", 256), ("single:23@100mbit", 1000), ("single:120@50mbit", 512)] {
        within(form, &job(form, pieces, 1000 * MS, 1, &[]), 105, 128);
    }
}

#[test]
fn one_seed_is_one_run() {
    let job = job("single:20@8mbit", 64, 1000 * MS, 1, &["freeze:7@2s+2s".into()]);
    let run = || World::new(&job).unwrap().run(&Progress::new()).unwrap().trace;
    assert_eq!(run(), run());
}
