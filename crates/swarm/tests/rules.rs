//! The engine's promises about single events and actions, each rule alone.
#![allow(clippy::single_range_in_vec_init, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;

use tidecast_swarm::{
    Action, Block, Candidate, Engine, Event, Limits, PeerId, Policy, Protocol, Reason, Setup, SetupError,
    Time,
};

const MS: u64 = 1_000_000;
const K256: u32 = 256 << 10;
const TIDE: Protocol = Protocol::Tidecast { max_block: 1 << 20 };
const STOCK: Protocol = Protocol::Stock { fast: false };
const FAST: Protocol = Protocol::Stock { fast: true };
const A: PeerId = PeerId(1);
const B: PeerId = PeerId(2);

/// An engine and its clock.
struct One {
    engine: Engine,
    now: u64,
}

fn setup(pieces: u32, have: u32) -> Setup {
    Setup {
        lengths: vec![K256; pieces as usize].into(),
        have: if have > 0 { vec![0..have] } else { vec![] },
        want: vec![0..pieces],
        policy: Policy::TIDECAST,
        limits: Limits::default(),
        seed: 1,
    }
}

impl One {
    fn new(setup: Setup) -> Self {
        One { engine: Engine::new(setup, Time(0)).unwrap(), now: 0 }
    }

    fn give(&mut self, event: Event) -> Vec<Action> {
        self.engine.handle(Time(self.now), event);
        self.engine.check().unwrap();
        std::iter::from_fn(|| self.engine.poll()).collect()
    }

    /// Lets time pass, with every wake-up that is asked for.
    fn pass(&mut self, span: u64) -> Vec<Action> {
        let until = self.now + span;
        let mut out = Vec::new();
        while let Some(at) = self.engine.wakeup().filter(|at| at.0 <= until) {
            self.now = at.0.max(self.now + 1);
            out.extend(self.give(Event::Tick));
        }
        self.now = until;
        out
    }

    fn up(&mut self, peer: PeerId, protocol: Protocol) -> Vec<Action> {
        self.give(Event::PeerUp { peer, protocol, candidate: None })
    }

    fn deliver(&mut self, peer: PeerId, block: Block) -> Vec<Action> {
        let mut out = self.give(Event::Received { peer, block });
        out.extend(self.give(Event::Stored { peer, block, proven: true }));
        out
    }
}

fn whole(piece: u32) -> Block {
    Block { piece, begin: 0, len: K256 }
}

/// The blocks asked of `peer` by these actions.
fn asked(actions: &[Action], peer: PeerId) -> Vec<Block> {
    let mut out = Vec::new();
    for action in actions {
        match action {
            Action::Request { peer: p, block } if *p == peer => out.push(*block),
            Action::RequestPieces { peer: p, pieces } if *p == peer => {
                out.extend(pieces.clone().map(whole));
            }
            _ => {}
        }
    }
    out
}

#[test]
fn a_setup_that_cannot_be_is_refused() {
    let bad = |change: &dyn Fn(&mut Setup)| {
        let mut s = setup(4, 0);
        change(&mut s);
        Engine::new(s, Time(0)).unwrap_err()
    };
    assert_eq!(bad(&|s| s.lengths = vec![5, 0].into()), SetupError::EmptyPiece(1));
    assert_eq!(bad(&|s| s.want = vec![0..5]), SetupError::BadRange(0, 5));
    assert_eq!(bad(&|s| s.have = vec![2..3, 1..2]), SetupError::BadRange(1, 2));
    assert_eq!(bad(&|s| s.have = vec![2..2]), SetupError::BadRange(2, 2));
}

