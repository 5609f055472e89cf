//! The bound of known networks, and of small networks against every possible cut.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use tidecast_sim::bound::{bound, bound_with};
use tidecast_sim::fault::Spec;
use tidecast_sim::job::Job;
use tidecast_sim::topology::{Link, NodeId, Topology};

fn everyone(t: &Topology) -> Vec<NodeId> {
    (1..t.len()).map(NodeId).collect()
}

/// Milliseconds for 1 MB without headers, and the limit.
fn of(form: &str) -> (u64, String) {
    let t = Topology::parse(form).unwrap();
    let b = bound(&t, 1_000_000, &everyone(&t), 1, 1);
    (b.time.0 / 1_000_000, b.limit)
}

#[test]
fn known_networks() {
    for (form, ms, limit) in [
        ("single:8@100mbit", 80, "node links at 100 Mbit/s"),
        ("single:8@100mbit,origin=20mbit", 400, "the origin's link at 20 Mbit/s"),
        ("single:8@100mbit,origin=25gbit", 80, "node links at 100 Mbit/s"),
        ("bordeaux:4,4,4@100mbit,bottleneck=2.5mbit", 3_200, "link s0-s1 at 2.5 Mbit/s"),
        ("bordeaux:4,4,4@100mbit,trunk=10mbit", 800, "link s1-s2 at 10 Mbit/s"),
        ("sites:4,4,4@100mbit,wan=20mbit,delay=50ms", 400, "link s1-wan at 20 Mbit/s"),
        ("nat:4@100mbit,bottleneck=10mbit", 800, "link s1-s0 at 10 Mbit/s"),
        ("fattree:4@100mbit", 80, "node links at 100 Mbit/s"),
        ("fattree:4@100mbit,oversubscribe=2", 80, "node links at 100 Mbit/s"),
        ("fattree:4@100mbit,oversubscribe=4", 160, "the 2 links of switch p0e1 at 50 Mbit/s together"),
        (
            "dragonfly:4,2,2@100mbit,global=1mbit",
            1_000,
            "the 8 links of g1r0 and 3 other switches at 8 Mbit/s together",
        ),
        ("single:1@100mbit", 0, "no receivers"),
    ] {
        assert_eq!(of(form), (ms, limit.to_owned()), "{form}");
    }
}

#[test]
fn the_minimum_cut_stands_beside_the_slowest_node() {
    for (form, simple, cut) in [
        ("bordeaux:4,4,4@100mbit,bottleneck=2.5mbit", 80, 3_200),
        ("fattree:4@100mbit,oversubscribe=4", 80, 160),
        ("single:8@100mbit,origin=20mbit", 400, 400),
        ("single:1@100mbit", 0, 0),
    ] {
        let t = Topology::parse(form).unwrap();
        let b = bound(&t, 1_000_000, &everyone(&t), 1, 1);
        let ms = |time: tidecast_sim::Time| time.0 / 1_000_000;
        assert_eq!((ms(b.simple), b.cut.map(ms)), (simple, Some(cut)), "{form}");
    }
}

#[test]
fn only_those_who_receive_count() {
    let t = Topology::parse("bordeaux:4,4@100mbit,bottleneck=1mbit").unwrap();
    let near: Vec<NodeId> = (0..4).map(NodeId).collect();
    assert_eq!(bound(&t, 1_000_000, &near, 1, 1).limit, "node links at 100 Mbit/s");
}

#[test]
fn the_slowest_receiver_is_named() {
    let t = Topology::from_text("switch a\nnodes 3 a 10mbit\nnodes 1 a 1mbit\nnodes 2 a 10mbit\n").unwrap();
    assert_eq!(bound(&t, 1, &everyone(&t), 1, 1).limit, "the link of n3 at 1 Mbit/s");
}

#[test]
fn headers_take_their_share() {
    let t = Topology::parse("single:2@1gbit").unwrap();
    assert_eq!(bound(&t, 1448, &everyone(&t), 1448, 1538).time.0, 1538 * 8);
    assert_eq!(bound(&t, u64::MAX, &everyone(&t), 1, 1).time.0, u64::MAX);
}

/// The first flow from r takes the link from a to b, the second one goes back over it with more than it carries alone.
#[test]
fn flows_that_turn_each_other_back_are_undone() {
    let links =
        [("r a", 2), ("a b", 2), ("b o", 2), ("r p", 3), ("p b", 3), ("a x", 3), ("x y", 3), ("y o", 3)];
    let mut text: String =
        ["o", "r", "a", "b", "p", "x", "y"].map(|name| format!("switch {name}\n")).concat();
    links.iter().for_each(|(ends, rate)| text += &format!("link {ends} {rate}mbit\n"));
    let t = Topology::from_text(&(text + "nodes 1 o 9mbit\nnodes 2 r 9mbit\n")).unwrap();
    assert_eq!(bound(&t, 1, &everyone(&t), 1, 1).limit, "the 2 links of switch r at 5 Mbit/s together");
}

