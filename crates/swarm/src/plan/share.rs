//! How many children each item of a unit has in each stripe.
//!
//! The unit of account is one child in one stripe: with k stripes, k of them are one copy of the data. Every
//! stripe of a unit with n items needs n - 1 of them, plus those that the unit gives to others.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::units::{Item, Unit};

/// Items that feed others in one stripe, the root first: index of the item, children (never 0).
pub(super) type Feeders = Vec<(u32, u32)>;

/// The composition of each stripe of a unit.
pub(super) struct Shares {
    /// Feeding items, by stripe.
    pub(super) feeders: Vec<Feeders>,
    /// By stripe, the class whose seats (those that leave its number when divided by `classes`) feed in it.
    pub(super) class: Vec<u32>,
    /// How many classes there are.
    pub(super) classes: u32,
}

/// Most children that each item may have, over all `stripes`, so that all that is needed is given.
///
/// An item of n members and r relays must make n - 1 copies within itself, so that r relays that send C have
/// rC - k(n - 1) left. C is k, one copy, where that is enough, and otherwise as little more as can be. An
/// item behind a link of its own sends no more than one copy over it, unless there is no other way.
fn budgets(unit: &Unit, stripes: u64, needed: u64) -> Vec<u64> {
    let mut cap = stripes;
    let given = |cap: u64, most: u64| {
        move |item: &Item| {
            let left = (most * item.relays).saturating_sub(stripes * (item.members - 1));
            if item.apart { left.min(cap) } else { left }
        }
    };
    let total = |cap, most| unit.all().map(given(cap, most)).sum::<u64>();
    // With this much, every relay could do everything.
    let all = unit.all().map(|item| item.members).sum::<u64>() * stripes + needed;
    while total(cap, all) < needed {
        cap *= 2;
    }
    let (mut low, mut high) = (stripes, all.max(stripes));
    while low < high {
        let middle = low + (high - low) / 2;
        if total(cap, middle) < needed { low = middle + 1 } else { high = middle }
    }
    unit.all().map(given(cap, low)).collect()
}

/// How many classes the items are divided into: in each stripe, one class feeds.
///
/// Members each feed in one stripe, or in equally many, with all that they can send: the trees are shallow. If that
/// goes up with one member less, that one helps the others. A unit that feeds
/// others takes that out of the relays at its entry, which have little to spare in any one stripe: few
/// units form a chain, in which each feeds one in every stripe, and many a tree of small degree.
fn classes(unit: &Unit, stripes: u32) -> u32 {
    let wanted = match unit.seats {
        seats if unit.cluster && stripes > seats => (seats.saturating_sub(1).max(1)..=seats)
            .rev()
            .find(|c| stripes.is_multiple_of(*c))
            .unwrap_or(seats),
        _ if unit.cluster => stripes,
        0..=4 => 1,
        5..=16 => 2,
        _ => 4,
    };
    wanted.min(stripes).min(unit.seats.max(1))
}

/// Divides the work of a unit that gives `outside[s]` children of other units their data in stripe s.
pub(super) fn shares(unit: &Unit, outside: &[u32]) -> Shares {
    let stripes = outside.len();
    let inside = unit.len() as u32 - 1;
    let mut missing: Vec<u32> = outside.iter().map(|&x| x + inside).collect();
    let needed: u64 = missing.iter().map(|&d| u64::from(d)).sum();
    let mut left = budgets(unit, stripes as u64, needed);
    let classes = classes(unit, stripes as u32);
    let groups = groups(unit, &left, classes);
    // The stripes that need most go to different classes, and lower classes have more seats.
    let mut order: Vec<usize> = (0..stripes).collect();
    order.sort_by_key(|&s| (Reverse(missing[s]), s));
    let mut class = vec![0; stripes];
    (0..).zip(&order).for_each(|(i, &s)| class[s] = i % classes);
    let serving = serving(&class, &groups);
    let mut feeders = vec![Feeders::new(); stripes];
    if unit.first.is_some() {
        let mut owed = needed;
        for &s in &order {
            let wanted = u64::from(missing[s]);
            feed(&[0], owed, &mut left, &mut missing[s], &mut feeders[s]);
            owed -= wanted;
        }
    }
    let mut owed = vec![0; groups.len()];
    (0..stripes).for_each(|s| owed[serving[s]] += u64::from(missing[s]));
    for &s in &order {
        let (wanted, group) = (u64::from(missing[s]), serving[s]);
        feed(&groups[group], owed[group], &mut left, &mut missing[s], &mut feeders[s]);
        owed[group] -= wanted;
    }
    help(&order, &left, &mut missing, &mut feeders);
    Shares { feeders, class, classes }
}

