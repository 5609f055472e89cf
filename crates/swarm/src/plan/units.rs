//! The units of a plan: groups of members that are treated together.
//!
//! A *unit* gets each stripe over one edge from outside, whatever it consists of: a member; the relays and
//! leaves at one place (a cluster); or a place and all places below it. A unit's items are units again.

use super::epoch::{Epoch, IN_ORDER, Part};
use super::places::View;
use crate::rng::Rng;

/// The contents of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemKind {
    /// One member.
    Member(u32),
    /// Another unit, by its index.
    Unit(u32),
}

/// One of the parts of a unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) what: ItemKind,
    /// Its position among all that ever were in the unit: a leaving item leaves a gap, and no other moves.
    pub(super) seat: u32,
    /// Relays in it.
    pub(super) relays: u64,
    /// Members in it that are to be fed.
    pub(super) members: u64,
    /// Whether it is a member that accepts no connections.
    pub(super) calls: bool,
    /// Whether a link of the topology lies between it and its siblings.
    pub(super) apart: bool,
}

/// A unit of several items.
#[derive(Clone, Debug, Default)]
pub(super) struct Unit {
    /// The item through which data comes in and that feeds the others as far as it can: members at the place
    /// itself come before those below it.
    pub(super) first: Option<Item>,
    /// The others, by seat.
    pub(super) items: Vec<Item>,
    /// Seats, taken or not.
    pub(super) seats: u32,
    /// Whether all items are members, at one place.
    pub(super) cluster: bool,
    /// Whether seats are by the rates of links, which differ: no item takes the seat of a faster one.
    pub(super) ranked: bool,
}

impl Unit {
    /// How many items it has.
    pub(super) fn len(&self) -> usize {
        self.items.len() + usize::from(self.first.is_some())
    }

    /// All items; the first one, where there is one, has index 0.
    pub(super) fn all(&self) -> impl Iterator<Item = &Item> {
        self.first.iter().chain(&self.items)
    }
}

/// The units of an epoch, each after those in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Units {
    pub(super) units: Vec<Unit>,
    /// The units that the source feeds; none where there is no relay at all.
    pub(super) top: Option<Item>,
}

/// A number that orders members, or places, by chance; with [`IN_ORDER`] by their own numbers.
fn lot(seed: u64, kind: u64, number: u32) -> u64 {
    if seed == IN_ORDER {
        return u64::from(number);
    }
    Rng::new(seed ^ Rng::new(kind << 32 | u64::from(number)).next()).next()
}

/// Items at a place that cannot be one unit yet, on the way up.
#[derive(Default)]
struct Pending {
    /// All members at the place itself except sources, present or not, in order of lot.
    own: Vec<u32>,
    /// Leaves from below, where no member can relay to them.
    stranded: Vec<u32>,
    /// The unit of each place beyond, by place.
    beyond: Vec<(u32, Item)>,
}

impl Units {
    /// Puts together the units of a checked epoch.
    pub(super) fn new(epoch: &Epoch, view: &View) -> Units {
        let mut units = Units::default();
        let mut pending: Vec<Pending> = Vec::new();
        pending.resize_with(view.places.len(), Pending::default);
        for (number, member) in (0..).zip(&epoch.members) {
            if number != epoch.source && !member.part.is_source() {
                pending[member.place as usize].own.push(number);
            }
        }
        // Each place is done after all beyond it.
        for (i, &place) in view.order.iter().enumerate().rev() {
            let mut here = std::mem::take(&mut pending[place as usize]);
            here.own.sort_by_cached_key(|&m| (lot(epoch.seed, 1, m), m));
            let (item, stranded) = units.place(epoch, view, place, here);
            if i == 0 {
                units.top = item;
                break;
            }
            let above = view.above[place as usize];
            pending[above as usize].stranded.extend(stranded);
            pending[above as usize].beyond.extend(item.map(|item| (place, item)));
        }
        units
    }

