//! Every rule can be broken: told of a world that breaks it, the checkers say so, and not before.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use tidecast_swarm::{
    Action, Block, Candidate, Engine, Event, Limits, PeerId, Policy, Protocol, Reason, Setup, Time,
};

use super::*;
use crate::topology::Topology;

const S: u64 = 1_000_000_000;
const PIECES: u32 = 8;

fn job() -> Job {
    let topology = Topology::parse("single:3@1gbit").unwrap();
    Job { acquaintances: 4, seed: 7, ..Job::plain(topology, vec![1 << 20; PIECES as usize]) }
}

fn engine(have: std::ops::Range<u32>) -> Engine {
    let have = if have.is_empty() { vec![] } else { vec![have] };
    let (lengths, want) = (job().lengths.into(), vec![0..PIECES]);
    let setup = Setup { lengths, have, want, policy: Policy::TIDECAST, limits: Limits::default(), seed: 1 };
    Engine::new(setup, Time(0)).unwrap()
}

/// A cluster whose nodes can all call each other.
struct Cluster {
    engines: BTreeMap<NodeId, Engine>,
}

impl Truth for Cluster {
    fn nodes(&self) -> u32 {
        3
    }
    fn engine(&self, node: NodeId) -> Option<&Engine> {
        self.engines.get(&node)
    }
    fn awaited(&self, node: NodeId) -> bool {
        self.engine(node).is_some_and(|e| !e.is_complete())
    }
    fn can_connect(&self, _: NodeId, _: NodeId) -> bool {
        true
    }
}

/// The origin has all, node 1 has two pieces, node 2 has none.
fn start() -> (Checks, Cluster) {
    let mut checks = Checks::new(&job(), Watch::Full);
    let engines = [engine(0..PIECES), engine(0..2), engine(0..0)];
    let engines: BTreeMap<NodeId, Engine> = (0..3).map(NodeId).zip(engines).collect();
    for (&id, engine) in &engines {
        checks.begin(Time(0), id, engine).unwrap();
    }
    (checks, Cluster { engines })
}

/// Something has happened at `at`, nanoseconds.
fn step(checks: &mut Checks, at: u64, truth: &dyn Truth) -> Result<(), Violation> {
    if checks.step(Time(at)) { checks.progress(Time(at), truth) } else { Ok(()) }
}

fn rule(judged: Result<(), Violation>) -> Option<Rule> {
    judged.err().map(|v| v.rule)
}

fn outcome() -> Outcome {
    Outcome {
        algorithm: String::new(),
        finished: vec![Some(Time(S)), Some(Time(S))],
        lost: 0,
        size: 8 << 20,
        origin_sent: 16 << 20,
        control: 1000,
        duplicate: 0,
        ports: vec![],
        events: 0,
        trace: 0,
        ended: Time(S),
        samples: vec![],
    }
}

#[test]
fn serving_what_is_not_good() {
    let (mut checks, cluster) = start();
    let (node, engine) = (NodeId(1), &cluster.engines[&NodeId(1)]);
    let serve = |piece| Action::Serve { peer: PeerId(0), block: Block { piece, begin: 0, len: 1 } };
    let mut act = |piece| rule(checks.action(Time(1), node, &serve(piece), Some(NodeId(2)), engine));
    assert_eq!((act(1), act(2)), (None, Some(Rule::Unverified)));
}

#[test]
fn counting_what_is_not_good_and_losing_what_is() {
    let (mut checks, mut cluster) = start();
    let node = NodeId(1);
    let engine = cluster.engines.get_mut(&node).unwrap();
    let mut give = |event: Event, good: bool| {
        if let Event::PieceVerified { piece } = event {
            checks.settled(node, piece, good);
        }
        checks.event(Time(1), node, &event);
        engine.handle(Time(1), event);
        rule(checks.after(Time(1), node, engine))
    };
    assert_eq!(give(Event::PieceVerified { piece: 4 }, true), None);
    assert_eq!(give(Event::PieceFailed { piece: 5 }, false), None);
    assert_eq!(give(Event::PieceLost { piece: 4 }, false), None);
    assert_eq!(give(Event::PieceVerified { piece: 6 }, false), Some(Rule::Driver));
    // A restarted engine must have exactly the pieces of its disk.
    let begin = |checks: &mut Checks, have| rule(checks.begin(Time(2), node, &super::tests::engine(have)));
    checks.event(Time(1), node, &Event::PieceLost { piece: 6 });
    assert_eq!(begin(&mut checks, 0..1), Some(Rule::Lost));
    assert_eq!(begin(&mut checks, 0..3), Some(Rule::Unverified));
    assert_eq!(begin(&mut checks, 0..2), None);
    checks.fault(Time(3), &Fault::PieceLost { node, piece: 1 });
    assert_eq!(begin(&mut checks, 0..1), None);
    checks.fault(Time(3), &Fault::Restart { node, disk: false });
    assert_eq!(begin(&mut checks, 0..0), None);
}

