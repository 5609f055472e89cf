//! The effect of each fault, seen from outside: the nodes that finish, and their times.
#![allow(clippy::unwrap_used)]

use tidecast_sim::Time;
use tidecast_sim::fault::Spec;
use tidecast_sim::job::Job;
use tidecast_sim::progress::Progress;
use tidecast_sim::topology::Topology;
use tidecast_sim::world::World;

const SECOND: u64 = 1_000_000_000;

/// 5 MiB in 20 pieces to four receivers on two switches of 100 Mbit/s: half a second without faults.
fn job() -> Job {
    let topology = Topology::parse("bordeaux:3,2@100mbit,bottleneck=100mbit").unwrap();
    Job { until: Time(2000 * SECOND), seed: 5, ..Job::plain(topology, vec![256 << 10; 20]) }
}

/// When each receiver was complete, in seconds.
fn run(fault: &str, kind: &str) -> Vec<Option<u64>> {
    let mut job = job();
    fault.split_whitespace().for_each(|f| f.parse::<Spec>().unwrap().apply(&mut job).unwrap());
    let mut world = World::new(&job).unwrap();
    let outcome = world.run(&Progress::new()).unwrap();
    assert!(
        world.effective_faults().contains(kind) || kind.is_empty(),
        "{fault}: met {:?}",
        world.effective_faults()
    );
    outcome.finished.iter().map(|at| at.map(|at| at.0 / SECOND)).collect()
}

fn all(finished: &[Option<u64>], within: std::ops::Range<u64>) -> bool {
    finished.iter().all(|at| at.is_some_and(|at| within.contains(&at)))
}

#[test]
fn without_faults_all_finish_at_once() {
    assert!(all(&run("", ""), 0..2));
}

#[test]
fn who_is_gone_for_good_holds_up_nobody_for_long() {
    for (fault, kind) in [
        ("crash:2@200ms", "crash"),
        ("die:2@200ms", "die"),
        ("leave:2@200ms", "leave"),
        ("diskfull:2@200ms", "diskfull"),
    ] {
        let finished = run(fault, kind);
        assert_eq!(finished[1], None, "{fault}");
        assert!(
            finished.iter().flatten().all(|at| *at < 10) && finished.iter().flatten().count() == 3,
            "{fault}: {finished:?}"
        );
    }
}

/// Seven receivers behind 8 kB/s, each asking several for all they have: no block is whole before a minute
/// and a half, but something of each keeps coming.
#[test]
fn slowness_is_not_silence() {
    let mut job = job();
    job.topology = Topology::parse("sites:6,7@10mbit,wan=64kbit").unwrap();
    job.lengths = vec![64 << 10; 8];
    let outcome = World::new(&job).unwrap().run(&Progress::new()).unwrap();
    assert!(outcome.finished.iter().skip(1).all(Option::is_some), "{:?}", outcome.finished);
}

#[test]
fn who_stood_still_or_comes_back_finishes_after() {
    for (fault, kind) in [
        ("freeze:2@200ms+30s", "resume"),
        ("freeze:2@200ms+400s", "resume"),
        ("restart:2@200ms+30s", "restart"),
        ("restart:2,nodisk@200ms+30s", "restart,nodisk"),
        ("die:2@200ms restart:2@30s", "restart"),
        ("partition:2@200ms+30s", "partition heals"),
        ("partition:2@200ms+400s", "partition heals"),
        ("join:2@30s", "join"),
    ] {
        let finished = run(fault, kind);
        let after = if fault.contains("400s") { 400 } else { 30 };
        let rest: Vec<_> = [0, 2, 3].map(|n| finished[n]).into();
        assert!(all(&finished[1..2], after..2 * after + 200), "{fault}: {finished:?}");
        assert!(all(&rest, 0..10), "{fault}: {finished:?}");
    }
}

#[test]
fn a_dead_link_holds_up_those_behind_it_until_it_heals() {
    for (fault, after) in [("cut:s0-s1@200ms+30s", 30), ("cut:s0-s1@200ms+400s", 400)] {
        let finished = run(fault, "link heals");
        assert!(
            all(&finished[..2], 0..10) && all(&finished[2..], after..2 * after + 200),
            "{fault}: {finished:?}"
        );
    }
}

#[test]
fn the_wicked_are_not_awaited_and_stop_nobody() {
    for kind in ["corrupt", "lie", "withhold", "refuse"] {
        let finished = run(&format!("{kind}:2"), kind);
        assert!([0, 2, 3].iter().all(|&n| finished[n].is_some_and(|at| at < 30)), "{kind}: {finished:?}");
    }
}

#[test]
fn what_only_disturbs_is_got_over() {
    for (fault, kind) in [
        ("reset:2@200ms", "reset"),
        ("reset:0@200ms", "reset"),
        ("clock:2+1h@200ms", "clock forward"),
        ("clock:2-1s@200ms", "clock back"),
        ("slow:2=50mbit@200ms", "slow"),
        ("closed:2", "closed"),
        ("lost:2@300ms", "lost"),
        ("reorder=5ms", "reorder"),
    ] {
        assert!(all(&run(fault, kind), 0..30), "{fault}");
    }
}
