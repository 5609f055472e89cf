//! The questions of "MPI vs BitTorrent" (Dichev, Lastovetsky 2012) and of BitLib's figure 5, asked of the
//! simulator: `paper run ..` and `paper storm ..` print the tables of docs/simulator-paper.md.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::time::Instant;

use tidecast_sim::baselines::{self, Algorithm, Broadcast, Method, Mpi};
use tidecast_sim::check::Watch;
use tidecast_sim::job::{Host, Job, Protocols};
use tidecast_sim::network::Model;
use tidecast_sim::outcome::Outcome;
use tidecast_sim::progress::Progress;
use tidecast_sim::startup_storm::{self, Load, Server, Storm};
use tidecast_sim::topology::Topology;
use tidecast_sim::world::World;
use tidecast_swarm::{Policy, Time};

const FOREVER: Time = Time(100_000_000_000_000);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rest: Vec<&str> = args.iter().skip(1).map(String::as_str).collect();
    match args.first().map(String::as_str) {
        Some("run") => run_one(&rest),
        Some("storm") => storms(rest[0].parse().unwrap()),
        _ => println!("run TOPOLOGY MB ALGORITHM.. | storm NODES"),
    }
}

/// One line an algorithm: seconds of the last node, multiples of size over rate, copies over each link.
fn run_one(args: &[&str]) {
    let topology = Topology::parse(args[0]).unwrap();
    let size = args[1].parse::<u64>().unwrap() * 1_000_000;
    for name in &args[2..] {
        let clock = Instant::now();
        let outcome = broadcast(name, &topology, size);
        let took = last(&outcome);
        let ideal = size as f64 * 8.0 / topology.nodes[0].rate as f64;
        let copies = |p: &str| outcome.ports.iter().find(|o| o.name == p).map_or(0.0, |o| o.bytes as f64);
        println!(
            "{} {} MB {name:18} {took:8.3} s {:6.2} x [{:.1} {:.1}] origin {:.2} | {:.1?} {} events",
            args[0],
            args[1],
            took / ideal,
            copies("s0-s1") / size as f64,
            copies("s1-s0") / size as f64,
            outcome.origin_sent as f64 / size as f64,
            clock.elapsed(),
            outcome.events,
        );
    }
}

/// Runs one algorithm; `chain-eager` is the chain without rendezvous.
fn broadcast(name: &str, topology: &Topology, size: u64) -> Outcome {
    let (name, mpi) = match name.strip_suffix("-eager") {
        Some(name) => (name, Mpi { eager: u64::MAX, ..Mpi::default() }),
        None => (name, Mpi::default()),
    };
    let policy = match Algorithm::parse(name).unwrap().method {
        Method::Baseline { baseline, shuffled } => {
            let (model, segment) = (Model::default(), 128 << 10);
            let job = Broadcast { topology, model, size, segment, mpi, seed: 1, until: FOREVER };
            return baselines::run(baseline, shuffled, &job, &Progress::new()).unwrap();
        }
        Method::Tidecast(_) => None,
        Method::Torrent(policy) => Some(policy),
    };
    let piece = if size > 1 << 30 { 4 << 20 } else { 256 << 10 }; // mainline's for torrents of this size
    let lengths = (0..size.div_ceil(piece)).map(|i| piece.min(size - i * piece) as u32).collect();
    let job = Job {
        policy: policy.unwrap_or(Policy::TIDECAST),
        protocols: policy.map_or(Protocols::Tidecast, |_| Protocols::Stock { fast: false }),
        leaves: policy.is_none(),
        host: Host { settle: 1_200_000_000, think: 50_000 },
        acquaintances: 35, // the client of the paper keeps this many
        until: FOREVER,
        ..Job::plain(topology.clone(), lengths)
    };
    World::watched(&job, Watch::Light).unwrap().run(&Progress::new()).unwrap()
}

/// Seconds until the last receiver was complete.
fn last(outcome: &Outcome) -> f64 {
    outcome.finished.iter().map(|t| t.map_or(f64::INFINITY, |t| t.0 as f64 / 1e9)).fold(0.0, f64::max)
}

/// BitLib's figure 5: how long until every node has Pynamic's libraries, from a Lustre as fast as Cielo's
/// (160 GB/s) and from smaller servers; the program's own work is not counted.
fn storms(most: u32) {
    let cielo = Server { objects: 128, rate: 10_000_000_000, ..Server::LUSTRE };
    let slow = Server { names: 20_000, ..cielo };
    let servers = [
        Server::NFS,
        Server::LUSTRE,
        Server { cached: false, ..cielo },
        Server { cached: false, ..slow },
        slow,
    ];
    println!(
        "| nodes | nfs | lustre | wide, 100,000/s, uncached | 20,000/s, uncached | 20,000/s | tidecast |"
    );
    println!("|---|---|---|---|---|---|---|");
    for nodes in [1_u32, 4, 16, 64, 256, 512, 1024].into_iter().filter(|&n| n <= most) {
        let topology = Topology::parse(&format!("single:{}@10gbit", nodes + 1)).unwrap();
        let load = Load::libraries(1_400_000_000);
        let mut line = format!("| {nodes} |");
        for server in servers {
            let storm = Storm { topology: &topology, model: Model::default(), server, load, until: FOREVER };
            line += &format!(" {:.1} |", last(&startup_storm::run(&storm, &Progress::new())));
        }
        println!("{line} {:.1} |", last(&broadcast("swarm", &topology, load.size)));
    }
}