#[test]
fn complete_is_said_once_each_time() {
    let mut one = One::new(setup(2, 1));
    assert!(!one.engine.is_complete());
    let complete = |a: &[Action]| a.iter().filter(|a| **a == Action::Complete).count();
    assert_eq!(complete(&one.give(Event::PieceVerified { piece: 1 })), 1);
    assert_eq!(complete(&one.give(Event::PieceVerified { piece: 1 })), 0);
    one.give(Event::PieceLost { piece: 0 });
    assert!(!one.engine.is_complete() && !one.engine.have(0));
    assert_eq!(complete(&one.give(Event::PieceVerified { piece: 0 })), 1);
    assert_eq!(one.engine.have_ranges(), vec![0..2]);
    let mut seed = One::new(setup(3, 3));
    assert_eq!(complete(&seed.give(Event::Tick)), 1);
}

#[test]
fn nothing_is_asked_while_the_disk_is_behind_and_all_at_once_when_it_is_not() {
    let mut s = setup(64, 0);
    s.limits.unsettled = u64::from(K256);
    let mut one = One::new(s);
    one.up(A, TIDE);
    let first = asked(&one.give(Event::HasAll { peer: A }), A);
    assert!(!first.is_empty());
    let mut last = Vec::new();
    for &block in &first {
        last = one.give(Event::Received { peer: A, block });
    }
    assert!(asked(&last, A).is_empty(), "asked for more than the disk takes");
    let mut more = Vec::new();
    for &block in &first {
        more.extend(one.give(Event::Stored { peer: A, block, proven: true }));
    }
    assert!(!asked(&more, A).is_empty(), "waits although the disk has caught up");
}

#[test]
fn a_silent_peer_gives_back_and_is_asked_little() {
    let mut one = One::new(setup(64, 0));
    for peer in [A, B] {
        one.up(peer, TIDE);
    }
    let owed = asked(&one.give(Event::HasAll { peer: A }), A);
    assert!(!owed.is_empty());
    one.give(Event::HasAll { peer: B });
    let later = one.pass(20_000 * MS);
    let taken: Vec<u32> = later
        .iter()
        .filter_map(|a| match a {
            Action::Cancel { peer, block } if *peer == A => Some(block.piece),
            _ => None,
        })
        .collect();
    assert!(owed.iter().all(|b| taken.contains(&b.piece)), "{owed:?} {taken:?}");
    assert!(one.engine.peer_stats()[0].outstanding <= u64::from(K256));
}

#[test]
fn only_what_we_have_is_served_and_the_rest_rejected() {
    let mut one = One::new(setup(8, 2));
    one.up(A, TIDE);
    one.up(B, FAST);
    let out = one.give(Event::RequestedPieces { peer: A, pieces: 1..4 });
    let rejects: Vec<Block> = out
        .iter()
        .filter_map(|a| match a {
            Action::Reject { block, .. } => Some(*block),
            _ => None,
        })
        .collect();
    assert_eq!(rejects, vec![whole(2), whole(3)]);
    let served = |a: &[Action]| a.iter().filter(|a| matches!(a, Action::Serve { .. })).count();
    assert!(served(&out) > 0);
    let block = Block { piece: 0, begin: 16384, len: 16384 };
    assert_eq!(served(&one.give(Event::Requested { peer: B, block })), 1);
    let block = Block { piece: 5, ..block };
    let out = one.give(Event::Requested { peer: B, block });
    assert_eq!(out, vec![Action::Reject { peer: B, block }]);
    let block = Block { piece: 0, begin: K256 - 1, len: 2 };
    let out = one.give(Event::Requested { peer: B, block });
    assert!(matches!(out[0], Action::Disconnect { reason: Reason::Protocol(_), .. }));
}

#[test]
fn a_flood_of_requests_is_refused_then_cut_off() {
    let mut s = setup(8, 8);
    s.limits.queued_requests = 10;
    s.limits.serving = 16384;
    let mut one = One::new(s);
    one.up(A, FAST);
    one.up(B, STOCK);
    for (peer, patient) in [(A, true), (B, false)] {
        let block = Block { piece: 0, begin: 0, len: 16384 };
        let mut all = Vec::new();
        for _ in 0..60 {
            all.extend(one.give(Event::Requested { peer, block }));
        }
        let rejected = all.iter().filter(|a| matches!(a, Action::Reject { .. })).count();
        assert_eq!(rejected > 0, patient);
        assert!(rejected <= 10);
        assert!(all.contains(&Action::Disconnect { peer, reason: Reason::Flooding }));
    }
}

