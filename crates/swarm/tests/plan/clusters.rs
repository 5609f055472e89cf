//! Clusters as people have them, in exact numbers.

use tidecast_swarm::plan::{Epoch, Member, Part, Place, Plan, PlanError, Shape};

use crate::measure::{changed, cost, cost_of};

fn epoch(places: &[(Option<u32>, u64)], counts: &[u32], stripes: u16) -> Epoch {
    let places = places.iter().map(|&(above, rate)| Place { above, rate }).collect();
    let members = (0..)
        .zip(counts)
        .flat_map(|(place, &n)| vec![Member { place, part: Part::Relay }; n as usize])
        .collect();
    Epoch { number: 1, source: 0, members, places, stripes, seed: 7 }
}

/// Switches in a row, as in Bordeaux: the source is on the first.
fn row(counts: &[u32], stripes: u16) -> Epoch {
    let places: Vec<_> = (0..counts.len() as u32).map(|i| (i.checked_sub(1), 0)).collect();
    epoch(&places, counts, stripes)
}

/// Racks on a spine, the spine being the last place.
fn racks(n: u32, each: u32, stripes: u16) -> Epoch {
    let mut places = vec![(Some(n), 0); n as usize];
    places.push((None, 0));
    epoch(&places, &vec![each; n as usize], stripes)
}

/// Load, depth, and most stripes in which one relays.
fn brief(epoch: &Epoch) -> (usize, u32, usize) {
    let c = cost(epoch);
    (c.load, c.depth, c.interior)
}

#[test]
fn one_switch() {
    for (n, k, expect) in [
        (1, 1, (0, 0, 0)),
        (2, 1, (0, 1, 0)),
        (3, 2, (1, 2, 1)),
        // As many stripes as receivers: to each a piece, and from it to all others.
        (17, 16, (15, 2, 1)),
        (17, 4, (4, 3, 1)),
        (65, 8, (8, 3, 1)),
        (64, 8, (8, 4, 2)),
        (64, 16, (16, 3, 2)),
        (1000, 16, (16, 4, 3)),
        (10_000, 16, (16, 5, 2)),
    ] {
        assert_eq!(brief(&Epoch::flat(n, k, 3)), expect, "{n} members, {k} stripes");
    }
}

#[test]
fn switches_in_a_row() {
    for counts in [[32, 25, 7], [8, 6, 2]] {
        for k in [4, 8, 16] {
            let (c, k) = (cost(&row(&counts, k)), usize::from(k));
            // Each link is crossed once, and never back.
            assert_eq!((c.entries, c.exits), (1, 0));
            assert!(c.load <= k && c.depth <= 5, "{c:?}");
        }
    }
}

#[test]
fn racks_on_a_spine() {
    for (n, each, k, depth) in
        [(100, 16, 16, 7), (100, 16, 8, 8), (100, 1, 16, 5), (8, 8, 8, 5), (3, 40, 16, 5)]
    {
        let c = cost(&racks(n, each, k));
        let copy = usize::from(k);
        assert_eq!((c.load, c.depth, c.entries, c.exits), (copy, depth, 1, copy), "{n} racks of {each}");
    }
}

#[test]
fn any_source_sees_the_same_cluster() {
    for source in [0, 31, 32, 60, 63] {
        let mut epoch = row(&[32, 25, 7], 8);
        epoch.source = source;
        let c = cost(&epoch);
        assert!(c.entries == 1 && c.load <= 8 && c.exits <= 8 && c.depth <= 6, "{source}: {c:?}");
    }
}

#[test]
fn the_slowest_link_comes_last() {
    // A site of the source and four others on a router; site 2 is slow, and passes nothing on.
    let links = [1000, 1000, 10, 1000].map(|rate| (Some(4), rate));
    let epoch = epoch(&[&links[..], &[(None, 0)]].concat(), &[8, 8, 8, 8], 8);
    let plan = Plan::new(&epoch).unwrap();
    let slow = 16..24;
    for s in 0..8 {
        for child in (1..32).filter(|c| !slow.contains(c)) {
            assert!(!slow.contains(&plan.parent(child, s).unwrap()), "{child}");
        }
    }
    assert_eq!(cost(&epoch).entries, 1);
}

