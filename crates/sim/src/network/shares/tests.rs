//! Against exact progressive filling.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::rng::Rng;
use proptest::prelude::*;

/// Exact max-min rates: all flows rise together; the port (or cap) that is full first stops its own.
fn exact(capacities: &[u64], flows: &[(Vec<u32>, u64)]) -> Vec<u64> {
    let mut rest: Vec<u64> = capacities.to_vec();
    let mut rates: Vec<Option<u64>> = vec![None; flows.len()];
    while rates.contains(&None) {
        let rising = |port: usize| {
            let here =
                |(i, flow): (usize, &(Vec<u32>, u64))| rates[i].is_none() && flow.0.contains(&(port as u32));
            flows.iter().enumerate().filter(|&f| here(f)).count() as u64
        };
        let level = |port: usize| rest[port].checked_div(rising(port)).unwrap_or(UNCAPPED);
        let (least, port) = (0..rest.len()).map(|port| (level(port), port)).min().unwrap();
        let cap = (0..flows.len()).filter(|i| rates[*i].is_none()).map(|i| flows[i].1).min().unwrap();
        let stops: Vec<usize> = (0..flows.len())
            .filter(|i| rates[*i].is_none())
            .filter(|i| if cap <= least { flows[*i].1 == cap } else { flows[*i].0.contains(&(port as u32)) })
            .collect();
        for i in stops {
            rates[i] = Some(cap.min(least));
            for port in &flows[i].0 {
                rest[*port as usize] -= cap.min(least);
            }
        }
    }
    rates.into_iter().flatten().collect()
}

/// The deviation of the worst rate from the exact one, in parts of 1,024.
fn check(shares: &Shares, capacities: &[u64], live: &[(Flow, Vec<u32>, u64)]) -> u64 {
    for (port, capacity) in capacities.iter().enumerate() {
        let load: u64 = shares.flows(port as u32).map(|flow| shares.rate(flow)).sum();
        assert!(load <= *capacity, "port {port} carries {load} of {capacity}");
        let state = &shares.ports[port];
        let bound = shares.flows(port as u32).filter(|flow| shares.rate(*flow) == state.level).count();
        assert_eq!((state.load, state.bound as usize), (load, bound), "the books of port {port}");
    }
    let flows: Vec<_> = live.iter().map(|(_, path, cap)| (path.clone(), *cap)).collect();
    let right = exact(capacities, &flows);
    let off = |(right, (flow, ..)): (&u64, &(Flow, Vec<u32>, u64))| {
        let rate = shares.rate(*flow);
        if right.abs_diff(rate) <= 16 { 0 } else { right.abs_diff(rate) * 1024 / right.max(&1) }
    };
    right.iter().zip(live).map(off).max().unwrap_or(0)
}

/// A few hundred changes on a random small network; returns the worst rate seen, in 1,024ths off.
fn play(seed: u64, ports: u64, most: u64, together: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let rate = |rng: &mut Rng| match rng.below(3) {
        0 => 1_000_000_000,
        1 => 100_000_000 * (1 + rng.below(10)),
        _ => 1_000_000 + rng.below(1_000_000_000),
    };
    let mut capacities: Vec<u64> = (0..ports).map(|_| rate(&mut rng)).collect();
    let mut shares = Shares::new(capacities.iter().copied(), 1024);
    let mut live: Vec<(Flow, Vec<u32>, u64)> = Vec::new();
    let mut worst = 0;
    for round in 0..60 {
        for _ in 0..1 + rng.below(together) {
            match rng.below(10) {
                0..4 if (live.len() as u64) < most => {
                    let mut path: Vec<u32> = (0..1 + rng.below(4)).map(|_| rng.below(ports) as u32).collect();
                    path.sort_unstable();
                    path.dedup();
                    let cap = if rng.one_in(3) { rate(&mut rng) } else { UNCAPPED };
                    live.push((shares.join(path.iter().copied(), cap), path, cap));
                }
                0..7 if !live.is_empty() => {
                    let gone = rng.below(live.len() as u64) as usize;
                    shares.leave(live.swap_remove(gone).0);
                }
                7..9 if !live.is_empty() => {
                    let some = rng.below(live.len() as u64) as usize;
                    live[some].2 = rate(&mut rng);
                    shares.set_cap(live[some].0, live[some].2);
                }
                _ => {
                    let port = rng.below(ports) as usize;
                    capacities[port] = if rng.one_in(8) { 0 } else { rate(&mut rng) };
                    shares.set_capacity(port as u32, capacities[port]);
                }
            }
        }
        let mut changed = Vec::new();
        shares.make_fair(&mut changed);
        let off = check(&shares, &capacities, &live);
        assert!(off < 1024 || round == 0, "seed {seed} round {round}: {off}");
        worst = worst.max(off);
    }
    worst
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn small_networks_are_max_min_fair(seed: u64, ports in 2u64..12, most in 1u64..40, together in 1u64..6) {
        let off = play(seed, ports, most, together);
        prop_assert!(off <= 8, "{off} 1,024ths off");
    }
}

/// A trunk of thousands: filled to 98% at least, no flow a 32nd off, and seldom refilled.
#[test]
fn wide_ports_are_filled_seldom() {
    let mut rng = Rng::new(3);
    let capacities: Vec<u64> =
        (0..3001).map(|port| if port == 0 { 1_000_000_000 } else { 10_000_000 }).collect();
    let mut shares = Shares::new(capacities.iter().copied(), 1024);
    let mut live: Vec<(Flow, Vec<u32>, u64)> = Vec::new();
    let mut changed = Vec::new();
    let mut free: Vec<u32> = (1..3001).collect();
    for step in 0..4000 {
        if step < 2000 || rng.one_in(2) {
            let path = vec![0, free.swap_remove(rng.below(free.len() as u64) as usize)];
            let cap = if rng.one_in(4) { 100_000 } else { UNCAPPED };
            live.push((shares.join(path.iter().copied(), cap), path, cap));
        } else {
            let (flow, path, _) = live.swap_remove(rng.below(live.len() as u64) as usize);
            shares.leave(flow);
            free.push(path[1]);
        }
        shares.make_fair(&mut changed);
        changed.clear();
        if step % 500 == 499 {
            let off = check(&shares, &capacities, &live);
            assert!(off <= 32, "{off} 1,024ths off at step {step}");
            let load: u64 = shares.flows(0).map(|flow| shares.rate(flow)).sum();
            assert!(load >= 980_000_000, "{load} at step {step}");
        }
    }
    assert!(shares.fills < 1500, "{} fills", shares.fills);
}
