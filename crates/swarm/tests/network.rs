//! Engines in a small model network: all nodes complete, near the bound, despite any fault.
#![allow(clippy::single_range_in_vec_init, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod world;

use tidecast_swarm::{Event, Policy, Protocol, Reason};
use world::*;

const MB: u64 = 1_000_000;
const MIB: u32 = 1 << 20;

/// An origin and `n` getters, all of `rate`.
fn broadcast(n: usize, pieces: u32, len: u32, rate: u64, protocol: Protocol) -> World {
    let mut w = World::new(vec![len; pieces as usize], protocol);
    let seed = w.seed_spec(rate);
    w.add(seed);
    for _ in 0..n {
        let spec = w.spec(rate);
        w.add(spec);
    }
    w
}

/// Completion time against S / B, in percent.
fn percent(w: &World, rate: u64) -> u64 {
    w.last() * 100 / (w.total() * S / rate)
}

fn assert_no_bans(w: &World) {
    for (i, n) in w.nodes.iter().enumerate() {
        assert!(n.banned.is_empty(), "node {i} banned {:?}", n.banned);
        n.engine.check().unwrap();
    }
}

#[test]
fn one_gets_from_one() {
    for protocol in [TIDE, STOCK, FAST] {
        let mut w = broadcast(1, 100, MIB, 100 * MB, protocol);
        w.full_mesh();
        w.finish(60 * S);
        assert!(percent(&w, 100 * MB) < 110, "{protocol:?}: {}", percent(&w, 100 * MB));
        assert_eq!(w.duplicates(), 0);
        assert_no_bans(&w);
    }
}

#[test]
fn a_long_fat_path_is_filled() {
    for (protocol, bound) in [(TIDE, 200), (FAST, 1200)] {
        let mut w = broadcast(1, 1024, MIB, 1000 * MB, protocol);
        w.delay = 10 * MS;
        w.full_mesh();
        w.finish(60 * S);
        let time = percent(&w, 1000 * MB);
        eprintln!("10 ms, 1 GB/s, {protocol:?}: {time}%");
        // A stock peer that has not said how much it queues gets 250 requests.
        assert!(time < bound, "{protocol:?}: {time}%");
        assert_no_bans(&w);
    }
}

#[test]
fn eight_help_one_another() {
    for (protocol, bound) in [(TIDE, 122), (STOCK, 122), (FAST, 122)] {
        let mut w = broadcast(8, 256, MIB, 100 * MB, protocol);
        w.full_mesh();
        w.finish(120 * S);
        let copies = w.sent(0) * 100 / w.total();
        let time = percent(&w, 100 * MB);
        eprintln!("{protocol:?}: copies {copies}% time {time}% dup {}‰ {:?}", w.duplicates(), w.asks);
        assert!(copies < bound, "{protocol:?}: {copies}% of a copy");
        assert!(time < bound, "{protocol:?}: {time}%");
        assert!(w.duplicates() < 10, "{}", w.duplicates());
        assert_no_bans(&w);
    }
}

#[test]
fn big_pieces_and_odd_lengths() {
    let mut w = World::new(vec![16 * MIB, 16 * MIB, 16 * MIB, 5, 3 * MIB + 7], TIDE);
    let seed = w.seed_spec(100 * MB);
    w.add(seed);
    for _ in 0..3 {
        let spec = w.spec(100 * MB);
        w.add(spec);
    }
    w.full_mesh();
    w.finish(60 * S);
    assert!(w.duplicates() < 10);
    assert_no_bans(&w);
}

#[test]
fn a_peer_that_drops_out_costs_little() {
    for silent in [false, true] {
        let mut w = broadcast(6, 256, MIB, 100 * MB, TIDE);
        w.full_mesh();
        w.kill(700 * MS, 3, silent);
        w.kill(900 * MS, 5, silent);
        w.finish(120 * S);
        eprintln!("silent {silent}: {}% dup {}", percent(&w, 100 * MB), w.duplicates());
        assert!(percent(&w, 100 * MB) < 250);
        assert!(w.duplicates() < 20, "{}", w.duplicates());
        assert_no_bans(&w);
    }
}

#[test]
fn the_origin_may_leave_after_one_copy() {
    let mut w = broadcast(4, 128, MIB, 100 * MB, TIDE);
    w.full_mesh();
    let total = w.total();
    w.run(60 * S, |w| {
        let have = |p| w.nodes[1..].iter().any(|n| n.engine.have(p));
        w.sent(0) >= total && (0..128).all(have)
    });
    w.kill(w.now, 0, true);
    w.finish(120 * S);
    assert_no_bans(&w);
}

#[test]
fn a_corrupt_peer_is_banned_and_nobody_else() {
    for (protocol, leaves) in [(TIDE, true), (TIDE, false), (STOCK, false)] {
        let mut w = broadcast(5, 128, MIB, 100 * MB, protocol);
        w.leaves = leaves;
        let mut liar = w.seed_spec(100 * MB);
        liar.misbehaviour = Misbehaviour::Corrupt;
        let liar = w.add(liar);
        w.full_mesh();
        w.finish(120 * S);
        let mut accusers = 0;
        for n in &w.nodes {
            assert!(n.banned.iter().all(|b| *b == (liar, Reason::CorruptData)), "{:?}", n.banned);
            accusers += n.banned.len();
            n.engine.check().unwrap();
        }
        assert!(accusers >= 4, "{protocol:?} {leaves}: {accusers}");
    }
}

