//! From units to edges between members.

use super::epoch::Epoch;
use super::share::shares;
use super::tree::{Child, tree};
use super::units::{Item, ItemKind, Units};

/// No member.
pub(super) const NOBODY: u32 = u32::MAX;

/// Where a unit meets the others, by stripe.
struct Ends {
    /// The member that gets the stripe from outside.
    entry: Vec<u32>,
    /// For each place that the unit keeps for others: the member that feeds there.
    feeders: Vec<Vec<u32>>,
}

/// The parents of all members in all stripes: that of member m in stripe s at `s * members + m`.
pub(super) fn lay(epoch: &Epoch, units: &Units) -> Vec<u32> {
    let (stripes, members) = (usize::from(epoch.stripes), epoch.members.len());
    let mut plan = Layer { units, members, parents: vec![NOBODY; stripes * members] };
    if let Some(top) = &units.top {
        let ends = plan.item(top, &vec![0; stripes]);
        let sources = epoch.sources();
        for (s, &entry) in ends.entry.iter().enumerate() {
            plan.edge(s, sources[s % sources.len()], entry);
        }
    }
    plan.parents
}

struct Layer<'a> {
    units: &'a Units,
    members: usize,
    parents: Vec<u32>,
}

impl Layer<'_> {
    fn edge(&mut self, stripe: usize, parent: u32, child: u32) {
        self.parents[stripe * self.members + child as usize] = parent;
    }

    /// Lays all edges within an item that feeds `outside[s]` others in stripe s.
    fn item(&mut self, item: &Item, outside: &[u32]) -> Ends {
        match item.what {
            ItemKind::Member(m) => Ends {
                entry: vec![m; outside.len()],
                feeders: outside.iter().map(|&n| vec![m; n as usize]).collect(),
            },
            ItemKind::Unit(u) if self.units.units[u as usize].cluster => self.cluster(u, outside),
            ItemKind::Unit(u) => self.unit(u, outside),
        }
    }

    /// A unit of members only: no need to look into its items.
    fn cluster(&mut self, unit: u32, outside: &[u32]) -> Ends {
        let unit = &self.units.units[unit as usize];
        let members: Vec<u32> = unit
            .all()
            .filter_map(|item| match item.what {
                ItemKind::Member(m) => Some(m),
                ItemKind::Unit(_) => None,
            })
            .collect();
        let shares = shares(unit, outside);
        let mut ends =
            Ends { entry: Vec::with_capacity(outside.len()), feeders: Vec::with_capacity(outside.len()) };
        for (s, &n) in outside.iter().enumerate() {
            let (root, edges) = tree(unit, &shares, s, n);
            let mut feeders = Vec::with_capacity(n as usize);
            for (parent, child) in edges {
                let parent = members[parent as usize];
                match child {
                    Child::Item(i) => self.edge(s, parent, members[i as usize]),
                    Child::Outside(_) => feeders.push(parent),
                }
            }
            ends.entry.push(members[root as usize]);
            ends.feeders.push(feeders);
        }
        ends
    }

    /// A unit of units: first the edges among them, then each by itself, then the members at the edges.
    fn unit(&mut self, unit: u32, outside: &[u32]) -> Ends {
        let unit = &self.units.units[unit as usize];
        let shares = shares(unit, outside);
        let trees: Vec<_> = outside.iter().enumerate().map(|(s, &n)| tree(unit, &shares, s, n)).collect();
        let mut given = vec![vec![0; outside.len()]; unit.len()];
        for (s, (_, edges)) in trees.iter().enumerate() {
            for &(parent, _) in edges {
                given[parent as usize][s] += 1;
            }
        }
        let within: Vec<Ends> = unit.all().zip(&given).map(|(item, n)| self.item(item, n)).collect();
        let mut ends =
            Ends { entry: Vec::with_capacity(outside.len()), feeders: Vec::with_capacity(outside.len()) };
        for (s, (root, edges)) in trees.iter().enumerate() {
            // Which of the places that an item keeps for others is next.
            let mut next = vec![0; unit.len()];
            let mut feeders = Vec::with_capacity(outside[s] as usize);
            for &(parent, child) in edges {
                let turn = &mut next[parent as usize];
                let feeder = within[parent as usize].feeders[s][*turn];
                *turn += 1;
                match child {
                    Child::Item(i) => self.edge(s, feeder, within[i as usize].entry[s]),
                    Child::Outside(_) => feeders.push(feeder),
                }
            }
            ends.entry.push(within[*root as usize].entry[s]);
            ends.feeders.push(feeders);
        }
        ends
    }
}
