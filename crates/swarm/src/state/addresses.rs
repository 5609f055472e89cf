//! The addresses to dial: every peer that the tracker or the user named, permanently; of the others a few, at
//! random.
//!
//! Promises: at most `DIALING` dials at once; a failed address is retried after 0.25 s, doubling to a minute,
//! or to an hour if the peer refuses us; a random one that keeps failing is forgotten; the table is bounded.
//! A peer that refused us is dialled at once when there is a reason to (`retry`, `admitted`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::api::{Candidate, PeerId, Time};
use crate::planted::{Bug, planted};
use crate::rng::Rng;

/// Dials under way at once.
const DIALING: usize = 32;
/// Random addresses remembered.
const RANDOM_MOST: usize = 4096;
/// Told addresses remembered: more nodes than one swarm has.
const TOLD_MOST: usize = 1 << 17;
/// First pause after a failure, and the longest.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_MOST: Duration = Duration::from_secs(60);
/// The longest pause where the peer refuses us: every try costs both a handshake.
const REFUSED_MOST: Duration = Duration::from_secs(3600);
/// Failures in a row after which a random address is forgotten, unless we know of few others: they may be all
/// there are, behind a link that comes back.
const FAILS_MOST: u32 = 8;
const FEW: usize = 64;
/// A connection that lasted this long clears the failures before it.
const LASTED: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// To be dialled at this time.
    Due(Time),
    Dialing,
    Live(PeerId),
    /// It has nothing for us and we nothing for it; dialled again when we want something.
    Resting,
    Banned,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    told: bool,
    state: State,
    fails: u32,
    /// The last dial got through and was refused.
    refused: bool,
}

/// Why a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It broke, or was let go: try again.
    Lost,
    /// Neither side needs the other.
    Useless,
    /// It had nothing for us: others are tried first.
    Poor,
    /// Never again.
    Banned,
}

/// The table of addresses.
#[derive(Debug)]
pub(crate) struct Addresses {
    known: BTreeMap<Candidate, Known>,
    due_told: BTreeSet<(Time, Candidate)>,
    due_random: BTreeSet<(Time, Candidate)>,
    /// The first time in each of the two, and when `dial` has something to do: asked for at every event.
    first_told: Option<Time>,
    first_random: Option<Time>,
    next: Option<Time>,
    random_most: usize,
    dialing: usize,
    /// Random addresses dialled or live.
    random_busy: usize,
    random_known: usize,
    /// When a peer was last replaced by another, or looked for.
    rotated: Time,
}

impl Addresses {
    pub(crate) fn new(random_most: usize) -> Self {
        Addresses {
            known: BTreeMap::new(),
            due_told: BTreeSet::new(),
            due_random: BTreeSet::new(),
            first_told: None,
            first_random: None,
            next: None,
            random_most,
            dialing: 0,
            random_busy: 0,
            random_known: 0,
            rotated: Time(0),
        }
    }

    /// When a peer was last replaced by another, or looked for.
    pub(crate) fn rotated(&self) -> Time {
        self.rotated
    }