#[test]
fn a_corrupt_peer_in_shared_pieces_is_found() {
    let mut w = broadcast(3, 4, 16 * MIB, 100 * MB, TIDE);
    w.leaves = false;
    let mut liar = w.seed_spec(100 * MB);
    liar.misbehaviour = Misbehaviour::Corrupt;
    let liar = w.add(liar);
    w.full_mesh();
    w.finish(300 * S);
    for n in &w.nodes {
        assert!(n.banned.iter().all(|b| b.0 == liar), "{:?}", n.banned);
    }
    assert!(w.nodes.iter().any(|n| !n.banned.is_empty()));
}

#[test]
fn withholders_and_refusers_do_not_stop_anyone() {
    for misbehaviour in [Misbehaviour::Withhold, Misbehaviour::Refuse] {
        for protocol in [TIDE, FAST] {
            let mut w = broadcast(4, 128, MIB, 100 * MB, protocol);
            let mut spec = w.seed_spec(100 * MB);
            spec.misbehaviour = misbehaviour;
            w.add(spec);
            w.full_mesh();
            w.finish(120 * S);
            let seconds = w.last() / MS;
            eprintln!("{misbehaviour:?} {protocol:?}: {seconds} ms, dup {}", w.duplicates());
            assert!(seconds < 9_000, "{misbehaviour:?}: {seconds} ms");
            assert_no_bans(&w);
        }
    }
}

#[test]
fn a_slow_peer_holds_nobody_up_and_is_not_let_go() {
    let mut w = broadcast(4, 256, MIB, 100 * MB, TIDE);
    let slow = w.seed_spec(MB / 2);
    let slow = w.add(slow);
    w.full_mesh();
    w.finish(120 * S);
    eprintln!("slow: {}% dup {}", percent(&w, 100 * MB), w.duplicates());
    assert!(percent(&w, 100 * MB) < 170, "{}", percent(&w, 100 * MB));
    assert!(w.duplicates() < 10);
    assert_no_bans(&w);
    let dropped = |n: &Node| n.dropped.iter().any(|d| d.0 == slow && d.1 == Reason::Withholding);
    assert!(!w.nodes.iter().any(dropped));
}

#[test]
fn a_slow_getter_does_not_slow_the_others() {
    let mut w = broadcast(4, 256, MIB, 100 * MB, TIDE);
    let mut slow = w.spec(25 * MB);
    slow.up = 25 * MB;
    let slow = w.add(slow);
    w.full_mesh();
    w.finish(240 * S);
    let others = w.nodes.iter().enumerate().filter(|(i, _)| *i != slow);
    let last = others.filter_map(|(_, n)| n.finished).max().unwrap();
    let time = last * 100 / (w.total() * S / (100 * MB));
    assert!(time < 160, "{time}%");
    assert_no_bans(&w);
}

#[test]
fn a_narrow_downlink_is_nobodys_fault() {
    let mut w = World::new(vec![MIB; 16], TIDE);
    for _ in 0..7 {
        let seed = w.seed_spec(100 * MB);
        w.add(seed);
    }
    let mut spec = w.spec(MB / 4);
    spec.up = MB / 4;
    let slow = w.add(spec);
    w.full_mesh();
    w.finish(600 * S);
    let stats = w.nodes[slow].engine.stats();
    assert!(stats.duplicate * 50 < stats.received, "{stats:?}");
    assert!(percent(&w, MB / 4) < 110, "{}", percent(&w, MB / 4));
    assert!(w.nodes[slow].dropped.iter().all(|d| d.1 == Reason::Useless));
    assert_no_bans(&w);
}

#[test]
fn late_joiners_and_selections() {
    let mut w = broadcast(2, 64, MIB, 100 * MB, TIDE);
    let mut some = w.spec(100 * MB);
    some.want = vec![10..20, 30..31];
    let some = w.add(some);
    w.full_mesh();
    w.finish(60 * S);
    assert_eq!(w.nodes[some].engine.have_ranges(), vec![10..20, 30..31]);
    // A complete node wants more, and dials disconnected peers again.
    w.run(w.now + 10 * S, |_| false);
    w.give(some, Event::Priority { pieces: 0..64, priority: 1 });
    w.finish(w.now + 60 * S);
    let late = w.spec(100 * MB);
    let late = w.add(late);
    w.tell(late, 1, true);
    w.finish(w.now + 60 * S);
    assert_no_bans(&w);
}

#[test]
fn seeds_part_and_told_ones_are_not_dialled_in_circles() {
    let mut w = broadcast(3, 16, MIB, 100 * MB, TIDE);
    w.full_mesh();
    w.finish(60 * S);
    w.run(w.now + 20 * S, |_| false);
    let steps = w.steps;
    w.run(w.now + 600 * S, |_| false);
    for n in &w.nodes {
        assert_eq!(n.engine.stats().peers, 0);
    }
    assert!(w.steps - steps < 100, "{} events in ten idle minutes", w.steps - steps);
}