#[test]
fn a_site_of_leaves_is_fed_by_the_one_before_it() {
    let mut epoch = row(&[8, 8, 8], 4);
    (16..24).for_each(|m| epoch.members[m].part = Part::Leaf);
    cost(&epoch);
    let plan = Plan::new(&epoch).unwrap();
    assert!((16..24).all(|m| (0..4).all(|s| (8..16).contains(&plan.parent(m, s).unwrap()))));
}

#[test]
fn nobody_relays() {
    let mut epoch = Epoch::flat(5, 2, 1);
    epoch.members.iter_mut().for_each(|m| m.part = Part::Leaf);
    epoch.members[3].part = Part::Out;
    cost(&epoch);
    assert_eq!(Plan::new(&epoch).unwrap().children(0, 1), [1, 2, 4]);
}

#[test]
fn the_deepest_child_comes_first() {
    let epoch = racks(20, 5, 4);
    let plan = Plan::new(&epoch).unwrap();
    fn height(plan: &Plan, m: u32, s: u16) -> u32 {
        plan.children(m, s).iter().map(|&c| 1 + height(plan, c, s)).max().unwrap_or(0)
    }
    for (m, s) in (0..100).flat_map(|m| (0..4).map(move |s| (m, s))) {
        let heights = plan.children(m, s).iter().map(|&c| height(&plan, c, s));
        assert!(heights.is_sorted_by(|a, b| a >= b));
    }
}

#[test]
fn one_of_64_lost_moves_few() {
    for stripes in [4, 8, 16] {
        for (all, most) in [(Epoch::flat(64, stripes, 3), 100), (racks(8, 8, stripes), 300)] {
            for (lost, part) in (1..64).flat_map(|m| [(m, Part::Out), (m, Part::Leaf)]) {
                let mut less = all.clone();
                less.members[lost].part = part;
                let moved = changed(&all, &less);
                assert!(moved <= most, "{moved} of 1000 edges for {lost}, {stripes} stripes");
            }
        }
    }
}

#[test]
fn shapes_to_compare_with() {
    let epoch = row(&[32, 25, 7], 1);
    let chain = cost_of(&epoch, &Plan::shaped(&epoch, Shape::Chain).unwrap());
    assert_eq!((chain.load, chain.depth, chain.entries, chain.exits), (1, 63, 1, 0));
    let tree = cost_of(&epoch, &Plan::shaped(&epoch, Shape::Binomial).unwrap());
    assert_eq!((tree.load, tree.depth), (5, 6));
    let parts = row(&[32, 25, 7], 63);
    let ring = cost_of(&parts, &Plan::shaped(&parts, Shape::Ring).unwrap());
    assert_eq!((ring.load, ring.depth, ring.interior), (62, 63, 62), "each is the last of one stripe");
    let plan = Plan::shaped(&parts, Shape::Ring).unwrap();
    let firsts: std::collections::BTreeSet<_> = (0..63).flat_map(|s| plan.children(0, s)).collect();
    assert_eq!(firsts.len(), 63, "a part to each");
    let striped = Plan::shaped(&epoch, Shape::Striped).unwrap();
    assert_eq!(striped.role(9), Plan::new(&epoch).unwrap().role(9));
}

