//! Networks with more than one way between two nodes: leaf and spine, fat tree, dragonfly.

use super::short::Form;
use super::{Link, Topology, TopologyError, room, units};

/// `leafspine:LEAVES,SPINES,NODES`: every leaf, with this many nodes, is linked to every spine. Uplinks
/// together have the rate of a leaf's nodes, divided by `oversubscribe`.
pub(super) fn leafspine(form: &mut Form) -> Result<Topology, TopologyError> {
    let [leaves, spines, nodes] = form.counts[..] else {
        return Err(form.wrong("wanted leafspine:LEAVES,SPINES,NODES@RATE with NODES a leaf"));
    };
    let [l, s, n] = [leaves, spines, nodes].map(u64::from);
    room(l * n, l + s, l * s)?;
    let rate = uplink(form, n, s)?;
    let mut topology = Topology::default();
    for leaf in 0..leaves {
        let switch = topology.add_switch(format!("l{leaf}"));
        topology.add_nodes(nodes, switch, form.rate)?;
    }
    for spine in 0..spines {
        let b = topology.add_switch(format!("s{spine}"));
        topology.links.extend((0..leaves).map(|a| link(a, b, rate)));
    }
    Ok(topology)
}

/// `fattree:K`: the k-ary fat tree of Al-Fares, Loukissas and Vahdat (SIGCOMM 2008). K pods of K/2 edge
/// and K/2 aggregation switches, (K/2)^2 core switches, K/2 nodes an edge switch. `oversubscribe`
/// divides the rate of the links between edge and aggregation.
pub(super) fn fattree(form: &mut Form) -> Result<Topology, TopologyError> {
    let wanted = "wanted fattree:K@RATE with an even K from 2 to 92";
    let [pods @ 2..=92] = form.counts[..] else { return Err(form.wrong(wanted)) };
    if pods % 2 == 1 {
        return Err(form.wrong(wanted));
    }
    let half = pods / 2;
    let rate = uplink(form, 1, 1)?;
    let mut topology = Topology::default();
    for pod in 0..pods {
        for edge in 0..half {
            let switch = topology.add_switch(format!("p{pod}e{edge}"));
            topology.add_nodes(half, switch, form.rate)?;
        }
        for aggregation in 0..half {
            topology.add_switch(format!("p{pod}a{aggregation}"));
        }
    }
    let edge = |pod: u32, i: u32| pod * pods + i;
    let aggregation = |pod: u32, i: u32| pod * pods + half + i;
    for (pod, a, e) in product(pods, half, half) {
        topology.links.push(link(edge(pod, e), aggregation(pod, a), rate));
    }
    for (group, i, pod) in product(half, half, pods) {
        if pod == 0 {
            topology.add_switch(format!("c{}", group * half + i));
        }
        let core = topology.switches.len() as u32 - 1;
        topology.links.push(link(aggregation(pod, group), core, form.rate));
    }
    Ok(topology)
}

/// `dragonfly:A,H,P`: Kim, Dally, Scott and Abts (ISCA 2008). Groups of A routers, each linked to the
/// others of its group; P nodes and H global links a router; A*H+1 groups, one link between each two.
pub(super) fn dragonfly(form: &mut Form) -> Result<Topology, TopologyError> {
    let [routers, global, nodes] = form.counts[..] else {
        return Err(
            form.wrong("wanted dragonfly:A,H,P@RATE: A routers a group, H global links and P nodes a router")
        );
    };
    let [a, h, p] = [routers, global, nodes].map(u64::from);
    let groups = a * h + 1;
    room(1, groups * a, 0)?; // so that no product below overflows
    room(groups * a * p, groups * a, groups * (a * (a - 1) / 2 + a * h / 2))?;
    let groups = groups as u32;
    let global_rate = form.take_rate("global", form.rate)?;
    let local_rate = form.take_rate("local", form.rate)?;
    let delay = form.take("delay").map_or(Ok(0), units::delay)?;
    let mut topology = Topology::default();
    for (group, router) in (0..groups).flat_map(|g| (0..routers).map(move |r| (g, r))) {
        let switch = topology.add_switch(format!("g{group}r{router}"));
        topology.add_nodes(nodes, switch, form.rate)?;
    }
    for group in 0..groups {
        let first = group * routers;
        let pairs = (0..routers).flat_map(|i| (i + 1..routers).map(move |j| (i, j)));
        topology.links.extend(pairs.map(|(i, j)| link(first + i, first + j, local_rate)));
    }
    // The k-th global port of a group leads k + 1 groups further on, around the ring of groups.
    let router = |from: u32, to: u32| from * routers + ((to + groups - from) % groups - 1) / global;
    for (i, j) in (0..groups).flat_map(|i| (i + 1..groups).map(move |j| (i, j))) {
        topology.links.push(Link { delay, ..link(router(i, j), router(j, i), global_rate) });
    }
    Ok(topology)
}

/// The rate of each of `links` uplinks that share the traffic of `nodes` nodes.
fn uplink(form: &mut Form, nodes: u64, links: u64) -> Result<u64, TopologyError> {
    let ratio = form.take("oversubscribe").map_or(Ok(1_000_000), units::ratio)?;
    let rate =
        u128::from(form.rate) * u128::from(nodes) * 1_000_000 / (u128::from(links) * u128::from(ratio));
    let in_bounds = u64::try_from(rate).ok().filter(|r| (units::MIN_RATE..=units::MAX_RATE).contains(r));
    in_bounds.ok_or_else(|| form.wrong("uplinks out of bounds (8kbit to 1000gbit)"))
}

fn link(a: u32, b: u32, rate: u64) -> Link {
    Link { a, b, rate, ..Link::default() }
}

/// Every triple below the three counts, the last counting fastest.
fn product(a: u32, b: u32, c: u32) -> impl Iterator<Item = (u32, u32, u32)> {
    (0..a).flat_map(move |i| (0..b).flat_map(move |j| (0..c).map(move |k| (i, j, k))))
}
