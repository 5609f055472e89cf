//! The complaints that count, and their effects.

use std::time::Duration;

use proptest::prelude::*;
use tidecast_swarm::plan::planner::{EVERY, GRACE, MEMORY, RETURNS, SETTLE, WORDS};
use tidecast_swarm::plan::{Epoch, Member, Part, Plan, PlanError, Planner, Shape};
use tidecast_swarm::{Complaint, Time};

const START: Time = Time(5_000_000_000);

fn planner(members: u32, stripes: u16) -> Planner {
    Planner::new(START, Epoch::flat(members, stripes, 11), Shape::Striped).unwrap()
}

fn parents(plan: &Plan, member: u32) -> Vec<u32> {
    let mut all: Vec<_> = (0..plan.stripes()).filter_map(|s| plan.parent(member, s)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn children(plan: &Plan, member: u32) -> Vec<u32> {
    let mut all: Vec<_> = (0..plan.stripes()).flat_map(|s| plan.children(member, s).to_vec()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn in_a_chain_the_one_before_is_heard_of() {
    let mut planner = Planner::new(START, Epoch::flat(9, 1, 11), Shape::Chain).unwrap();
    let (from, about) =
        (1..9).find_map(|m| Some((m, planner.plan().parent(m, 0).filter(|p| *p > 0)?))).unwrap();
    for member in 1..9 {
        planner.complain(START, member, about, Complaint::Slow);
    }
    assert_eq!(pass(&mut planner, START, EVERY * 2).len(), 1);
    assert_eq!(part(&planner, about), Part::Leaf, "whom it feeds has said so, and nobody else is asked");
    assert!((1..9).all(|m| planner.plan().children(m, 0).len() <= 2));
    assert_ne!(planner.plan().parent(from, 0), Some(about));
}

/// Lets time pass as a driver would, from one wake-up to the next.
fn pass(planner: &mut Planner, from: Time, span: Duration) -> Vec<(Time, u32)> {
    let mut epochs = Vec::new();
    while let Some(at) = planner.wakeup().filter(|at| *at <= from.after(span)) {
        epochs.extend(planner.poll(at.max(from)).map(|e| (at.max(from), e.number)));
    }
    epochs
}

fn part(planner: &Planner, member: u32) -> Part {
    planner.epoch().members[member as usize].part
}

#[test]
fn gone_for_us_and_for_a_neighbour_is_out_at_once() {
    let mut planner = planner(64, 8);
    assert_eq!(planner.wakeup(), None);
    let now = START.after(EVERY);
    planner.disconnected(now, 9);
    assert_eq!(planner.wakeup(), Some(now.after(GRACE)));
    assert!(planner.poll(now).is_none());
    let child = children(planner.plan(), 9)[0];
    planner.complain(now, child, 9, Complaint::Gone);
    assert_eq!(planner.poll(now).map(|e| e.number), Some(1));
    assert_eq!((part(&planner, 9), planner.plan().parent(9, 0)), (Part::Out, None));
    assert!(children(planner.plan(), 9).is_empty());
}

#[test]
fn gone_for_us_alone_is_out_after_a_while() {
    let mut planner = planner(64, 8);
    planner.disconnected(START, 9);
    let epochs = pass(&mut planner, START, GRACE * 3);
    assert_eq!(epochs, [(START.after(GRACE), 1)]);
    planner.disconnected(START.after(GRACE), 0);
    assert!(pass(&mut planner, START.after(GRACE), GRACE * 3).is_empty(), "the source is never out");
}

#[test]
fn who_is_back_relays_again_but_not_for_ever() {
    let mut planner = planner(64, 8);
    let mut now = START;
    for i in 0..=RETURNS {
        planner.disconnected(now, 9);
        pass(&mut planner, now, GRACE * 2);
        assert_eq!(part(&planner, 9), Part::Out);
        planner.back(9);
        now = now.after(GRACE * 3);
        assert_eq!(pass(&mut planner, now, GRACE).len(), 1);
        assert_eq!(part(&planner, 9), if i < RETURNS { Part::Relay } else { Part::Leaf });
    }
}

#[test]
fn two_who_wait_make_a_leaf_and_one_does_not() {
    let mut planner = planner(64, 8);
    let children = children(planner.plan(), 9);
    planner.complain(START, children[0], 9, Complaint::Slow);
    assert!(pass(&mut planner, START, Duration::from_secs(1)).is_empty());
    let now = START.after(Duration::from_secs(1));
    planner.complain(now, children[0], 9, Complaint::Slow);
    planner.complain(now, children[1], 9, Complaint::Slow);
    assert_eq!(pass(&mut planner, now, Duration::from_secs(1)), [(now.after(SETTLE), 1)]);
    assert_eq!(part(&planner, 9), Part::Leaf);
    assert!(planner.plan().parent(9, 0).is_some());
}

#[test]
fn who_is_silent_is_fed_by_those_with_least_to_do() {
    let mut planner = planner(64, 8);
    let busy = |planner: &Planner, m| {
        let others = |c: &&u32| part(planner, **c) != Part::Silent;
        (0..8).flat_map(|s| planner.plan().children(m, s)).filter(others).count()
    };
    for (at, silent) in [(1, 9), (2, 33), (3, 40)] {
        let now = START.after(Duration::from_secs(at));
        for child in children(planner.plan(), silent) {
            planner.complain(now, child, silent, Complaint::Silent);
        }
        assert_eq!(pass(&mut planner, now, Duration::from_millis(900)).len(), 1);
        assert_eq!(part(&planner, silent), Part::Silent);
        assert!((0..8).all(|s| planner.plan().parent(silent, s).is_some_and(|p| p != 0)));
        assert!(children(planner.plan(), silent).is_empty());
        assert!((1..64).all(|m| busy(&planner, m) <= 8), "nobody who lives waits for it");
    }
}

#[test]
fn of_two_who_fall_silent_both_are_heard_of() {
    let mut planner = planner(64, 8);
    let now = START.after(EVERY);
    let (first, second) = (children(planner.plan(), 9), children(planner.plan(), 33));
    // When the first is judged, not all complaints about the second are old enough.
    first.iter().for_each(|&child| planner.complain(now, child, 9, Complaint::Silent));
    planner.complain(now, second[0], 33, Complaint::Silent);
    planner.complain(now.after(SETTLE / 2), second[1], 33, Complaint::Silent);
    pass(&mut planner, now, EVERY * 3);
    assert_eq!((part(&planner, 9), part(&planner, 33)), (Part::Silent, Part::Silent));
}

#[test]
fn old_complaints_do_not_add_up() {
    let mut planner = planner(64, 8);
    let children = children(planner.plan(), 9);
    planner.complain(START, children[0], 9, Complaint::Slow);
    pass(&mut planner, START, Duration::from_secs(1));
    let now = START.after(MEMORY);
    planner.complain(now, children[1], 9, Complaint::Slow);
    assert!(pass(&mut planner, now, Duration::from_secs(1)).is_empty());
}

#[test]
fn the_only_one_who_is_fed_is_enough() {
    let mut planner = planner(3, 2);
    planner.complain(START, 1, 2, Complaint::Slow);
    assert_eq!(pass(&mut planner, START, GRACE), [(START.after(EVERY), 1)]);
    assert_eq!((part(&planner, 2), part(&planner, 1)), (Part::Leaf, Part::Relay));
    planner.complain(START.after(GRACE), 2, 1, Complaint::Slow);
    assert!(pass(&mut planner, START.after(GRACE), GRACE).is_empty(), "the last relay stays");
}

#[test]
fn who_complains_of_all_has_the_trouble_itself() {
    let mut planner = planner(64, 8);
    for slow in [20, 21, 22] {
        for parent in parents(planner.plan(), slow) {
            planner.complain(START, slow, parent, Complaint::Slow);
        }
    }
    assert!(pass(&mut planner, START, Duration::from_secs(1)).is_empty());
}

#[test]
fn the_cause_is_blamed_and_not_its_victims() {
    let mut planner = planner(1000, 4);
    // Everything below one relay at the top of stripe 0 is slow, and each blames its parent.
    let top = planner.plan().children(0, 0)[0];
    let mut below = planner.plan().children(top, 0).to_vec();
    let mut next = 0;
    while let Some(&member) = below.get(next) {
        let parent = planner.plan().parent(member, 0).unwrap();
        planner.complain(START, member, parent, Complaint::Slow);
        below.extend_from_slice(planner.plan().children(member, 0));
        next += 1;
    }
    let epochs = pass(&mut planner, START, Duration::from_secs(1));
    assert_eq!(epochs.len(), 1);
    let leaves: Vec<u32> = (0..1000).filter(|&m| part(&planner, m) == Part::Leaf).collect();
    assert_eq!(leaves, [top]);
}

#[test]
fn newcomers_are_in_the_next_epoch() {
    let mut planner = planner(4, 2);
    let number = planner.joined(Member { place: 0, part: Part::Relay }).unwrap();
    assert_eq!(number, 4);
    assert_eq!(
        planner.joined(Member { place: 1, part: Part::Relay }),
        Err(PlanError::Nowhere { member: 5, place: 1 })
    );
    assert_eq!(pass(&mut planner, START, GRACE), [(START.after(EVERY), 1)]);
    assert!(planner.plan().parent(4, 1).is_some());
}

#[test]
fn epochs_keep_their_distance() {
    let mut planner = planner(64, 8);
    for m in 1..20 {
        let now = START.after(Duration::from_millis(u64::from(m) * 20));
        planner.disconnected(now, m);
    }
    let epochs = pass(&mut planner, START, Duration::from_secs(5));
    assert!(epochs.windows(2).all(|w| w[1].0.since(w[0].0) >= EVERY), "{epochs:?}");
    assert_eq!(epochs.len(), 3);
}

#[derive(Clone, Debug)]
enum Said {
    Complain { from: u32, about: u32, why: u8 },
    Gone(u32),
    Back(u32),
    Joined(u32),
    Wait(u64),
}

fn said() -> impl Strategy<Value = Said> {
    prop_oneof![
        8 => (0_u32..40, 0_u32..40, 0_u8..3).prop_map(|(from, about, why)| Said::Complain { from, about, why }),
        1 => (0_u32..40).prop_map(Said::Gone),
        1 => (0_u32..40).prop_map(Said::Back),
        1 => (0_u32..3).prop_map(Said::Joined),
        2 => (0_u64..400).prop_map(Said::Wait),
    ]
}

proptest! {
    /// Whatever the complaints: liars are bounded, epochs keep their distance, and each can be planned.
    #[test]
    fn whatever_is_said(said in prop::collection::vec(said(), 0..400), liars in 1_u32..4) {
        let mut epoch = Epoch::flat(32, 4, 5);
        epoch.places.push(epoch.places[0]);
        (16..32).for_each(|m| epoch.members[m].place = 1);
        let mut planner = Planner::new(START, epoch, Shape::Striped).unwrap();
        let (mut now, mut last) = (START, START);
        for said in said {
            match said {
                Said::Complain { from, about, why } => {
                    let why = [Complaint::Gone, Complaint::Silent, Complaint::Slow][why as usize];
                    planner.complain(now, from % liars, about, why);
                }
                Said::Gone(m) => planner.disconnected(now, m),
                Said::Back(m) => planner.back(m),
                Said::Joined(place) => drop(planner.joined(Member { place, part: Part::Relay })),
                Said::Wait(ms) => now = now.after(Duration::from_millis(ms)),
            }
            if let Some(epoch) = planner.poll(now) {
                prop_assert!(now.since(last) >= EVERY);
                last = now;
                prop_assert!(Plan::new(epoch).is_ok());
            }
            // Nothing that is due is left over: a driver that sleeps until then neither spins nor misses.
            prop_assert!(planner.wakeup().is_none_or(|at| at > now));
            let leaves = planner.epoch().members.iter();
            let leaves = leaves.filter(|m| matches!(m.part, Part::Leaf | Part::Silent)).count();
            prop_assert!(leaves <= usize::from(WORDS) * liars as usize + 40 / usize::from(RETURNS));
        }
    }
}
