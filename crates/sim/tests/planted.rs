//! The test of the tester: a bug of each kind is planted in every engine, and some rule is broken within
//! this many seeds. The sound engine breaks none of them on the same seeds (`seeds.rs`).
//!
//! A choice by hash order and a sum of floats in hash order break no rule but one: the same seed is not
//! the same run, which is seen by running it twice.
#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used)]

use std::sync::Mutex;

use tidecast_sim::check::{Rule, Violation};
use tidecast_sim::scenario::Scenario;
use tidecast_sim::soak;
use tidecast_swarm::Bug;

/// Seeds in which a bug has to be found.
const SEEDS: u64 = 1000;

/// The first of seeds 0, 1, .. that found the bug when all were tried, to be tried first: others take over
/// when the distributions of scenarios change.
fn known(bug: Bug) -> u64 {
    match bug {
        Bug::HashOrder => 2,
        Bug::ForgetRequest => 5,
        Bug::FloatSum => 6,
        Bug::LeakQueue => 8,
        Bug::EndlessRetry => 9,
        Bug::ServeUnverified => 30,
        Bug::AcceptBadPiece | Bug::LoseVerified | Bug::BanWrongPeer => 39,
        Bug::IgnoreReject => 965,
    }
}

/// The first seed that finds the bug, and its violation.
fn hunt(bug: Bug) -> Option<Violation> {
    Bug::plant(Some(bug));
    let twice = matches!(bug, Bug::HashOrder | Bug::FloatSum);
    let found = std::iter::once(known(bug)).chain(0..SEEDS).find_map(|seed| {
        let job = Scenario::new(seed).job;
        let ran = soak::job(&job);
        if twice { ran.and_then(|first| soak::same(&job, &first.outcome)).err() } else { ran.err() }
    });
    Bug::plant(None);
    found
}

#[test]
fn every_planted_bug_is_caught() {
    // A debug assertion of the engine may catch one: that counts as found, without a message.
    std::panic::set_hook(Box::new(|_| {}));
    let bugs = Mutex::new(Bug::ALL.into_iter());
    let caught = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(bug) = { bugs.lock().unwrap().next() } {
                    let found = hunt(bug);
                    caught.lock().unwrap().push((bug, found));
                }
            });
        }
    });
    let _ = std::panic::take_hook();
    let caught = caught.into_inner().unwrap();
    for (bug, found) in &caught {
        let found = found.as_ref().map(|v| format!("after {} seeds: {v}", v.seed + 1));
        eprintln!("{bug:?}: {}", found.as_deref().unwrap_or("not caught"));
    }
    let rule = |bug| caught.iter().find(|c| c.0 == bug).and_then(|c| Some(c.1.as_ref()?.rule));
    assert!(Bug::ALL.into_iter().all(|bug| rule(bug).is_some()));
    // Those that one rule is made for are caught by it.
    assert_eq!(rule(Bug::AcceptBadPiece), Some(Rule::Unverified));
    assert_eq!(rule(Bug::BanWrongPeer), Some(Rule::HonestBanned));
    assert_eq!(rule(Bug::EndlessRetry), Some(Rule::Redialled));
    assert_eq!(rule(Bug::HashOrder), Some(Rule::Replay));
    assert_eq!(rule(Bug::FloatSum), Some(Rule::Replay));
}
