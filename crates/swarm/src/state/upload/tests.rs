#![allow(clippy::unwrap_used)]
use super::*;

const K: u32 = 1 << 10;
const PIECE: u32 = 1024 * K;
const SHARE: Share = Share { serving: 4 << 20, max_block: 1 << 20, whole: false };

fn whole(queue: &mut Queue, pieces: std::ops::Range<u32>) {
    pieces.for_each(|piece| queue.push(Block { piece, begin: 0, len: PIECE }));
}

fn serve(turns: &mut Turns, queues: &mut [Queue], now: u64, most: usize) -> Vec<(u32, u32)> {
    let mut out = Vec::new();
    while out.len() < most
        && let Some((id, _)) = turns.next()
    {
        let q = &mut queues[id.0 as usize];
        if let Step::Serve(b) = turns.step(Time(now), id, q, SHARE, |_| 0) {
            out.push((id.0, b.len));
        }
    }
    out
}

/// Serves block by block, each sent a millisecond later.
fn run(turns: &mut Turns, queues: &mut [Queue], blocks: u64) -> Vec<(u32, u32)> {
    let (mut all, mut sending) = (Vec::new(), VecDeque::new());
    for at in 0..blocks {
        sending.extend(serve(turns, queues, at * 1_000_000, usize::MAX));
        if let Some((peer, len)) = sending.pop_front() {
            let now = Time((at + 1) * 1_000_000);
            turns.sent(now, PeerId(peer), &mut queues[peer as usize], len);
            all.push((peer, len));
        }
    }
    all
}

#[test]
fn peers_get_equal_bytes_whatever_they_ask() {
    let mut queues = [Queue::default(), Queue::default()];
    let mut turns = Turns::new(16 << 20, 1000, PIECE);
    whole(&mut queues[0], 0..100);
    for i in 0..4000 {
        queues[1].push(Block { piece: i % 100, begin: 0, len: 16 * K });
    }
    for i in 0..2 {
        turns.enter(PeerId(i), &mut queues[i as usize]);
    }
    let served = run(&mut turns, &mut queues, 400);
    let bytes = |p| served.iter().filter(|s| s.0 == p).map(|s| u64::from(s.1)).sum::<u64>();
    let got = (bytes(0), bytes(1));
    assert!(got.0 > 4 << 20 && got.0.abs_diff(got.1) <= 1 << 20, "{got:?}");
}

#[test]
fn stays_within_its_share_and_goes_on_when_sent() {
    let mut queues = [Queue::default()];
    let mut turns = Turns::new(64 << 20, 1000, PIECE);
    whole(&mut queues[0], 0..1000);
    turns.enter(PeerId(0), &mut queues[0]);
    let first = serve(&mut turns, &mut queues, 0, usize::MAX);
    assert_eq!(first, vec![(0, 64 * K), (0, 64 * K)]);
    turns.sent(Time(1), PeerId(0), &mut queues[0], 64 * K);
    assert_eq!(serve(&mut turns, &mut queues, 1, usize::MAX).len(), 1);
    // A fast peer has more in flight, up to its share.
    turns.sent(Time(2), PeerId(0), &mut queues[0], 64 * K);
    turns.sent(Time(3), PeerId(0), &mut queues[0], 64 * K);
    run(&mut turns, &mut queues, 300);
    serve(&mut turns, &mut queues, 300_000_000, usize::MAX);
    assert!((3 << 20..=4 << 20).contains(&queues[0].in_flight()), "{}", queues[0].in_flight());
    turns.forget(PeerId(0), &mut queues[0]);
    assert_eq!((turns.in_flight(), queues[0].len()), (0, 0));
}

#[test]
fn so_many_blocks_are_in_flight_however_small_they_are() {
    let mut queues = [Queue::default()];
    let mut turns = Turns::new(64 << 20, 10_000, PIECE);
    (0..10_000).for_each(|piece| queues[0].push(Block { piece, begin: 0, len: 5 }));
    turns.enter(PeerId(0), &mut queues[0]);
    let first = serve(&mut turns, &mut queues, 0, usize::MAX);
    assert_eq!(first.len(), BLOCKS_MOST as usize);
    first.iter().for_each(|(_, len)| turns.sent(Time(1), PeerId(0), &mut queues[0], *len));
    let served = run(&mut turns, &mut queues, 20_000).len();
    assert_eq!((served, queues[0].len()), (10_000 - BLOCKS_MOST as usize, 0));
}