#[test]
fn several_sources_give_a_share_each() {
    let mut epoch = Epoch::flat(14, 6, 1);
    for source in [4, 9] {
        epoch.members[source].part = Part::Source;
    }
    let roots = |epoch: &Epoch| {
        let plan = Plan::new(epoch).unwrap();
        for (s, m) in (0..6).flat_map(|s| (0..14).map(move |m| (s, m))) {
            let fed = m != 0 && epoch.members[m as usize].part.is_fed();
            assert_eq!(
                (plan.parent(m, s).is_some(), plan.depths(s)[m as usize] > Some(0)),
                (fed, fed),
                "{m} {s}"
            );
        }
        let given = |m| (0..6).filter(|&s| !plan.children(m, s).is_empty()).count();
        let share = |m| plan.role(m).share(240).count();
        [0, 4, 9].map(|m| (given(m), share(m)))
    };
    assert_eq!(roots(&epoch), [(2, 80); 3]);
    epoch.members[4].part = Part::Lost;
    assert_eq!(roots(&epoch), [(4, 160), (0, 0), (2, 80)], "the first takes over");
}

#[test]
fn distances() {
    let plan = Plan::new(&row(&[2, 2, 2], 2)).unwrap();
    assert_eq!([1, 2, 4].map(|b| plan.distance(0, b)), [0, 1, 2]);
    let plan = Plan::new(&racks(3, 1, 2)).unwrap();
    assert_eq!((plan.distance(0, 2), plan.distance(2, 99)), (2, u8::MAX));
    let apart = epoch(&[(None, 0), (None, 0)], &[1, 1], 1);
    assert_eq!(Plan::new(&apart).unwrap().distance(0, 1), 2);
}

#[test]
fn who_does_not_exist_has_no_part() {
    let plan = Plan::new(&Epoch::flat(4, 2, 1)).unwrap();
    assert_eq!(
        (plan.parent(4, 0), plan.parent(1, 2), plan.children(4, 0), plan.children(0, 2)),
        (None, None, &[][..], &[][..])
    );
    assert!(plan.role(9).stripes.iter().all(|e| e.parent.is_none() && e.children.is_empty()));
    assert!(plan.depths(2).iter().all(Option::is_none));
}

#[test]
fn contradictions_are_refused() {
    let fails = |change: fn(&mut Epoch)| {
        let mut epoch = row(&[2, 2, 2], 2);
        change(&mut epoch);
        Plan::new(&epoch).unwrap_err()
    };
    assert_eq!(fails(|e| e.stripes = 0), PlanError::Stripes(0));
    assert_eq!(fails(|e| e.stripes = 65), PlanError::Stripes(65));
    assert_eq!(fails(|e| e.source = 6), PlanError::Source(6));
    assert_eq!(fails(|e| e.members[0].part = Part::Out), PlanError::Source(0));
    assert_eq!(fails(|e| e.members[1].place = 3), PlanError::Nowhere { member: 1, place: 3 });
    assert_eq!(fails(|e| e.places[1].above = Some(3)), PlanError::Loose(1));
    assert!(matches!(fails(|e| e.places[0].above = Some(2)), PlanError::Deep(_)));
    assert!(matches!(fails(|e| e.places[1].above = Some(1)), PlanError::Deep(1)));
    assert_eq!(fails(|e| e.members.clear()), PlanError::Source(0));
    assert!(matches!(fails(|e| e.members = vec![e.members[0]; 200_001]), PlanError::Members(_)));
    assert!(matches!(fails(|e| e.places = vec![e.places[0]; 65_537]), PlanError::Places(_)));
    let edges = fails(|e| (e.stripes, e.members) = (64, vec![e.members[0]; 100_000]));
    assert_eq!(edges, PlanError::Edges { members: 100_000, stripes: 64 });
    assert!(Plan::new(&row(&[2; 65], 2)).is_ok());
    assert!(matches!(Plan::new(&row(&[2; 66], 2)), Err(PlanError::Deep(_))));
}

#[test]
fn large_ones() {
    let mut epoch = racks(2000, 50, 16);
    assert_eq!(epoch.members.len(), 100_000);
    epoch.seed = 1;
    let plan = Plan::new(&epoch).unwrap();
    let depth = (0..16).flat_map(|s| plan.depths(s)).max().flatten();
    assert!(depth.is_some_and(|d| d <= 14), "{depth:?}");
}
