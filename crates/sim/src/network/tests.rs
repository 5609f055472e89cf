//! The network as its users see it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn network(form: &str, model: Model) -> Network<u32> {
    Network::new(&Topology::parse(form).unwrap(), model)
}

/// All that happens, with its times.
fn run(network: &mut Network<u32>) -> Vec<(u64, Delivery<u32>)> {
    let mut all = Vec::new();
    while let Some(at) = network.next() {
        while let Some(delivery) = network.pop(at) {
            all.push((at.0, delivery));
        }
    }
    all
}

/// When a message arrived.
fn arrival(all: &[(u64, Delivery<u32>)], wanted: u32) -> u64 {
    let is = |d: &Delivery<u32>| matches!(d, Delivery::Arrived { message, .. } if *message == wanted);
    all.iter().find(|(_, d)| is(d)).unwrap().0
}

#[test]
fn one_message_takes_its_size_over_the_rate() {
    let mut net = network("single:2@80mbit", Model::exact());
    let stream = net.open(Time(0), NodeId(0), NodeId(1));
    net.send(Time(0), stream, 10_000_000, 7);
    let done = [
        (1000 * MS, Delivery::Sent { stream, message: 7 }),
        (1000 * MS, Delivery::Arrived { stream, message: 7 }),
    ];
    assert_eq!(run(&mut net), done);
    assert_eq!(net.carried(Port(0)), 10_000_000);
    assert_eq!(net.carried(Port(3)), 10_000_000);
    assert_eq!(net.carried(Port(1)), 0);
}

#[test]
fn streams_share_and_take_over_what_others_leave() {
    let mut net = network("single:3@80mbit", Model::exact());
    let short = net.open(Time(0), NodeId(0), NodeId(1));
    let long = net.open(Time(0), NodeId(0), NodeId(2));
    net.send(Time(0), short, 1_000_000, 1);
    net.send(Time(0), long, 5_000_000, 2);
    assert_eq!(net.rate(short), 5_000_000);
    let all = run(&mut net);
    assert_eq!(arrival(&all, 1), 200 * MS);
    assert_eq!(arrival(&all, 2), 600 * MS);
}

#[test]
fn tcp_carries_about_95_and_a_half_percent() {
    let mut net = network("single:2@100mbit", Model::default());
    let stream = net.open(Time(0), NodeId(0), NodeId(1));
    net.send(Time(0), stream, 125_000_000, 1);
    let at = arrival(&run(&mut net), 1);
    assert!((10_450 * MS..10_470 * MS).contains(&at), "{at}");
}

/// As in the lab: 10.5 ms with 2 streams, 35 ms with 10, 87 ms with 30.
#[test]
fn control_messages_wait_in_full_queues() {
    for (streams, least, most) in [(2, 8, 12), (10, 30, 40), (30, 80, 95)] {
        let mut net = network("single:3@20mbit", Model::default());
        let idle = net.open(Time(0), NodeId(2), NodeId(0));
        net.post(Time(0), idle, 100, 1);
        let at = arrival(&run(&mut net), 1);
        assert!((96_000..100_000).contains(&at), "{at}");
        for i in 0..streams {
            let bulk = net.open(Time(at), NodeId(1 + i % 2), NodeId(0));
            net.send(Time(at), bulk, 10_000_000, 9);
        }
        let then = Time(1000 * MS);
        while net.next().is_some_and(|at| at <= then) {
            net.pop(then);
        }
        net.post(then, idle, 100, 2);
        let late = arrival(&run(&mut net), 2) - then.0;
        assert!((least * MS..most * MS).contains(&late), "{streams} streams: {late}");
    }
}

#[test]
fn posts_go_ahead_of_bulk_that_has_not_begun() {
    let mut net = network("single:2@80mbit", Model::exact());
    let stream = net.open(Time(0), NodeId(0), NodeId(1));
    for message in 1..=2 {
        net.send(Time(0), stream, 1_000_000, message);
    }
    net.post(Time(0), stream, 100_000, 3);
    net.post(Time(10 * MS), stream, 100_000, 4);
    let arrived: Vec<u32> = run(&mut net)
        .into_iter()
        .filter_map(|(_, d)| if let Delivery::Arrived { message, .. } = d { Some(message) } else { None })
        .collect();
    assert_eq!(arrived, [1, 3, 4, 2]);
}