#[test]
fn only_the_guilty_are_banned_and_only_the_hurt_dropped() {
    let (mut checks, cluster) = start();
    let engine = &cluster.engines[&NodeId(1)];
    let peer = PeerId(0);
    let ban = Action::Ban { peer, reason: Reason::CorruptData };
    let drop = |reason| Action::Disconnect { peer, reason };
    let act = |checks: &mut Checks, action| {
        rule(checks.action(Time(1), NodeId(1), &action, Some(NodeId(2)), engine))
    };
    assert_eq!(act(&mut checks, ban.clone()), Some(Rule::HonestBanned));
    assert_eq!(act(&mut checks, drop(Reason::Protocol("x"))), Some(Rule::HonestDropped));
    assert_eq!(act(&mut checks, drop(Reason::Withholding)), Some(Rule::HonestDropped));
    assert_eq!(act(&mut checks, drop(Reason::TooMany)), None);
    checks.fault(Time(1), &Fault::Freeze { node: NodeId(2) });
    assert_eq!(act(&mut checks, drop(Reason::Withholding)), None);
    assert_eq!(act(&mut checks, drop(Reason::Flooding)), Some(Rule::HonestDropped));
    checks.fault(Time(1), &Fault::Corrupt { node: NodeId(2) });
    assert_eq!(act(&mut checks, ban), None);
}

#[test]
fn dialling_again_at_once() {
    let (mut checks, cluster) = start();
    let (node, engine) = (NodeId(2), &cluster.engines[&NodeId(2)]);
    let candidate = Candidate(1);
    checks.event(Time(S), node, &Event::DialFailed { candidate });
    let mut dial =
        |at| rule(checks.action(Time(at), node, &Action::Dial { candidate }, Some(NodeId(1)), engine));
    assert_eq!(dial(S + S / 10), Some(Rule::Redialled));
    assert_eq!(dial(S + S / 4), None);
}

#[test]
fn a_burst_has_a_bound() {
    let (mut checks, cluster) = start();
    let (node, engine) = (NodeId(2), &cluster.engines[&NodeId(2)]);
    let action = Action::Interested { peer: PeerId(0), interested: true };
    let mut act = || rule(checks.action(Time(1), node, &action, None, engine));
    let first = (0..100_000).find_map(|n| Some((n, act()?)));
    assert!(first.is_some_and(|(n, rule)| n > 1000 && rule == Rule::Unbounded), "{first:?}");
}

#[test]
fn verdicts_may_outlast_their_connection_but_not_have_come_from_nowhere() {
    let unsettled = |connected: bool| {
        let (mut checks, mut cluster) = start();
        let (node, peer) = (NodeId(2), PeerId(0));
        let engine = cluster.engines.get_mut(&node).unwrap();
        let block = Block { piece: 0, begin: 0, len: 1 << 20 };
        let up = Event::PeerUp { peer, protocol: Protocol::Tidecast { max_block: 1 << 20 }, candidate: None };
        let (up, down) =
            (Some(up).filter(|_| connected), Some(Event::PeerDown { peer }).filter(|_| connected));
        let beyond = Limits::default().unsettled / (1 << 20) + 1;
        let come = std::iter::repeat_n(Event::Received { peer, block }, beyond as usize);
        let mut give = |event: Event| {
            checks.event(Time(1), node, &event);
            engine.handle(Time(1), event);
            rule(checks.after(Time(1), node, engine))
        };
        let ticks = std::iter::repeat_n(Event::Tick, 64);
        up.into_iter().chain(come).chain(down).chain(ticks).find_map(&mut give)
    };
    assert_eq!((unsettled(true), unsettled(false)), (None, Some(Rule::Unbounded)));
}

