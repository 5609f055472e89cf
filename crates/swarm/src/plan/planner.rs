//! Makes the epochs: receives complaints, weighs them, and relieves members of work that they do not do.
//!
//! The rules for complaints:
//!
//! - Only an adjacent member of the plan can know, so complaints of other members are ignored.
//! - That a member is *gone* needs two signs: our own connection to it has ended, and a neighbour reports it
//!   too, or it stays away for [`GRACE`]. It is then out.
//! - A member that is *slow* or *silent*, or *gone* for others though not for us, needs two complaints (one
//!   where it has only one member to feed). It is then a leaf, or, where nothing comes from it, fed beside
//!   the trees: it still gets everything.
//! - A member that complains of more than half of its parents has the fault itself, and does not count. So a
//!   complaint waits [`SETTLE`] before it is weighed.
//! - The children of a slow member appear slow to their own children: a member that complains itself is
//!   blamed only when no other is. A new epoch discards earlier complaints.
//! - A liar's word counts against [`WORDS`] members in the whole broadcast. All complaints together make
//!   leaves of a quarter of the members at most, and never of the last relay at a place where others are.

use std::collections::BTreeMap;
use std::time::Duration;

use super::complaint::Complaint;
use super::epoch::{Epoch, Member, Part, PlanError};
use super::shapes::Shape;
use super::table::Plan;
use crate::time::Time;

/// Least time from one epoch to the next.
pub const EVERY: Duration = Duration::from_millis(250);
/// How long complaints are gathered before they are weighed.
pub const SETTLE: Duration = Duration::from_millis(100);
/// How long a member that no other member misses may be away.
pub const GRACE: Duration = Duration::from_secs(1);
/// How long a complaint stands.
pub const MEMORY: Duration = Duration::from_secs(10);
/// Against how many members the word of one counts.
pub const WORDS: u8 = 4;
/// How often a member may come back before it is no longer a relay.
pub const RETURNS: u8 = 2;

/// State of a member beside its part.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Its best possible use.
    best: Part,
    /// An adjacent member reports that nothing comes from it, or that it is not there.
    missed: bool,
    /// An adjacent member reports that nothing comes from it.
    silent: bool,
    returns: u8,
    words: u8,
}

/// Keeps the current epoch, and makes the next.
#[derive(Clone, Debug)]
pub struct Planner {
    epoch: Epoch,
    shape: Shape,
    plan: Plan,
    known: Vec<Known>,
    /// Members to which we have no connection, and since when, except those that are out.
    away: BTreeMap<u32, Time>,
    /// The time of each complaint, and its content: by which member, about which.
    complaints: BTreeMap<(u32, u32), (Time, Complaint)>,
    /// Members that complaints have made leaves.
    demoted: usize,
    /// The next epoch differs from this one already.
    changed: bool,
    issued: Time,
    weighed: Time,
}

impl Planner {
    /// Starts with an epoch in which all members are connected to us, and the shape of its plan and of all
    /// later ones.
    ///
    /// # Errors
    /// No plan can be made of it.
    pub fn new(now: Time, epoch: Epoch, shape: Shape) -> Result<Planner, PlanError> {
        let plan = Plan::shaped(&epoch, shape)?;
        let known = epoch.members.iter().map(|m| Known::new(m.part)).collect();
        let (away, complaints) = (BTreeMap::new(), BTreeMap::new());
        let (demoted, changed) = (0, false);
        Ok(Planner {
            epoch,
            shape,
            plan,
            known,
            away,
            complaints,
            demoted,
            changed,
            issued: now,
            weighed: now,
        })
    }

    /// The current epoch.
    #[must_use]
    pub fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// The shape of every plan.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The current epoch's plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// A member complains about another. A complaint by a member that is not adjacent to it in the current
    /// plan is ignored.
    pub fn complain(&mut self, now: Time, from: u32, about: u32, why: Complaint) {
        let feeds = self.feeds(about, from);
        if about == self.epoch.source || !(feeds || why == Complaint::Gone && self.feeds(from, about)) {
            return;
        }
        let known = &mut self.known[about as usize];
        known.missed |= why != Complaint::Slow;
        known.silent |= why == Complaint::Silent;
        if feeds {
            self.complaints.entry((from, about)).or_insert((now, why));
        }
    }

    /// Our connection to a member has ended.
    pub fn disconnected(&mut self, now: Time, member: u32) {
        let part = self.epoch.members.get(member as usize).map(|m| m.part);
        let there = |part: Part| part.is_fed() || part == Part::Source;
        if member != self.epoch.source && part.is_some_and(there) {
            self.away.entry(member).or_insert(now);
        }
    }

    /// A member is connected again. It gets back the part it had, unless it comes and goes.
    pub fn back(&mut self, member: u32) {
        let (Some(known), Some(now)) =
            (self.known.get_mut(member as usize), self.epoch.members.get_mut(member as usize))
        else {
            return;
        };
        self.away.remove(&member);
        (known.missed, known.silent) = (false, false);
        if now.part == Part::Out {
            known.returns = known.returns.saturating_add(1);
            if known.returns > RETURNS {
                known.best = Part::Leaf;
            }
            now.part = known.best;
            self.changed = true;
        }
    }

    /// One more member takes part; its number. It is in the next epoch.
    ///
    /// # Errors
    /// There is no room, or not the place that it names.
    pub fn joined(&mut self, member: Member) -> Result<u32, PlanError> {
        self.epoch.members.push(member);
        if let Err(why) = self.epoch.check() {
            self.epoch.members.pop();
            return Err(why);
        }
        self.known.push(Known::new(member.part));
        self.changed = true;
        Ok(self.epoch.members.len() as u32 - 1)
    }

