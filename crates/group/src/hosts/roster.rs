//! Determines which entries of a host list are the same host, and on which of them a worker runs.
//!
//! Only addresses count. `node1.a.example` and `node1.b.example` share only their first label, cloned images share
//! whole names, and `/etc/hosts` may give one machine five names. So an entry is identified by its addresses: it is
//! this machine if all of them are this machine's, and the same host as another entry if both have the same addresses.
//! An entry whose name was not resolved is identified by the whole text that its launcher gets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use super::Host;

/// A host's address in canonical form: IPv4 is never mapped to IPv6, and a link-local address has its scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    ip: IpAddr,
    scope: u32,
}

impl From<SocketAddr> for Address {
    fn from(at: SocketAddr) -> Self {
        let scope = match at {
            SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => v6.scope_id(),
            _ => 0,
        };
        Self { ip: at.ip().to_canonical(), scope }
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        Self { ip: ip.to_canonical(), scope: 0 }
    }
}

impl Address {
    /// Whether it is a loopback address, which no other host has.
    fn loops_back(&self) -> bool {
        self.ip.is_loopback() || self.ip.is_unspecified()
    }
}

/// The addresses of one host.
pub type Addresses = BTreeSet<Address>;

/// The identity of an entry of a host list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// This machine: all of the entry's addresses are local.
    Here,
    /// The host with these addresses.
    At(Addresses),
    /// A host whose name was not resolved.
    Named(String),
}

impl Identity {
    /// The identity of an entry. `found`: the addresses of its name, `own`: this machine's addresses.
    #[must_use]
    pub fn of(host: &Host, found: &Addresses, own: &Addresses) -> Self {
        if found.is_empty() {
            return Self::Named(undotted(host.login().1).to_ascii_lowercase());
        }
        match found.iter().all(|at| at.loops_back() || own.contains(at)) {
            true => Self::Here,
            false => Self::At(found.clone()),
        }
    }
}

/// The entries of each host, in the order of first occurrence. Two users of one host are two receivers, and two ports
/// of one address may be two containers.
#[must_use]
pub fn hosts(entries: &[(Host, Identity)]) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = Vec::new();
    let mut known = BTreeMap::new();
    for (at, (host, identity)) in entries.iter().enumerate() {
        let group = *known.entry((host.login().0, host.port, identity)).or_insert(all.len());
        match all.get_mut(group) {
            Some(group) => group.push(at),
            None => all.push(vec![at]),
        }
    }
    all
}

/// A worker that a scheduler started, which does not know the list's name of its host.
#[derive(Clone, Debug)]
pub struct Told<'a> {
    /// The scheduler's name of the host, if it passes it to its tasks.
    pub scheduled: Option<&'a str>,
    /// The host's own name.
    pub hostname: &'a str,
    /// The host's addresses.
    pub addresses: Addresses,
    /// It runs on this machine.
    pub here: bool,
}

/// The entry of a worker: the one with the scheduler's name; else one with an address of the worker's host; else, of the
/// entries without known addresses, the one with exactly the host's own name. `free`: whether an entry has no worker yet.
#[must_use]
pub fn find(entries: &[(Host, Identity)], told: &Told<'_>, free: impl Fn(usize) -> bool) -> Option<usize> {
    let at = |fits: &dyn Fn(&Host, &Identity) -> bool| {
        let fit =
            |(place, (host, identity)): (usize, &(Host, Identity))| fits(host, identity).then_some(place);
        entries.iter().enumerate().filter_map(fit).collect::<Vec<_>>()
    };
    let named = |host: &Host, name: &str| undotted(&host.name).eq_ignore_ascii_case(undotted(name));
    if let Some(name) = told.scheduled
        && let [one] = at(&|host, _| named(host, name))[..]
    {
        return Some(one);
    }
    let proven = at(&|_, identity| match identity {
        Identity::Here => told.here,
        Identity::At(addresses) => addresses.iter().any(|a| !a.loops_back() && told.addresses.contains(a)),
        Identity::Named(_) => false,
    });
    if !proven.is_empty() {
        let own = |place: &&usize| entries.get(**place).is_some_and(|(host, _)| named(host, told.hostname));
        let open = || proven.iter().filter(|place| free(**place));
        return open().find(own).or_else(|| open().next()).or(proven.first()).copied();
    }
    let unknown = at(&|host, identity| matches!(identity, Identity::Named(_)) && named(host, told.hostname));
    unknown.first().copied()
}

