#![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]
use std::ops::Range;

use super::*;
use crate::api::{Event, Limits, Policy, Protocol, Setup};
use crate::plan::Edges;

const LEN: u32 = 64 << 10;
const SOURCE: PeerId = PeerId(0);
const PARENT: PeerId = PeerId(1);
const CHILD: PeerId = PeerId(3);

fn relay() -> Engine {
    relay_of(8)
}

/// Member 2 of a plan over this many pieces, in one stripe: from member 1, to member 3. Member 0 is the source.
fn relay_of(pieces: u32) -> Engine {
    let (policy, limits) = (Policy::TIDECAST, Limits::default());
    let (lengths, want) = (vec![LEN; pieces as usize].into(), vec![0..pieces]);
    let setup = Setup { lengths, have: vec![], want, policy, limits, seed: 1 };
    let mut relay = Engine::new(setup, Time(0)).unwrap();
    let stripes = vec![Edges { parent: Some(1), children: vec![3] }];
    give(&mut relay, 0, Event::Plan(Arc::new(Role { epoch: 1, member: 2, sources: vec![0], stripes })));
    for peer in [SOURCE, PARENT, CHILD] {
        let protocol = Protocol::Tidecast { max_block: 1 << 20 };
        give(&mut relay, 0, Event::PeerUp { peer, protocol, candidate: None });
        give(&mut relay, 0, Event::Member { peer, member: peer.0, distance: 0 });
        give(&mut relay, 0, if peer == SOURCE { Event::HasAll { peer } } else { Event::HasNone { peer } });
    }
    relay
}

fn give(engine: &mut Engine, ms: u64, event: Event) -> Vec<Action> {
    engine.handle(Time(ms * 1_000_000), event);
    engine.check().unwrap();
    std::iter::from_fn(|| engine.poll()).collect()
}

/// The pieces asked for from one millisecond to another.
fn asked(engine: &mut Engine, span: Range<u64>) -> Vec<u32> {
    requested(&span.flat_map(|ms| give(engine, ms, Event::Tick)).collect::<Vec<_>>())
}

fn requested(actions: &[Action]) -> Vec<u32> {
    let pieces = |action: &Action| match action {
        Action::RequestPieces { pieces, .. } => pieces.clone().collect(),
        _ => vec![],
    };
    actions.iter().flat_map(pieces).collect()
}

fn sorted(mut pieces: Vec<u32>) -> Vec<u32> {
    pieces.sort_unstable();
    pieces
}

#[test]
fn what_was_declined_for_want_of_room_is_not_passed_on() {
    let last = OFFERS as u32;
    let mut relay = relay_of(last + 1);
    let declined = |actions: &[Action]| actions.iter().any(|a| matches!(a, Action::Cancel { .. }));
    // It may be asked for one piece at a time; its offers do not count as requests.
    give(&mut relay, 0, Event::QueueLimit { peer: PARENT, requests: 2 });
    for piece in 0..last {
        relay.handle(Time(1), Event::Offered { peer: PARENT, piece, stripe: 0 });
    }
    assert!(!declined(&std::iter::from_fn(|| relay.poll()).collect::<Vec<_>>()));
    assert!(declined(&give(&mut relay, 1, Event::Offered { peer: PARENT, piece: last, stripe: 0 })));
    let mut offered = Vec::new();
    for piece in [0, last] {
        for action in give(&mut relay, 2, Event::PieceVerified { piece }) {
            offered.extend(Some(action).filter(|a| matches!(a, Action::Offer { .. })));
        }
    }
    assert_eq!(offered, [Action::Offer { peer: CHILD, piece: 0, stripe: 0 }]);
}

#[test]
fn what_a_child_has_asked_for_is_not_offered_to_it() {
    let mut relay = relay();
    for piece in [0, 1] {
        give(&mut relay, 1, Event::Offered { peer: PARENT, piece, stripe: 0 });
    }
    // The first is on its way to the child, so that the second is not offered yet.
    let offers = |actions: &[Action]| actions.iter().filter(|a| matches!(a, Action::Offer { .. })).count();
    assert_eq!(offers(&give(&mut relay, 2, Event::PieceVerified { piece: 0 })), 1);
    assert_eq!(offers(&give(&mut relay, 3, Event::PieceVerified { piece: 1 })), 0);
    give(&mut relay, 4, Event::RequestedPieces { peer: CHILD, pieces: 1..2 });
    let parts = [0, LEN / 4, LEN / 2, LEN / 4 * 3].map(|begin| (begin, LEN / 4));
    for (piece, (begin, len)) in (0..2).flat_map(|piece| parts.map(|part| (piece, part))) {
        let block = Block { piece, begin, len };
        assert_eq!(offers(&give(&mut relay, 5, Event::Sent { peer: CHILD, block })), 0);
    }
}