    /// The next epoch, where it is time and something has changed.
    pub fn poll(&mut self, now: Time) -> Option<&Epoch> {
        if now < self.issued.after(EVERY) {
            return None;
        }
        self.miss(now);
        self.evaluate(now);
        if !self.changed {
            return None;
        }
        let number = self.epoch.number.checked_add(1)?;
        let last = std::mem::replace(&mut self.epoch.number, number);
        match Plan::shaped(&self.epoch, self.shape) {
            Ok(plan) => self.plan = plan,
            // Cannot be: every change was checked.
            Err(_) => {
                self.epoch.number = last;
                return None;
            }
        }
        (self.issued, self.changed) = (now, false);
        Some(&self.epoch)
    }

    /// The time of the next poll; nothing can happen before without another call.
    #[must_use]
    pub fn wakeup(&self) -> Option<Time> {
        let away = self.away.iter().map(|(&m, &since)| self.out_at(m, since));
        let settled =
            self.complaints.values().map(|(at, _)| at.after(SETTLE)).filter(|at| *at > self.weighed);
        let changed = self.changed.then_some(Time(0));
        away.chain(settled).chain(changed).min().map(|at| at.max(self.issued.after(EVERY)))
    }

    /// When a member that has been away since then is out.
    fn out_at(&self, member: u32, since: Time) -> Time {
        if self.known[member as usize].missed { since } else { since.after(GRACE) }
    }

    /// Removes members to which no member has a connection.
    fn miss(&mut self, now: Time) {
        let out: Vec<u32> =
            self.away.iter().filter(|&(&m, &since)| self.out_at(m, since) <= now).map(|(&m, _)| m).collect();
        for m in out {
            self.away.remove(&m);
            let part = &mut self.epoch.members[m as usize].part;
            *part = if part.is_source() { Part::Lost } else { Part::Out };
            self.changed = true;
        }
    }

    /// Makes leaves of members with enough complaints.
    fn evaluate(&mut self, now: Time) {
        self.weighed = now;
        let members = &self.epoch.members;
        self.complaints.retain(|&(from, about), (at, _)| {
            now.since(*at) < MEMORY
                && matches!(members[about as usize].part, Part::Relay | Part::Caller | Part::Source)
                && members[from as usize].part != Part::Out
        });
        let mut of: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut by: BTreeMap<u32, usize> = BTreeMap::new();
        for (&(from, about), (at, _)) in &self.complaints {
            if at.after(SETTLE) <= now {
                of.entry(about).or_default().push(from);
                *by.entry(from).or_default() += 1;
            }
        }
        by.retain(|&from, count| *count <= (self.edge_count(from, true) / 2).max(1));
        let blame = |planner: &mut Self, victims: bool| {
            let mut blamed = false;
            for (&about, from) in &of {
                let suffers = planner.complaints.range((about, 0)..=(about, u32::MAX)).next().is_some();
                if suffers == victims {
                    let voices: Vec<u32> = from.iter().copied().filter(|f| by.contains_key(f)).collect();
                    blamed |= planner.demote(about, &voices);
                }
            }
            blamed
        };
        if blame(self, false) || blame(self, true) {
            // Silence has no other cause.
            self.complaints.retain(|_, (_, why)| *why != Complaint::Slow);
        }
    }

    /// Makes a leaf of a relay, if this many voices are enough and it can be spared; a source is lost then.
    fn demote(&mut self, about: u32, voices: &[u32]) -> bool {
        let heard = |from: &&u32| self.known[**from as usize].words < WORDS;
        let voices: Vec<u32> = voices.iter().filter(heard).copied().collect();
        let needed = if self.edge_count(about, false) == 1 { 1 } else { 2 };
        let source = self.epoch.members[about as usize].part == Part::Source;
        if voices.len() < needed || !(source || self.spare(about)) {
            return false;
        }
        for from in voices {
            self.known[from as usize].words += 1;
        }
        let part = match self.known[about as usize].silent {
            _ if source => Part::Lost,
            true => Part::Silent,
            false => Part::Leaf,
        };
        self.known[about as usize].best = part;
        self.epoch.members[about as usize].part = part;
        self.demoted += 1;
        self.changed = true;
        true
    }

    /// Whether there are relays enough without this one, in all and at its place.
    fn spare(&self, about: u32) -> bool {
        let place = self.epoch.members[about as usize].place;
        let others = || {
            (0..).zip(&self.epoch.members).filter(|&(m, member)| {
                m != about && m != self.epoch.source && member.part.is_fed() && member.place == place
            })
        };
        let fed = others().next().is_none() || others().any(|(_, member)| member.part == Part::Relay);
        fed && self.demoted < (self.epoch.members.len() / 4).max(1)
    }

    /// Whether one member feeds another in any stripe.
    fn feeds(&self, parent: u32, child: u32) -> bool {
        (0..self.plan.stripes()).any(|s| self.plan.parent(child, s) == Some(parent))
    }

    /// How many members feed this one (`up`), or are fed by it.
    fn edge_count(&self, member: u32, up: bool) -> usize {
        let mut all: Vec<u32> = Vec::new();
        for s in 0..self.plan.stripes() {
            if up {
                all.extend(self.plan.parent(member, s));
            } else {
                all.extend(self.plan.children(member, s));
            }
        }
        all.sort_unstable();
        all.dedup();
        all.len()
    }
}

impl Known {
    fn new(best: Part) -> Known {
        Known { best, missed: false, silent: false, returns: 0, words: 0 }
    }
}