    /// The unit of a place and all beyond it, or, where no relay is in it, the leaves for the place above.
    fn place(&mut self, epoch: &Epoch, view: &View, place: u32, here: Pending) -> (Option<Item>, Vec<u32>) {
        let mut cluster = members(epoch, &here);
        let relays = cluster.items.iter().map(|i| i.relays).sum::<u64>();
        if here.beyond.is_empty() {
            return if relays == 0 {
                (None, cluster.items.iter().filter_map(Item::member).collect())
            } else {
                (Some(self.add(cluster)), Vec::new())
            };
        }
        let beyond = seated(epoch, view, place, here.beyond);
        let around = &view.places[place as usize].beyond;
        let seats = around.len() as u32;
        let rate = |p: &u32| view.places[*p as usize].rate;
        let ranked = around.iter().any(|p| rate(p) != rate(&around[0]));
        if relays > 0 {
            let first = Some(self.add(cluster));
            return (
                Some(self.add(Unit { first, items: beyond, seats, cluster: false, ranked })),
                Vec::new(),
            );
        }
        // No member here can relay to the leaves here: members below do.
        let mut items = beyond;
        for leaf in &mut cluster.items {
            leaf.seat += seats;
        }
        items.append(&mut cluster.items);
        (
            Some(self.add(Unit { first: None, items, seats: seats + cluster.seats, cluster: false, ranked })),
            Vec::new(),
        )
    }

    /// Makes a unit an item; one of a single item is that item.
    fn add(&mut self, unit: Unit) -> Item {
        let (relays, members) = unit.all().fold((0, 0), |(r, m), item| (r + item.relays, m + item.members));
        let only = unit.all().next().filter(|_| unit.len() == 1).map(|item| item.what);
        let what = only.unwrap_or_else(|| {
            self.units.push(unit);
            ItemKind::Unit(self.units.len() as u32 - 1)
        });
        Item { what, seat: 0, relays, members, calls: false, apart: false }
    }
}

impl Item {
    fn member(&self) -> Option<u32> {
        match self.what {
            ItemKind::Member(m) => Some(m),
            ItemKind::Unit(_) => None,
        }
    }
}

/// Members at one place and the leaves stranded below it. Members that have left or are silent keep their
/// seats.
fn members(epoch: &Epoch, here: &Pending) -> Unit {
    let mut items = Vec::with_capacity(here.own.len() + here.stranded.len());
    let count = |part: Part| here.own.iter().filter(|&&m| epoch.members[m as usize].part == part).count();
    let call = count(Part::Caller) <= count(Part::Relay);
    for (seat, &member) in (0..).zip(here.own.iter().chain(&here.stranded)) {
        let part = epoch.members[member as usize].part;
        if matches!(part, Part::Relay | Part::Caller | Part::Leaf) {
            let relays = u64::from(part == Part::Relay || part == Part::Caller && call);
            let calls = part == Part::Caller;
            items.push(Item {
                what: ItemKind::Member(member),
                seat,
                relays,
                members: 1,
                calls,
                apart: false,
            });
        }
    }
    let seats = (here.own.len() + here.stranded.len()) as u32;
    Unit { first: None, items, seats, cluster: true, ranked: false }
}

/// The units beyond a place, those on the fastest links first, then by lot.
fn seated(epoch: &Epoch, view: &View, place: u32, units: Vec<(u32, Item)>) -> Vec<Item> {
    let key = |p: u32| {
        let rate = view.places[p as usize].rate;
        (std::cmp::Reverse(rate.wrapping_sub(1)), lot(epoch.seed, 2, p), p)
    };
    let mut all = view.places[place as usize].beyond.clone();
    all.sort_by_cached_key(|&p| key(p));
    let mut units: std::collections::BTreeMap<u32, Item> = units.into_iter().collect();
    let mut items = Vec::with_capacity(units.len());
    for (seat, p) in (0..).zip(all) {
        if let Some(item) = units.remove(&p) {
            items.push(Item { seat, apart: true, ..item });
        }
    }
    items
}
