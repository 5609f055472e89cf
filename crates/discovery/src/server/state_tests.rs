//! The tracker's memory against a model, at its limits, and over time.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;

/// An announce of a peer of its own.
fn ask(hash: u8, left: u64, event: Event, numwant: Option<u32>) -> Announce {
    Announce {
        info_hash: [hash; 20],
        peer_id: rand::random(),
        port: 0,
        uploaded: 0,
        downloaded: 0,
        left,
        event,
        numwant,
        key: 0,
        tracker_id: None,
    }
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn limits() -> Limits {
    Limits { swarms: 3, peers_per_swarm: 4, peers: 8, peers_per_host: 2, numwant: 3 }
}

#[derive(Debug, Clone)]
enum Step {
    Announce { host: u8, port: u16, hash: u8, seed: bool, event: u8 },
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        9 => (1u8..6, 1u16..4, 0u8..5, any::<bool>(), 0u8..4)
            .prop_map(|(host, port, hash, seed, event)| Step::Announce { host, port, hash, seed, event }),
        1 => (1u64..70).prop_map(Step::Pass),
    ]
}

proptest! {
    /// Every answer is made of live members, and no count ever passes its limit or drifts.
    #[test]
    fn holds_to_its_limits(steps in proptest::collection::vec(step(), 1..120)) {
        let mut rng = StdRng::seed_from_u64(1);
        let mut now = Instant::now();
        let mut state = State::new(limits(), Duration::from_secs(100));
        // Every announced peer with its expiry: an upper bound.
        let mut model: BTreeMap<(u8, SocketAddr), (Instant, bool)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Pass(seconds) => {
                    now += Duration::from_secs(seconds);
                    state.expire(now);
                    model.retain(|_, (expires, _)| *expires > now);
                }
                Step::Announce { host, port, hash, seed, event } => {
                    let from = if host % 2 == 0 {
                        SocketAddr::from(([10, 0, 0, host], port))
                    } else {
                        SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(host)], port))
                    };
                    let event = [Event::None, Event::Started, Event::Completed, Event::Stopped][usize::from(event)];
                    let left = u64::from(!seed);
                    if event == Event::Stopped {
                        model.remove(&(hash, from));
                    } else {
                        model.insert((hash, from), (now + Duration::from_secs(100), seed));
                    }
                    let got = state.announce(from, &ask(hash, left, event, Some(9)), now, &mut rng);
                    let drawn: Vec<_> = got.v4.iter().chain(&got.v6).copied().collect();
                    prop_assert!(got.v4.len() <= 3 && got.v6.len() <= 3);
                    prop_assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), drawn.len());
                    for peer in drawn {
                        let (_, peer_seeds) = model.get(&(hash, peer)).expect("a live member of this swarm");
                        prop_assert!(peer != from && !(seed && *peer_seeds));
                    }
                }
            }
            prop_assert!(state.swarms.len() <= 3 && state.peers <= 8);
            let held: usize = state.swarms.values().map(|s| s.v4.peers.len() + s.v6.peers.len()).sum();
            prop_assert_eq!(held, state.peers);
            prop_assert_eq!(state.hosts.values().map(|&n| n as usize).sum::<usize>(), held);
            prop_assert!(state.hosts.values().all(|&n| (1..=2).contains(&n)));
            for swarm in state.swarms.values() {
                prop_assert!(!swarm.is_empty());
                for table in [&swarm.v4, &swarm.v6] {
                    prop_assert!(table.peers.len() <= 4);
                    prop_assert_eq!(table.seeders as usize, table.peers.iter().filter(|p| p.seeder).count());
                    for (at, peer) in table.peers.iter().enumerate() {
                        prop_assert_eq!(table.place.get(&peer.addr), Some(&at));
                    }
                }
            }
        }
        state.expire(now + Duration::from_secs(101));
        prop_assert!(state.swarms.is_empty() && state.hosts.is_empty() && state.peers == 0);
    }
}

#[test]
fn every_member_is_drawn_about_equally_often() {
    let mut rng = StdRng::seed_from_u64(7);
    let now = Instant::now();
    let mut state = State::new(Limits::default(), Duration::from_secs(100));
    for host in 1..=20 {
        state.announce(
            SocketAddr::from(([10, 0, 0, host], 1)),
            &ask(1, 1, Event::Started, None),
            now,
            &mut rng,
        );
    }
    let mut drawn: BTreeMap<SocketAddr, u32> = BTreeMap::new();
    for _ in 0..4000 {
        let got = state.announce(addr("10.0.1.1:1"), &ask(1, 1, Event::None, Some(5)), now, &mut rng);
        assert_eq!(got.v4.len(), 5);
        for peer in got.v4 {
            *drawn.entry(peer).or_default() += 1;
        }
    }
    // 4000 x 5 / 20 = 1000 each, standard deviation 27.
    assert_eq!(drawn.len(), 20);
    assert!(drawn.values().all(|n| (800..1200).contains(n)), "{drawn:?}");
}

#[test]
fn a_full_tracker_still_answers() {
    let mut rng = StdRng::seed_from_u64(1);
    let now = Instant::now();
    let mut state = State::new(limits(), Duration::from_secs(100));
    for host in 1..=6 {
        state.announce(
            SocketAddr::from(([10, 0, 0, host], 1)),
            &ask(1, 1, Event::Started, None),
            now,
            &mut rng,
        );
    }
    assert_eq!((state.peers(), state.refused()), (4, 2));
    let late = state.announce(addr("10.0.0.9:1"), &ask(1, 1, Event::Started, None), now, &mut rng);
    assert_eq!(late.v4.len(), 3);
}

#[test]
fn nobody_is_told_of_itself() {
    let mut rng = StdRng::seed_from_u64(1);
    let now = Instant::now();
    let mut state = State::new(Limits::default(), Duration::from_secs(100));
    let me = ask(1, 1, Event::Started, None);
    state.announce(addr("10.0.0.1:1"), &me, now, &mut rng);
    let got = state.announce(addr("[fd00::1]:1"), &me, now, &mut rng);
    assert_eq!((got.v4.len(), got.v6.len(), got.count.leechers), (0, 0, 2));
    let got = state.announce(addr("10.0.0.2:1"), &ask(1, 1, Event::Started, None), now, &mut rng);
    assert_eq!((got.v4.len(), got.v6.len()), (1, 1));
}

#[test]
fn loopback_and_unreachable_peers_are_not_passed_on() {
    let mut rng = StdRng::seed_from_u64(1);
    let now = Instant::now();
    let mut state = State::new(Limits::default(), Duration::from_secs(100));
    let mut go = |from: &str| state.announce(addr(from), &ask(1, 1, Event::Started, None), now, &mut rng).v4;
    assert!(go("127.0.0.1:1").is_empty());
    assert!(go("10.0.0.1:0").is_empty());
    assert_eq!(go("127.0.0.1:2"), [addr("127.0.0.1:1")]);
    assert!(go("10.0.0.2:1").is_empty());
    assert_eq!(go("10.0.0.3:1"), [addr("10.0.0.2:1")]);
}
