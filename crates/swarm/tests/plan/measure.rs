//! Looks at a plan from outside and counts.

use tidecast_swarm::plan::{Epoch, Member, Part, Plan};

/// The cost of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Most children of a relay, over all stripes: one copy is as many as there are stripes.
    pub(crate) load: usize,
    /// Most hops from the source.
    pub(crate) depth: u32,
    /// Most times that one stripe enters a place with all beyond it.
    pub(crate) entries: usize,
    /// Most edges that leave a place with all beyond it, over all stripes.
    pub(crate) exits: usize,
    /// Most stripes in which one relay feeds others.
    pub(crate) interior: usize,
}

/// The cost of the plan of an epoch, in which the source feeds one root a stripe.
pub(crate) fn cost(epoch: &Epoch) -> Cost {
    let plan = Plan::new(epoch).unwrap();
    let relay = |(i, m): (u32, &Member)| m.part == Part::Relay && i != epoch.source;
    if (0..).zip(&epoch.members).any(relay) {
        let fed = |s| plan.children(epoch.source, s).len();
        let callers = epoch.members.iter().any(|m| m.part == Part::Caller);
        assert!((0..plan.stripes()).all(|s| fed(s) == 1 || callers), "the source feeds the roots only");
    }
    cost_of(epoch, &plan)
}

/// Checks that every present member gets every stripe once, over live relays, and counts.
pub(crate) fn cost_of(epoch: &Epoch, plan: &Plan) -> Cost {
    assert_eq!(plan.stripes(), epoch.stripes);
    let n = epoch.members.len() as u32;
    let mut cost = Cost { load: 0, depth: 0, entries: 0, exits: 0, interior: 0 };
    for s in 0..epoch.stripes {
        let depths = plan.depths(s);
        for m in 0..n {
            let (member, children) = (&epoch.members[m as usize], plan.children(m, s));
            // Members that the tree reaches from the source get a depth, each once: no cycles, all fed.
            assert_eq!(depths[m as usize].is_some(), member.part != Part::Out, "member {m} stripe {s}");
            assert_eq!(plan.parent(m, s).is_some(), member.part != Part::Out && m != epoch.source);
            assert!(children.iter().all(|&c| plan.parent(c, s) == Some(m)));
            assert!(
                m == epoch.source || matches!(member.part, Part::Relay | Part::Caller) || children.is_empty(),
                "{m} must not feed"
            );
            cost.depth = cost.depth.max(depths[m as usize].unwrap_or(0));
        }
    }
    for m in (0..n).filter(|&m| m != epoch.source) {
        let counts = || (0..epoch.stripes).map(|s| plan.children(m, s).len());
        cost.load = cost.load.max(counts().sum());
        cost.interior = cost.interior.max(counts().filter(|&c| c > 0).count());
    }
    crossings(epoch, plan, &mut cost);
    cost
}

/// Counts edges over each link. A side without a relay must be fed one by one and does not count.
fn crossings(epoch: &Epoch, plan: &Plan, cost: &mut Cost) {
    let up = |mut place: u32| {
        let mut path = vec![place];
        while let Some(above) = epoch.places[place as usize].above {
            path.push(above);
            place = above;
        }
        path
    };
    let paths: Vec<Vec<u32>> = (0..epoch.places.len() as u32).map(up).collect();
    let at = |m: u32| &paths[epoch.members[m as usize].place as usize];
    let top = at(epoch.source);
    let places = epoch.places.len();
    let mut relay = vec![[false; 2]; places];
    for (m, member) in (0..).zip(&epoch.members) {
        if member.part == Part::Relay && m != epoch.source {
            (0..places as u32).for_each(|p| relay[p as usize][usize::from(at(m).contains(&p))] = true);
        }
    }
    let (mut exits, mut entries) = (vec![0; places], vec![0; places]);
    for s in 0..epoch.stripes {
        entries.fill(0);
        for child in 0..epoch.members.len() as u32 {
            let Some(parent) = plan.parent(child, s) else { continue };
            let (from, to) = (at(parent), at(child));
            // Below a place or not; away from the source's side is in.
            let crossed =
                from.iter().filter(|p| !to.contains(p)).chain(to.iter().filter(|p| !from.contains(p)));
            for &p in crossed {
                let inwards = top.contains(&p) != to.contains(&p);
                if inwards { entries[p as usize] += 1 } else { exits[p as usize] += 1 }
            }
        }
        for p in 0..places {
            if relay[p][usize::from(!top.contains(&(p as u32)))] {
                cost.entries = cost.entries.max(entries[p]);
            }
        }
    }
    cost.exits = exits.into_iter().max().unwrap_or(0);
}

/// Of 1000 edges of the first plan, how many the second lacks.
pub(crate) fn changed(a: &Epoch, b: &Epoch) -> usize {
    let (a, b) = (Plan::new(a).unwrap(), Plan::new(b).unwrap());
    let (mut all, mut changed) = (0, 0);
    for s in 0..a.stripes() {
        for m in 0..a.members() as u32 {
            all += usize::from(a.parent(m, s).is_some());
            changed += usize::from(a.parent(m, s).is_some() && a.parent(m, s) != b.parent(m, s));
        }
    }
    changed * 1000 / all.max(1)
}