#[test]
fn a_cancel_takes_requests_out_of_the_queue() {
    let mut one = One::new(setup(64, 64));
    one.up(A, TIDE);
    let out = one.give(Event::RequestedPieces { peer: A, pieces: 0..20 });
    for piece in 0..20 {
        one.give(Event::Canceled { peer: A, block: whole(piece) });
    }
    assert_eq!(one.engine.peer_stats()[0].queued, 0);
    for action in out {
        if let Action::Serve { peer, block } = action {
            assert!(one.give(Event::Sent { peer, block }).is_empty());
        }
    }
}

#[test]
fn a_choke_drops_requests_unless_the_peer_rejects_them_itself() {
    for (protocol, kept) in [(STOCK, false), (FAST, true), (TIDE, true)] {
        let mut one = One::new(setup(8, 0));
        one.up(A, protocol);
        one.give(Event::HasAll { peer: A });
        let out = one.give(Event::Unchoked { peer: A });
        let before = one.engine.stats().outstanding;
        assert!(before > 0, "{protocol:?}: {out:?}");
        one.give(Event::Choked { peer: A });
        assert_eq!(one.engine.stats().outstanding > 0, kept, "{protocol:?}");
        let again = asked(&one.give(Event::Unchoked { peer: A }), A);
        assert_eq!(again.is_empty(), kept, "{protocol:?}");
    }
}

#[test]
fn a_stock_peer_is_asked_only_when_it_unchokes_or_allows() {
    let mut one = One::new(setup(8, 0));
    one.up(A, FAST);
    let out = one.give(Event::HasAll { peer: A });
    assert_eq!(out, vec![Action::Interested { peer: A, interested: true }]);
    let out = asked(&one.give(Event::AllowedFast { peer: A, piece: 3 }), A);
    assert!(!out.is_empty() && out.iter().all(|b| b.piece == 3 && b.len == 16384));
    for block in out {
        let more = asked(&one.deliver(A, block), A);
        assert!(more.is_empty(), "asked a peer that chokes for {more:?}");
    }
    let out = asked(&one.give(Event::Unchoked { peer: A }), A);
    assert!(!out.is_empty() && out.iter().all(|b| b.piece != 3));
}

#[test]
fn news_go_out_at_once_then_in_batches() {
    let mut one = One::new(setup(64, 0));
    one.now = 1000 * MS;
    let out = one.up(A, TIDE);
    assert_eq!(out[0], Action::AnnounceAll { peer: A, have: vec![] });
    one.up(B, STOCK);
    let to = |actions: &[Action], who: PeerId| -> Vec<u32> {
        let mut all = Vec::new();
        for action in actions {
            if let Action::Announce { peer, pieces } = action
                && *peer == who
            {
                all.extend(pieces.iter().cloned().flatten());
            }
        }
        all
    };
    let out = one.give(Event::PieceVerified { piece: 7 });
    assert_eq!((to(&out, A), to(&out, B)), (vec![7], vec![7]));
    one.now += MS;
    for piece in [9, 8] {
        let out = one.give(Event::PieceVerified { piece });
        assert_eq!((to(&out, A), to(&out, B)), (vec![], vec![piece]));
    }
    one.give(Event::Has { peer: A, pieces: 9..10 });
    assert_eq!(to(&one.pass(50 * MS), A), vec![8], "known, or not in one batch");
}

