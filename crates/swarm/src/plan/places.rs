//! The tree of places, as it looks from the source.
//!
//! A topology is usually drawn with a spine or a site's router at the top. Data comes from the source, so the
//! tree is rooted at the source's place instead: the first place above it becomes one below it.

use super::epoch::{Epoch, MAX_EDGES, MAX_LEVELS, MAX_MEMBERS, MAX_PLACES, MAX_STRIPES, Place, PlanError};

/// The places as they were given: for each how many are above it.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    above: Vec<Option<u32>>,
    levels: Vec<u8>,
}

impl Tree {
    /// Refuses places that hang on nothing, on themselves, or too deep.
    pub(super) fn new(places: &[Place]) -> Result<Tree, PlanError> {
        let mut levels: Vec<Option<u8>> = vec![None; places.len()];
        let mut path = Vec::new();
        for start in 0..places.len() as u32 {
            let mut at = Some(start);
            let mut level = 0;
            // Upwards to a place whose level is known, or the top; then back down again.
            while let Some(place) = at {
                let Some(known) = levels.get(place as usize) else {
                    return Err(PlanError::Loose(path.last().copied().unwrap_or(start)));
                };
                if let Some(known) = known {
                    level = known + 1;
                    break;
                }
                if path.len() > usize::from(MAX_LEVELS) {
                    return Err(PlanError::Deep(start));
                }
                path.push(place);
                at = places[place as usize].above;
            }
            while let Some(place) = path.pop() {
                if level > MAX_LEVELS {
                    return Err(PlanError::Deep(start));
                }
                levels[place as usize] = Some(level);
                level += 1;
            }
        }
        let levels = levels.into_iter().map(Option::unwrap_or_default).collect();
        Ok(Tree { above: places.iter().map(|p| p.above).collect(), levels })
    }

    /// How many links lie between two places; places of different trees are joined above their tops.
    pub(super) fn distance(&self, a: u32, b: u32) -> u8 {
        let level = |p: Option<u32>| p.map_or(0, |p| self.levels[p as usize] + 1);
        let (mut a, mut b, mut steps) = (Some(a), Some(b), 0_u8);
        while a != b {
            let lower = if level(a) >= level(b) { &mut a } else { &mut b };
            *lower = lower.and_then(|p| self.above[p as usize]);
            steps += 1;
        }
        steps
    }
}

impl Epoch {
    /// Rejects places of which no plan can be made; finds the depth of each.
    pub(super) fn check(&self) -> Result<Tree, PlanError> {
        if self.members.len() > MAX_MEMBERS {
            return Err(PlanError::Members(self.members.len()));
        }
        if self.places.len() > MAX_PLACES {
            return Err(PlanError::Places(self.places.len()));
        }
        if self.stripes == 0 || self.stripes > MAX_STRIPES {
            return Err(PlanError::Stripes(self.stripes));
        }
        if self.members.len() * usize::from(self.stripes) > MAX_EDGES {
            return Err(PlanError::Edges { members: self.members.len(), stripes: self.stripes });
        }
        match self.members.get(self.source as usize) {
            Some(source) if source.part.is_fed() => {}
            _ => return Err(PlanError::Source(self.source)),
        }
        for (i, member) in self.members.iter().enumerate() {
            if member.place as usize >= self.places.len() {
                return Err(PlanError::Nowhere { member: i, place: member.place });
            }
        }
        Tree::new(&self.places)
    }
}

/// A place as seen from the source.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// The places that data reaches by way of this one.
    pub(super) beyond: Vec<u32>,
    /// Bytes per second of the link over which data gets here; 0 where ample.
    pub(super) rate: u64,
}

/// The places hung up at the source's.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// By number; one more than was given joins the tops of several trees.
    pub(super) places: Vec<Seen>,
    /// By number, the place through which data gets there; the source's is above itself.
    pub(super) above: Vec<u32>,
    /// Their numbers, each before all beyond it; the source's first.
    pub(super) order: Vec<u32>,
}

impl View {
    /// Hangs up the places of a checked epoch.
    pub(super) fn new(epoch: &Epoch) -> View {
        let join = epoch.places.len() as u32;
        let mut up: Vec<(u32, u64)> =
            epoch.places.iter().map(|p| (p.above.unwrap_or(join), p.rate)).collect();
        up.push((join, 0));
        // Turns the links between the source's place and the top round.
        let top = epoch.members[epoch.source as usize].place;
        let (mut at, mut from) = (top, (top, 0));
        loop {
            let next = std::mem::replace(&mut up[at as usize], from);
            if at == join {
                break;
            }
            from = (at, next.1);
            at = next.0;
        }
        let mut places: Vec<Seen> = up.iter().map(|&(_, rate)| Seen { beyond: Vec::new(), rate }).collect();
        // A place that only joins the tops is not needed where there is but one.
        let last = epoch.places.iter().filter(|p| p.above.is_none()).count() == 1;
        for (place, &(above, _)) in up.iter().enumerate().take(up.len() - usize::from(last)) {
            if above as usize != place {
                places[above as usize].beyond.push(place as u32);
            }
        }
        let mut order = vec![top];
        let mut next = 0;
        while let Some(&place) = order.get(next) {
            order.extend(&places[place as usize].beyond);
            next += 1;
        }
        View { places, above: up.into_iter().map(|(above, _)| above).collect(), order }
    }
}