/// Pieces asked for in the 600 ms after a receiver so far away is found to have everything, and after how many of them the
/// first was, while the only stripe still comes and has offered this many of eight pieces.
fn asked_at_the_end(distance: u8, offered: u32) -> (Vec<u32>, u64) {
    const DONE: PeerId = PeerId(5);
    let mut relay = relay();
    let protocol = Protocol::Tidecast { max_block: 1 << 20 };
    give(&mut relay, 1, Event::PeerUp { peer: DONE, protocol, candidate: None });
    give(&mut relay, 1, Event::Member { peer: DONE, member: DONE.0, distance });
    for piece in 0..offered {
        give(&mut relay, 1, Event::Offered { peer: PARENT, piece, stripe: 0 });
    }
    give(&mut relay, 2, Event::HasAll { peer: DONE });
    let first = (2..600).find_map(|ms| {
        let pieces = asked(&mut relay, ms..ms + 1);
        (!pieces.is_empty()).then_some((pieces, ms))
    });
    first.unwrap_or_default()
}

#[test]
fn what_a_late_stripe_still_brings_is_asked_of_those_who_are_through() {
    let (pieces, after) = asked_at_the_end(0, 7);
    assert!(pieces == [7] && (250..400).contains(&after), "{pieces:?} after {after} ms");
    // Not over a link that it may have to itself, nor in the middle of a broadcast that some member had
    // before it began.
    assert_eq!(asked_at_the_end(1, 7), (vec![], 0));
    assert_eq!(asked_at_the_end(0, 4), (vec![], 0));
}

#[test]
fn what_a_stripe_far_behind_has_not_sent_is_asked_at_once_of_those_who_are_through() {
    const DONE: PeerId = PeerId(5);
    let (mut engine, pieces) = (relay_of(40), 40);
    let edges = |parent| Edges { parent: Some(parent), children: vec![] };
    let role = Role { epoch: 2, member: 2, sources: vec![0], stripes: vec![edges(1), edges(3)] };
    give(&mut engine, 1, Event::Plan(Arc::new(role)));
    let protocol = Protocol::Tidecast { max_block: 1 << 20 };
    give(&mut engine, 1, Event::PeerUp { peer: DONE, protocol, candidate: None });
    give(&mut engine, 1, Event::Member { peer: DONE, member: DONE.0, distance: 0 });
    // Even pieces come by the first stripe, odd ones by the second, which has been without a parent for some time.
    for piece in (0..pieces).filter(|piece| piece % 2 == 0 || *piece < 12) {
        let (peer, stripe) = if piece % 2 == 0 { (PARENT, 0) } else { (CHILD, 1) };
        give(&mut engine, 2, Event::Offered { peer, piece, stripe });
        if piece < pieces - 2 {
            give(&mut engine, 2, Event::PieceVerified { piece });
        }
    }
    assert_eq!(asked(&mut engine, 2..150), [], "no other receiver has them");
    give(&mut engine, 150, Event::HasAll { peer: DONE });
    // The next two of the second stripe, 13 and 15, may be in transit, and the last one is not late. Of the others a part
    // comes from either end: what the stripe brings meanwhile is not fetched.
    assert_eq!(sorted(asked(&mut engine, 150..300)), [33, 35, 37]);
    assert_eq!(asked(&mut engine, 300..350), []);
    let mut said = Vec::new();
    give(&mut engine, 350, Event::Offered { peer: CHILD, piece: 13, stripe: 1 });
    for piece in [33, 35, 37] {
        said.extend(give(&mut engine, 350, Event::PieceVerified { piece }));
    }
    assert_eq!(sorted(requested(&said)), [29, 31]);
}

#[test]
fn a_stripe_goes_on_with_another_parent() {
    let mut relay = relay();
    for piece in [0, 1] {
        give(&mut relay, 1, Event::Offered { peer: PARENT, piece, stripe: 0 });
    }
    give(&mut relay, 2, Event::PieceVerified { piece: 0 });
    let stripes = vec![Edges { parent: Some(0), children: vec![3] }];
    let role = Role { epoch: 2, member: 2, sources: vec![0], stripes };
    // The new parent gets our pieces announced, though it has them too.
    let said = give(&mut relay, 3, Event::Plan(Arc::new(role)));
    assert!(said.contains(&Action::Announce { peer: SOURCE, pieces: vec![0..1] }), "{said:?}");
    // Pieces that the old parent owes and lacks come from the new one.
    let said = give(&mut relay, 4, Event::Offered { peer: SOURCE, piece: 1, stripe: 0 });
    let block = Block { piece: 1, begin: 0, len: LEN };
    assert_eq!(said, [Action::Cancel { peer: PARENT, block }]);
}