#[test]
fn a_dead_link_holds_up_and_loses_nothing() {
    for (model, least, most) in
        [(Model::exact(), 1500 * MS, 1501 * MS), (Model::default(), 1600 * MS, 2000 * MS)]
    {
        let mut net = network("single:2@80mbit", model);
        let stream = net.open(Time(0), NodeId(0), NodeId(1));
        net.send(Time(0), stream, 10_000_000, 1);
        net.set_rate(Time(500 * MS), Port(0), 0);
        assert_eq!(net.next().map(|t| t.0), None);
        net.post(Time(600 * MS), stream, 10, 2);
        net.set_rate(Time(1000 * MS), Port(0), 10_000_000);
        let at = arrival(&run(&mut net), 2);
        assert!((least..most).contains(&at), "{at}");
    }
}

#[test]
fn a_held_stream_stands_still_and_loses_nothing() {
    for (model, least, most) in
        [(Model::exact(), 1500 * MS, 1501 * MS), (Model::default(), 1600 * MS, 2000 * MS)]
    {
        let mut net = network("single:3@80mbit", model);
        let [held, free] = [1, 2].map(|to| net.open(Time(0), NodeId(0), NodeId(to)));
        net.send(Time(0), held, 10_000_000, 1);
        net.hold(Time(500 * MS), held, true);
        assert_eq!(net.next().map(|t| t.0), None);
        net.post(Time(600 * MS), held, 10, 2);
        net.send(Time(600 * MS), free, 1_000_000, 3);
        let others = run(&mut net);
        assert_eq!(others.len(), 2, "{others:?}");
        assert!((700 * MS..720 * MS).contains(&arrival(&others, 3)), "{others:?}");
        net.hold(Time(1000 * MS), held, false);
        let at = arrival(&run(&mut net), 2);
        assert!((least..most).contains(&at), "{at}");
        net.hold(Time(3000 * MS), held, true);
        net.post(Time(3000 * MS), held, 10, 4);
        assert!(run(&mut net).is_empty());
        net.hold(Time(3100 * MS), held, false);
        assert_eq!(run(&mut net).len(), 1);
    }
}

#[test]
fn a_stream_says_when_it_last_moved() {
    for model in [Model::exact(), Model::default()] {
        let mut net = network("single:2@80mbit", model);
        let stream = net.open(Time(5 * MS), NodeId(0), NodeId(1));
        assert_eq!(net.moved(Time(10 * MS), stream).0, 5 * MS);
        net.send(Time(10 * MS), stream, 10_000_000, 1);
        // As slow as can be is not silent.
        for rate in [10_000_000, 1] {
            net.set_rate(Time(100 * MS), Port(0), rate);
            assert_eq!(net.moved(Time(500 * MS), stream).0, 500 * MS);
        }
        net.set_rate(Time(600 * MS), Port(0), 0);
        assert_eq!(net.moved(Time(900 * MS), stream).0, 600 * MS);
        net.set_rate(Time(900 * MS), Port(0), 10_000_000);
        let sent = run(&mut net)[0].0;
        assert_eq!(net.moved(Time(9000 * MS), stream).0, sent);
        net.send(Time(9000 * MS), stream, 10_000_000, 2);
        net.hold(Time(9100 * MS), stream, true);
        assert_eq!(net.moved(Time(9500 * MS), stream).0, 9100 * MS);
    }
}

#[test]
fn a_closed_stream_delivers_nothing_more() {
    let mut net = network("single:2@80mbit", Model::default());
    let stream = net.open(Time(0), NodeId(0), NodeId(1));
    net.post(Time(0), stream, 10, 1);
    net.send(Time(1), stream, 1_000_000, 2);
    net.close(Time(1000), stream);
    net.send(Time(2000), stream, 1_000_000, 3);
    net.post(Time(2000), stream, 1000, 4);
    assert_eq!(run(&mut net), []);
    assert_eq!(net.backlog(stream), 0);
}

#[test]
fn slow_start_takes_round_trips() {
    let mut net = network("bordeaux:1,1@1gbit,bottleneck=1gbit,delay=50ms", Model::default());
    let stream = net.open(Time(0), NodeId(0), NodeId(1));
    net.send(Time(0), stream, 1 << 20, 1);
    // 10, 20, 40, .. segments a round: 1 MiB is through in the seventh.
    let at = arrival(&run(&mut net), 1);
    assert!((600 * MS..760 * MS).contains(&at), "{at}");
}

#[test]
fn a_full_port_wastes_no_time() {
    let mut net = network("single:40@80mbit", Model::exact());
    let mut rng = crate::rng::Rng::new(7);
    let mut total = 0;
    for i in 0..400 {
        let bytes = 1 + rng.below(1_000_000);
        let stream = net.open(Time(0), NodeId(1 + rng.below(39) as u32), NodeId(0));
        net.send(Time(0), stream, bytes, i);
        total += bytes;
    }
    let all = run(&mut net);
    let (end, ideal) = (all.last().unwrap().0, total * 100);
    // At most a 1,024th and half a step of the wider ports unused.
    assert!((ideal..ideal + ideal / 250).contains(&end), "{end} instead of {ideal}");
    assert_eq!(net.carried(Port(1)), total);
}

