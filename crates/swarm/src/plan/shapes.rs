//! Other shapes than stripes, to compare with.

use super::epoch::{Epoch, Part, PlanError};
use super::lay::NOBODY;
use super::places::View;
use super::table::Plan;
use super::units::{Item, Units, What};

/// The form of a plan. The first is Tidecast's; the others have the same tree in every stripe.
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
}

impl Plan {
    /// The plan of an epoch in one of the shapes. Leaves are fed by the relay before them in the order.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn shaped(epoch: &Epoch, shape: Shape) -> Result<Plan, PlanError> {
        let feeder: fn(usize) -> usize = match shape {
            Shape::Striped => return Plan::new(epoch),
            Shape::Chain => |rank| rank - 1,
            Shape::Binomial => |rank| rank & (rank - 1),
        };
        let tree = epoch.check()?;
        let units = Units::new(epoch, &View::new(epoch));
        let mut relays = vec![epoch.source];
        let mut parents = vec![NOBODY; epoch.members.len()];
        for member in walk(epoch, &units) {
            let leaf = epoch.members[member as usize].part != Part::Relay;
            let rank = if leaf { relays.len() - 1 } else { feeder(relays.len()) };
            parents[member as usize] = relays[rank];
            if !leaf {
                relays.push(member);
            }
        }
        Ok(Plan::from_parents(epoch, tree, parents.repeat(usize::from(epoch.stripes))))
    }
}

/// Everyone who is there but the source, one place after the other.
fn walk(epoch: &Epoch, units: &Units) -> Vec<u32> {
    let Some(top) = units.top else {
        let out = |&m: &u32| m == epoch.source || epoch.members[m as usize].part == Part::Out;
        return (0..epoch.members.len() as u32).filter(|m| !out(m)).collect();
    };
    let mut members = Vec::new();
    let mut stack: Vec<Item> = vec![top];
    while let Some(item) = stack.pop() {
        match item.what {
            What::Member(m) => members.push(m),
            What::Unit(u) => {
                stack.extend(units.units[u as usize].all().copied().collect::<Vec<_>>().iter().rev())
            }
        }
    }
    members
}
