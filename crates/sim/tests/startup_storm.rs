//! File servers against arithmetic: the first part to saturate, and its time.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use tidecast_sim::Time;
use tidecast_sim::network::Model;
use tidecast_sim::outcome::Outcome;
use tidecast_sim::progress::Progress;
use tidecast_sim::startup_storm::{Load, Server, Storm, run};
use tidecast_sim::topology::Topology;

const SECOND: u64 = 1_000_000_000;
/// No names: only bytes.
const BYTES: Load = Load { files: 64, operations: 0, cached: 0, size: 64_000_000 };
/// No bytes to speak of.
const NAMES: Load = Load { files: 10, operations: 1000, cached: 100, size: 10 };

fn on(topology: &Topology, server: Server, load: Load) -> Outcome {
    let model = Model::exact();
    run(&Storm { topology, model, server, load, until: Time(1_000_000 * SECOND) }, &Progress::new())
}

fn storm(form: &str, server: Server, load: Load) -> Outcome {
    on(&Topology::parse(form).unwrap(), server, load)
}

fn seconds(outcome: &Outcome) -> f64 {
    outcome.finished.iter().map(|t| t.expect("everyone finishes").0).max().unwrap() as f64 / 1e9
}

fn near(took: f64, wanted: f64, percent: f64) {
    assert!((took / wanted - 1.0).abs() * 100.0 <= percent, "{took} s for {wanted} s");
}

#[test]
fn data_leaves_by_the_servers_link() {
    for clients in [1, 8, 32] {
        let outcome = storm(&format!("single:{}@1gbit", clients + 1), Server::NFS, BYTES);
        near(seconds(&outcome), f64::from(clients) * 0.512, 1.0);
        assert_eq!(outcome.origin_sent, u64::from(clients as u32) * BYTES.size);
        assert_eq!(outcome.finished.len(), clients as usize);
    }
}

#[test]
fn names_leave_at_the_servers_rate() {
    for (server, operations) in [(Server::NFS, 100.0), (Server { cached: false, ..Server::NFS }, 1000.0)] {
        for clients in [1.0, 16.0, 64.0] {
            let outcome = storm(&format!("single:{}@1gbit", clients + 1.0), server, NAMES);
            near(seconds(&outcome), clients * operations / 20_000.0, 15.0);
        }
    }
}

#[test]
fn object_servers_share_the_bytes() {
    // clients that start together read the same file of the same server, until they drift apart
    let all = |objects| seconds(&storm("single:33@1gbit", Server { objects, ..Server::LUSTRE }, BYTES));
    let (one, eight) = (all(1), all(8));
    near(one, 32.0 * 0.512, 1.0);
    assert!(eight <= one && eight >= one / 8.0 * 0.99, "{eight} s of {one} s");
}

#[test]
fn a_storm_costs_nothing_until_the_server_is_busy() {
    // names over 5 ms: 251 operations take a client 2.5 s, in which the server answers 50,000
    let names = |clients: u32| {
        let text = format!(
            "switch a\nswitch b\nnodes 1 a 1gbit\nnodes {clients} b 1gbit\nlink a b 10gbit delay=5ms\n"
        );
        let topology = Topology::from_text(&text).unwrap();
        let load = Load { size: 10, ..Load::PYTHON };
        seconds(&on(&topology, Server::NFS, load))
    };
    let (one, hundred, thousand) = (names(1), names(100), names(1000));
    near(hundred, one, 5.0);
    near(thousand, 1000.0 * 251.0 / 20_000.0, 5.0);
}

#[test]
fn every_name_is_a_server() {
    for name in Server::NAMES {
        assert_eq!(Server::parse(name).unwrap().cached, !name.ends_with("-uncached"), "{name}");
    }
    assert_eq!(Server::parse("gpfs"), None);
}

#[test]
fn libraries_are_as_long_as_pynamics() {
    let load = Load::libraries(1_400_000_000);
    assert_eq!((load.files, load.size), (495, 1_400_000_000));
    assert_eq!((load.operations, load.cached), (495 * 1483 / 122, 495 * 251 / 122));
    assert_eq!(Load::libraries(1).files, 1);
}

#[test]
fn one_storm_is_one_run() {
    let trace = || storm("single:9@1gbit", Server::LUSTRE, Load::PYTHON).trace;
    assert_eq!(trace(), trace());
}
