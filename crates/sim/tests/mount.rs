//! A program starts on every node at once and opens the same files: each byte leaves the origin about once, and it
//! takes hardly longer where there are more nodes.

#![allow(clippy::unwrap_used)]

use tidecast_sim::Time;
use tidecast_sim::fault::Spec;
use tidecast_sim::job::{Job, Opens};
use tidecast_sim::outcome::Outcome;
use tidecast_sim::planned::{Knowledge, stripes};
use tidecast_sim::progress::Progress;
use tidecast_sim::topology::{NodeId, Topology};
use tidecast_sim::world::World;
use tidecast_swarm::Policy;

const SECOND: u64 = 1_000_000_000;
const PIECE: u32 = 64 << 10;
/// Files of this many pieces; no node reads the others.
const FILES: u32 = 40;
const LONG: u32 = 5;
const TOUCHED: u64 = FILES as u64 * LONG as u64 * PIECE as u64;

/// The origin has twice as many files as are opened.
fn job(nodes: u32, seed: u64, faults: &[&str]) -> Job {
    let topology = Topology::parse(&format!("single:{nodes}@1gbit")).unwrap();
    let stripes = stripes(&topology, Knowledge::Topology, 2 * TOUCHED, PIECE);
    let files = (0..FILES).map(|file| 2 * file * LONG..(2 * file + 1) * LONG).collect();
    let mut job = Job {
        policy: Policy { on_demand: true, ..Policy::TIDECAST },
        plan: Some((Knowledge::Topology, stripes)),
        spread: 0,
        opens: Some(Opens { files, start: Time(SECOND), think: 20_000 }),
        until: Time(3600 * SECOND),
        seed,
        ..Job::plain(topology, vec![PIECE; (2 * FILES * LONG) as usize])
    };
    for fault in faults {
        fault.parse::<Spec>().unwrap().apply(&mut job).unwrap();
    }
    job
}

fn run(job: &Job) -> Outcome {
    // Every rule of the checkers holds, or this fails.
    World::new(job).unwrap().run(&Progress::new()).unwrap()
}

fn last(outcome: &Outcome) -> u64 {
    outcome.finished.iter().flatten().max().unwrap().0
}

#[test]
fn the_origin_sends_one_copy_of_what_is_touched_however_many_touch_it() {
    let (few, many) = (run(&job(8, 1, &[])), run(&job(128, 1, &[])));
    for outcome in [&few, &many] {
        assert!(outcome.finished.iter().all(Option::is_some));
        assert_eq!(outcome.origin_sent, TOUCHED);
    }
    // Sixteen times as many nodes are four more steps of each file's way, not sixteen times the time.
    assert!(last(&many) < 2 * last(&few), "{} and {} ns", last(&few), last(&many));
}

#[test]
fn who_comes_late_costs_the_origin_little() {
    let mut job = job(16, 1, &[]);
    job.joins = vec![(Time(5 * SECOND), NodeId(7))];
    let outcome = run(&job);
    assert!(outcome.finished.iter().all(Option::is_some));
    assert!(outcome.origin_sent <= TOUCHED * 3 / 2, "{} of {TOUCHED} bytes", outcome.origin_sent);
}

#[test]
fn all_files_come_though_relays_are_lost_or_stand_still() {
    for seed in 1..=6 {
        let faults = ["crash:10%@1020ms", "die:5%@1050ms", "freeze:5%@1040ms+4s"];
        let outcome = run(&job(40, seed, &faults));
        let done = outcome.finished.iter().flatten().count();
        assert_eq!(done, 39 - outcome.lost as usize, "seed {seed}");
        assert!(last(&outcome) < 60 * SECOND, "seed {seed}: {} ns", last(&outcome));
        assert!(outcome.origin_sent < 2 * TOUCHED, "seed {seed}: {} of {TOUCHED}", outcome.origin_sent);
    }
}
