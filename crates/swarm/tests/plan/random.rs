//! Random clusters.

use proptest::prelude::*;
use tidecast_swarm::plan::{Epoch, Member, Part, Place, Plan, Shape};

use crate::measure::{changed, cost, cost_of};

fn part() -> impl Strategy<Value = Part> + Clone {
    prop_oneof![8 => Just(Part::Relay), 1 => Just(Part::Leaf), 1 => Just(Part::Out)]
}

fn part_or_silent() -> impl Strategy<Value = Part> + Clone {
    prop_oneof![8 => part(), 1 => Just(Part::Silent)]
}

fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 1_usize..20, 8 => 1_usize..300, 1 => 300_usize..3000]
}

fn epochs(parts: impl Strategy<Value = Part> + Clone) -> impl Strategy<Value = Epoch> {
    (1_usize..12, sizes())
        .prop_flat_map(move |(places, members)| {
            (
                prop::collection::vec((any::<u32>(), prop_oneof![3 => Just(0), 1 => 1_u64..1000]), places),
                prop::collection::vec((0..places as u32, parts.clone()), members),
                0..members as u32,
                prop_oneof![1_u16..20, 1_u16..=64],
                any::<u64>(),
            )
        })
        .prop_map(|(places, members, source, stripes, seed)| {
            let places = (0..)
                .zip(places)
                .map(|(i, (above, rate)): (u32, _)| Place { above: above.checked_rem(i), rate })
                .collect();
            let mut members: Vec<_> =
                members.into_iter().map(|(place, part)| Member { place, part }).collect();
            members[source as usize].part = Part::Relay;
            Epoch { number: 3, source, members, places, stripes, seed }
        })
}