#[test]
fn news_of_what_several_have_wait_for_other_news_or_half_a_second() {
    let mut one = One::new(setup(64, 0));
    one.now = 1000 * MS;
    for peer in 1..6 {
        one.up(PeerId(peer), TIDE);
    }
    for peer in 2..6 {
        one.give(Event::Has { peer: PeerId(peer), pieces: 8..16 });
    }
    let to_a = |actions: Vec<Action>| -> Vec<u32> {
        let to = |action| match action {
            Action::Announce { peer: A, pieces } => pieces.into_iter().flatten().collect(),
            _ => vec![],
        };
        actions.into_iter().flat_map(to).collect()
    };
    assert_eq!(to_a(one.give(Event::PieceVerified { piece: 8 })), [8], "the first after a pause");
    one.give(Event::PieceVerified { piece: 9 });
    assert_eq!(to_a(one.pass(400 * MS)), []);
    assert_eq!(to_a(one.pass(200 * MS)), [9]);
    assert_eq!(to_a(one.give(Event::PieceVerified { piece: 10 })), []);
    assert_eq!(to_a(one.give(Event::PieceVerified { piece: 30 })), [10, 30], "nobody else has the second");
}

#[test]
fn whoever_was_told_of_a_piece_is_told_that_it_is_lost() {
    let mut one = One::new(setup(64, 4));
    one.now = 1000 * MS;
    one.up(A, TIDE);
    one.up(B, STOCK);
    let told = |actions: &[Action]| -> Vec<(PeerId, u32)> {
        let lost = |a: &Action| match *a {
            Action::AnnounceLost { peer, piece } => Some((peer, piece)),
            _ => None,
        };
        actions.iter().filter_map(lost).collect()
    };
    assert_eq!(told(&one.give(Event::PieceLost { piece: 3 })), vec![(A, 3), (B, 3)]);
    assert_eq!(told(&one.give(Event::PieceLost { piece: 3 })), vec![], "told twice");
    assert_eq!(told(&one.give(Event::PieceLost { piece: 9 })), vec![], "we never had it");
    // The first goes out at once, the second waits for its batch: of that only the stock peer knows.
    one.give(Event::PieceVerified { piece: 7 });
    one.now += MS;
    one.give(Event::PieceVerified { piece: 8 });
    assert_eq!(told(&one.give(Event::PieceLost { piece: 8 })), vec![(B, 8)]);
    let batch = one.pass(50 * MS);
    assert!(!batch.iter().any(|a| matches!(a, Action::Announce { .. })), "{batch:?}");
    // Found again, told again.
    let again = one.give(Event::PieceVerified { piece: 3 });
    let again: Vec<_> = again.into_iter().chain(one.pass(50 * MS)).collect();
    for peer in [A, B] {
        assert!(again.contains(&Action::Announce { peer, pieces: vec![3..4] }));
    }
}

#[test]
fn a_peer_that_has_lost_a_piece_is_asked_for_it_no_more() {
    let mut one = One::new(setup(2, 0));
    one.up(A, TIDE);
    assert_eq!(asked(&one.give(Event::HasAll { peer: A }), A).len(), 2);
    let out = one.give(Event::HasNot { peer: A, piece: 1 });
    assert!(out.contains(&Action::Cancel { peer: A, block: whole(1) }));
    let mut out = one.give(Event::Rejected { peer: A, block: whole(1) });
    out.extend(one.deliver(A, whole(0)));
    out.extend(one.give(Event::PieceVerified { piece: 0 }));
    out.extend(one.pass(2_000 * MS));
    assert_eq!(asked(&out, A), vec![]);
}

