//! Broadcasts by a plan: as fast as the network, through failures, and each byte about once.

#![allow(clippy::unwrap_used)]

use tidecast_sim::Time;
use tidecast_sim::bound::bound;
use tidecast_sim::fault::Spec;
use tidecast_sim::job::{Host, Job, Protocols};
use tidecast_sim::network::Model;
use tidecast_sim::outcome::Outcome;
use tidecast_sim::planned::{Knowledge, stripes};
use tidecast_sim::progress::Progress;
use tidecast_sim::topology::{NodeId, Topology};
use tidecast_sim::world::World;
use tidecast_swarm::{Limits, Policy};

const PIECE: u32 = 128 << 10;
const SIZE: u64 = 400 * PIECE as u64;

fn job(form: &str, faults: &[&str]) -> Job {
    let topology = Topology::parse(form).unwrap();
    let stripes = stripes(&topology, Knowledge::Topology, SIZE, PIECE);
    let mut job = Job {
        topology,
        model: Model::default(),
        lengths: vec![PIECE; (SIZE / u64::from(PIECE)) as usize],
        policy: Policy::TIDECAST,
        limits: Limits::default(),
        protocols: Protocols::Tidecast,
        leaves: true,
        host: Host { settle: 1_000_000_000, think: 20_000 },
        plan: Some((Knowledge::Topology, stripes)),
        acquaintances: 50,
        joins: Vec::new(),
        faults: Vec::new(),
        jitter: 100_000,
        spread: 0,
        wants: Vec::new(),
        gathers: false,
        opens: None,
        until: Time(3_600_000_000_000),
        seed: 1,
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

/// The bound over the time of the slowest survivor, in percent.
fn efficiency(job: &Job, outcome: &Outcome) -> u64 {
    let all: Vec<NodeId> = (1..job.topology.len()).map(NodeId).collect();
    let bound = bound(&job.topology, SIZE, &all, job.model.payload, job.model.frame);
    let last = outcome.finished.iter().flatten().max().unwrap();
    bound.time.0 * 100 / last.0
}

fn missing(outcome: &Outcome) -> usize {
    outcome.finished.iter().skip(1).filter(|t| t.is_none()).count()
}

#[test]
fn one_switch_is_filled_and_the_origin_sends_one_copy() {
    for form in ["single:16@50mbit", "single:64@20mbit", "single:7@50mbit"] {
        let job = job(form, &[]);
        let outcome = run(&job);
        let reached = efficiency(&job, &outcome);
        assert!(missing(&outcome) == 0 && reached >= 96, "{form}: {reached}%");
        assert!(outcome.origin_sent < SIZE / 100 * 101, "{form}: {} bytes", outcome.origin_sent);
        let receivers = u64::from(job.topology.len()) - 1;
        assert!(outcome.duplicate < SIZE * receivers / 100, "{form}: {} bytes", outcome.duplicate);
    }
}

/// Each piece has its offer and leaf hashes, and announcements are paid for by payload: the share does not grow with nodes
/// or pieces.
#[test]
fn control_messages_are_half_a_percent_at_most() {
    for plan in [Some((Knowledge::Topology, 8)), None] {
        let mut job = job("single:48@10gbit", &[]);
        job.lengths = vec![PIECE; 2000];
        job.plan = plan;
        let outcome = run(&job);
        let payload = 47 * 2000 * u64::from(PIECE);
        assert!(missing(&outcome) == 0 && outcome.control * 200 <= payload, "{plan:?}: {}", outcome.control);
    }
}

#[test]
fn behind_a_bottleneck_nobody_is_blamed_for_what_others_wait_for() {
    for form in ["bordeaux:32,25,7@20mbit", "bordeaux:8,6,2@50mbit"] {
        let job = job(form, &[]);
        let outcome = run(&job);
        let reached = efficiency(&job, &outcome);
        assert!(missing(&outcome) == 0 && reached >= 75, "{form}: {reached}%");
        assert!(outcome.origin_sent < SIZE / 100 * 105, "{form}: {} bytes", outcome.origin_sent);
    }
}

#[test]
fn whoever_fails_costs_the_others_little() {
    for fault in ["crash:5@2s", "die:5@2s", "leave:5@2s", "diskfull:5@2s"] {
        let job = job("single:16@50mbit", &[fault]);
        let outcome = run(&job);
        let reached = efficiency(&job, &outcome);
        assert!(missing(&outcome) == 1 && reached >= 60, "{fault}: {reached}%");
        assert!(outcome.origin_sent < SIZE / 2 * 3, "{fault}: {} bytes", outcome.origin_sent);
    }
}

/// By turns killed, stopped and cut off, roots of stripes among them.
#[test]
fn six_of_64_who_are_lost_cost_the_others_little() {
    let faults = ["crash:9@4s", "crash:33@13s", "freeze:17@7s", "freeze:40@16s", "die:25@10s", "die:50@19s"];
    for seed in 1..=6 {
        let mut job = job("single:64@20mbit", &faults);
        job.seed = seed;
        let outcome = run(&job);
        let reached = efficiency(&job, &outcome);
        assert!(missing(&outcome) == 6 && reached >= 85, "seed {seed}: {reached}%");
        assert!(outcome.origin_sent < SIZE / 5 * 6, "seed {seed}: {} bytes", outcome.origin_sent);
    }
}

#[test]
fn whatever_befalls_a_broadcast_it_ends() {
    let faults = [
        "freeze:5@2s+30s",
        "slow:5=12mbit@0s",
        "closed:4",
        "corrupt:4",
        "lie:4",
        "withhold:4",
        "refuse:4",
        "reset:9@1s",
        "clock:5+1h@3s",
        "join:10%@2s",
        "lost:3=17@4s",
        "reorder=5ms",
        "restart:7,nodisk@2s+1s",
    ];
    for fault in faults {
        let outcome = run(&job("single:16@50mbit", &[fault]));
        // A node that sends wrong bytes is banned, and gets no further data.
        assert!(missing(&outcome) <= 1, "{fault}: {} nodes", missing(&outcome));
    }
}

#[test]
fn it_goes_on_without_the_origin_once_every_byte_is_out() {
    let job = job("single:16@50mbit", &["crash:0@8.95s"]);
    let outcome = run(&job);
    assert_eq!(missing(&outcome), 0);
}

#[test]
fn one_seed_is_one_run() {
    let job = job("bordeaux:8,6,2@50mbit", &["crash:5@2s"]);
    assert_eq!(run(&job).trace, run(&job).trace);
}
