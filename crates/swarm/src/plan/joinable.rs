//! The plan of members that join while it runs: its members, and when a new epoch is due. The holder of the data makes it.
//!
//! - Members that join at the same time are in the same epoch: it waits while more join, up to a limit.
//! - In a plan for a whole tree, members sit in the order in which they join. So the roots of the stripes, to
//!   which the source sends, stay when more members join, and the latest ones, which lack most, are at the
//!   bottom. With random seats each epoch has new roots, and the source sends them again the pieces that it
//!   has sent to the roots before.
//! - The number of stripes never changes: the pieces given so far belong to stripes of that number.
//! - A member that leaves after it is complete is no loss, unless a child of it complains.
//! - In a plan for a whole tree, complaints of slowness are ignored: members connect while the tree is sent, and a stripe
//!   whose parent was met late does not show that the parent is slow.

use std::collections::BTreeSet;
use std::time::Duration;

use super::complaint::Complaint;
use super::epoch::{Epoch, IN_ORDER, Member, Part};
use super::planner::Planner;
use super::shapes::Shape;
use super::table::Plan;
use crate::time::Time;

/// Trees of a plan on demand: small files are one piece each, and go down one of them.
const STRIPES: u16 = 4;
/// Trees of a plan for whole trees: few, as links may be slow (`count`), and enough that a parent that falls silent
/// withholds a third of the data only.
const STRIPES_WHOLE: u16 = 3;
/// How long a new epoch waits after a member has joined, and at most after the first that it does not have: on demand or
/// before the first epoch, and later of whole trees.
const SETTLE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));
const SETTLE_WHOLE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));
/// Least time from one epoch of a plan for whole trees to the next.
const PAUSE_WHOLE: Duration = Duration::from_millis(500);

/// See the head of the file. The maker is member 0.
#[derive(Clone, Debug)]
pub struct JoinablePlan {
    planner: Planner,
    /// All members want everything.
    whole: bool,
    /// The time at which a new epoch is due because members have joined: if no more join, and at most.
    waits: Option<(Time, Time)>,
    /// No new epoch of whole trees before this; none before the first epoch.
    rests: Option<Time>,
    /// Members that have left with everything.
    finished: BTreeSet<u32>,
}

impl JoinablePlan {
    /// A plan without members. `whole`: every member wants all of a tree; else it is a plan on demand, in
    /// which members are seated by `seed`.
    #[must_use]
    pub fn new(now: Time, whole: bool, seed: u64) -> Option<JoinablePlan> {
        let (stripes, seed) = if whole { (STRIPES_WHOLE, IN_ORDER) } else { (STRIPES, seed) };
        let planner = Planner::new(now, Epoch::flat(1, stripes, seed), Shape::Striped).ok()?;
        Some(JoinablePlan { planner, whole, waits: None, rests: None, finished: BTreeSet::new() })
    }

    /// The current plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        self.planner.plan()
    }

    /// One more member takes part from the next epoch on; its number. None where there is no room.
    pub fn joined(&mut self, now: Time, part: Part) -> Option<u32> {
        let number = self.planner.joined(Member { place: 0, part }).ok()?;
        self.await_more(now);
        Some(number)
    }

    /// A member that has left is there again.
    pub fn back(&mut self, now: Time, number: u32) {
        self.planner.back(number);
        self.finished.remove(&number);
        self.await_more(now);
    }

    /// The connection to a member has ended. `finished`: it has everything.
    pub fn left(&mut self, now: Time, number: u32, finished: bool) {
        if finished && self.whole {
            self.finished.insert(number);
        } else {
            self.planner.disconnected(now, number);
        }
    }

    /// A member complains about another.
    pub fn complain(&mut self, now: Time, from: u32, about: u32, why: Complaint) {
        let known = (about as usize) < self.planner.epoch().members.len();
        if !known || why == Complaint::Slow && self.whole {
            return;
        }
        if self.finished.remove(&about) {
            self.planner.disconnected(now, about);
        }
        self.planner.complain(now, from, about, why);
    }

    /// The time of the next poll; nothing can happen before without another call.
    #[must_use]
    pub fn wakeup(&self) -> Option<Time> {
        let plan = self.planner.wakeup()?;
        let settled = self.waits.map_or(plan, |(at, _)| at.max(plan));
        Some(self.rests.map_or(settled, |at| at.max(settled)))
    }

    /// Whether there is a new epoch now.
    pub fn poll(&mut self, now: Time) -> bool {
        let early = |at: Time| now < at;
        if self.waits.is_some_and(|(at, _)| early(at)) || self.rests.is_some_and(early) {
            return false;
        }
        self.waits = None;
        let changed = self.planner.poll(now).is_some();
        if changed && self.whole {
            self.rests = Some(now.after(PAUSE_WHOLE));
        }
        changed
    }

    /// Members have joined that are in no epoch.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waits.is_some()
    }

    /// Waits for more to join.
    fn await_more(&mut self, now: Time) {
        // The first few begin at once.
        let (soon, most) = if self.rests.is_some() { SETTLE_WHOLE } else { SETTLE };
        let (soon, most) = (now.after(soon), now.after(most));
        self.waits = Some(self.waits.map_or((soon, most), |(_, most)| (soon.min(most), most)));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MS: u64 = 1_000_000;

    /// The plan when this many have joined one after the other, 150 ms apart.
    fn gathered(members: u32) -> JoinablePlan {
        let mut gathering = JoinablePlan::new(Time(0), true, 7).unwrap();
        let mut now = 1000 * MS;
        for member in 1..=members {
            assert_eq!(gathering.joined(Time(now), Part::Relay), Some(member));
            now += 150 * MS;
            gathering.poll(Time(now));
        }
        assert!(gathering.poll(Time(now + 1000 * MS)) || !gathering.is_waiting());
        gathering
    }

    #[test]
    fn the_roots_of_the_stripes_stay_when_more_join() {
        let roots = |members| {
            let gathering = gathered(members);
            let role = gathering.plan().role(0);
            role.stripes.iter().map(|edges| edges.children.clone()).collect::<Vec<_>>()
        };
        let first = roots(3);
        assert_eq!(first.len(), usize::from(STRIPES_WHOLE));
        for members in 4..80 {
            assert_eq!(roots(members), first, "{members} members");
        }
    }

    #[test]
    fn whoever_leaves_with_everything_is_out_only_when_it_is_missed() {
        let mut gathering = gathered(9);
        let parent = (1..=9).find(|&m| !gathering.plan().children(m, 0).is_empty()).unwrap();
        let child = gathering.plan().children(parent, 0).first().copied().unwrap();
        let later = |s: u64| Time((60 + s) * 1000 * MS);
        gathering.left(later(0), parent, true);
        assert!(!gathering.poll(later(5)));
        gathering.complain(later(6), child, parent, Complaint::Gone);
        assert!(gathering.poll(later(8)));
        assert_eq!(gathering.plan().children(parent, 0).len(), 0);
    }

    #[test]
    fn a_second_epoch_follows_soon_and_a_third_not_at_once() {
        let mut gathering = JoinablePlan::new(Time(0), true, 7).unwrap();
        gathering.joined(Time(1000 * MS), Part::Relay);
        assert!(!gathering.poll(Time(1049 * MS)) && gathering.poll(Time(1050 * MS)));
        gathering.joined(Time(1100 * MS), Part::Relay);
        assert_eq!(gathering.wakeup(), Some(Time(1550 * MS)));
        assert!(!gathering.poll(Time(1549 * MS)) && gathering.poll(Time(1550 * MS)));
    }
}