#[test]
fn a_slow_peer_keeps_nobody_waiting_where_all_is_handed_out() {
    let mut queues = [Queue::default(), Queue::default()];
    let mut turns = Turns::new(2 * u64::from(64 * K), 1000, PIECE);
    for (id, queue) in (0..).map(PeerId).zip(&mut queues) {
        whole(queue, 0..10);
        turns.enter(id, queue);
    }
    assert_eq!(serve(&mut turns, &mut queues, 0, usize::MAX), [(0, 64 * K), (0, 64 * K)]);
    // Its turn is not over; but its sent data makes room for the other.
    turns.sent(Time(1), PeerId(0), &mut queues[0], 64 * K);
    assert_eq!(serve(&mut turns, &mut queues, 1, usize::MAX), [(1, 64 * K)]);
}

#[test]
fn a_child_that_is_fed_in_bursts_gets_large_blocks() {
    let mut queues = [Queue::default()];
    let mut turns = Turns::new(64 << 20, 1000, PIECE);
    turns.feed(PeerId(0), &mut queues[0], true);
    turns.follow_plan(true, true);
    let (mut now, mut last) = (0, 0);
    for piece in 0..3 {
        now += 100_000_000;
        queues[0].push(Block { piece, begin: 0, len: 4 * PIECE });
        turns.enter(PeerId(0), &mut queues[0]);
        while let Some(&(_, len)) = serve(&mut turns, &mut queues, now, 1).first() {
            now += u64::from(len);
            turns.sent(Time(now), PeerId(0), &mut queues[0], len);
            last = len;
        }
    }
    assert_eq!(u64::from(last), FED_MOST);
}

/// The last block to each of this many children, which share an uplink of this many bytes per millisecond.
fn last_blocks(children: u32, uplink: u64) -> Vec<u32> {
    let mut queues: Vec<Queue> = (0..children).map(|_| Queue::default()).collect();
    let mut turns = Turns::new(64 << 20, 1000, PIECE);
    turns.follow_plan(true, true);
    for (id, queue) in (0..).map(PeerId).zip(&mut queues) {
        turns.feed(id, queue, true);
        whole(queue, 0..1000);
        turns.enter(id, queue);
    }
    let (mut last, mut sending, mut at) = (vec![0; queues.len()], VecDeque::new(), 0);
    for _ in 0..20_000 {
        sending.extend(serve(&mut turns, &mut queues, at, usize::MAX));
        let Some((peer, len)) = sending.pop_front() else { break };
        at += u64::from(len) * 1_000_000 / uplink;
        turns.sent(Time(at), PeerId(peer), &mut queues[peer as usize], len);
        last[peer as usize] = len;
    }
    last
}

#[test]
fn blocks_of_children_follow_the_whole_uplink() {
    // 160 MB/s: a 128th of a second of it is more than the most, however many share it.
    assert_eq!(last_blocks(8, 160_000), [FED_MOST as u32; 8]);
    // A processor that is busy with others, and feeds 48 MB/s: by each child's rate alone they would be of 32 KiB.
    let busy = last_blocks(8, 48_000);
    assert!(busy.iter().all(|block| (64 * K..=128 * K).contains(block)), "{busy:?}");
    // 20 Mbit/s, or little data so far: a leaf, or the limit of the child's own rate.
    assert_eq!(last_blocks(8, 2_500), [FED_LEAST as u32; 8]);
    assert_eq!(last_blocks(1, 2_500), [FED_LEAST as u32]);
}