#[test]
fn the_source_is_asked_for_nothing_while_the_plan_brings_something() {
    let mut relay = relay();
    // So four pieces were given to a stripe that has ended, and only the source has them.
    give(&mut relay, 0, Event::Offered { peer: PARENT, piece: 4, stripe: 0 });
    assert_eq!(asked(&mut relay, 0..900), []);
    let parts = relay.planned().then(|| asked(&mut relay, 900..1400)).unwrap();
    assert!(!parts.is_empty() && parts.iter().all(|p| *p < 4), "{parts:?}");
}

#[test]
fn a_plan_that_works_after_all_is_followed_again() {
    let mut relay = relay();
    assert_eq!(asked(&mut relay, 0..1900), []);
    // Nothing came by it for too long: a swarm like any other.
    assert!(!asked(&mut relay, 1900..2100).is_empty() && !relay.planned());
    give(&mut relay, 3000, Event::Offered { peer: PARENT, piece: 0, stripe: 0 });
    assert!(relay.planned());
    // It took three seconds to come; the next may, too.
    let rest = relay.downloads.outstanding();
    assert_eq!((asked(&mut relay, 3000..7000), relay.downloads.outstanding()), (vec![], rest));
}

const OTHER: PeerId = PeerId(4);

/// Member 2 of a plan in two stripes: from member 1, which is alive and announces the pieces of `has` after
/// this many pieces, and from member 4, which brings a piece every 200 ms, each `step`-th. Returns the
/// complaint about member 1.
fn beside_one_that_flows(step: usize, has: fn(u32) -> u32) -> Vec<Complaint> {
    let (policy, limits) = (Policy::TIDECAST, Limits::default());
    let (lengths, want) = (vec![LEN; 120].into(), vec![0..120]);
    let setup = Setup { lengths, have: vec![], want, policy, limits, seed: 1 };
    let mut relay = Engine::new(setup, Time(0)).unwrap();
    let stripes = [1, 4].map(|parent| Edges { parent: Some(parent), children: vec![] }).to_vec();
    give(&mut relay, 0, Event::Plan(Arc::new(Role { epoch: 1, member: 2, sources: vec![0], stripes })));
    let protocol = Protocol::Tidecast { max_block: 1 << 20 };
    for peer in [SOURCE, PARENT, OTHER] {
        give(&mut relay, 0, Event::PeerUp { peer, protocol, candidate: None });
        give(&mut relay, 0, Event::Member { peer, member: peer.0, distance: 0 });
        give(&mut relay, 0, if peer == SOURCE { Event::HasAll { peer } } else { Event::HasNone { peer } });
    }
    let (mut said, mut told) = (Vec::new(), 0);
    for (turn, piece) in (0..60).zip((0..120).step_by(step)) {
        let at = 200 * turn;
        let block = Block { piece, begin: 0, len: LEN };
        let now = has(piece);
        let news = Event::HasMore { peer: PARENT, pieces: vec![told..now] };
        told = now;
        let events = [
            news,
            Event::Offered { peer: OTHER, piece, stripe: 1 },
            Event::Stored { peer: OTHER, block, proven: false },
            Event::PieceVerified { piece },
            Event::Tick,
        ];
        for event in events {
            let pause = if matches!(event, Event::Tick) { 190 } else { 0 };
            said.extend(give(&mut relay, at + pause, event));
        }
    }
    let about = |action| match action {
        Action::Complain { member, why, .. } => Some(why).filter(|_| member == 1),
        _ => None,
    };
    said.into_iter().filter_map(about).collect()
}

#[test]
fn a_parent_that_waits_itself_is_not_blamed_for_what_others_brought_it() {
    // It learns of each piece before us, by the other stripe; by ours nothing has come yet, or nothing will.
    assert_eq!(beside_one_that_flows(1, |piece| piece + 3), []);
}

#[test]
fn a_parent_that_keeps_what_others_have_passed_is_blamed() {
    // Every other piece goes by its stripe, and it has them.
    assert_eq!(beside_one_that_flows(2, |piece| piece + 2), [Complaint::Silent]);
}
