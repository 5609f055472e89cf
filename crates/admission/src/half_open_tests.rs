#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits { per_source: 4, total: 10, deadline: Duration::from_secs(10) };

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn host(number: u8) -> Source {
    Source::V4([10, 0, 0, number])
}

#[test]
fn the_oldest_of_a_source_gives_way_to_its_next() {
    let mut open = HalfOpen::new(LIMITS);
    assert_eq!(open.arrive(host(9), at(0), 99).1, None);
    let displaced: Vec<_> = (0..7).filter_map(|n| open.arrive(host(1), at(1), n).1).collect();
    assert_eq!(displaced, [0, 1, 2]);
    assert_eq!((open.of(host(1)), open.of(host(9))), (4, 1));
}

#[test]
fn a_handshake_under_way_outlasts_silent_connections_of_its_source() {
    let mut open = HalfOpen::new(LIMITS);
    let (first, _) = open.arrive(host(1), at(0), 0);
    open.advance(first);
    let displaced: Vec<_> = (1..7).filter_map(|n| open.arrive(host(1), at(1), n).1).collect();
    assert_eq!(displaced, [1, 2, 3]);
    assert_eq!(open.overdue(at(10)), [0], "but not its time");
}

#[test]
fn at_the_limit_of_all_the_source_with_most_gives_way() {
    let mut open = HalfOpen::new(LIMITS);
    for n in 0..4 {
        open.arrive(host(1), at(0), n);
    }
    let others: Vec<_> = (10..19).map(|n| open.arrive(host(n), at(1), n.into()).1).collect();
    assert_eq!(others[..6], [None; 6]);
    assert_eq!(others[6..], [Some(0), Some(1), Some(2)]);
    assert_eq!(open.arrive(host(50), at(2), 50).1, Some(3), "all have one: the oldest");
    assert_eq!(open.arrive(host(51), at(2), 51).1, Some(10));
    assert_eq!(open.len(), 10);
}

#[test]
fn what_has_left_is_closed_for_nobody() {
    let mut open = HalfOpen::new(LIMITS);
    let (proven, _) = open.arrive(host(1), at(0), 7);
    assert_eq!(open.leave(proven), Some(7));
    assert_eq!(open.leave(proven), None);
    open.advance(proven);
    assert!(open.is_empty() && open.next_overdue().is_none() && open.shed().is_none());
    assert!(open.overdue(at(1000)).is_empty());
}

#[derive(Clone, Debug)]
enum Step {
    Arrive(u8),
    Advance(usize),
    Leave(usize),
    Shed,
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0u8..6).prop_map(Step::Arrive),
        2 => (0usize..20).prop_map(Step::Advance),
        2 => (0usize..20).prop_map(Step::Leave),
        1 => Just(Step::Shed),
        1 => (0u64..6).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 0..200)
}

/// A plain model: (id, source, advanced, since), oldest first.
type Model = Vec<(Id, Source, bool, u64)>;

/// The connection of `source` that the model closes first.
fn first(model: &Model, source: Source) -> Id {
    let of = model.iter().filter(|c| c.1 == source);
    of.min_by_key(|c| (c.2, c.0)).unwrap().0
}

fn count(model: &Model, source: Source) -> usize {
    model.iter().filter(|c| c.1 == source).count()
}

proptest! {
    #[test]
    fn limits_hold_and_only_the_right_ones_are_closed(steps in steps()) {
        let (mut open, mut model, mut now) = (HalfOpen::new(LIMITS), Model::new(), 0);
        for step in steps {
            match step {
                Step::Arrive(n) => {
                    let full = open.is_full_for(host(n));
                    let (id, displaced) = open.arrive(host(n), at(now), open.next);
                    prop_assert_eq!(full, displaced.is_some());
                    if let Some(gone) = displaced {
                        let source = model.iter().find(|c| c.0 == gone).unwrap().1;
                        prop_assert_eq!(gone, first(&model, source), "the oldest of its source");
                        let own = count(&model, host(n));
                        if own >= LIMITS.per_source {
                            prop_assert_eq!(source, host(n));
                        } else {
                            prop_assert!(model.iter().all(|c| count(&model, c.1) <= count(&model, source)));
                        }
                        model.retain(|c| c.0 != gone);
                    }
                    model.push((id, host(n), false, now));
                }
                Step::Advance(n) => if let Some(c) = model.get_mut(n) {
                    c.2 = true;
                    open.advance(c.0);
                },
                Step::Leave(n) => if n < model.len() {
                    let id = model.remove(n).0;
                    prop_assert_eq!(open.leave(id), Some(id));
                },
                Step::Shed => {
                    let gone = open.shed();
                    prop_assert_eq!(gone.is_none(), model.is_empty());
                    model.retain(|c| Some(c.0) != gone);
                }
                Step::Wait(seconds) => {
                    now += seconds;
                    let late: Vec<_> = model.iter().filter(|c| c.3 + 10 <= now).map(|c| c.0).collect();
                    prop_assert_eq!(open.overdue(at(now)), late);
                    model.retain(|c| c.3 + 10 > now);
                }
            }
            prop_assert_eq!(open.len(), model.len());
            prop_assert!(open.len() <= LIMITS.total);
            for n in 0..6 {
                prop_assert_eq!(open.of(host(n)), count(&model, host(n)));
                prop_assert!(open.of(host(n)) <= LIMITS.per_source);
            }
        }
    }
}