/// A name without the dot at its end; names are equal in the DNS with or without it, and regardless of case.
fn undotted(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::hosts::parse;
    use proptest::prelude::*;

    fn addresses(list: &str) -> Addresses {
        list.split_whitespace().map(|ip| Address::from(ip.parse::<IpAddr>().unwrap())).collect()
    }

    /// Entries `name address address`, on a machine that has 10.0.0.1 and fd00::1.
    fn entries(lines: &[&str]) -> Vec<(Host, Identity)> {
        let own = addresses("10.0.0.1 fd00::1 172.17.0.1");
        let entry = |line: &&str| {
            let (name, found) = line.split_once(' ').unwrap_or((line, ""));
            let host = parse(name).unwrap().remove(0);
            let identity = Identity::of(&host, &addresses(found), &own);
            (host, identity)
        };
        lines.iter().map(entry).collect()
    }

    #[test]
    fn addresses_decide_and_short_names_never() {
        let all = entries(&[
            "node1.a.example 10.0.0.5",
            "node1.b.example 10.0.0.6",
            "node1",
            "alias 10.0.0.6",
            "both 10.0.0.5 10.0.0.6",
            "NODE1.",
            "node1.c.example",
        ]);
        assert_eq!(hosts(&all), [vec![0], vec![1, 3], vec![2, 5], vec![4], vec![6]]);
    }

    #[test]
    fn one_address_has_many_forms() {
        let all = entries(&[
            "a ::ffff:10.0.0.9",
            "b 10.0.0.9",
            "c 0:0:0:0:0:0:0:1",
            "d ::1",
            "e 127.0.1.1",
            "f 10.0.0.1 fd00::1",
            "g 0.0.0.0",
            "h 10.0.0.1 10.0.0.9",
        ]);
        assert_eq!(
            hosts(&all),
            [vec![0, 1], vec![2, 3, 4, 5, 6], vec![7]],
            "one address elsewhere is elsewhere"
        );
    }

    #[test]
    fn a_link_local_address_belongs_to_a_link() {
        let at = |text: &str| Address::from(text.parse::<SocketAddr>().unwrap());
        assert_ne!(at("[fe80::1%2]:0"), at("[fe80::1%3]:0"));
        assert_eq!(at("[fd00::1%2]:0"), at("[fd00::1%3]:0"));
    }

    #[test]
    fn two_users_of_a_host_are_two() {
        let all = entries(&["a=me@h 10.0.0.9", "b=you@h 10.0.0.9", "c=me@i 10.0.0.9", "d 10.0.0.9"]);
        assert_eq!(hosts(&all), [vec![0, 2], vec![1], vec![3]]);
    }

    fn place(
        all: &[(Host, Identity)],
        scheduled: Option<&str>,
        hostname: &str,
        at: &str,
        here: bool,
    ) -> Option<usize> {
        find(all, &Told { scheduled, hostname, addresses: addresses(at), here }, |_| true)
    }

    #[test]
    fn a_worker_finds_its_entry() {
        let all = entries(&["n1 10.0.0.5", "n2.site 10.0.0.6", "head 127.0.1.1", "far", "far.site"]);
        assert_eq!(place(&all, None, "n1.site", "10.0.0.5 172.17.0.1", false), Some(0));
        assert_eq!(
            place(&all, None, "n1", "10.0.0.6", false),
            Some(1),
            "a cloned image has its original's name"
        );
        assert_eq!(place(&all, None, "n1", "10.9.9.9", false), None, "another host of that name");
        assert_eq!(place(&all, None, "localhost", "127.0.0.1 10.0.0.1", true), Some(2));
        assert_eq!(
            place(&all, None, "x", "127.0.0.1 127.0.1.1 172.17.0.1", false),
            None,
            "everyone has those"
        );
        assert_eq!(place(&all, Some("N2.site"), "x", "", false), Some(1));
        assert_eq!(place(&all, None, "FAR.site.", "10.9.9.9", false), Some(4));
        assert_eq!(place(&all, None, "far.other", "10.9.9.9", false), None);
    }

    #[test]
    fn several_entries_of_one_machine_are_served_one_after_the_other() {
        let all = entries(&["a 10.0.0.5", "b 10.0.0.6", "c 10.0.0.6 10.0.0.5"]);
        let told =
            Told { scheduled: None, hostname: "b", addresses: addresses("10.0.0.5 10.0.0.6"), here: false };
        assert_eq!(find(&all, &told, |_| true), Some(1));
        assert_eq!(find(&all, &told, |place| place != 1), Some(0));
        assert_eq!(find(&all, &told, |_| false), Some(0), "that one has a worker");
    }

    proptest! {
        #[test]
        fn entries_are_together_when_their_addresses_are(sets in prop::collection::vec(prop::collection::btree_set(0u8..5, 0..3), 1..20)) {
            let line = |(at, set): (usize, &BTreeSet<u8>)| {
                let list: Vec<_> = set.iter().map(|n| format!("10.0.0.{n}")).collect();
                format!("h{at} {}", list.join(" "))
            };
            let lines: Vec<String> = sets.iter().enumerate().map(line).collect();
            let all = entries(&lines.iter().map(String::as_str).collect::<Vec<_>>());
            let groups = hosts(&all);
            let group = |at: usize| groups.iter().position(|g| g.contains(&at));
            for (a, one) in sets.iter().enumerate() {
                for (b, other) in sets.iter().enumerate() {
                    prop_assert_eq!(group(a) == group(b), a == b || (!one.is_empty() && one == other));
                }
            }
        }
    }
}