/// Hops through a cluster of this many relays: k children each, and one hop more where some help others.
fn hops(relays: usize, k: usize) -> u32 {
    let (mut reached, mut level, mut hops) = (1, 1, 2);
    while k > 1 && reached < relays.div_ceil(k) {
        level *= k;
        reached += level;
        hops += 1;
    }
    if k == 1 { relays as u32 } else { hops + 1 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Coverage, no cycles, permitted parents, one entrance: for any parts.
    #[test]
    fn everyone_is_fed_once(epoch in epochs(part())) {
        let cost = cost(&epoch);
        prop_assert!(cost.entries <= 1, "{:?}", cost);
    }

    /// Where all members relay: one copy each, one copy over each link each way, and depth.
    #[test]
    fn relays_send_one_copy(epoch in epochs(Just(Part::Relay))) {
        let (cost, k) = (cost(&epoch), usize::from(epoch.stripes));
        prop_assert!(cost.entries <= 1, "{:?}", cost);
        prop_assert!(cost.load <= k, "{:?}", cost);
        prop_assert!(cost.exits <= k, "{:?}", cost);
        // No place is passed through twice.
        let mut at = vec![0; epoch.places.len()];
        epoch.members.iter().for_each(|m| at[m.place as usize] += 1);
        let most = at.iter().filter(|&&n| n > 0).map(|&n| hops(n, k)).sum::<u32>();
        prop_assert!(cost.depth <= most, "{:?} {}", cost, most);
    }

    /// On one switch, leaves cost the relays exactly their even share, rounded up.
    #[test]
    fn leaves_are_shared_out(parts in prop::collection::vec(part(), 2..300), k in 1_u16..20, seed: u64) {
        let mut epoch = Epoch::flat(parts.len() as u32, k, seed);
        for (member, part) in epoch.members.iter_mut().zip(parts).skip(1) {
            member.part = part;
        }
        let count = |part| epoch.members.iter().skip(1).filter(|m| m.part == part).count();
        let (relays, leaves) = (count(Part::Relay), count(Part::Leaf));
        if relays > 0 {
            let (k, edges) = (usize::from(k), usize::from(k) * (relays + leaves - 1));
            prop_assert!(cost(&epoch).load <= k.max(edges.div_ceil(relays)));
        }
    }

    /// A member that accepts no connections has only children and parents that accept them.
    #[test]
    fn callers_never_feed_each_other(epoch in epochs(prop_oneof![3 => part(), 1 => Just(Part::Caller)])) {
        cost(&epoch);
        let plan = Plan::new(&epoch).unwrap();
        let calls = |m: u32| epoch.members[m as usize].part == Part::Caller;
        for (m, s) in (0..epoch.members.len() as u32).flat_map(|m| (0..epoch.stripes).map(move |s| (m, s))) {
            prop_assert!(!calls(m) || plan.children(m, s).iter().all(|&c| !calls(c)));
        }
    }

    /// Silent members are fed nevertheless, and change nothing for the others.
    #[test]
    fn the_silent_are_fed_beside_the_trees(epoch in epochs(part_or_silent())) {
        cost(&epoch);
        cost_of(&epoch, &Plan::shaped(&epoch, Shape::Chain).unwrap());
        let silent = |m: u32| epoch.members[m as usize].part == Part::Silent;
        let mut without = epoch.clone();
        without.members.iter_mut().filter(|m| m.part == Part::Silent).for_each(|m| m.part = Part::Out);
        let (with, without) = (Plan::new(&epoch).unwrap(), Plan::new(&without).unwrap());
        for m in (0..epoch.members.len() as u32).filter(|m| !silent(*m)) {
            prop_assert!((0..epoch.stripes).all(|s| with.parent(m, s) == without.parent(m, s)));
        }
    }

    /// On one switch they are shared out as leaves are.
    #[test]
    fn the_silent_are_shared_out(
        parts in prop::collection::vec(part_or_silent(), 2..300),
        k in 1_u16..20,
        seed: u64,
    ) {
        let mut epoch = Epoch::flat(parts.len() as u32, k, seed);
        for (member, part) in epoch.members.iter_mut().zip(parts).skip(1) {
            member.part = part;
        }
        let relays = epoch.members.iter().skip(1).filter(|m| m.part == Part::Relay).count();
        let fed = epoch.members.iter().skip(1).filter(|m| m.part.is_fed()).count();
        if relays > 0 {
            let (k, edges) = (usize::from(k), usize::from(k) * (fed - 1));
            prop_assert!(cost(&epoch).load <= k.max(edges.div_ceil(relays)));
        }
    }

    /// Interior in one stripe only, except a few that help where numbers do not divide.
    #[test]
    fn relays_work_in_one_stripe(n in 2_u32..40, k in 1_u16..20) {
        let epoch = Epoch::flat(n * u32::from(k) + 1, k, 1);
        prop_assert_eq!(cost(&epoch).interior, 1);
    }

    #[test]
    fn the_same_epoch_gives_the_same_plan(epoch in epochs(part())) {
        let (a, b) = (Plan::new(&epoch).unwrap(), Plan::new(&epoch.clone()).unwrap());
        for m in 0..epoch.members.len() as u32 {
            prop_assert_eq!(a.role(m), b.role(m));
        }
    }

    /// One that becomes a leaf or goes takes few of the edges with it: on one switch an eighth at most. Where
    /// its site then can no longer feed the next one, and they change places, it may be four in ten.
    #[test]
    fn one_of_64_moves_few(lost in 1_usize..64, gone: bool, k in 4_u16..=16, sites in 1_u32..4, seed: u64) {
        let mut all = Epoch::flat(64, k, seed);
        all.places = vec![Place::default(); sites as usize];
        (0..).zip(&mut all.members).for_each(|(i, m): (u32, _)| m.place = i % sites);
        let mut less = all.clone();
        less.members[lost].part = if gone { Part::Out } else { Part::Leaf };
        let changed = changed(&all, &less);
        prop_assert!(changed <= if sites == 1 { 125 } else { 400 }, "{} of 1000", changed);
    }

    #[test]
    fn chains_and_binomial_trees(epoch in epochs(part())) {
        let chain = cost_of(&epoch, &Plan::shaped(&epoch, Shape::Chain).unwrap());
        let relays = epoch.members.iter().filter(|m| m.part == Part::Relay).count() as u32;
        prop_assert!(chain.depth <= relays);
        let tree = cost_of(&epoch, &Plan::shaped(&epoch, Shape::Binomial).unwrap());
        prop_assert!(tree.depth <= relays.ilog2() + 2);
        let ring = cost_of(&epoch, &Plan::shaped(&epoch, Shape::Ring).unwrap());
        prop_assert!(ring.depth <= relays + 1);
    }

    /// Anything at all: an error or a plan, and an end.
    #[test]
    fn hostile_epochs(
        places in prop::collection::vec((prop::option::of(0_u32..20), any::<u64>()), 0..20),
        members in prop::collection::vec((0_u32..20, part()), 0..40),
        source in 0_u32..40,
        stripes in 0_u16..70,
    ) {
        let places = places.into_iter().map(|(above, rate)| Place { above, rate }).collect();
        let members = members.into_iter().map(|(place, part)| Member { place, part }).collect();
        let epoch = Epoch { number: 0, source, members, places, stripes, seed: 0 };
        if Plan::new(&epoch).is_ok() {
            cost(&epoch);
        }
    }
}

/// A quarter of them take their share all the same. Not in every plan: where a caller feeds callers and a single relay,
/// that relay takes them all, up to twice its share.
#[test]
fn callers_relay() {
    for (n, k) in [(8, 3), (16, 4), (30, 8), (100, 4), (100, 18), (250, 18)] {
        let within = (0..300_u64).filter(|seed| {
            let mut epoch = Epoch::flat(n, k, seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            epoch.members.iter_mut().skip(1).step_by(4).for_each(|m| m.part = Part::Caller);
            cost(&epoch).load <= usize::from(k) * 3 / 2 + 2
        });
        assert!(within.count() >= 285, "{n} members, {k} stripes");
    }
}
