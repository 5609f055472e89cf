//! The rivals against arithmetic, on a network without headers and ramps, and against the times of the real
//! programs in the lab, on the default one.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use tidecast_sim::Time;
use tidecast_sim::baselines::{Algorithm, BaselineError, Broadcast, Method, Mpi, run};
use tidecast_sim::network::Model;
use tidecast_sim::outcome::Outcome;
use tidecast_sim::progress::Progress;
use tidecast_sim::topology::Topology;

const SECOND: u64 = 1_000_000_000;

fn exact(topology: &Topology, size: u64, segment: u64) -> Broadcast<'_> {
    let (model, mpi) = (Model::exact(), Mpi::EXACT);
    Broadcast { topology, model, size, segment, mpi, seed: 1, until: Time(1_000_000 * SECOND) }
}

fn real(topology: &Topology, size: u64, seed: u64) -> Broadcast<'_> {
    let (model, mpi, segment) = (Model::default(), Mpi::default(), 128 << 10);
    Broadcast { topology, model, size, segment, mpi, seed, until: Time(1_000_000 * SECOND) }
}

fn play(name: &str, job: &Broadcast<'_>) -> Outcome {
    let Method::Baseline { baseline, shuffled } = Algorithm::parse(name).unwrap().method else {
        panic!("{name}")
    };
    run(baseline, shuffled, job, &Progress::new()).unwrap()
}

/// When the last receiver was complete.
fn last(outcome: &Outcome) -> u64 {
    outcome.finished.iter().map(|t| t.expect("everyone finishes").0).max().unwrap()
}

/// Nanoseconds on `nodes` nodes of 1 Gb/s with segments of 125,000 bytes: of one millisecond.
fn ideal(name: &str, nodes: u32, segments: u64) -> u64 {
    let topology = Topology::parse(&format!("single:{nodes}@1gbit")).unwrap();
    let outcome = play(name, &exact(&topology, segments * 125_000, 125_000));
    last(&outcome)
}

/// Equal but for rounding to nanoseconds at each of a few hundred events.
fn close(took: u64, milliseconds: f64) {
    let error = took as f64 / (milliseconds * 1e6) - 1.0;
    assert!(error.abs() < 1e-4, "{took} ns for {milliseconds} ms");
}

#[test]
fn chain_takes_a_segment_time_for_each_segment_and_each_hop_but_one() {
    for (nodes, segments) in [(2, 1), (2, 50), (8, 1), (8, 100), (40, 25)] {
        close(ideal("chain", nodes, segments), (segments + u64::from(nodes) - 2) as f64);
    }
}

#[test]
fn flat_takes_a_copy_for_each_receiver() {
    for nodes in [2, 5, 16] {
        close(ideal("flat", nodes, 40), 40.0 * f64::from(nodes - 1));
    }
}

#[test]
fn binomial_doubles_the_holders_each_round() {
    for (nodes, rounds) in [(2, 1.0), (3, 2.0), (4, 2.0), (5, 3.0), (16, 4.0), (33, 6.0), (64, 6.0)] {
        close(ideal("binomial", nodes, 40), 40.0 * rounds);
    }
}

#[test]
fn knomial_sends_to_all_children_at_once() {
    // radix 4: the origin has 3 children a level, sent at once, and so on down
    close(ideal("knomial", 4, 40), 40.0 * 3.0);
    close(ideal("knomial", 16, 40), 40.0 * (6.0 + 3.0));
    close(ideal("knomial", 64, 40), 40.0 * (9.0 + 6.0 + 3.0));
}

#[test]
fn binary_takes_two_segment_times_a_segment_and_a_level() {
    for (nodes, levels) in [(3, 1.0), (7, 2.0), (15, 3.0), (63, 5.0)] {
        close(ideal("binary", nodes, 60), 2.0 * (60.0 + levels - 1.0));
    }
}

#[test]
fn scatter_and_allgather_each_take_all_but_a_share() {
    for nodes in [2_u32, 4, 16, 64] {
        let share = f64::from(nodes - 1) / f64::from(nodes);
        close(ideal("scatter-allgather", nodes, 64), 2.0 * 64.0 * share);
    }
    // no power of two, and less than a byte each
    assert!(ideal("scatter-allgather", 11, 64) < 3 * 64_000_000);
    let topology = Topology::parse("single:9@1gbit").unwrap();
    last(&play("scatter-allgather", &exact(&topology, 5, 1)));
}

#[test]
fn sbcast_stops_and_waits() {
    // 16 nodes: 15 copies out of the sender's wire, 7 and then 4 of a relay's, or 9 and then 6
    let block = 8.0 * (8 << 20) as f64 / 1e6; // milliseconds at 1 Gb/s
    let topology = Topology::parse("single:16@1gbit").unwrap();
    for (name, copies) in
        [("sbcast", 15.0), ("sbcast-8", 15.0), ("sbcast-4", 11.0), ("sbcast-2", 15.0), ("sbcast-1", 15.0)]
    {
        let outcome = play(name, &exact(&topology, 3 * (8 << 20), 1));
        close(last(&outcome), 3.0 * block * copies);
    }
}

