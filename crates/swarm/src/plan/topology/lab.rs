//! The file of the lab: `switch`, `nodes` and `link` lines, as specified in `lab/README.md`.

use std::collections::{BTreeMap, VecDeque};

use super::super::epoch::{MAX_MEMBERS, Place};
use super::error::{TopologyError, Wrong};
use super::line::{lines, number_of, rate};
use super::map::Map;

/// Most links.
const MAX_LINKS: usize = 500_000;

pub(super) fn read(text: &str) -> Result<Map, TopologyError> {
    let mut map = Map::empty(text)?;
    let mut links: BTreeMap<u32, Vec<(u32, u64)>> = BTreeMap::new();
    let mut count = 0;
    for (line, words) in lines(text) {
        count += usize::from(words[0] == "link");
        let read = if count > MAX_LINKS { Err(Wrong::Many) } else { read_line(&mut map, &mut links, &words) };
        read.map_err(|why| TopologyError::Line { line, why })?;
    }
    hang(&mut map, &links);
    map.checked()
}

fn read_line(map: &mut Map, links: &mut BTreeMap<u32, Vec<(u32, u64)>>, words: &[&str]) -> Result<(), Wrong> {
    match *words {
        ["switch", name] => map.add_place(name, Place { above: Some(0), rate: 0 }).map(drop),
        ["nodes", count, at, own] => {
            rate(own)?;
            let place = map.named(at).ok_or(Wrong::Unknown)?;
            let count = number_of(count).filter(|&n| n <= MAX_MEMBERS as u64).ok_or(Wrong::Many)?;
            for _ in 0..count {
                map.add_host(format!("n{:03}", map.hosts()), place)?;
            }
            Ok(())
        }
        ["link", a, b, speed, ref options @ ..] => {
            let (a, b, speed) = (map.named(a), map.named(b), rate(speed)?);
            let (Some(a), Some(b)) = (a, b) else { return Err(Wrong::Unknown) };
            if a == b || options.iter().any(|o| *o != "nat" && !o.contains('=')) {
                return Err(Wrong::Form);
            }
            links.entry(a).or_default().push((b, speed));
            links.entry(b).or_default().push((a, speed));
            Ok(())
        }
        _ => Err(Wrong::Form),
    }
}

/// Hangs every switch on the one through which the first of its part is nearest.
fn hang(map: &mut Map, links: &BTreeMap<u32, Vec<(u32, u64)>>) {
    let mut seen = vec![false; map.places().len()];
    let mut ring = vec![false; map.places().len()];
    let mut queue = VecDeque::new();
    for first in 1..map.places().len() {
        if !std::mem::replace(&mut seen[first], true) {
            queue.push_back(first as u32);
        }
        while let Some(at) = queue.pop_front() {
            for &(next, speed) in links.get(&at).into_iter().flatten() {
                if !std::mem::replace(&mut seen[next as usize], true) {
                    map.hang(next, at);
                    map.set_rate(next, speed);
                    queue.push_back(next);
                } else if map.places()[at as usize].above != Some(next) {
                    // There is another path: the rate of one link means little.
                    ring[at as usize] = true;
                    ring[next as usize] |= map.places()[next as usize].above != Some(at);
                }
            }
        }
    }
    for (place, _) in (0..).zip(ring).filter(|(_, ring)| *ring) {
        map.set_rate(place, 0);
    }
}
