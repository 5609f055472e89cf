//! Chooses the network for the members: the fastest that reaches all of them, unless the user chooses.
//!
//! The rate is that of the drivers; if they report none, or the same for several networks, trials decide.
//!
//! Pure: addresses and reachable addresses go in, the choice comes out.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use tidecast_net::{LocalAddress, Network};

use crate::control::message::Address;
use crate::reach::Reached;

/// Maximum number of networks that are measured.
const MAX_TRIALS: usize = 4;

/// A node's addresses, and the reachable ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    pub(crate) addresses: Vec<LocalAddress>,
    pub(crate) reached: Vec<Reached>,
}

/// The network to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The description for people.
    pub(crate) name: String,
    /// The subnet; `None` if the members are on several.
    pub(crate) subnet: Option<(IpAddr, u8)>,
    /// Lowest known link speed of the members, bits per second; 0: unknown.
    pub(crate) speed: u64,
    /// The speed was measured by a trial, because drivers do not report it.
    pub(crate) tried: bool,
    /// The origin's addresses on it.
    pub(crate) origin: Vec<IpAddr>,
    /// Each node's reachable addresses on it.
    pub(crate) nodes: Vec<Vec<IpAddr>>,
}

/// Chooses the network.
///
/// # Errors
/// This host has no address on the user's network.
pub(crate) fn choose(
    own: &[LocalAddress],
    places: &[Place],
    asked: Option<&Network>,
) -> Result<Choice, String> {
    if let Some(network) = asked {
        let origin: Vec<&LocalAddress> = own.iter().filter(|a| network.holds(a)).collect();
        let Some(first) = origin.first() else {
            let have: Vec<String> = own.iter().map(shown).collect();
            return Err(format!(
                "--net: this host has no address on that network; it has {}",
                have.join(", ")
            ));
        };
        let name = match network {
            Network::Interface(name) => format!("{name}, {}", subnet(first.ip, first.prefix)),
            Network::Prefix(ip, bits) => subnet(*ip, *bits),
        };
        let prefix = match network {
            Network::Prefix(ip, bits) => Some((*ip, *bits)),
            Network::Interface(_) => None,
        };
        return Ok(on(own, places, &|a| network.holds(a), name, prefix));
    }
    match fastest(own, places) {
        Some(mine) => {
            let network = Network::Prefix(mine.ip, mine.prefix);
            let name = format!("{} ({})", subnet(mine.ip, mine.prefix), mine.interface);
            let mut choice = on(own, places, &|a| network.holds(a), name, Some((mine.ip, mine.prefix)));
            if let (0, Some(rate)) = (choice.speed, tried(own, places, &mine.interface)) {
                (choice.speed, choice.tried) = (rate, true);
            }
            Ok(choice)
        }
        None => {
            let outside = |a: &LocalAddress| !a.loopback;
            Ok(on(own, places, &outside, "several, connected by routers".into(), None))
        }
    }
}

/// The origin's address on the fastest network that all share.
fn fastest<'a>(own: &'a [LocalAddress], places: &[Place]) -> Option<&'a LocalAddress> {
    let reachable: Vec<&Place> = places.iter().filter(|p| !p.reached.is_empty()).collect();
    // A network that does not reach all nodes is not shared.
    let shared = own.iter().filter_map(|mine| {
        let network = Network::Prefix(mine.ip, mine.prefix);
        let slowest = reachable.iter().map(|p| answer(p, &network)).collect::<Option<Vec<_>>>()?;
        let slowest = slowest.into_iter().max().unwrap_or_default();
        let speed = lowest(own, places, &|a| network.holds(a));
        Some(((!mine.loopback, speed, std::cmp::Reverse(slowest)), mine))
    });
    let mut shared: Vec<_> = shared.collect();
    shared.sort_by_key(|(key, _)| std::cmp::Reverse(*key));
    let mut rest = shared.into_iter();
    let (mut best_key, mut best) = rest.next()?;
    for (key, mine) in rest {
        let open = key.0 == best_key.0 && tie(key.1, best_key.1);
        let rates = (tried(own, places, &mine.interface), tried(own, places, &best.interface));
        // A trial is short, so a small difference is not significant.
        if let (true, (Some(rate), Some(other))) = (open, rates)
            && rate > other.saturating_add(other / 4)
        {
            (best_key, best) = (key, mine);
        }
    }
    Some(best)
}

