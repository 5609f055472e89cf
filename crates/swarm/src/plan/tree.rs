//! The tree of one stripe over the items of one unit.

use super::share::{Shares, close};
use super::units::Unit;

/// The members to feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Child {
    /// An item of the unit, by index.
    Item(u32),
    /// An item outside: the number of the place that the unit keeps for others.
    Outside(u32),
}

/// The tree of stripe `s`: its root, and feeder and child for each edge, from the root downwards.
///
/// Feeders stand in a row, the root first. Each takes its number of children from the row, in this order:
/// items outside as early as can be (whole units depend on them), then the next feeders of the row, then
/// members that feed none. So the tree is as deep as a heap of that degree. Feeders that accept no
/// connections are at the end of the row, and among the members that feed none they come first: so they are
/// seldom given to each other.
pub(super) fn tree(unit: &Unit, shares: &Shares, s: usize, outside: u32) -> (u32, Vec<(u32, Child)>) {
    let calls: Vec<bool> = unit.all().map(|item| item.calls).collect();
    let mut feeders = shares.feeders[s].clone();
    feeders.sort_by_key(|&(item, _)| calls[item as usize]);
    let root = feeders.first().map_or(0, |&(item, _)| item);
    let mut edges = Vec::with_capacity(unit.len() - 1 + outside as usize);
    let mut others = others(unit, shares, s);
    if unit.seats < 2 * shares.classes {
        shift(&mut others, shares.class[s]);
    }
    others.sort_by_key(|&item| !calls[item as usize]);
    let mut others = others.into_iter();
    let mut given = 0;
    let mut attached = 1;
    // Children that the attached ones may still take: while feeders wait, one must remain for them.
    let mut open = feeders.first().map_or(0, |f| f.1);
    for &(feeder, children) in &feeders {
        for _ in 0..children {
            open -= 1;
            let child = if given < outside && (open > 0 || attached == feeders.len()) {
                given += 1;
                Child::Outside(given - 1)
            } else if let Some(&(next, more)) = feeders.get(attached) {
                attached += 1;
                open += more;
                Child::Item(next)
            } else if let Some(other) = others.next() {
                Child::Item(other)
            } else {
                return (root, edges);
            };
            edges.push((feeder, child));
        }
    }
    (root, edges)
}

/// An item that helps in several stripes feeds the end of the row. To avoid that it is the same child in all
/// of them, over one connection that gets no more of a link than any other, the end of the row is another in
/// each class. Among many it matters more that few edges change when one leaves.
fn shift(others: &mut [u32], class: u32) {
    let count = others.len();
    if count > 0 {
        others.swap(count - 1, class as usize % count);
    }
}

/// Members that feed none in stripe `s`, each at its seat among those that never do while all members are
/// healthy.
fn others(unit: &Unit, shares: &Shares, s: usize) -> Vec<u32> {
    let feeders = &shares.feeders[s];
    let mut feeds = vec![false; unit.len()];
    for &(item, _) in feeders {
        feeds[item as usize] = true;
    }
    if feeders.is_empty() {
        feeds[0] = true; // a unit of one
    }
    let first = u32::from(unit.first.is_some());
    let (class, classes) = (shares.class[s], shares.classes);
    let mut seated = Vec::with_capacity(unit.len());
    let mut unseated = Vec::new();
    for (i, item) in (first..).zip(&unit.items) {
        if feeds[i as usize] {
            continue;
        }
        if item.seat % classes == class {
            unseated.push((u32::MAX, i));
        } else {
            // Seats below this one, less those of the class.
            seated.push((item.seat - (item.seat + classes - 1 - class) / classes, i));
        }
    }
    if first == 1 && !feeds[0] {
        unseated.push((u32::MAX, 0));
    }
    seated.append(&mut unseated);
    close(&seated, seated.len())
}