#[test]
fn news_are_paid_for_by_payload_and_told_all_the_same_when_none_comes() {
    let pieces = 30_000;
    let mut s = setup(pieces, 0);
    s.lengths = vec![16_384; pieces as usize].into();
    let mut one = One::new(s);
    for peer in 0..100 {
        one.engine.handle(Time(0), Event::PeerUp { peer: PeerId(peer), protocol: TIDE, candidate: None });
    }
    // Every other piece, so that no two make a range; 80 MB/s.
    let (mut bytes, mut told) = (0, 0);
    for i in 0..pieces / 2 {
        one.now += 200_000;
        let (peer, piece) = (PeerId(i % 100), 2 * i);
        let block = Block { piece, begin: 0, len: 16_384 };
        for event in [
            Event::Has { peer, pieces: piece..piece + 1 },
            Event::Received { peer, block },
            Event::Stored { peer, block, proven: true },
            Event::PieceVerified { piece },
        ] {
            one.engine.handle(Time(one.now), event);
            while let Some(action) = one.engine.poll() {
                if let Action::Announce { pieces, .. } = action {
                    // As ranges or as bits, whichever is shorter.
                    let span = pieces[pieces.len() - 1].end - pieces[0].start;
                    bytes += 14 + (8 * pieces.len() as u64).min(u64::from(span) / 8);
                    told += pieces.len();
                }
            }
        }
    }
    let payload = u64::from(pieces / 2) * 16_384;
    assert!(bytes < payload / 200 && told > 0, "{bytes} bytes for {payload}");
    let all = (pieces / 2) as usize * 99;
    for action in one.pass(2_000 * MS) {
        if let Action::Announce { pieces, .. } = action {
            told += pieces.len();
        }
    }
    assert_eq!(told, all, "nothing more comes, and somebody has not heard");
}

#[test]
fn deadlines_go_before_priorities_before_the_rest() {
    let mut one = One::new(setup(64, 0));
    one.give(Event::Priority { pieces: 20..22, priority: 3 });
    one.give(Event::Deadline { pieces: 40..41, at: Time(500 * MS) });
    one.up(A, TIDE);
    let mut order = Vec::new();
    let mut todo = asked(&one.give(Event::HasAll { peer: A }), A);
    while order.len() < 5 {
        let block = todo.remove(0);
        order.push(block.piece);
        one.now += 5 * MS;
        todo.extend(asked(&one.deliver(A, block), A));
        one.give(Event::PieceVerified { piece: block.piece });
    }
    assert_eq!(order[0], 40);
    assert_eq!([order[1].min(order[2]), order[1].max(order[2])], [20, 21]);
}

#[test]
fn what_is_unwanted_is_not_asked_for() {
    let mut one = One::new(setup(8, 0));
    one.give(Event::Priority { pieces: 0..8, priority: 0 });
    assert!(one.engine.is_complete());
    one.up(A, TIDE);
    assert!(asked(&one.give(Event::HasAll { peer: A }), A).is_empty());
    let out = one.give(Event::Priority { pieces: 2..3, priority: 1 });
    assert!(out.contains(&Action::Interested { peer: A, interested: true }));
    assert_eq!(asked(&out, A), vec![whole(2)]);
    let out = one.give(Event::Priority { pieces: 2..3, priority: 0 });
    assert!(out.contains(&Action::Cancel { peer: A, block: whole(2) }));
}

#[test]
fn a_bad_block_bans_its_sender_and_what_it_owed_goes_to_others() {
    let mut one = One::new(setup(4, 0));
    for peer in [A, B] {
        one.up(peer, TIDE);
    }
    let block = asked(&one.give(Event::HasAll { peer: A }), A)[0];
    one.give(Event::HasAll { peer: B });
    one.give(Event::Received { peer: A, block });
    let out = one.give(Event::BlockBad { peer: A, block });
    assert!(out.contains(&Action::Ban { peer: A, reason: Reason::CorruptData }));
    assert_eq!(one.engine.peers(), vec![B]);
    let mut todo = asked(&out, B);
    todo.extend(asked(&one.pass(1000 * MS), B));
    assert!(one.give(Event::BlockBad { peer: A, block }).is_empty(), "banned twice");
    let stats = one.engine.stats();
    assert_eq!((stats.banned, stats.bad), (1, 2 * u64::from(block.len)));
}

