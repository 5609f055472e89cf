//! What "MPI vs BitTorrent" (Dichev, Lastovetsky 2012) saw across its bottleneck link, taken apart: which
//! cause halves the chain? docs/simulator-paper.md has the figures in full.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use tidecast_sim::Time;
use tidecast_sim::baselines::{Algorithm, Broadcast, Method, Mpi, run};
use tidecast_sim::network::Model;
use tidecast_sim::progress::Progress;
use tidecast_sim::topology::Topology;

/// Seconds of a broadcast to the paper's 64 nodes of 1 Gb/s, with these options of the bottleneck.
fn site(name: &str, megabytes: u64, options: &str, eager: bool) -> f64 {
    seconds(name, megabytes, &format!("bordeaux:32,25,7@1gbit{options}"), eager)
}

fn seconds(name: &str, megabytes: u64, form: &str, eager: bool) -> f64 {
    let Method::Baseline { baseline, shuffled } = Algorithm::parse(name).unwrap().method else {
        panic!("{name}")
    };
    let topology = &Topology::parse(form).unwrap();
    let (model, size, segment) = (Model::default(), megabytes * 1_000_000, 128 << 10);
    let mpi = if eager { Mpi { eager: u64::MAX, ..Mpi::default() } } else { Mpi::default() };
    let job = Broadcast { topology, model, size, segment, mpi, seed: 1, until: Time(u64::MAX / 2) };
    let outcome = run(baseline, shuffled, &job, &Progress::new()).unwrap();
    outcome.finished.iter().map(|t| t.expect("everyone finishes").0).max().unwrap() as f64 / 1e9
}

#[test]
fn the_narrow_link_alone_costs_a_chain_nothing() {
    let alone = seconds("chain", 50, "single:64@1gbit", false);
    for options in ["", ",bottleneck=10gbit"] {
        let across = site("chain", 50, options, false);
        assert!(across < alone * 1.01, "{across} s, {alone} s on one switch");
    }
}

#[test]
fn the_way_there_and_back_halves_it_and_only_where_each_segment_waits_for_an_answer() {
    // 128 KiB take 1.1 ms at 1 Gb/s; there and back over this link takes as long
    let (near, far) = (site("chain", 50, "", false), site("chain", 50, ",delay=550us", false));
    assert!((1.75..2.1).contains(&(far / near)), "{far} s for {near} s");
    let far = site("chain", 50, ",delay=550us,bottleneck=10gbit", false);
    assert!((1.75..2.1).contains(&(far / near)), "{far} s for {near} s with ten times the rate");
    let (near, far) = (site("chain", 50, "", true), site("chain", 50, ",delay=550us", true));
    assert!(far < near * 1.01, "{far} s for {near} s without rendezvous");
}

#[test]
fn then_mpich_overtakes_open_mpi_for_large_messages_as_the_paper_saw() {
    let near = |name| site(name, 100, "", false);
    let far = |name| site(name, 100, ",delay=700us", false);
    assert!(near("chain") < 0.7 * near("scatter-allgather"));
    assert!(far("scatter-allgather") < 0.95 * far("chain"));
    // on one switch MPICH leads only below 10 MB
    let switch = |name, megabytes| seconds(name, megabytes, "single:64@1gbit", false);
    assert!(switch("scatter-allgather", 5) < switch("chain", 5));
    assert!(switch("chain", 50) < switch("scatter-allgather", 50));
}

#[test]
fn an_order_that_ignores_the_switches_costs_far_more_than_half() {
    let (ordered, shuffled) = (site("chain", 50, "", false), site("chain-shuffled", 50, "", false));
    assert!(shuffled > 8.0 * ordered, "{shuffled} s for {ordered} s");
}