#[test]
fn meshes_of_thousands_of_switches_are_quick() {
    for (form, rate) in [
        ("fattree:48@10gbit,oversubscribe=40", "6 Gbit/s"),
        ("dragonfly:16,8,8@10gbit,global=50mbit", "6.4 Gbit/s"),
        ("leafspine:1000,40,20@10gbit,oversubscribe=30", "6.666 Gbit/s"),
    ] {
        assert!(of(form).1.contains(rate), "{form}: {}", of(form).1);
    }
}

/// Up to seven switches in a connected mess, a node on each of some of them.
fn mess() -> impl Strategy<Value = Topology> {
    let rate = || 1_u64..12;
    let chain = prop::collection::vec((any::<prop::sample::Index>(), rate()), 0..7);
    let more =
        prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), rate()), 0..8);
    (chain, more, prop::collection::vec((any::<prop::sample::Index>(), rate()), 2..6)).prop_map(
        |(chain, more, nodes)| {
            let switches = chain.len() + 1;
            let mut t = Topology {
                switches: (0..switches).map(|i| format!("s{i}")).collect(),
                ..Topology::default()
            };
            let mut link = |a: usize, b: usize, r: u64| {
                if a != b {
                    t.links.push(Link { a: a as u32, b: b as u32, rate: r * 1_000_000, ..Link::default() });
                }
            };
            chain.iter().enumerate().for_each(|(i, (to, r))| link(i + 1, to.index(i + 1), *r));
            more.iter().for_each(|(a, b, r)| link(a.index(switches), b.index(switches), *r));
            let mut text = t.to_text();
            nodes
                .iter()
                .for_each(|(at, r)| text += &format!("nodes 1 s{} {}mbit\n", at.index(switches), r * 3));
            Topology::from_text(&text).unwrap()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_cut_is_narrower(t in mess()) {
        let n = t.switches.len() as u32;
        let mut narrowest = t.nodes.iter().map(|node| node.rate).min().unwrap();
        let beyond = |cut: u32, switch: u32| cut >> switch & 1 == 1;
        for cut in 0..1_u32 << n {
            let separates = t.nodes.iter().any(|node| beyond(cut, node.switch));
            if !beyond(cut, t.nodes[0].switch) && separates {
                let crossing = t.links.iter().filter(|l| beyond(cut, l.a) != beyond(cut, l.b));
                narrowest = narrowest.min(crossing.map(|l| l.rate).sum());
            }
        }
        let b = bound(&t, 1_000_000, &everyone(&t), 1, 1);
        prop_assert_eq!(b.time.0, 8_000_000 * 1_000_000_000 / narrowest, "{}", b.limit);
        let simple = t.nodes.iter().map(|node| node.rate).min().unwrap();
        prop_assert_eq!((b.cut, b.simple.0), (Some(b.time), 8_000_000 * 1_000_000_000 / simple));
        let megabits = format!(" {} Mbit/s", narrowest / 1_000_000);
        prop_assert!(b.limit.contains(&megabits), "{} is not{}", b.limit, megabits);
    }
}

/// Milliseconds for 10 MB to seven others at 100 Mbit/s, without headers, where these faults strike.
fn struck(faults: &[&str]) -> (u64, String) {
    let topology = Topology::parse("bordeaux:4,4@100mbit").unwrap();
    let mut job = Job::plain(topology, vec![1 << 20; 10]);
    faults.iter().for_each(|fault| fault.parse::<Spec>().unwrap().apply(&mut job).unwrap());
    let b = bound_with(&job.topology, &job.faults, 10_000_000, &everyone(&job.topology), 1, 1);
    (b.time.0 / 1_000_000, b.limit)
}

#[test]
fn faults_that_change_rates_count() {
    for (faults, ms, limit) in [
        (&[][..], 800, "node links at 100 Mbit/s"),
        (&["slow:3=10mbit@0s"], 8_000, "the link of n3 at 10 Mbit/s"),
        (&["slow:0=10mbit@0s"], 8_000, "the origin's link at 10 Mbit/s"),
        // 0.4 s at 100 Mbit/s leave half of it.
        (&["slow:3=10mbit@400ms"], 4_400, "the link of n3 at 10 Mbit/s, because of a fault"),
        // One second at 10 Mbit/s takes 10 of 80 Mbit.
        (&["slow:3=10mbit@0s+1s"], 1_700, "the link of n3 at 100 Mbit/s, because of a fault"),
        (&["slow:3=10mbit@9s"], 800, "node links at 100 Mbit/s"),
        (&["slow:3=10mbit@0s", "die:3@1s"], 800, "node links at 100 Mbit/s"),
        (&["slow:3=10mbit@0s", "slow:5=5mbit@0s"], 16_000, "the link of n5 at 5 Mbit/s"),
        (&["link:s0-s1=20mbit@0s"], 4_000, "link s0-s1 at 20 Mbit/s"),
        // A waiting node gets the whole link: it has no guaranteed share.
        (&["link:s0-s1=20mbit@0s+1s"], 800, "node links at 100 Mbit/s"),
        (&["cut:s0-s1@0s+1s"], 800, "node links at 100 Mbit/s"),
        (&["die:0-7@1s"], 800, "node links at 100 Mbit/s"),
    ] {
        assert_eq!(struck(faults), (ms, limit.to_owned()), "{faults:?}");
    }
}
