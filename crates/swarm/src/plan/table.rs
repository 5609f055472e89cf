//! A plan: the parents and children of every member.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::dial_only::part_callers;
use super::epoch::{Epoch, Part, PlanError};
use super::layout::{NOBODY, lay};
use super::places::{Tree, View};
use super::role::{Edges, Role};
use super::units::Units;

/// The edges of each stripe. See the head of the module.
#[derive(Clone, Debug)]
pub struct Plan {
    number: u32,
    /// See [`Epoch::sources`].
    sources: Vec<u32>,
    stripes: usize,
    places: Vec<u32>,
    tree: Tree,
    /// The parent of member m in stripe s, at `s * members + m`.
    parents: Vec<u32>,
    /// Where the children of m in s begin in `children`; one more at the end.
    starts: Vec<u32>,
    children: Vec<u32>,
}

impl Plan {
    /// Makes the plan of an epoch; takes time and memory in proportion to members times stripes.
    ///
    /// # Errors
    /// The epoch is too large or contradicts itself.
    pub fn new(epoch: &Epoch) -> Result<Plan, PlanError> {
        let tree = epoch.check()?;
        let units = Units::new(epoch, &View::new(epoch));
        let mut parents = lay(epoch, &units);
        if units.top.is_none() {
            alone(epoch, &mut parents);
        }
        part_callers(epoch, &mut parents);
        Ok(Plan::from_parents(epoch, tree, epoch.sources(), parents))
    }

    pub(super) fn from_parents(epoch: &Epoch, tree: Tree, sources: Vec<u32>, mut parents: Vec<u32>) -> Plan {
        let members = epoch.members.len();
        beside(epoch, &mut parents);
        let mut starts = vec![0; parents.len() + 1];
        for (stripe, row) in parents.chunks(members).enumerate() {
            for &parent in row.iter().filter(|&&p| p != NOBODY) {
                starts[stripe * members + parent as usize + 1] += 1;
            }
        }
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut next = starts.clone();
        let mut children = vec![0; starts.last().map_or(0, |&n| n as usize)];
        for (stripe, row) in parents.chunks(members).enumerate() {
            for (child, &parent) in (0..).zip(row) {
                if parent != NOBODY {
                    let at = &mut next[stripe * members + parent as usize];
                    children[*at as usize] = child;
                    *at += 1;
                }
            }
        }
        let places = epoch.members.iter().map(|m| m.place).collect();
        let stripes = usize::from(epoch.stripes);
        let number = epoch.number;
        let mut plan = Plan { number, sources, stripes, places, tree, parents, starts, children };
        plan.deepest_first();
        plan
    }

    /// Sorts every member's children: those on which most depends are sent to first.
    fn deepest_first(&mut self) {
        for stripe in 0..self.stripes {
            let order = self.downwards(stripe);
            let mut heights = vec![0_u8; self.members()];
            for &m in order.iter().rev() {
                let range = self.range(m, stripe);
                let children = &mut self.children[range];
                children.sort_by_key(|&c| std::cmp::Reverse(heights[c as usize]));
                let below = children.first().map_or(0, |&c| heights[c as usize].saturating_add(1));
                heights[m as usize] = below;
            }
        }
    }

    /// All members that a stripe reaches, each after its parent.
    fn downwards(&self, stripe: usize) -> Vec<u32> {
        let mut order = Vec::with_capacity(self.members());
        order.push(self.root(stripe));
        let mut next = 0;
        while let Some(&m) = order.get(next) {
            order.extend_from_slice(&self.children[self.range(m, stripe)]);
            next += 1;
        }
        order
    }

    /// The source of a stripe.
    fn root(&self, stripe: usize) -> u32 {
        self.sources[stripe % self.sources.len()]
    }

    fn range(&self, member: u32, stripe: usize) -> std::ops::Range<usize> {
        let at = stripe * self.members() + member as usize;
        self.starts[at] as usize..self.starts[at + 1] as usize
    }

    /// Number of the epoch.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The member that has the data, the first of them.
    #[must_use]
    pub fn source(&self) -> u32 {
        self.root(0)
    }