#[test]
fn one_too_many_is_let_go_but_room_is_made_for_those_we_were_told_of() {
    let mut s = setup(4, 0);
    s.limits.peers = 2;
    let mut one = One::new(s);
    let c = Candidate(9);
    let out = one.give(Event::Candidate { candidate: c, told: true });
    assert_eq!(out, vec![Action::Dial { candidate: c }]);
    for peer in [PeerId(10), PeerId(11)] {
        one.up(peer, TIDE);
    }
    let out = one.up(PeerId(12), TIDE);
    assert_eq!(out, vec![Action::Disconnect { peer: PeerId(12), reason: Reason::TooMany }]);
    one.give(Event::PeerDown { peer: PeerId(12) });
    let up = Event::PeerUp { peer: PeerId(13), protocol: TIDE, candidate: Some(c) };
    let out = one.give(up);
    assert!(out.contains(&Action::Disconnect { peer: PeerId(10), reason: Reason::TooMany }));
    assert!(one.engine.peers().contains(&PeerId(13)));
}

/// Found by the simulator: nodes whose few connections were all with one another, and no node had any piece.
#[test]
fn a_node_on_an_island_tries_all_others_one_after_the_other() {
    let mut s = setup(4, 0);
    (s.limits.peers, s.limits.random_neighbours) = (3, 2);
    let mut one = One::new(s);
    one.up(PeerId(0), TIDE);
    let mut todo: Vec<Action> =
        (1..=6).flat_map(|c| one.give(Event::Candidate { candidate: Candidate(c), told: false })).collect();
    todo.extend(one.pass(25 * MS));
    let (mut tried, mut left) = (Vec::new(), Vec::new());
    // The sixth has a piece; from then on no peer is disconnected.
    for _ in 0..120 {
        let at = one.now / MS;
        for action in std::mem::take(&mut todo) {
            todo.extend(match action {
                Action::Dial { candidate } => {
                    tried.push(candidate);
                    let peer = PeerId(candidate.0);
                    let up = Event::PeerUp { peer, protocol: TIDE, candidate: Some(candidate) };
                    let mut out = one.give(up);
                    if tried.len() == 6 {
                        out.extend(one.give(Event::Has { peer, pieces: 0..1 }));
                    }
                    out
                }
                Action::Disconnect { peer, reason } => {
                    assert_eq!(reason, Reason::TooMany);
                    left.push((at, peer));
                    one.give(Event::PeerDown { peer })
                }
                _ => Vec::new(),
            });
        }
        todo.extend(one.pass(100 * MS));
    }
    let mut all = tried.clone();
    all.sort();
    assert_eq!(all, (1..=6).map(Candidate).collect::<Vec<_>>(), "each once");
    assert_eq!(left.len(), 4, "{left:?}");
    assert!(left.windows(2).all(|w| w[1].0 - w[0].0 >= 1900), "{left:?}");
    assert!(one.engine.peers().contains(&PeerId(0)), "who called takes no dialled one's place");
}

#[test]
fn one_that_calls_takes_the_place_of_an_idle_one_now_and_then() {
    let mut s = setup(4, 0);
    s.limits.peers = 2;
    let mut one = One::new(s);
    one.up(A, TIDE);
    one.up(B, TIDE);
    one.give(Event::Has { peer: A, pieces: 0..1 });
    let gone = |out: Vec<Action>| {
        let gone = |a: &Action| matches!(a, Action::Disconnect { .. }).then(|| a.peer().unwrap());
        out.iter().filter_map(gone).collect::<Vec<_>>()
    };
    // Not before they have had time to announce their pieces.
    assert_eq!(gone(one.up(PeerId(3), TIDE)), [PeerId(3)]);
    one.give(Event::PeerDown { peer: PeerId(3) });
    one.pass(2500 * MS);
    assert_eq!(gone(one.up(PeerId(4), TIDE)), [B]);
    one.give(Event::PeerDown { peer: B });
    assert_eq!(gone(one.up(PeerId(5), TIDE)), [PeerId(5)]);
}

