//! Topologies: the forms, the file, refusals, and routes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use tidecast_sim::topology::{Link, Node, NodeId, Port, Routes, Topology, units};

fn parse(form: &str) -> Topology {
    Topology::parse(form).unwrap()
}

#[test]
fn one_switch_by_default_at_100_mbit() {
    let t = parse("single:16");
    assert_eq!(t.nodes, vec![Node { switch: 0, rate: 100_000_000 }; 16]);
    assert!(t.links.is_empty());
    assert_eq!(t.ports(), 32);
}

#[test]
fn the_first_link_of_bordeaux_is_the_bottleneck() {
    let t = parse("bordeaux:32,25,7@20mbit");
    assert_eq!(t.links[0], Link { a: 0, b: 1, rate: 20_000_000, ..Link::default() });
    assert_eq!(t.links[1], Link { a: 1, b: 2, rate: 200_000_000, ..Link::default() });
    assert_eq!(t.nodes[32].switch, 1);
}

#[test]
fn bordeaux_with_every_option() {
    let t = parse(
        "bordeaux:2,2,2@20mbit,bottleneck=5mbit,trunk=1gbit,delay=2.5ms,loss=0.1%,dup=1%,reorder=0.02,queue=64k",
    );
    let delay = 2_500_000;
    let first = Link {
        b: 1,
        rate: 5_000_000,
        delay,
        loss: 1_000,
        dup: 10_000,
        reorder: 20_000,
        queue: 65_536,
        ..Link::default()
    };
    assert_eq!(t.links, [first, Link { a: 1, b: 2, rate: 1_000_000_000, ..Link::default() }]);
    assert!(t.to_text().ends_with(
        "link s0 s1 5mbit delay=2500us loss=0.001 dup=0.01 reorder=0.02 queue=65536\nlink s1 s2 1gbit\n"
    ));
}

#[test]
fn nat_puts_only_the_origin_outside() {
    let t = parse("nat:4@100mbit");
    let routes = Routes::new(&t);
    assert!(routes.reaches(NodeId(1), NodeId(0)) && routes.reaches(NodeId(1), NodeId(2)));
    assert!(!routes.reaches(NodeId(0), NodeId(1)));
}

#[test]
fn nat_in_nat_and_neighbours_behind_two() {
    let t = Topology::from_text(
        "switch a\nswitch b\nswitch c\nswitch d\nnodes 1 a 1mbit\nnodes 1 b 1mbit\nnodes 1 c 1mbit\nnodes 1 d 1mbit\n\
         link b a 1mbit nat\nlink c b 1mbit nat\nlink d a 1mbit nat\n",
    );
    let routes = Routes::new(&t.unwrap());
    let reached = |from| (0..4).filter(|to| routes.reaches(NodeId(from), NodeId(*to))).collect::<Vec<u32>>();
    assert_eq!(
        [reached(0), reached(1), reached(2), reached(3)],
        [vec![0], vec![0, 1], vec![0, 1, 2], vec![0, 3]]
    );
}

#[test]
fn ports_have_names_and_rates() {
    let t = parse("bordeaux:2,3@20mbit,bottleneck=5mbit,origin=1gbit");
    let names: Vec<String> = [0, 3, 10, 11].map(|p| t.port_name(Port(p))).into();
    assert_eq!(names, ["n0 out", "n1 in", "s0-s1", "s1-s0"]);
    assert_eq!(
        [0, 1, 2, 10, 12].map(|p| t.port_rate(Port(p))),
        [1_000_000_000, 1_000_000_000, 20_000_000, 5_000_000, 0]
    );
    assert_eq!(t.link_ports(0), [Port(10), Port(11)]);
}

#[test]
fn a_way_adds_up_delay_and_loss() {
    let t = parse("sites:2,2@1gbit,wan=100mbit,delay=10ms,loss=1%");
    let mut routes = Routes::new(&t);
    let way = routes.path(NodeId(0), NodeId(3));
    assert_eq!(way.ports.as_slice(), [Port(0), Port(8), Port(11), Port(7)]);
    assert_eq!((way.delay, way.loss), (20_000_000, 19_900));
    assert_eq!(routes.path(NodeId(0), NodeId(1)).ports.as_slice(), [Port(0), Port(3)]);
}

