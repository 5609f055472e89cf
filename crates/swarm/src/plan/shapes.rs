//! Other shapes than stripes, to compare with.

use super::epoch::{Epoch, Part, PlanError};
use super::layout::NOBODY;
use super::places::View;
use super::table::Plan;
use super::units::{Item, ItemKind, Units};

/// The form of a plan. The first is Tidecast's; others than the ring have the same tree in every stripe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Shape {
    /// One shallow tree for each stripe, with different relays in each.
    #[default]
    Striped,
    /// Each relay feeds the next, in the order in which the topology is walked through from the source.
    Chain,
    /// The binomial tree of MPI over the relays in that order: the one of rank r is fed by that of rank
    /// r & (r - 1).
    Binomial,
    /// MPI's scatter and ring allgather: each stripe goes to another relay, as many apart as there are relays to a
    /// stripe, and from there once round.
    Ring,
}

impl Plan {
    /// The plan of an epoch in one of the shapes. Leaves are fed by the relay before them in the order.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn shaped(epoch: &Epoch, shape: Shape) -> Result<Plan, PlanError> {
        if shape == Shape::Striped {
            return Plan::new(epoch);
        }
        let tree = epoch.check()?;
        let order = walk(epoch, &Units::new(epoch, &View::new(epoch)));
        let is_relay = |m: &u32| epoch.members[*m as usize].part == Part::Relay;
        // By rank; the source's is 0.
        let relays: Vec<u32> =
            std::iter::once(epoch.source).chain(order.iter().copied().filter(is_relay)).collect();
        let (last, stripes) = (relays.len() - 1, usize::from(epoch.stripes));
        let mut parents = vec![NOBODY; epoch.members.len() * stripes];
        for (stripe, row) in parents.chunks_mut(epoch.members.len()).enumerate() {
            let first = 1 + last * stripe / stripes;
            let feeder = |rank: usize| match shape {
                Shape::Binomial => rank & (rank - 1),
                Shape::Ring if rank == first => 0,
                Shape::Ring if rank == 1 => last,
                _ => rank - 1,
            };
            let mut before = 0;
            for member in &order {
                let leaf = !is_relay(member);
                before += usize::from(!leaf);
                row[*member as usize] = relays[if leaf { before } else { feeder(before) }];
            }
        }
        Ok(Plan::from_parents(epoch, tree, vec![epoch.source], parents))
    }
}

/// All present members but the source, one place after the other.
fn walk(epoch: &Epoch, units: &Units) -> Vec<u32> {
    let Some(top) = units.top else {
        let fed = |&m: &u32| m != epoch.source && epoch.members[m as usize].part.is_fed();
        return (0..epoch.members.len() as u32).filter(fed).collect();
    };
    let mut members = Vec::new();
    let mut stack: Vec<Item> = vec![top];
    while let Some(item) = stack.pop() {
        match item.what {
            ItemKind::Member(m) => members.push(m),
            ItemKind::Unit(u) => {
                stack.extend(units.units[u as usize].all().copied().collect::<Vec<_>>().iter().rev())
            }
        }
    }
    members
}