#[test]
fn events_of_peers_that_are_gone_or_never_were_mean_nothing() {
    let mut one = One::new(setup(4, 2));
    one.up(A, TIDE);
    one.give(Event::PeerDown { peer: A });
    for peer in [A, PeerId(77)] {
        assert!(one.give(Event::HasAll { peer }).is_empty());
        assert!(one.give(Event::Requested { peer, block: whole(0) }).is_empty());
        assert!(one.give(Event::PeerDown { peer }).is_empty());
        assert!(one.give(Event::Sent { peer, block: whole(0) }).is_empty());
    }
    assert_eq!(one.engine.stats().peers, 0);
}

#[test]
fn a_peer_that_claims_the_impossible_is_let_go() {
    for event in [
        Event::Has { peer: A, pieces: 3..9 },
        Event::HasExactly { peer: A, pieces: vec![0..1, 7..8] },
        Event::HasNot { peer: A, piece: u32::MAX },
        Event::RequestedPieces { peer: A, pieces: 0..5 },
    ] {
        let mut one = One::new(setup(4, 0));
        one.up(A, TIDE);
        let out = one.give(event);
        assert!(matches!(out[0], Action::Disconnect { reason: Reason::Protocol(_), .. }), "{out:?}");
    }
}

#[test]
fn time_that_runs_backwards_is_held() {
    let mut one = One::new(setup(4, 0));
    one.now = 1000 * MS;
    one.up(A, TIDE);
    one.now = 10;
    one.give(Event::HasAll { peer: A });
    assert!(one.engine.wakeup().unwrap() >= Time(1000 * MS));
}

/// The peers that it dials, of this many that it learns of one after the other.
fn dials_among(one: &mut One, count: u32) -> Vec<Candidate> {
    let mut actions = Vec::new();
    for c in 0..count {
        actions.extend(one.give(Event::Candidate { candidate: Candidate(c), told: false }));
    }
    actions.extend(one.pass(25 * MS));
    actions
        .iter()
        .filter_map(|a| if let Action::Dial { candidate } = a { Some(*candidate) } else { None })
        .collect()
}

/// Found by the simulator: forty nodes learned of each other in one order, and all dialled the first sixteen.
#[test]
fn of_those_heard_of_at_once_chance_says_who_is_dialled() {
    let dialled = |seed| {
        let mut setup = setup(4, 0);
        (setup.seed, setup.limits.random_neighbours) = (seed, 4);
        dials_among(&mut One::new(setup), 40)
    };
    let all: BTreeSet<Candidate> = (0..20).flat_map(dialled).collect();
    assert!((0..20).all(|seed| dialled(seed).len() == 4));
    assert!(all.len() > 25, "20 nodes dial {} of 40", all.len());
}

/// Found by the simulator: where dials under way took the last room, the engine asked to be woken at once,
/// again and again, until one of them ended.
#[test]
fn nothing_is_due_while_dials_take_the_last_room() {
    let mut setup = setup(4, 0);
    setup.limits.peers = 2;
    let mut one = One::new(setup);
    let dialled = dials_among(&mut one, 5);
    assert_eq!((dialled.len(), one.engine.wakeup()), (2, None));
    let next = one.give(Event::DialFailed { candidate: dialled[0] });
    assert!(matches!(next[..], [Action::Dial { .. }]), "{next:?}");
}

/// Found by the simulator: an honest peer was dropped for flooding one that queues little.
#[test]
fn a_peer_is_sent_no_more_requests_than_it_queues() {
    let mut one = One::new(setup(200, 0));
    one.up(A, TIDE);
    one.give(Event::QueueLimit { peer: A, requests: 8 });
    let asked = asked(&one.give(Event::HasAll { peer: A }), A);
    assert!((1..=8).contains(&asked.len()), "{asked:?}");
}