#[test]
fn one_seed_is_one_run() {
    let topology = Topology::parse("bordeaux:6,4,3@100mbit").unwrap();
    let trace = |seed| play("chain-shuffled", &real(&topology, 5_000_000, seed)).trace;
    assert_eq!(trace(3), trace(3));
    assert_ne!(trace(3), trace(4));
}

#[test]
fn what_cannot_be_run_is_refused() {
    let topology = Topology::parse("single:1000@1gbit").unwrap();
    let baseline = |size, segment| {
        let Method::Baseline { baseline, shuffled } = Algorithm::parse("chain").unwrap().method else {
            panic!()
        };
        run(baseline, shuffled, &exact(&topology, size, segment), &Progress::new()).unwrap_err()
    };
    assert_eq!(baseline(0, 1), BaselineError::Empty);
    assert_eq!(baseline(1, 0), BaselineError::Empty);
    let topology = Topology::parse("single:20000@1gbit").unwrap();
    let Method::Baseline { baseline, .. } = Algorithm::parse("scatter-allgather").unwrap().method else {
        panic!()
    };
    let refused = run(baseline, false, &exact(&topology, 1 << 30, 1), &Progress::new()).unwrap_err();
    assert_eq!(refused, BaselineError::TooMany(400_000_000));
}

/// Multiples of the size over the rate of a node, and copies over the first link.
fn measured(name: &str, form: &str, megabytes: u64, seed: u64) -> (f64, f64) {
    let topology = Topology::parse(form).unwrap();
    let size = megabytes * 1_000_000;
    let outcome = play(name, &real(&topology, size, seed));
    let ideal = size as f64 * 8.0 / topology.nodes[0].rate as f64 * 1e9;
    let link = outcome.ports.iter().find(|p| p.name == "s0-s1");
    (last(&outcome) as f64 / ideal, link.map_or(0.0, |p| p.bytes as f64 / size as f64))
}

/// Ours and the lab's within `percent`; both are printed.
fn compare(name: &str, form: &str, megabytes: u64, seed: u64, lab: f64, percent: f64) -> f64 {
    let (took, copies) = measured(name, form, megabytes, seed);
    let off = (took / lab - 1.0) * 100.0;
    println!(
        "{name:18} {form:28} {megabytes:3} MB  lab {lab:5.2}  here {took:5.2}  {off:+5.1}%  [{copies:.1}]"
    );
    assert!(off.abs() <= percent, "{name} on {form}: {off:.1}% off");
    copies
}

#[test]
fn chains_take_what_open_mpi_took_in_the_lab() {
    compare("chain", "single:16@50mbit", 50, 1, 1.10, 3.0);
    let copies = compare("chain", "bordeaux:8,6,2@50mbit", 50, 1, 1.10, 3.0);
    assert!((1.0..1.1).contains(&copies));
    compare("chain", "single:64@20mbit", 50, 1, 1.28, 6.0);
    compare("chain", "bordeaux:32,25,7@20mbit", 50, 1, 1.28, 6.0);
    compare("chain", "single:64@20mbit", 10, 1, 2.2, 15.0);
    compare("chain", "bordeaux:32,25,7@20mbit", 10, 1, 2.04, 10.0);
}

#[test]
fn shuffled_chains_take_as_long_as_the_copies_over_the_bottleneck() {
    // seeds whose order crosses the first link as often as the lab's did: 5 and 18 times from s0 to s1
    compare("chain-shuffled", "bordeaux:8,6,2@50mbit", 50, 12, 5.28, 3.0);
    compare("chain-shuffled", "bordeaux:32,25,7@20mbit", 10, 11, 19.5, 3.0);
    compare("chain-shuffled", "single:64@20mbit", 50, 3, 1.29, 6.0);
}

#[test]
fn open_mpis_default_takes_what_it_took_in_the_lab() {
    compare("knomial", "single:64@20mbit", 10, 1, 18.7, 3.0);
    compare("knomial", "bordeaux:32,25,7@20mbit", 10, 1, 18.8, 5.0);
}

#[test]
fn sbcast_takes_what_it_took_in_the_lab() {
    compare("sbcast", "single:16@50mbit", 50, 1, 15.7, 3.0);
    compare("sbcast-1", "single:16@50mbit", 50, 1, 15.7, 3.0);
    compare("sbcast-2", "single:16@50mbit", 50, 1, 15.7, 3.0);
    compare("sbcast-4", "single:16@50mbit", 50, 1, 10.9, 8.0);
}