/// The group that feeds in each stripe: that of its class, or, where it is empty, another in turn.
fn serving(class: &[u32], groups: &[Vec<u32>]) -> Vec<usize> {
    let some: Vec<usize> = (0..groups.len()).filter(|&g| !groups[g].is_empty()).collect();
    let mut others = some.iter().copied().cycle();
    let group = |&class: &u32| match groups.get(class as usize) {
        Some(group) if group.is_empty() => others.next().unwrap_or_default(),
        _ => class as usize,
    };
    class.iter().map(group).collect()
}

/// Takes the missing copies of a stripe from a group that owes this many to this stripe and later ones: of each
/// item its due share, in order. A group that has less than it owes gives its due share to each stripe.
fn feed(group: &[u32], owed: u64, left: &mut [u64], missing: &mut u32, feeders: &mut Feeders) {
    let wanted = u64::from(*missing);
    let all: u64 = group.iter().map(|&item| left[item as usize]).sum();
    let mut due = if all < owed { (all * wanted).div_ceil(owed) } else { wanted };
    let start = feeders.len();
    for &item in group {
        let left = &mut left[item as usize];
        let part = (*left * wanted).div_ceil(owed.max(1)).min(*left).min(due);
        if part > 0 {
            *left -= part;
            due -= part;
            *missing -= part as u32;
            feeders.push((item, part as u32));
        }
    }
    for (item, part) in &mut feeders[start..] {
        let left = &mut left[*item as usize];
        let more = due.min(*left);
        *left -= more;
        due -= more;
        *missing -= more as u32;
        *part += more as u32;
    }
}

/// Items with spare copies help where copies are missing: those with most first, so that few have to. A group
/// that misses copies in a stripe has none left at all, so no item comes twice.
fn help(order: &[usize], left: &[u64], missing: &mut [u32], feeders: &mut [Feeders]) {
    let able = (0..).zip(left).filter(|&(_, &left)| left > 0);
    let mut heap: BinaryHeap<(u64, Reverse<u32>)> = able.map(|(i, &left)| (left, Reverse(i))).collect();
    for &s in order {
        while missing[s] > 0
            && let Some((spare, Reverse(item))) = heap.pop()
        {
            let part = spare.min(u64::from(missing[s])) as u32;
            missing[s] -= part;
            feeders[s].push((item, part));
            if spare > u64::from(part) {
                heap.push((spare - u64::from(part), Reverse(item)));
            }
        }
    }
}

/// The items of each class that have something to give, in the order in which they feed.
fn groups(unit: &Unit, left: &[u64], classes: u32) -> Vec<Vec<u32>> {
    let mut seated: Vec<Vec<(u32, u32)>> = vec![Vec::new(); classes as usize];
    let first = u32::from(unit.first.is_some());
    for (i, item) in (first..).zip(&unit.items) {
        if left[i as usize] > 0 {
            seated[(item.seat % classes) as usize].push((item.seat / classes, i));
        }
    }
    let order = |seated: Vec<(u32, u32)>| match unit.ranked {
        true => seated.into_iter().map(|(_, item)| item).collect(),
        false => close(&seated, seated.len()),
    };
    seated.into_iter().map(order).collect()
}

/// Puts members of seats `0..places` there, and the others where a seat is free. When one leaves, the last
/// one takes the seat and no other moves.
pub(super) fn close(seated: &[(u32, u32)], places: usize) -> Vec<u32> {
    const FREE: u32 = u32::MAX;
    let mut row = vec![FREE; places];
    let mut rest = Vec::new();
    for &(seat, item) in seated {
        match row.get_mut(seat as usize) {
            Some(place) if *place == FREE => *place = item,
            _ => rest.push(item),
        }
    }
    let mut rest = rest.into_iter();
    for place in row.iter_mut().filter(|place| **place == FREE) {
        *place = rest.next().unwrap_or(FREE);
    }
    row.retain(|&item| item != FREE);
    row
}