#[test]
fn standing_still_though_somebody_could_help() {
    let (mut checks, cluster) = start();
    // No node knows another: none can help.
    assert_eq!(rule(step(&mut checks, 3000 * S, &cluster)), None);
    assert_eq!(rule(checks.end(Time(9000 * S), &cluster, &outcome())), None);
    checks.event(Time(3001 * S), NodeId(0), &Event::Candidate { candidate: Candidate(2), told: false });
    assert_eq!(rule(checks.end(Time(9000 * S), &cluster, &outcome())), Some(Rule::Unfinished));
    assert_eq!(rule(step(&mut checks, 3010 * S, &cluster)), None);
    let stuck = step(&mut checks, 8000 * S, &cluster).unwrap_err();
    assert_eq!((stuck.rule, stuck.node, stuck.seed), (Rule::Livelock, Some(NodeId(2)), 7));
    // Pieces that the origin does not want to give do not count.
    let (mut checks, cluster) = start();
    checks.event(Time(1), NodeId(2), &Event::Candidate { candidate: Candidate(0), told: false });
    checks.fault(Time(1), &Fault::Withhold { node: NodeId(0) });
    assert_eq!(rule(step(&mut checks, 8000 * S, &cluster)), None);
}

#[test]
fn a_program_that_starts_again_wants_nothing_that_was_opened_before() {
    let opens = crate::job::Opens { files: vec![0..1], start: Time(0), think: 0 };
    let mut checks = Checks::new(&Job { opens: Some(opens), ..job() }, Watch::Full);
    let (_, cluster) = start();
    let node = NodeId(2);
    let begin = |checks: &mut Checks| {
        checks.begin(Time(0), node, &cluster.engines[&node]).unwrap();
        checks.event(Time(0), node, &Event::Candidate { candidate: Candidate(0), told: false });
    };
    checks.begin(Time(0), NodeId(0), &cluster.engines[&NodeId(0)]).unwrap();
    begin(&mut checks);
    assert_eq!(rule(step(&mut checks, 3000 * S, &cluster)), None);
    let open = Event::Priority { pieces: 0..1, priority: 1 };
    checks.event(Time(3000 * S), node, &open);
    assert_eq!(rule(step(&mut checks, 6000 * S, &cluster)), Some(Rule::Livelock));
    checks.fault(Time(6000 * S), &Fault::Restart { node, disk: false });
    begin(&mut checks);
    assert_eq!(rule(step(&mut checks, 9000 * S, &cluster)), None);
    checks.event(Time(9000 * S), node, &open);
    assert_eq!(rule(step(&mut checks, 12_000 * S, &cluster)), Some(Rule::Livelock));
}

#[test]
fn much_ado_about_nothing() {
    let (mut checks, cluster) = start();
    let at_once = (0..1_000_000).find_map(|n| Some((n, rule(step(&mut checks, 1, &cluster))?)));
    assert!(at_once.is_some_and(|(n, rule)| n > 10_000 && rule == Rule::Livelock), "{at_once:?}");
    let (mut checks, cluster) = start();
    let busy = (0..1_000_000).find_map(|n| Some((n, rule(step(&mut checks, n * 1000, &cluster))?)));
    assert!(busy.is_some_and(|(n, rule)| n > 50_000 && rule == Rule::Livelock), "{busy:?}");
}

#[test]
fn what_a_run_may_cost() {
    let end = |change: &dyn Fn(&mut Outcome)| {
        let (mut checks, mut cluster) = start();
        cluster.engines.clear();
        let mut outcome = outcome();
        change(&mut outcome);
        rule(checks.end(Time(S), &cluster, &outcome))
    };
    assert_eq!(end(&|_| {}), None);
    assert_eq!(end(&|o| o.origin_sent = 100 << 20), Some(Rule::OriginBudget));
    assert_eq!(end(&|o| o.duplicate = 100 << 20), Some(Rule::Duplicates));
    assert_eq!(end(&|o| o.control = 1 << 20), Some(Rule::Control));
}

#[test]
fn what_a_cut_holds_up_may_come_twice() {
    let end = |fault: Option<Fault>| {
        let mut job = job();
        job.faults.extend(fault.map(|fault| crate::fault::Timed { at: Time(1), fault }));
        let outcome = Outcome { duplicate: 50 << 20, ..outcome() };
        let (_, mut cluster) = start();
        cluster.engines.clear();
        rule(Checks::new(&job, Watch::Full).end(Time(S), &cluster, &outcome))
    };
    assert_eq!(end(None), Some(Rule::Duplicates));
    assert_eq!(end(Some(Fault::LinkRate { link: 0, rate: 1 })), Some(Rule::Duplicates));
    assert_eq!(end(Some(Fault::LinkRate { link: 0, rate: 0 })), None);
}

#[test]
fn one_trace_of_everything() {
    let trace = |node| {
        let (mut checks, cluster) = start();
        checks.event(Time(5), NodeId(node), &Event::Tick);
        checks.action(Time(5), NodeId(node), &Action::Complete, None, &cluster.engines[&NodeId(0)]).ok();
        checks.trace()
    };
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1), trace(2));
}