#[test]
fn finished_streams_cost_one_settling_an_instant() {
    let mut net = network("single:1001@1gbit", Model::exact());
    for to in 1..=1000 {
        let stream = net.open(Time(0), NodeId(0), NodeId(to));
        net.send(Time(0), stream, 1000, to);
    }
    run(&mut net);
    assert!(net.fills() < 4, "{}", net.fills());
}

/// One thing done to the network, at a time after the one before.
#[derive(Clone, Debug)]
enum Op {
    Send(usize, u64),
    Post(usize, u32),
    Close(usize),
    Rate(u32, u64),
}

fn op() -> impl Strategy<Value = (u64, Op)> {
    let op = prop_oneof![
        8 => (0..12usize, 1..200_000u64).prop_map(|(s, b)| Op::Send(s, b)),
        8 => (0..12usize, 1..2000u32).prop_map(|(s, b)| Op::Post(s, b)),
        1 => (0..12usize).prop_map(Op::Close),
        2 => (0..14u32, prop_oneof![Just(0), 1000..20_000_000u64]).prop_map(|(p, r)| Op::Rate(p, r)),
    ];
    (prop_oneof![Just(0), 0..20 * MS], op)
}

proptest! {
    /// Everything arrives, once, in order, unless closed; time never runs back; ports carry all bytes.
    #[test]
    fn nothing_is_lost(ops in proptest::collection::vec(op(), 1..60), exact: bool) {
        let model = if exact { Model::exact() } else { Model::default() };
        let mut net = network("bordeaux:2,2,2@20mbit,delay=3ms", model);
        let mut streams = Vec::new();
        for s in 0..12u32 {
            streams.push(net.open(Time(0), NodeId(s % 6), NodeId((s + 1 + s / 6) % 6)));
        }
        let (mut now, mut sent, mut posted, mut got) = (0, vec![vec![]; 12], vec![vec![]; 12], vec![vec![]; 12]);
        let (mut left, mut closed) = (0, [false; 12]);
        let mut last = 0;
        let mut drain = |net: &mut Network<u32>, until: u64, closed: &[bool; 12]| {
            while let Some(at) = net.next().filter(|at| at.0 <= until) {
                assert!(at.0 >= last);
                last = at.0;
                while let Some(delivery) = net.pop(at) {
                    match delivery {
                        Delivery::Sent { .. } => left += 1,
                        Delivery::Arrived { stream, message } => {
                            assert!(!closed[stream.0 as usize]);
                            got[stream.0 as usize].push(message);
                        }
                    }
                }
            }
        };
        for (i, (gap, op)) in ops.iter().enumerate() {
            now += gap;
            drain(&mut net, now, &closed);
            match *op {
                Op::Send(s, bytes) => {
                    net.send(Time(now), streams[s], bytes, i as u32);
                    if !closed[s] { sent[s].push(i as u32) }
                }
                Op::Post(s, bytes) => {
                    net.post(Time(now), streams[s], bytes, i as u32);
                    if !closed[s] { posted[s].push(i as u32) }
                }
                Op::Close(s) => {
                    net.close(Time(now), streams[s]);
                    closed[s] = true;
                }
                Op::Rate(p, rate) => net.set_rate(Time(now), Port(p), rate),
            }
        }
        for port in 0..14 {
            net.set_rate(Time(now), Port(port), 1_000_000);
        }
        drain(&mut net, u64::MAX, &closed);
        for s in 0..12 {
            let of = |list: &Vec<u32>| got[s].iter().copied().filter(|m| list.contains(m)).collect::<Vec<_>>();
            let (bulk, control) = (of(&sent[s]), of(&posted[s]));
            prop_assert_eq!(bulk.len() + control.len(), got[s].len());
            if closed[s] {
                prop_assert!(sent[s].starts_with(&bulk));
                prop_assert!(posted[s].starts_with(&control));
            } else {
                prop_assert_eq!(&bulk, &sent[s]);
                prop_assert_eq!(&control, &posted[s]);
                prop_assert_eq!(net.backlog(streams[s]), 0);
            }
        }
        if closed == [false; 12] {
            prop_assert_eq!(left, sent.iter().map(Vec::len).sum::<usize>());
            let bytes = ops.iter().map(|(_, op)| match op {
                Op::Send(_, bytes) => model.wire(*bytes),
                Op::Post(_, bytes) => model.wire(u64::from(*bytes)),
                _ => 0,
            });
            let out: u64 = (0..6).map(|n| net.carried(Port(2 * n))).sum();
            prop_assert_eq!(out, bytes.sum::<u64>());
        }
    }
}