/// Whether drivers do not tell which of two speeds is higher.
fn tie(a: u64, b: u64) -> bool {
    a == b || a == 0 || b == 0
}

/// The slowest result of the trials on one of the origin's interfaces; `None` without trials.
fn tried(own: &[LocalAddress], places: &[Place], interface: &str) -> Option<u64> {
    let mine = |ip: IpAddr, place: &Place| {
        let theirs = place.addresses.iter().find(|a| a.ip == ip);
        let shared = |a: &LocalAddress| theirs.is_some_and(|t| Network::Prefix(a.ip, a.prefix).holds(t));
        own.iter().any(|a| a.interface == interface && shared(a))
    };
    let rates = places.iter().flat_map(|p| p.reached.iter().filter(|r| mine(r.ip, p)).filter_map(|r| r.rate));
    rates.min()
}

/// The addresses of a node to measure by trials, if drivers do not tell which network is the fastest: one for each of the
/// origin's interfaces. Mostly none.
pub(crate) fn ties(own: &[LocalAddress], place: &Place) -> Vec<IpAddr> {
    let mut ways: Vec<(&str, u64, IpAddr)> = Vec::new();
    for mine in own.iter().filter(|a| !a.loopback) {
        let network = Network::Prefix(mine.ip, mine.prefix);
        // Workers on this host share no link with it.
        let there = |a: &&LocalAddress| network.holds(a) && !own.iter().any(|o| o.ip == a.ip);
        let answered = |a: &&LocalAddress| place.reached.iter().any(|r| r.ip == a.ip);
        let theirs = place.addresses.iter().filter(there).find(answered);
        if let Some(theirs) = theirs.filter(|_| ways.iter().all(|(name, ..)| *name != mine.interface)) {
            ways.push((&mine.interface, mine.speed.min(theirs.speed), theirs.ip));
        }
    }
    let top = ways.iter().map(|(_, speed, _)| *speed).max().unwrap_or(0);
    ways.retain(|(_, speed, _)| tie(*speed, top));
    ways.truncate(MAX_TRIALS);
    if ways.len() > 1 { ways.into_iter().map(|(.., ip)| ip).collect() } else { Vec::new() }
}

/// The time in which a node answered on a network; `None` if it did not.
fn answer(place: &Place, network: &Network) -> Option<Duration> {
    let here = |ip: &IpAddr| place.addresses.iter().any(|a| a.ip == *ip && network.holds(a));
    place.reached.iter().filter(|r| here(&r.ip)).map(|r| r.after).min()
}

/// The choice of all addresses that satisfy `fits`.
fn on(
    own: &[LocalAddress],
    places: &[Place],
    fits: &dyn Fn(&LocalAddress) -> bool,
    name: String,
    subnet: Option<(IpAddr, u8)>,
) -> Choice {
    let answered = |place: &Place| {
        let here = place.addresses.iter().filter(|a| fits(a));
        here.map(|a| a.ip).filter(|ip| place.reached.iter().any(|r| r.ip == *ip)).collect()
    };
    Choice {
        name,
        subnet,
        speed: lowest(own, places, fits),
        tried: false,
        origin: own.iter().filter(|a| fits(a)).map(|a| a.ip).collect(),
        nodes: places.iter().map(answered).collect(),
    }
}

/// The lowest link speed of the nodes; 0 if one is unknown. Nodes on the origin's own host use no link.
fn lowest(own: &[LocalAddress], places: &[Place], fits: &dyn Fn(&LocalAddress) -> bool) -> u64 {
    let fastest = |all: &[LocalAddress]| all.iter().filter(|a| fits(a)).map(|a| a.speed).max();
    let mine: BTreeSet<IpAddr> = own.iter().filter(|a| !a.loopback).map(|a| a.ip).collect();
    // All addresses are compared, because bridges of containers have the same address on every host.
    let here = |p: &&Place| p.addresses.iter().all(|a| a.loopback || mine.contains(&a.ip));
    let elsewhere = places.iter().filter(|p| !here(p));
    let speeds: Vec<u64> = elsewhere.filter_map(|p| fastest(&p.addresses)).collect();
    if speeds.is_empty() {
        return 0;
    }
    speeds.into_iter().chain(fastest(own)).min().unwrap_or(0)
}