#[test]
fn fat_tree_has_the_published_counts() {
    let t = parse("fattree:4@10gbit");
    assert_eq!((t.nodes.len(), t.switches.len(), t.links.len()), (16, 20, 32));
    let t = parse("fattree:48@10gbit,oversubscribe=4");
    assert_eq!((t.nodes.len(), t.switches.len(), t.links.len()), (27_648, 2_880, 55_296));
    assert_eq!((t.links[0].rate, t.links[55_295].rate), (2_500_000_000, 10_000_000_000));
    assert_eq!(parse("fattree:92@400gbit").nodes.len(), 194_672, "the biggest");
    let mut degree = vec![0; t.switches.len()];
    t.links.iter().for_each(|l| [l.a, l.b].into_iter().for_each(|s| degree[s as usize] += 1));
    assert!(degree.iter().all(|d| *d == 24 || *d == 48));
}

#[test]
fn dragonfly_links_each_two_groups_once() {
    let t = parse("dragonfly:4,2,2@10gbit,global=25gbit,delay=1us");
    assert_eq!((t.nodes.len(), t.switches.len(), t.links.len()), (72, 36, 9 * 6 + 36));
    let mut pairs: Vec<(u32, u32)> =
        t.links.iter().map(|l| (l.a / 4, l.b / 4)).filter(|(a, b)| a != b).collect();
    pairs.sort_unstable();
    pairs.dedup();
    assert_eq!(pairs.len(), 36);
    let global = |s: u32| t.links.iter().filter(|l| l.delay > 0 && (l.a == s || l.b == s)).count();
    assert!((0..36).all(|s| global(s) == 2), "every router has its two global links");
}

#[test]
fn leaf_and_spine_uplinks_carry_what_the_nodes_send() {
    let t = parse("leafspine:3,2,4@10gbit,origin=25gbit");
    assert_eq!((t.nodes.len(), t.links.len(), t.links[0].rate), (12, 6, 20_000_000_000));
    assert_eq!((t.nodes[0].rate, t.nodes[1].rate), (25_000_000_000, 10_000_000_000));
}

#[test]
fn equal_ways_share_the_flows() {
    let t = parse("leafspine:4,8,8@10gbit");
    let mut routes = Routes::new(&t);
    let mut by_spine = [0_u32; 8];
    for (from, to) in (0..8).flat_map(|i| (8..32).map(move |j| (i, j))) {
        let way = routes.path(NodeId(from), NodeId(to));
        by_spine[t.links[(way.ports[1].0 / 2 - t.len()) as usize].b as usize - 4] += 1;
    }
    assert!(by_spine.iter().all(|n| (12..=36).contains(n)), "192 flows over 8 spines: {by_spine:?}");
}

#[test]
fn with_nodes_keeps_shares_and_origin() {
    let t = parse("bordeaux:33,25,7@20mbit,origin=1gbit").with_nodes(129).unwrap();
    let on = |s| t.nodes.iter().filter(|n| n.switch == s).count();
    assert_eq!([on(0), on(1), on(2)], [65, 50, 14]);
    assert_eq!(t.nodes.iter().filter(|n| n.rate == 1_000_000_000).count(), 1);
    let few = parse("fattree:16@1gbit").with_nodes(64).unwrap();
    let mut per_pod = [0; 16];
    few.nodes.iter().for_each(|n| per_pod[n.switch as usize / 16] += 1);
    assert!(per_pod.iter().all(|n| (3..=5).contains(n)), "{per_pod:?}");
    assert_eq!(parse("single:1").with_nodes(7).unwrap().nodes.len(), 7);
    assert_eq!(parse("nat:8").with_nodes(1000).unwrap().nodes.iter().filter(|n| n.switch == 0).count(), 1);
    assert!(parse("single:1").with_nodes(0).is_err() && parse("single:1").with_nodes(200_001).is_err());
}

