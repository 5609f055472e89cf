//! A cluster out of a topology that names its hosts: Slurm's, or rules.

use std::collections::BTreeSet;

use tidecast_swarm::plan::topology::Map;

use super::units::{MAX_RATE, MIN_RATE};
use super::{Link, Node, Topology, TopologyError, room};

/// Each place becomes a switch, each host a node on it, in the order of the file. Where the text has no rate
/// for the link from a place upwards, it carries all that the nodes below can send.
pub(super) fn build(map: &Map, rate: u64) -> Result<Topology, TopologyError> {
    let hosts = map.listed();
    if hosts.is_empty() {
        return Err(TopologyError::NoHosts);
    }
    let places = map.places();
    room(hosts.len() as u64, places.len() as u64, places.len() as u64)?;
    let mut topology = Topology { switches: names(map), ..Topology::default() };
    let mut below = vec![0_u64; places.len()];
    for (_, place) in &hosts {
        topology.nodes.push(Node { switch: *place, rate });
        // Places are a tree of bounded height.
        let mut at = Some(*place);
        while let Some(place) = at {
            below[place as usize] += rate;
            at = places[place as usize].above;
        }
    }
    for (place, (own, all)) in places.iter().zip(&below).enumerate() {
        let Some(above) = own.above else { continue };
        let told = if own.rate > 0 { own.rate.saturating_mul(8) } else { *all };
        let rate = told.clamp(MIN_RATE, MAX_RATE);
        topology.links.push(Link { a: place as u32, b: above, rate, ..Link::default() });
    }
    Ok(pruned(topology))
}

/// Names of the places as switches: those of the text if they are valid, else `s` and a number.
fn names(map: &Map) -> Vec<String> {
    let mut all = vec![String::new(); map.places().len()];
    let mut taken = BTreeSet::new();
    for (name, place) in map.names() {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let name: String = name.to_ascii_lowercase().bytes().filter(|b| plain(*b)).map(char::from).collect();
        let good = name.starts_with(|c: char| c.is_ascii_lowercase()) && name.len() <= 16;
        if let Some(slot) = all.get_mut(place as usize)
            && good
            && taken.insert(name.clone())
        {
            *slot = name;
        }
    }
    for (place, slot) in all.iter_mut().enumerate().filter(|(_, slot)| slot.is_empty()) {
        let top = (place == 0).then(|| "core".to_owned());
        let numbered = ('s'..='z').map(|letter| format!("{letter}{place}"));
        let mut free = top.into_iter().chain(numbered).filter(|name| !taken.contains(name));
        *slot = free.next().unwrap_or_else(|| format!("place{place}"));
        taken.insert(slot.clone());
    }
    all
}

/// Without the place above all where it joins nothing: it has one place below it, and no node.
fn pruned(mut topology: Topology) -> Topology {
    let uses = topology.links.iter().filter(|link| link.b == 0).count();
    if uses != 1 || topology.nodes.iter().any(|node| node.switch == 0) {
        return topology;
    }
    topology.switches.remove(0);
    topology.links.retain(|link| link.b != 0);
    topology.nodes.iter_mut().for_each(|node| node.switch -= 1);
    topology.links.iter_mut().for_each(|link| (link.a, link.b) = (link.a - 1, link.b - 1));
    topology
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn built(text: &str) -> String {
        let topology = Topology::of_map(&Map::read(text).unwrap(), 10_000_000_000).unwrap();
        let text = topology.to_text();
        assert_eq!(Topology::from_text(&text).unwrap(), topology, "{text}");
        text
    }

    #[test]
    fn slurms_tree() {
        let text = built(
            "SwitchName=s0 Nodes=n[0-3]\nSwitchName=s1 Nodes=n[4-5]\nSwitchName=Root Switches=s[0-1]\n",
        );
        assert_eq!(
            text,
            "switch s0\nswitch s1\nswitch root\nnodes 4 s0 10gbit\nnodes 2 s1 10gbit\n\
             link s0 root 40gbit\nlink s1 root 20gbit\n"
        );
    }

    #[test]
    fn blocks_and_rules() {
        let text = built("BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n3\n");
        assert!(text.starts_with("switch core\nswitch b1\nswitch b2\n"), "{text}");
        let text = built("east rate=1gbit a\neast/rack1 n[1-2]\nwest w1\n");
        assert!(
            text.contains("link east core 1gbit\n") && text.contains("link eastrack1 east 20gbit\n"),
            "{text}"
        );
    }

    #[test]
    fn no_host_is_no_cluster() {
        let map = Map::read("east w-* 10.0.0.0/8").unwrap();
        assert_eq!(Topology::of_map(&map, 1_000_000_000), Err(TopologyError::NoHosts));
    }
}