    /// How many members there are, gone or not.
    #[must_use]
    pub fn members(&self) -> usize {
        self.places.len()
    }

    /// How many trees.
    #[must_use]
    pub fn stripes(&self) -> u16 {
        self.stripes as u16
    }

    /// The parent of a member in a stripe: none for the source, and for members that are out or do not exist.
    #[must_use]
    pub fn parent(&self, member: u32, stripe: u16) -> Option<u32> {
        let at = usize::from(stripe) * self.members() + member as usize;
        let known = (member as usize) < self.members();
        self.parents.get(at).copied().filter(|&p| known && p != NOBODY)
    }

    /// The children of a member in a stripe, the one with the deepest subtree first.
    #[must_use]
    pub fn children(&self, member: u32, stripe: u16) -> &[u32] {
        if member as usize >= self.members() || usize::from(stripe) >= self.stripes {
            return &[];
        }
        &self.children[self.range(member, usize::from(stripe))]
    }

    /// A member's part; without parents and children for a number that does not exist.
    #[must_use]
    pub fn role(&self, member: u32) -> Role {
        let edges = |s| Edges { parent: self.parent(member, s), children: self.children(member, s).to_vec() };
        let stripes = (0..self.stripes()).map(edges).collect();
        Role { epoch: self.number, member, sources: self.sources.clone(), stripes }
    }

    /// How many links of the topology lie between two members: 0 at one place. The greatest for a number
    /// that does not exist.
    #[must_use]
    pub fn distance(&self, a: u32, b: u32) -> u8 {
        match (self.places.get(a as usize), self.places.get(b as usize)) {
            (Some(&a), Some(&b)) => self.tree.distance(a, b),
            _ => u8::MAX,
        }
    }

    /// How many hops each member is from the source of a stripe; none where the stripe does not reach it.
    #[must_use]
    pub fn depths(&self, stripe: u16) -> Vec<Option<u32>> {
        let mut depths = vec![None; self.members()];
        if usize::from(stripe) >= self.stripes {
            return depths;
        }
        depths[self.root(usize::from(stripe)) as usize] = Some(0);
        for m in self.downwards(usize::from(stripe)) {
            let below = depths[m as usize].map(|d| d + 1);
            for &child in self.children(m, stripe) {
                depths[child as usize] = below;
            }
        }
        depths
    }
}

/// No member can relay: the sources feed all members themselves.
fn alone(epoch: &Epoch, parents: &mut [u32]) {
    let sources = epoch.sources();
    for (row, source) in parents.chunks_mut(epoch.members.len()).zip(sources.iter().cycle()) {
        for ((number, member), parent) in (0..).zip(&epoch.members).zip(row) {
            if number != epoch.source && member.part.is_fed() {
                *parent = *source;
            }
        }
    }
}

/// Silent members receive from relays at their place, or from any relay if their place has no relay: each
/// stripe by the least loaded one.
fn beside(epoch: &Epoch, parents: &mut [u32]) {
    let numbered = || (0..).zip(&epoch.members);
    let silent: Vec<_> = numbered().filter(|(_, m)| m.part == Part::Silent).collect();
    if silent.is_empty() {
        return;
    }
    let mut load = vec![0_u32; epoch.members.len()];
    parents.iter().filter(|&&p| p != NOBODY).for_each(|&p| load[p as usize] += 1);
    let mut relays: BTreeMap<Option<u32>, BinaryHeap<Reverse<(u32, u32)>>> = BTreeMap::new();
    for (number, member) in numbered().filter(|(number, m)| m.part == Part::Relay && *number != epoch.source)
    {
        for place in [None, Some(member.place)] {
            relays.entry(place).or_default().push(Reverse((load[number as usize], number)));
        }
    }
    for (number, member) in silent {
        let place = Some(member.place).filter(|_| relays.contains_key(&Some(member.place)));
        let Some(feeders) = relays.get_mut(&place) else { return };
        for row in parents.chunks_mut(epoch.members.len()) {
            if let Some(mut feeder) = feeders.peek_mut() {
                row[number as usize] = feeder.0.1;
                feeder.0.0 += 1;
            }
        }
    }
}