#[test]
fn refused_forms() {
    for form in [
        "",
        "single",
        "single:",
        "single:0@1mbit",
        "single:2,2@1mbit",
        "single:x@1mbit",
        "single:2@fast",
        "single:+2",
        "single:2@1mbit,delay=1ms",
        "single:2@1mbit,colour=red",
        "single:2@1mbit,2mbit",
        "single:02",
        "single:200001",
        "bordeaux:4@1mbit",
        "bordeaux:2,2@1mbit,loss=100%",
        "bordeaux:2,2@1mbit,delay=11s",
        "bordeaux:2,2@1mbit,queue=1",
        "bordeaux:200000,1",
        "nat:1@1mbit",
        "nat:2@1mbit,delay=1ms",
        "ring:4",
        "single:2@0mbit",
        "single:2@9999gbit",
        "single:2@1mbit,origin=",
        "fattree:3",
        "fattree:94",
        "fattree:4,4",
        "fattree:4,oversubscribe=0",
        "leafspine:2,2",
        "leafspine:999999,999999,999999",
        "dragonfly:999999,999999,999999",
        "dragonfly:1,1",
        "sites:8@1gbit",
        "sites:2,2@1gbit,wan=slow",
    ] {
        assert!(Topology::parse(form).is_err(), "{form}");
    }
}

#[test]
fn refused_files() {
    for text in [
        "",
        "switch a",
        "switch A\nnodes 1 A 1mbit",
        "switch a\nswitch a\nnodes 1 a 1mbit",
        "switch a\nnodes 1 b 1mbit",
        "switch a\nswitch b\nnodes 1 a 1mbit",
        "switch a\nnodes 1 a 1mbit\nlink a a 1mbit",
        "switch a\nswitch b\nnodes 1 a 1mbit\nlink a b 1mbit magic=1",
        "switch a\nnodes 1 a 1mbit\nhub b",
        "switch a\nswitch b\nswitch c\nnodes 1 a 1mbit\nlink a b 1mbit nat\nlink a c 1mbit nat",
        "switch a\nswitch b\nnodes 1 a 1mbit\nlink a b 1mbit nat\nlink a b 1mbit",
        "switch a\nswitch b\nnodes 1 a 1mbit\nlink a b 1mbit nat\nlink b a 1mbit nat",
        "switch a\nswitch b\nnodes 1 a 1mbit\nlink a b 1mbit nat delay=1ms",
        "switch a\nnodes 999999 a 1mbit\nnodes 999999 a 1mbit",
    ] {
        assert!(Topology::from_text(text).is_err(), "{text}");
    }
}

#[test]
fn errors_name_the_line() {
    let error = Topology::from_text("switch a\nnodes 1 z 1mbit").unwrap_err().to_string();
    assert!(error.starts_with("line 2: \"nodes 1 z 1mbit\": wanted"), "{error}");
}

#[test]
fn units_are_exact() {
    assert_eq!(units::rate("1.5gbit"), Ok(1_500_000_000));
    assert_eq!(units::rate("4.35GBIT"), Ok(4_350_000_000));
    assert_eq!((units::delay("250us"), units::delay("1s")), (Ok(250_000), Ok(1_000_000_000)));
    assert_eq!((units::chance("0.29%"), units::chance("0.0029")), (Ok(2_900), Ok(2_900)));
    for bad in ["", "bit", ".5mbit", "1.mbit", "-1mbit", "1e3mbit", "99999999999999mbit"] {
        assert!(units::rate(bad).is_err(), "{bad}");
    }
}