    pub(crate) fn rotate(&mut self, now: Time) {
        self.rotated = now;
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Dials under way.
    pub(crate) fn dialing(&self) -> usize {
        self.dialing
    }

    pub(crate) fn told(&self, candidate: Candidate) -> bool {
        self.known.get(&candidate).is_some_and(|k| k.told)
    }

    /// An address to try, from `at` on. One that was random becomes told when it is named as such.
    pub(crate) fn add(&mut self, at: Time, candidate: Candidate, told: bool) {
        if let Some(&old) = self.known.get(&candidate) {
            if told && !old.told {
                let state = match old.state {
                    State::Due(then) if old.fails == 0 => State::Due(then.min(at)),
                    state => state,
                };
                self.leave(candidate, old);
                self.enter(candidate, Known { told: true, state, ..old });
            }
            return;
        }
        let told_known = self.known.len() - self.random_known;
        let full = if told { told_known >= TOLD_MOST } else { self.random_known >= RANDOM_MOST };
        if !full {
            self.enter(candidate, Known { told, state: State::Due(at), fails: 0, refused: false });
        }
    }

    fn enter(&mut self, candidate: Candidate, known: Known) {
        match known.state {
            State::Due(at) if known.told => drop(self.due_told.insert((at, candidate))),
            State::Due(at) => drop(self.due_random.insert((at, candidate))),
            State::Dialing => self.dialing += 1,
            _ => {}
        }
        let busy = matches!(known.state, State::Dialing | State::Live(_));
        self.random_busy += usize::from(busy && !known.told);
        self.random_known += usize::from(!known.told);
        self.known.insert(candidate, known);
        self.look();
    }

    fn leave(&mut self, candidate: Candidate, known: Known) {
        if let State::Due(at) = known.state {
            self.due_told.remove(&(at, candidate));
            self.due_random.remove(&(at, candidate));
        }
        let busy = matches!(known.state, State::Dialing | State::Live(_));
        self.dialing -= usize::from(known.state == State::Dialing);
        self.random_busy -= usize::from(busy && !known.told);
        self.random_known -= usize::from(!known.told);
        self.known.remove(&candidate);
        self.look();
    }

    fn turn(&mut self, candidate: Candidate, state: State, fails: u32) {
        if let Some(&old) = self.known.get(&candidate) {
            self.leave(candidate, old);
            // The result of a dial is reported to its waiters.
            let waits = matches!(state, State::Due(_));
            if old.told || !waits || fails < FAILS_MOST || self.known.len() < FEW {
                self.enter(candidate, Known { state, fails, ..old });
            }
        }
    }

    /// The addresses to dial now, while `room` connections are free.
    pub(crate) fn dial(&mut self, now: Time, room: usize, rng: &mut Rng) -> Vec<Candidate> {
        let mut out = Vec::new();
        while self.next.is_some_and(|at| at <= now) && self.dialing < DIALING && self.dialing < room {
            let told = self.due_told.first().filter(|(at, _)| *at <= now).map(|&(_, c)| c);
            let Some(candidate) = told.or_else(|| self.random_due(now, rng)) else { break };
            let fails = self.known.get(&candidate).map_or(0, |k| k.fails);
            self.turn(candidate, State::Dialing, fails);
            out.push(candidate);
        }
        out
    }

    /// One of the first few random addresses that are due.
    fn random_due(&self, now: Time, rng: &mut Rng) -> Option<Candidate> {
        if self.random_full() {
            return None;
        }
        let due = || self.due_random.iter().take_while(|(at, _)| *at <= now).take(64);
        let pick = rng.below(due().count() as u32);
        due().nth(pick as usize).map(|&(_, c)| c)
    }

    /// When `dial` should be called again, if nothing else happens before.
    pub(crate) fn wakeup(&self) -> Option<Time> {
        self.next
    }

    /// The table has changed: finds the first due address.
    fn look(&mut self) {
        self.first_told = self.due_told.first().map(|d| d.0);
        self.first_random = self.due_random.first().map(|d| d.0);
        let random = self.first_random.filter(|_| !self.random_full());
        let next = [self.first_told, random].into_iter().flatten().min();
        self.next = next.filter(|_| self.dialing < DIALING);
    }

    /// As many random addresses are dialled or live as may be.
    pub(crate) fn random_full(&self) -> bool {
        self.random_busy >= self.random_most
    }

    /// When an address is due that cannot be dialled for want of room; `room`: for connections at large.
    pub(crate) fn barred(&self, room: bool) -> Option<Time> {
        let told = self.first_told.filter(|_| !room);
        let random = self.first_random.filter(|_| !room || self.random_full());
        [told, random].into_iter().flatten().min()
    }

    fn pause(fails: u32, most: Duration, rng: &mut Rng) -> Duration {
        if planted(Bug::EndlessRetry) {
            return Duration::ZERO;
        }
        let pause = PAUSE.saturating_mul(1 << fails.min(14)).min(most);
        // Up to a quarter more, so that a thousand nodes do not come back at the same instant.
        pause + pause * rng.below(256) / 1024
    }

    /// A dial failed. `refused`: the peer answered and refused.
    pub(crate) fn failed(&mut self, now: Time, candidate: Candidate, refused: bool, rng: &mut Rng) {
        let Some(known) = self.known.get_mut(&candidate).filter(|k| k.state == State::Dialing) else {
            return;
        };
        known.refused = refused;
        let (fails, most) = (known.fails, if refused { REFUSED_MOST } else { PAUSE_MOST });
        let at = now.after(Self::pause(fails, most, rng));
        self.turn(candidate, State::Due(at), fails.saturating_add(1));
    }

    /// There is a reason to dial it now, whatever its earlier results.
    pub(crate) fn retry(&mut self, now: Time, candidate: Candidate) {
        match self.known.get(&candidate).map(|k| k.state) {
            None => self.add(now, candidate, false),
            Some(State::Due(_) | State::Resting) => self.turn(candidate, State::Due(now), 0),
            // Should it fail, it was perhaps too early.
            Some(State::Dialing) => self.turn(candidate, State::Dialing, 0),
            Some(State::Live(_) | State::Banned) => {}
        }
    }

    /// Peers that refused us may admit us now.
    pub(crate) fn admitted(&mut self, now: Time) {
        let refused = self.known.iter().filter(|(_, k)| k.refused && matches!(k.state, State::Due(_)));
        for candidate in refused.map(|(&c, _)| c).collect::<Vec<_>>() {
            self.turn(candidate, State::Due(now), 0);
        }
    }

    /// A connection with this address is up.
    pub(crate) fn up(&mut self, candidate: Candidate, peer: PeerId) {
        let known = self.known.get(&candidate).copied();
        if let Some(known) = known.filter(|k| k.state != State::Banned) {
            self.turn(candidate, State::Live(peer), known.fails);
        }
    }

    /// The connection `peer`, which was up since `since`, has ended.
    pub(crate) fn down(
        &mut self,
        now: Time,
        candidate: Candidate,
        peer: PeerId,
        (since, end): (Time, End),
        rng: &mut Rng,
    ) {
        let Some(&known) = self.known.get(&candidate) else { return };
        if known.state != State::Live(peer) && end != End::Banned {
            return;
        }
        let fails = if now.since(since) >= LASTED { 0 } else { known.fails };
        match end {
            End::Banned => self.turn(candidate, State::Banned, 0),
            End::Useless => self.turn(candidate, State::Resting, 0),
            End::Poor => self.turn(candidate, State::Due(now.after(PAUSE_MOST)), fails),
            End::Lost => {
                let at = now.after(Self::pause(fails, PAUSE_MOST, rng));
                self.turn(candidate, State::Due(at), fails.saturating_add(1));
            }
        }
    }

    /// We want something again: those that rest are dialled again.
    pub(crate) fn retry_refused(&mut self, now: Time) {
        let resting = self.known.iter().filter(|(_, k)| k.state == State::Resting);
        for candidate in resting.map(|(&c, _)| c).collect::<Vec<_>>() {
            self.turn(candidate, State::Due(now), 0);
        }
    }

    /// Whether the counts match the table.
    pub(crate) fn check(&self) -> Result<(), String> {
        let n = |f: &dyn Fn(&Known) -> bool| self.known.values().filter(|k| f(k)).count();
        let busy = |k: &Known| matches!(k.state, State::Dialing | State::Live(_));
        let due = |k: &Known| matches!(k.state, State::Due(_));
        let counts = (n(&|k| k.state == State::Dialing), n(&|k| busy(k) && !k.told));
        if counts != (self.dialing, self.random_busy) {
            return Err("counts of dials are wrong".into());
        }
        if n(&due) != self.due_told.len() + self.due_random.len() {
            return Err("a due address is not queued, or is queued twice".into());
        }
        let first = |due: &BTreeSet<(Time, Candidate)>| due.first().map(|d| d.0);
        if (first(&self.due_told), first(&self.due_random)) != (self.first_told, self.first_random) {
            return Err("the first due address is wrong".into());
        }
        if self.random_busy > self.random_most || self.dialing > DIALING {
            return Err("too many dials".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn told_ones_are_tried_for_good_with_growing_pauses() {
        let (mut n, mut rng) = (Addresses::new(0), Rng::new(1));
        n.add(Time(0), Candidate(1), true);
        let (mut now, mut pauses) = (Time(0), Vec::new());
        for _ in 0..30 {
            assert_eq!(n.dial(now, 9, &mut rng), vec![Candidate(1)]);
            n.failed(now, Candidate(1), false, &mut rng);
            n.check().unwrap();
            let next = n.wakeup().unwrap();
            assert!(n.dial(Time(next.0 - 1), 9, &mut rng).is_empty());
            pauses.push(next.0 - now.0);
            now = next;
        }
        assert!((S / 4..S / 3).contains(&pauses[0]));
        assert!(pauses.iter().all(|&p| p <= 75 * S) && pauses[29] >= 60 * S);
    }

    #[test]
    fn random_ones_are_few_and_differ_by_seed() {
        let dialled = |seed| {
            let (mut n, mut rng) = (Addresses::new(3), Rng::new(seed));
            for c in 0..50 {
                n.add(Time(0), Candidate(c), false);
            }
            let out = n.dial(Time(0), 100, &mut rng);
            n.check().unwrap();
            assert_eq!((out.len(), n.wakeup()), (3, None));
            out
        };
        assert_ne!(dialled(1), dialled(2));
    }

    #[test]
    fn a_random_one_that_fails_is_replaced_and_forgotten() {
        let (mut n, mut rng) = (Addresses::new(1), Rng::new(5));
        for c in 0..=FEW as u32 {
            n.add(Time(0), Candidate(c), false);
        }
        let mut now = Time(0);
        for _ in 0..FAILS_MOST as usize * FEW * 2 {
            for candidate in n.dial(now, 9, &mut rng) {
                n.failed(now, candidate, false, &mut rng);
            }
            now = now.after(PAUSE_MOST * 2);
        }
        // The last few are tried again and again.
        assert_eq!(n.len(), FEW);
        n.check().unwrap();
    }

    #[test]
    fn an_address_is_not_forgotten_while_it_is_dialled() {
        let (mut n, mut rng, mut now) = (Addresses::new(1), Rng::new(5), Time(0));
        n.add(now, Candidate(0), false);
        for _ in 0..FAILS_MOST {
            assert_eq!(n.dial(now, 9, &mut rng), [Candidate(0)]);
            n.failed(now, Candidate(0), false, &mut rng);
            now = now.after(PAUSE_MOST * 2);
        }
        // One that fails is kept where there are few, and now there are not.
        (1..FEW as u32 * 2).for_each(|c| n.add(now.after(PAUSE), Candidate(c), false));
        assert_eq!(n.dial(now, 9, &mut rng), [Candidate(0)]);
        n.check().unwrap();
        n.add(now, Candidate(0), false);
        assert_eq!(n.dial(now, 9, &mut rng), []);
        n.failed(now, Candidate(0), false, &mut rng);
        assert_eq!(n.len(), FEW * 2 - 1);
    }

    #[test]
    fn resting_and_banned_are_left_alone() {
        let (mut n, mut rng) = (Addresses::new(1), Rng::new(5));
        for (c, end) in [(1, End::Useless), (2, End::Banned), (3, End::Lost)] {
            let (c, peer) = (Candidate(c), PeerId(c));
            n.add(Time(0), c, true);
            n.dial(Time(0), 9, &mut rng);
            n.up(c, peer);
            n.down(Time(S), c, peer, (Time(0), end), &mut rng);
        }
        assert_eq!(n.dial(Time(900 * S), 9, &mut rng), vec![Candidate(3)]);
        n.retry_refused(Time(901 * S));
        assert_eq!(n.dial(Time(901 * S), 9, &mut rng), vec![Candidate(1)]);
        n.check().unwrap();
    }

    #[test]
    fn who_refuses_us_is_left_alone_for_longer_and_longer_until_something_changes() {
        let (mut n, mut rng, c) = (Addresses::new(0), Rng::new(1), Candidate(1));
        n.add(Time(0), c, true);
        let (mut now, mut dials) = (Time(0), 0);
        while now.0 < 24 * 3600 * S {
            assert_eq!(n.dial(now, 9, &mut rng), [c]);
            n.failed(now, c, true, &mut rng);
            n.check().unwrap();
            (now, dials) = (n.wakeup().unwrap(), dials + 1);
        }
        // Fourteen pauses that double, to more than an hour together, then one an hour.
        assert!((30..40).contains(&dials), "{dials} in a day");
        for again in [Addresses::admitted, |n: &mut Addresses, now| n.retry(now, Candidate(1))] {
            now = n.wakeup().unwrap();
            assert_eq!(n.dial(now, 9, &mut rng), [c]);
            n.failed(now, c, true, &mut rng);
            now = now.after(PAUSE / 2);
            assert_eq!(n.dial(now, 9, &mut rng), []);
            again(&mut n, now);
            assert_eq!(n.dial(now, 9, &mut rng), [c]);
            n.failed(now, c, true, &mut rng);
        }
        // An absent node does not refuse.
        n.retry(now, c);
        n.dial(now, 9, &mut rng);
        n.failed(now, c, false, &mut rng);
        n.admitted(now);
        assert_eq!(n.dial(now, 9, &mut rng), []);
    }

    #[test]
    fn one_that_rests_is_dialled_when_it_asks_for_us() {
        let (mut n, mut rng) = (Addresses::new(1), Rng::new(5));
        let (c, peer) = (Candidate(1), PeerId(1));
        n.add(Time(0), c, false);
        n.dial(Time(0), 9, &mut rng);
        n.up(c, peer);
        n.down(Time(S), c, peer, (Time(0), End::Useless), &mut rng);
        assert_eq!(n.dial(Time(900 * S), 9, &mut rng), []);
        n.retry(Time(901 * S), c);
        assert_eq!(n.dial(Time(901 * S), 9, &mut rng), [c]);
        // One that was never announced, too.
        n.retry(Time(901 * S), Candidate(2));
        n.failed(Time(901 * S), c, false, &mut rng);
        assert_eq!(n.dial(Time(901 * S), 9, &mut rng), [Candidate(2)]);
        n.check().unwrap();
    }
}
