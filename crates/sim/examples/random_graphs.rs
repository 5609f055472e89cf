//! How near the plan comes to the narrowest cut of random graphs of switches: oversubscribed, asymmetric, meshed, with a
//! slow origin. `random_graphs [GRAPHS] [FIRST SEED] [MIB]` prints a line for each graph that misses [`NEAR`], and a summary.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeSet;
use std::fmt::Write as _;

use tidecast_sim::plan::{Plan, PlanRequest};
use tidecast_sim::progress::Progress;
use tidecast_sim::rng::Rng;
use tidecast_sim::topology::Topology;

/// The share of the bound that a plan should reach.
const NEAR: f64 = 0.97;
/// Rate of a node's card, Mbit/s.
const CARD: u64 = 1_000;

fn main() {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<u64>().unwrap());
    let (graphs, first) = (words.next().unwrap_or(100), words.next().unwrap_or(1));
    let size = words.next().unwrap_or(1_024) << 20;
    let (mut trees, mut meshes) = (Vec::new(), Vec::new());
    for seed in first..first + graphs {
        let text = graph(&mut Rng::new(seed));
        let topology = Topology::from_text(&text).unwrap();
        let kind = if topology.links.len() < topology.switches.len() { &mut trees } else { &mut meshes };
        let (ratio, limit) = simulate(topology, size);
        if ratio < NEAR {
            println!("{seed:5} {ratio:.3} {limit}: {}", text.trim().replace('\n', ", "));
        }
        kind.push(ratio);
    }
    for (kind, mut ratios) in [("trees", trees), ("meshes", meshes)] {
        ratios.sort_by(f64::total_cmp);
        let near = ratios.iter().filter(|ratio| **ratio >= NEAR).count();
        println!("{near} of {} {kind} reach {NEAR} of the bound; {}", ratios.len(), spread(&ratios));
    }
}

/// The middle and the least of sorted ratios.
fn spread(ratios: &[f64]) -> String {
    let Some(least) = ratios.first() else { return "none was drawn".to_owned() };
    format!("median {:.3}, least {least:.3}", ratios[ratios.len() / 2])
}

/// The bound over the time of the last receiver, and what sets the bound.
fn simulate(topology: Topology, size: u64) -> (f64, String) {
    let plan = Plan::new(&PlanRequest { size, ..PlanRequest::default() }, topology).unwrap();
    let outcome = plan.run(0, &Progress::new()).unwrap();
    let last = outcome.finished.iter().map(|at| at.unwrap().0).max().unwrap();
    (plan.bound.cut.unwrap().0 as f64 / last as f64, plan.bound.limit)
}

/// A topology file of 2 to 12 switches: three of four are trees, the others have more links.
fn graph(rng: &mut Rng) -> String {
    let switches = 2 + rng.below(11);
    let mut text: String = (0..switches).map(|s| format!("switch s{s}\n")).collect();
    let origin = if rng.one_in(3) { rng.pick(&[CARD / 4, CARD / 2]) } else { CARD };
    let _ = writeln!(text, "nodes 1 s{} {origin}mbit", rng.below(switches));
    let mut receivers = 0;
    for s in 0..switches {
        let nodes = if rng.one_in(4) { 0 } else { 1 + rng.below(8) };
        if nodes > 0 {
            let _ = writeln!(text, "nodes {nodes} s{s} {CARD}mbit");
        }
        receivers += nodes;
    }
    if receivers < 2 {
        let _ = writeln!(text, "nodes {} s{} {CARD}mbit", 2 + rng.below(6), rng.below(switches));
    }
    let mut linked = BTreeSet::new();
    let mut link = |rng: &mut Rng, a: u64, b: u64| {
        if a == b || !linked.insert((a.min(b), a.max(b))) {
            return;
        }
        let rate = rng.pick(&[CARD / 4, CARD / 2, CARD, 2 * CARD, 4 * CARD, 10 * CARD]);
        let _ = writeln!(text, "link s{a} s{b} {rate}mbit");
    };
    for s in 1..switches {
        let other = rng.below(s);
        link(rng, s, other);
    }
    if rng.one_in(4) {
        for _ in 0..1 + rng.below(switches) {
            let (a, b) = (rng.below(switches), rng.below(switches));
            link(rng, a, b);
        }
    }
    text
}