/// Every form, with numbers small enough to look at every pair.
fn form() -> impl Strategy<Value = String> {
    let counts = || {
        prop::collection::vec(1..6_u32, 2..5)
            .prop_map(|c| c.iter().map(u32::to_string).collect::<Vec<_>>().join(","))
    };
    let shape = prop_oneof![
        (1..20_u32).prop_map(|n| format!("single:{n}")),
        counts().prop_map(|c| format!("bordeaux:{c}")),
        (2..20_u32).prop_map(|n| format!("nat:{n}")),
        counts().prop_map(|c| format!("sites:{c}")),
        (1..4_u32).prop_map(|k| format!("fattree:{}", 2 * k)),
        (1..5_u32, 1..4_u32, 1..4_u32).prop_map(|(l, s, n)| format!("leafspine:{l},{s},{n}")),
        (1..4_u32, 1..4_u32, 1..3_u32).prop_map(|(a, h, p)| format!("dragonfly:{a},{h},{p}")),
    ];
    (shape, 8_000..1_000_000_000_u64, any::<bool>()).prop_map(|(shape, rate, origin)| {
        format!("{shape}@{rate}bit{}", if origin { ",origin=25gbit" } else { "" })
    })
}

proptest! {
    #[test]
    fn the_file_says_the_same(form in form()) {
        let t = parse(&form);
        prop_assert_eq!(Topology::from_text(&t.to_text()).unwrap(), t);
    }

    #[test]
    fn ways_join_and_are_shortest(form in form()) {
        let t = parse(&form);
        let mut routes = Routes::new(&t);
        let shortest = distances(&t);
        for (from, to) in (0..t.len()).flat_map(|i| (0..t.len()).map(move |j| (i, j))) {
            let way = routes.path(NodeId(from), NodeId(to));
            prop_assert_eq!(way.clone(), routes.path(NodeId(from), NodeId(to)));
            prop_assert_eq!(way.ports[0], Port(2 * from));
            let mut here = t.nodes[from as usize].switch;
            for port in &way.ports[1..way.ports.len() - 1] {
                let link = t.links[(port.0 / 2 - t.len()) as usize];
                let (a, b) = if port.0 % 2 == 0 { (link.a, link.b) } else { (link.b, link.a) };
                prop_assert_eq!(a, here);
                here = b;
            }
            let last = t.nodes[to as usize].switch;
            prop_assert_eq!(here, last);
            prop_assert_eq!(way.ports[way.ports.len() - 1], Port(2 * to + 1));
            prop_assert_eq!(way.ports.len() - 2, shortest[t.nodes[from as usize].switch as usize][last as usize]);
        }
    }

    #[test]
    fn nothing_panics(text in "[a-z:@,=0-9. \n#%]{0,60}", words in "(switch a\n|switch b\n|nodes 999999 a 1mbit\n|nodes 7 b 2mbit\n|link a b 1mbit( nat)?\n){0,8}") {
        for kind in ["", "single:", "bordeaux:", "nat:", "sites:", "fattree:", "leafspine:", "dragonfly:"] {
            let _ = Topology::parse(&format!("{kind}{text}"));
        }
        let _ = Topology::from_text(&text);
        if let Ok(t) = Topology::from_text(&words) {
            prop_assert_eq!(Topology::from_text(&t.to_text()).unwrap(), t);
        }
    }

    #[test]
    fn any_number_of_nodes_fits_any_shape(form in form(), n in 1..500_u32) {
        let t = parse(&form);
        let scaled = t.clone().with_nodes(n).unwrap();
        prop_assert_eq!(scaled.len(), n);
        prop_assert_eq!(scaled.nodes[0], t.nodes[0]);
        prop_assert_eq!(t.clone().with_nodes(t.len()).unwrap(), t);
    }
}

/// Links between each two switches, by Floyd and Warshall.
fn distances(t: &Topology) -> Vec<Vec<usize>> {
    let n = t.switches.len();
    let mut d = vec![vec![usize::MAX / 2; n]; n];
    (0..n).for_each(|i| d[i][i] = 0);
    for l in &t.links {
        d[l.a as usize][l.b as usize] = 1;
        d[l.b as usize][l.a as usize] = 1;
    }
    for k in 0..n {
        for i in 0..n {
            for j in 0..n {
                d[i][j] = d[i][j].min(d[i][k] + d[k][j]);
            }
        }
    }
    d
}