/// Peers that are served at the start, 0 being a child of ours, and then as the blocks of 0 and of the first other leave.
#[test]
fn while_a_child_is_fed_one_asker_is_served_at_a_time() {
    for (planned, first) in [(true, true), (true, false), (false, false)] {
        let mut queues = [const { Queue::default }; 4].map(|new| new());
        let mut turns = Turns::new(64 << 20, 1000, PIECE);
        turns.follow_plan(planned, first);
        turns.feed(PeerId(0), &mut queues[0], true);
        for (id, queue) in (0..).map(PeerId).zip(&mut queues) {
            queue.push(Block { piece: id.0, begin: 0, len: 16 * K });
            turns.enter(id, queue);
        }
        let ids = |served: Vec<(u32, u32)>| served.iter().map(|s| s.0).collect::<Vec<_>>();
        let at_first = ids(serve(&mut turns, &mut queues, 0, usize::MAX));
        if !first {
            assert_eq!(at_first, [0, 1, 2, 3], "planned: {planned}");
            continue;
        }
        assert_eq!(at_first, [0, 1]);
        turns.sent(Time(1), PeerId(1), &mut queues[1], 16 * K);
        assert_eq!(ids(serve(&mut turns, &mut queues, 1, usize::MAX)), [2]);
        // The child needs nothing more: all others are served.
        turns.sent(Time(2), PeerId(0), &mut queues[0], 16 * K);
        assert_eq!(ids(serve(&mut turns, &mut queues, 2, usize::MAX)), [3]);
    }
}

#[test]
fn whoever_becomes_a_child_or_is_gone_waits_no_longer() {
    let mut queues = [const { Queue::default }; 4].map(|new| new());
    let mut turns = Turns::new(64 << 20, 1000, PIECE);
    turns.follow_plan(true, true);
    turns.feed(PeerId(0), &mut queues[0], true);
    for (id, queue) in (0..).map(PeerId).zip(&mut queues) {
        queue.push(Block { piece: id.0, begin: 0, len: 16 * K });
        turns.enter(id, queue);
    }
    assert_eq!(serve(&mut turns, &mut queues, 0, usize::MAX).len(), 2);
    turns.feed(PeerId(3), &mut queues[3], true);
    assert_eq!(serve(&mut turns, &mut queues, 1, usize::MAX), [(3, 16 * K)]);
    turns.forget(PeerId(1), &mut queues[1]);
    assert_eq!(serve(&mut turns, &mut queues, 2, usize::MAX), [(2, 16 * K)]);
}

#[test]
fn cancel_takes_out_exactly_what_it_names() {
    let mut q = Queue::default();
    whole(&mut q, 3..6);
    q.push(Block { piece: 4, begin: 16 * K, len: 16 * K });
    let gone = q.cancel(Block { piece: 4, begin: 0, len: 24 * K });
    let block = |begin: u32, len: u32| Block { piece: 4, begin, len };
    assert_eq!(gone, vec![block(0, 24 * K), block(16 * K, 8 * K)]);
    assert_eq!(q.len(), 4);
    let left = q.drain();
    let bytes = left.iter().map(|b| b.len).sum::<u32>();
    assert_eq!(bytes, 3 * PIECE - 24 * K + 8 * K);
    assert_eq!(left.iter().map(|b| b.piece).collect::<Vec<_>>(), vec![3, 4, 5, 4]);
}

#[test]
fn weight_follows_the_queue_to_zero() {
    let mut queues = [Queue::default()];
    let mut turns = Turns::new(1 << 40, 1000, PIECE);
    whole(&mut queues[0], 0..7);
    queues[0].push(Block { piece: 9, begin: 0, len: 5 });
    assert_eq!(queues[0].len(), 8);
    turns.enter(PeerId(0), &mut queues[0]);
    let served = run(&mut turns, &mut queues, 1000);
    assert_eq!(served.iter().map(|s| u64::from(s.1)).sum::<u64>(), 7 * u64::from(PIECE) + 5);
    assert_eq!(queues[0].len(), 0);
    assert!(turns.next().is_none());
}

#[test]
fn those_who_ask_for_the_same_get_different_pieces_first() {
    let mut queues = [Queue::default(), Queue::default(), Queue::default()];
    let mut turns = Turns::new(64 << 20, 1000, PIECE);
    for (i, queue) in queues.iter_mut().enumerate() {
        whole(queue, 0..4);
        turns.enter(PeerId(i as u32), queue);
    }
    let mut first = Vec::new();
    while let Some((id, _)) = turns.next() {
        let queue = &mut queues[id.0 as usize];
        if let Step::Serve(b) = turns.step(Time(0), id, queue, SHARE, |p| u16::from(p == 0)) {
            first.push(b.piece);
        }
    }
    first.dedup();
    first.sort_unstable();
    assert_eq!(first, vec![1, 2, 3]);
}