/// Found by the simulator: requests beyond a seed's window were made while it choked.
#[test]
fn nothing_is_asked_of_a_seed_that_chokes() {
    let mut one = One::new(setup(200, 0));
    one.up(A, TIDE);
    one.give(Event::Choked { peer: A });
    let mut actions = one.give(Event::HasAll { peer: A });
    actions.extend(one.pass(1_000_000_000));
    assert_eq!(asked(&actions, A), vec![]);
}

/// Found by the simulator: short blocks at the ends of pieces made more requests than bytes let on.
#[test]
fn a_stock_peer_is_sent_no_more_requests_than_it_queues() {
    let mut setup = setup(200, 0);
    setup.lengths = vec![16_385; 200].into();
    let mut one = One::new(setup);
    one.up(A, FAST);
    one.give(Event::QueueLimit { peer: A, requests: 8 });
    one.give(Event::HasAll { peer: A });
    let asked = asked(&one.give(Event::Unchoked { peer: A }), A);
    assert!((4..=8).contains(&asked.len()), "{asked:?}");
}

/// The peers dialled within an hour after a connection with a node that was dialled has ended by the other
/// side.
fn dialled_again(have: u32, protocol: Protocol, said: &[Event]) -> usize {
    let mut one = One::new(setup(4, have));
    let candidate = Candidate(7);
    one.give(Event::Candidate { candidate, told: true });
    one.pass(25 * MS);
    one.give(Event::PeerUp { peer: A, protocol, candidate: Some(candidate) });
    said.iter().for_each(|event| drop(one.give(event.clone())));
    one.pass(1000 * MS);
    one.give(Event::PeerDown { peer: A });
    let dials = one.pass(3_600_000 * MS);
    dials.iter().filter(|a| matches!(a, Action::Dial { .. })).count()
}

#[test]
fn two_that_have_all_part_for_good_whoever_lets_go_first() {
    let half = Event::HasExactly { peer: A, pieces: vec![0..2] };
    let upload_only = Event::UploadOnly { peer: A };
    assert_eq!(dialled_again(4, TIDE, &[Event::HasAll { peer: A }]), 0);
    assert_eq!(dialled_again(4, FAST, &[half.clone(), upload_only.clone()]), 0);
    assert_eq!(dialled_again(4, TIDE, std::slice::from_ref(&half)), 1, "it may want the rest");
    assert_eq!(
        dialled_again(4, FAST, &[half.clone(), upload_only.clone(), Event::Interested { peer: A }]),
        1
    );
    assert_eq!(dialled_again(2, TIDE, &[Event::HasAll { peer: A }]), 1, "it has the rest");
    assert_eq!(dialled_again(2, FAST, &[half, upload_only]), 1, "others may come to it");
}

#[test]
fn who_downloads_nothing_any_more_is_let_go_by_a_seed() {
    let mut one = One::new(setup(4, 4));
    one.up(A, FAST);
    one.give(Event::HasExactly { peer: A, pieces: vec![0..2] });
    assert_eq!(one.pass(10_000 * MS), []);
    one.give(Event::UploadOnly { peer: A });
    assert_eq!(one.pass(10_000 * MS), [Action::Disconnect { peer: A, reason: Reason::Useless }]);
}

#[test]
fn nothing_is_asked_for_while_a_plan_may_come() {
    let mut one = One::new(setup(4, 0));
    one.up(A, TIDE);
    one.give(Event::PlanExpected { until: Time(5000 * MS) });
    let mut actions = one.give(Event::HasAll { peer: A });
    actions.extend(one.pass(4999 * MS));
    assert_eq!(asked(&actions, A), vec![]);
    assert!(!asked(&one.pass(2 * MS), A).is_empty(), "it has not come");
    let mut late = One::new(setup(4, 0));
    late.up(A, TIDE);
    late.give(Event::PlanExpected { until: Time(5000 * MS) });
    late.give(Event::HasAll { peer: A });
    late.now = 100 * MS;
    assert!(!asked(&late.give(Event::PlanExpected { until: Time(100 * MS) }), A).is_empty(), "there is none");
}
