//! BitLib section V: clients that read one small file after another (per-file mode), all the same, from one
//! seeder. The effect of each of BitTorrent's mechanisms on the second client, which Tidecast's own policy
//! does not have.
//!
//! `cargo test -p tidecast-sim --test bitlib -- --nocapture` prints the table.
#![allow(clippy::single_range_in_vec_init, clippy::unwrap_used, clippy::print_stdout)]

use tidecast_sim::check::Watch;
use tidecast_sim::job::{Host, Job, Protocols, SPREAD};
use tidecast_sim::network::Model;
use tidecast_sim::topology::{NodeId, Topology};
use tidecast_sim::world::World;
use tidecast_swarm::{Limits, Policy, Time};

/// Files, each of one piece: "all clients are asking for the same piece of a small shared library".
const FILES: u32 = 384;
const FILE: u32 = 1 << 20;
const MS: u64 = 1_000_000;

/// The result of one client.
#[derive(Clone, Copy, Debug, Default)]
struct Client {
    files: u32,
    /// When it had its last file, and the longest that it waited for one, ms.
    done: u64,
    waited: u64,
    last: u64,
}

/// Two clients on 100 Mb/s, the second a moment later than the first; and bytes received twice, in
/// thousandths.
fn per_file(policy: Policy, protocols: Protocols) -> ([Client; 2], u64) {
    let job = Job {
        topology: Topology::parse("single:3@100mbit").unwrap(),
        model: Model::default(),
        lengths: vec![FILE; FILES as usize],
        policy,
        // One slot is BitLib's case with two clients; with the usual three it takes five clients.
        limits: Limits { upload_slots: 1, ..Limits::default() },
        protocols,
        leaves: true,
        host: Host { settle: 1_200_000_000, think: 50_000 },
        plan: None,
        acquaintances: 2,
        joins: vec![(Time(0), NodeId(1)), (Time(20 * MS), NodeId(2))],
        faults: vec![],
        jitter: 0,
        spread: SPREAD,
        wants: vec![(NodeId(1), vec![0..1]), (NodeId(2), vec![0..1])],
        gathers: false,
        opens: None,
        until: Time(600_000 * MS),
        seed: 1,
    };
    let mut world = World::watched(&job, Watch::Light).unwrap();
    let mut clients = [Client::default(); 2];
    while world.step().unwrap() {
        for (i, client) in clients.iter_mut().enumerate() {
            let node = NodeId(i as u32 + 1);
            let now = world.now().0 / MS;
            let has = world.nodes()[i + 1].engine.as_ref().is_some_and(|e| e.have(client.files));
            if !has {
                continue;
            }
            *client = Client {
                files: client.files + 1,
                done: now,
                waited: client.waited.max(now - client.last),
                last: now,
            };
            if client.files < FILES {
                world.want(node, client.files..client.files + 1);
            }
        }
    }
    let size = u64::from(FILES) * u64::from(FILE);
    (clients, world.outcome().duplicate * 1000 / (2 * size))
}

fn show(name: &str, policy: Policy, protocols: Protocols) -> ([Client; 2], u64) {
    let (clients, twice) = per_file(policy, protocols);
    let [a, b] = clients;
    println!(
        "{name:24} {:>6.1} s {:>6.1} s {:>6.1} s {:>5.1}%",
        a.done as f64 / 1000.0,
        b.done as f64 / 1000.0,
        b.waited.max(a.waited) as f64 / 1000.0,
        twice as f64 / 10.0
    );
    assert_eq!((a.files, b.files), (FILES, FILES), "{name}: somebody never gets all");
    (clients, twice)
}

#[test]
fn classic_starves_the_second_client_and_tidecast_does_not() {
    let stock = Protocols::Stock { fast: true };
    println!("{:24} {:>8} {:>8} {:>8} {:>6}", "policy", "first", "second", "waited", "twice");
    let off = Policy::TIDECAST;
    let (classic, _) = show("classic", Policy::CLASSIC, stock);
    let (unchoked, _) = show("classic, no choking", Policy { choking: false, ..Policy::CLASSIC }, stock);
    let (spread, _) =
        show("classic, no distribution", Policy { distribution: false, ..Policy::CLASSIC }, stock);
    show("classic, no endgame", Policy { endgame: false, ..Policy::CLASSIC }, stock);
    let (choking, _) = show("choking alone", Policy { choking: true, ..off }, stock);
    let (distribution, _) = show("distribution alone", Policy { distribution: true, ..off }, stock);
    let (_, endgame) = show("endgame alone", Policy { endgame: true, ..off }, stock);
    let (_, none) = show("none of them", off, stock);
    let (ours, _) = show("tidecast", off, Protocols::Tidecast);
    let waited = |c: &[Client; 2]| c[0].waited.max(c[1].waited);
    let apart = |c: &[Client; 2]| c[1].done.abs_diff(c[0].done);
    // The first finishes in normal time, the second waits for chance: 10 s until it is choked, 30 s
    // until the next optimistic unchoke.
    assert!(waited(&classic) >= 15_000 && apart(&classic) >= 10_000, "{classic:?}");
    // It is choking that starves; distribution makes it twice as long.
    assert!(waited(&choking) >= 8_000, "{choking:?}");
    assert!(waited(&spread) >= 8_000 && waited(&spread) < waited(&classic), "{spread:?}");
    for client in [&unchoked, &distribution] {
        assert!(waited(client) < 1_000, "{client:?}");
    }
    assert!(endgame > none, "endgame downloads nothing twice");
    assert!(waited(&ours) < 1_000 && apart(&ours) < 1_000, "{ours:?}");
}