#[test]
fn random_neighbours_are_enough() {
    let mut w = broadcast(30, 64, MIB, 100 * MB, TIDE);
    for a in 1..31 {
        for b in 0..a {
            w.tell(a, b, false);
        }
    }
    w.finish(120 * S);
    let copies = w.sent(0) * 100 / w.total();
    eprintln!("30 random: {}% dup {} copies {copies}% {:?}", percent(&w, 100 * MB), w.duplicates(), w.asks);
    assert_no_bans(&w);
}

#[test]
fn classic_completes_too() {
    for protocol in [TIDE, STOCK, FAST] {
        let mut w = World::new(vec![MIB; 32], protocol);
        for i in 0..6 {
            let mut spec = if i == 0 { w.seed_spec(100 * MB) } else { w.spec(100 * MB) };
            spec.policy = Policy::CLASSIC;
            w.add(spec);
        }
        w.full_mesh();
        w.finish(600 * S);
        eprintln!("classic {protocol:?}: {} ms dup {}", w.last() / MS, w.duplicates());
        assert_no_bans(&w);
    }
}

/// BitLib section V: clients in per-file mode, each wants the next file when it has the last. The
/// completion time of each client, in ms.
fn per_file(policy: Policy, clients: usize, rate: u64, protocol: Protocol) -> Vec<u64> {
    const FILES: u32 = 12;
    const PIECES: u32 = 4;
    let mut w = World::new(vec![256 * 1024; (FILES * PIECES) as usize], protocol);
    for i in 0..=clients {
        let mut spec = if i == 0 { w.seed_spec(rate) } else { w.spec(rate) };
        spec.policy = policy;
        if i > 0 {
            spec.want = vec![0..PIECES];
        }
        w.add(spec);
    }
    w.full_mesh();
    let mut done = vec![0; clients];
    let mut file = vec![0; clients];
    while file.iter().any(|&f| f < FILES) {
        let at: Vec<u32> = file.clone();
        let ready = |w: &World| (0..clients).any(|c| at[c] < FILES && w.nodes[c + 1].engine.is_complete());
        assert!(w.run(3000 * S, ready), "stuck at {file:?}");
        for c in 0..clients {
            if file[c] < FILES && w.nodes[c + 1].engine.is_complete() {
                file[c] += 1;
                done[c] = w.now / MS;
                let pieces = file[c] * PIECES..(file[c] + 1) * PIECES;
                if file[c] < FILES {
                    w.give(c + 1, Event::Priority { pieces, priority: 1 });
                }
            }
        }
    }
    done
}

#[test]
fn clients_that_want_the_same_file_help_one_another() {
    for clients in [2, 8] {
        let ours = per_file(Policy::TIDECAST, clients, 100 * MB, TIDE);
        let choking = Policy { choking: true, ..Policy::TIDECAST };
        let distribution = Policy { distribution: true, ..Policy::TIDECAST };
        eprintln!("per-file, {clients} clients, ms:\n ours {ours:?}");
        for (name, policy) in
            [("classic", Policy::CLASSIC), ("choking", choking), ("distribution", distribution)]
        {
            eprintln!(" {name} {:?}", per_file(policy, clients, 100 * MB, FAST));
        }
        let (first, last) = (*ours.iter().min().unwrap(), *ours.iter().max().unwrap());
        // One may be ahead, if it is given new pieces first. The others have it from there, and are faster
        // for it than if the origin had given all the same: eight took 740 ms, each, when it did.
        assert!(last <= 2 * first, "somebody starves: {ours:?}");
        assert!(last < 139 * clients.min(4) as u64, "they do not help one another: {ours:?}");
    }
}

/// BitLib section V: all slots are taken by others; a client that comes and wants one small file is
/// starved until an optimistic unchoke. How long it waits, in ms.
fn late_client(policy: Policy) -> u64 {
    let mut w = World::new(vec![256 * 1024; 400], FAST);
    for i in 0..7 {
        let mut spec = if i == 0 { w.seed_spec(4 * MB) } else { w.spec(4 * MB) };
        spec.policy = policy;
        if i == 6 {
            spec.want = vec![200..201];
        }
        w.add(spec);
    }
    for a in 0..6 {
        for b in 0..a {
            w.tell(a, b, true);
        }
    }
    w.run(4 * S, |_| false);
    for b in 0..6 {
        w.tell(6, b, true);
    }
    assert!(w.run(300 * S, |w| w.nodes[6].engine.is_complete()));
    w.now / MS - 4000
}

#[test]
fn bitlib_starvation_is_classic_and_not_ours() {
    let (ours, classic) = (late_client(Policy::TIDECAST), late_client(Policy::CLASSIC));
    eprintln!("a late client waits: ours {ours} ms, classic {classic} ms");
    assert!(ours < 2_000, "{ours} ms");
    assert!(classic > 5_000, "the textbook timers are not textbook: {classic} ms");
}