fn shown(address: &LocalAddress) -> String {
    format!("{} {}/{}", address.interface, address.ip, address.prefix)
}

/// A subnet, with the bits below its prefix set to zero.
fn subnet(ip: IpAddr, prefix: u8) -> String {
    let base: IpAddr = match ip {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32u32.saturating_sub(prefix.into())).unwrap_or(0);
            std::net::Ipv4Addr::from(u32::from(v4) & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128u32.saturating_sub(prefix.into())).unwrap_or(0);
            std::net::Ipv6Addr::from(u128::from(v6) & mask).into()
        }
    };
    format!("{base}/{prefix}")
}

impl From<LocalAddress> for Address {
    fn from(a: LocalAddress) -> Self {
        Self { interface: a.interface, ip: a.ip, prefix: a.prefix, speed: a.speed, loopback: a.loopback }
    }
}

impl From<Address> for LocalAddress {
    fn from(a: Address) -> Self {
        Self { interface: a.interface, ip: a.ip, prefix: a.prefix, speed: a.speed, loopback: a.loopback }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn address(interface: &str, ip: &str, speed: u64) -> LocalAddress {
        let ip: IpAddr = ip.parse().unwrap();
        let prefix = if ip.is_loopback() { 8 } else { 24 };
        LocalAddress { interface: interface.into(), ip, prefix, speed, loopback: ip.is_loopback() }
    }

    /// A node with a slow default network, a fast one, and a private one that every host has for itself.
    fn node(n: u8, reached: &[&str]) -> Place {
        let addresses = vec![
            address("eth0", &format!("10.0.0.{n}"), 1_000),
            address("ib0", &format!("10.9.0.{n}"), 100_000),
            address("docker0", "172.17.0.1", 1_000_000),
            address("lo", "127.0.0.1", 0),
        ];
        Place { addresses, reached: reached.iter().map(|ip| way(ip, 0)).collect() }
    }

    /// An address that answered; `rate`: the result of a trial, 0 without one.
    fn way(ip: &str, rate: u64) -> Reached {
        let rate = (rate > 0).then_some(rate);
        Reached { ip: ip.parse().unwrap(), after: Duration::from_millis(1), rate }
    }

    fn ips(all: &[IpAddr]) -> Vec<String> {
        all.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_fastest_that_all_share() {
        let own = node(1, &[]).addresses;
        let nodes = [node(2, &["10.0.0.2", "10.9.0.2"]), node(3, &["10.0.0.3", "10.9.0.3"])];
        let choice = choose(&own, &nodes, None).unwrap();
        assert_eq!((choice.name.as_str(), choice.speed), ("10.9.0.0/24 (ib0)", 100_000));
        assert_eq!(ips(&choice.origin), ["10.9.0.1"]);
        assert_eq!(ips(&choice.nodes[1]), ["10.9.0.3"]);
        let nodes = [node(2, &["10.0.0.2", "10.9.0.2"]), node(3, &["10.0.0.3"])];
        assert_eq!(
            choose(&own, &nodes, None).unwrap().name,
            "10.0.0.0/24 (eth0)",
            "one is not on the fast one"
        );
    }

    #[test]
    fn where_drivers_do_not_say_trials_decide() {
        let on = |n: u8, slow: u64, fast: u64, rates: (u64, u64)| {
            let ips = [format!("10.0.0.{n}"), format!("10.9.0.{n}")];
            let addresses = vec![address("eth0", &ips[0], slow), address("eth1", &ips[1], fast)];
            Place { addresses, reached: vec![way(&ips[0], rates.0), way(&ips[1], rates.1)] }
        };
        let chosen = |speeds: (u64, u64), rates: [(u64, u64); 2]| {
            let own = on(1, speeds.0, speeds.1, (0, 0)).addresses;
            let nodes = [on(2, speeds.0, speeds.1, rates[0]), on(3, speeds.0, speeds.1, rates[1])];
            let name = choose(&own, &nodes, None).unwrap().name;
            (name.split_once('(').unwrap().1.trim_end_matches(')').to_owned(), ties(&own, &nodes[0]).len())
        };
        let none = [(0, 0); 2];
        assert_eq!(chosen((10, 100), none), ("eth1".into(), 0), "drivers say it");
        assert_eq!(chosen((10, 10), none).1, 2);
        assert_eq!(chosen((10, 0), none).1, 2);
        for speeds in [(10, 10), (0, 0), (10, 0), (0, 10)] {
            assert_eq!(chosen(speeds, [(50, 900), (0, 0)]).0, "eth1", "{speeds:?}");
            assert_eq!(chosen(speeds, [(900, 50), (0, 0)]).0, "eth0", "{speeds:?}");
            assert_eq!(chosen(speeds, [(900, 900), (900, 50)]).0, "eth0", "the slowest way counts");
        }
        let first = chosen((10, 10), none).0;
        assert_eq!(chosen((10, 10), [(100, 110), (0, 0)]).0, first, "as fast as each other");
        assert_eq!(chosen((10, 100), [(900, 50), (0, 0)]).0, "eth1", "what drivers say of both holds");
    }

    #[test]
    fn one_interface_with_two_addresses_is_one_way() {
        let own = vec![address("eth0", "10.0.0.1", 0), address("eth0", "fd00::1", 0)];
        let addresses = vec![address("eth0", "10.0.0.2", 0), address("eth0", "fd00::2", 0)];
        let there = Place { addresses, reached: vec![way("10.0.0.2", 0), way("fd00::2", 0)] };
        assert!(ties(&own, &there).is_empty());
        let here = node(1, &["10.0.0.1", "10.9.0.1"]);
        assert!(ties(&here.addresses, &here).is_empty(), "a worker on this host");
    }

    #[test]
    fn who_cannot_be_reached_at_all_has_no_say() {
        let own = node(1, &[]).addresses;
        let choice = choose(&own, &[node(2, &["10.9.0.2"]), node(3, &[])], None).unwrap();
        assert_eq!(choice.name, "10.9.0.0/24 (ib0)");
        assert!(choice.nodes[1].is_empty());
    }

    #[test]
    fn the_user_decides() {
        let own = node(1, &[]).addresses;
        let nodes = [node(2, &["10.0.0.2", "10.9.0.2"])];
        let by = |net: &str| choose(&own, &nodes, Some(&net.parse().unwrap()));
        assert_eq!(ips(&by("10.0.0.0/8").unwrap().nodes[0]), ["10.0.0.2", "10.9.0.2"]);
        assert_eq!(ips(&by("eth0").unwrap().nodes[0]), ["10.0.0.2"]);
        assert!(by("eth7").unwrap_err().contains("eth0 10.0.0.1/24"));
    }

    #[test]
    fn racks_with_subnets_of_their_own_are_routed() {
        let own = vec![address("eth0", "10.0.0.1", 10), address("lo", "127.0.0.1", 0)];
        let far = Place {
            addresses: vec![address("eth0", "10.0.7.1", 10), address("lo", "127.0.0.1", 0)],
            reached: vec![way("10.0.7.1", 0)],
        };
        let choice = choose(&own, &[far], None).unwrap();
        assert_eq!((ips(&choice.nodes[0]), choice.subnet), (vec!["10.0.7.1".to_owned()], None));
    }

    #[test]
    fn workers_on_this_host_share_no_link() {
        let own = node(1, &[]).addresses;
        let here = node(1, &["10.0.0.1", "10.9.0.1", "127.0.0.1"]);
        let choice = choose(&own, &[here], None).unwrap();
        assert_eq!(choice.speed, 0);
        let alone = [address("lo", "127.0.0.1", 0)];
        let here = Place { addresses: alone.to_vec(), reached: vec![way("127.0.0.1", 0)] };
        assert_eq!(choose(&alone, &[here], None).unwrap().name, "127.0.0.0/8 (lo)");
    }

    #[test]
    fn subnets_are_written_as_such() {
        assert_eq!(subnet("10.1.2.3".parse().unwrap(), 16), "10.1.0.0/16");
        assert_eq!(subnet("10.1.2.3".parse().unwrap(), 0), "0.0.0.0/0");
        assert_eq!(subnet("fd00::7".parse().unwrap(), 64), "fd00::/64");
    }
}
