//! What is wrong with hosts and paths, and what it costs. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidecast_event::peers::{Fault, Host, Path};
use tidecast_text::{Rate, Span};

use crate::model::{mathis_rate, share_lost};

/// A path that loses less than this share of its datagrams, or fewer datagrams, has no fault: 400 datagrams show no less.
const LOSS: f64 = 0.005;
const LOST: u32 = 2;
/// A host whose rate is below this share of the median of all hosts is slow.
const SLOW: f64 = 0.6;
/// With fewer hosts no host is slow: the median says nothing.
const FEWEST: usize = 3;
/// Clocks that differ by more than this, and their error, seconds: certificates and logs of several hosts get out of order.
const CLOCK: f64 = 0.5;
/// The MTU for the model of losses if none was measured, bytes.
const MTU: u32 = 1500;
/// Hosts that are named in a message.
const NAMED: usize = 4;

/// All faults; those that cost most first, those without a model after them.
#[must_use]
pub(crate) fn judge(hosts: &[Host], paths: &[Path], own_version: &str) -> Vec<Fault> {
    let groups: Groups<'_> =
        hosts.iter().filter_map(|host| Some((host.name.as_str(), host.group?))).collect();
    let mut faults = connections(&groups, paths);
    faults.extend(holes(&groups, paths));
    faults.extend(udp(&groups, paths));
    faults.extend(losses(hosts, &groups, paths));
    faults.extend(slow(hosts));
    faults.extend(hosts.iter().filter_map(clock));
    faults.extend(versions(hosts, own_version));
    let key = |fault: &Fault| fault.cost.unwrap_or(-1.0);
    faults.sort_by(|a, b| key(b).total_cmp(&key(a)));
    faults
}

/// A rate of a host.
type RateOf = fn(&Host) -> Option<u64>;

/// The group of each host.
type Groups<'a> = BTreeMap<&'a str, usize>;

/// The paths that share a fault.
enum Scope<'a> {
    /// All measured paths to this host.
    To(&'a str, Vec<&'a Path>),
    /// All measured paths from this host.
    From(&'a str, Vec<&'a Path>),
    /// All measured paths from one group to another.
    Between((usize, usize), Vec<&'a Path>),
    /// This path.
    One(&'a Path),
}

impl<'a> Scope<'a> {
    fn first(&self) -> Option<&'a Path> {
        match self {
            Self::To(_, paths) | Self::From(_, paths) | Self::Between(_, paths) => paths.first().copied(),
            Self::One(path) => Some(path),
        }
    }

    fn hosts(&self) -> Vec<String> {
        match self {
            Self::To(host, _) | Self::From(host, _) => vec![(*host).to_owned()],
            Self::One(path) => vec![path.from.clone(), path.to.clone()],
            Self::Between(_, paths) => {
                let all: BTreeSet<&String> = paths.iter().flat_map(|path| [&path.from, &path.to]).collect();
                all.into_iter().cloned().collect()
            }
        }
    }

    /// `path a to b`, `all 3 paths to b`.
    fn text(&self) -> String {
        match self {
            Self::To(host, paths) => format!("all {} measured paths to {host}", paths.len()),
            Self::From(host, paths) => format!("all {} measured paths from {host}", paths.len()),
            Self::Between((from, to), paths) => {
                format!("all {} measured paths from group {} to group {}", paths.len(), from + 1, to + 1)
            }
            Self::One(path) => format!("path {} to {}", path.from, path.to),
        }
    }

    fn worst(&self, of: impl Fn(&Path) -> f64) -> f64 {
        match self {
            Self::To(_, paths) | Self::From(_, paths) | Self::Between(_, paths) => {
                paths.iter().map(|p| of(p)).fold(0.0, f64::max)
            }
            Self::One(path) => of(path),
        }
    }
}

/// Joins paths that share a fault: if all measured paths from one group to another (two at least) have it, it is the link's;
/// if all to or from a host, the host's.
fn scopes<'a>(groups: &Groups<'_>, all: &'a [Path], bad: impl Fn(&Path) -> bool) -> Vec<Scope<'a>> {
    let mut left: Vec<&Path> = all.iter().filter(|path| bad(path)).collect();
    let mut scopes = Vec::new();
    let of = |path: &Path| Some((*groups.get(path.from.as_str())?, *groups.get(path.to.as_str())?));
    let crossed: BTreeSet<(usize, usize)> =
        left.iter().filter_map(|p| of(p)).filter(|(a, b)| a != b).collect();
    for link in crossed {
        let measured = || all.iter().filter(|path| of(path) == Some(link));
        // With one host at an end the fault may be the host's.
        let ends = |end: fn(&Path) -> &String| measured().map(end).collect::<BTreeSet<_>>().len();
        if measured().all(&bad) && ends(|p| &p.from) > 1 && ends(|p| &p.to) > 1 {
            let (its, others) = left.into_iter().partition(|path| of(path) == Some(link));
            left = others;
            scopes.push(Scope::Between(link, its));
        }
    }
    loop {
        let mut ends: BTreeMap<(bool, &str), usize> = BTreeMap::new();
        for path in &left {
            *ends.entry((true, &path.to)).or_default() += 1;
            *ends.entry((false, &path.from)).or_default() += 1;
        }
        let measured = |(to, host): (bool, &str)| {
            all.iter().filter(|path| if to { path.to == host } else { path.from == host }).count()
        };
        let whole = ends.into_iter().filter(|(end, count)| *count >= 2 && *count == measured(*end));
        // The host with the most such paths has the fault; its partners have only one each.
        let Some(((to, host), _)) = whole.max_by_key(|(_, count)| *count) else { break };
        let (its, others): (Vec<&Path>, Vec<&Path>) =
            left.into_iter().partition(|path| if to { path.to == host } else { path.from == host });
        left = others;
        scopes.push(if to { Scope::To(host, its) } else { Scope::From(host, its) });
    }
    scopes.extend(left.into_iter().map(Scope::One));
    scopes
}

fn connections(groups: &Groups<'_>, paths: &[Path]) -> Vec<Fault> {
    let back = |path: &Path| paths.iter().find(|p| p.from == path.to && p.to == path.from);
    let both = |path: &Path| !path.connects && back(path).is_some_and(|back| !back.connects);
    let one = scopes(groups, paths, |path| !path.connects && !both(path));
    let fault = |scope: &Scope<'_>| {
        let message = one_way(scope, scope.first()?.reason.as_deref().unwrap_or_default());
        Some(Fault { check: "one-way", hosts: scope.hosts(), message, cost: None })
    };
    let mut faults: Vec<Fault> = one.iter().filter_map(fault).collect();
    let unreachable = |scope: &Scope<'_>| {
        let reason = scope.first()?.reason.clone().unwrap_or_default();
        // Both directions fail; each is reported by one of them.
        let what = match scope {
            Scope::One(Path { from, to, .. }) if from < to => {
                format!("{from} and {to} cannot connect to each other")
            }
            Scope::To(host, _) => format!("{host} and the other hosts cannot connect to each other"),
            Scope::Between((from, to), _) if from < to => {
                format!("groups {} and {} cannot connect to each other", from + 1, to + 1)
            }
            _ => return None,
        };
        let message = format!("{what} ({reason}): check routes and firewalls");
        Some(Fault { check: "unreachable", hosts: scope.hosts(), message, cost: Some(1.0) })
    };
    faults.extend(scopes(groups, paths, both).iter().filter_map(unreachable));
    faults
}

fn one_way(scope: &Scope<'_>, reason: &str) -> String {
    match scope {
        Scope::One(Path { from, to, .. }) => format!(
            "{from} cannot connect to {to} ({reason}); {to} connects to {from}: check the firewall of {to}, and \
             routers between them"
        ),
        Scope::To(host, its) => {
            let from = named(its.iter().map(|path| path.from.as_str()));
            format!(
                "no host connects to {host} ({from}: {reason}); {host} connects to them: check its firewall"
            )
        }
        Scope::From(host, its) => {
            let to = named(its.iter().map(|path| path.to.as_str()));
            format!(
                "{host} connects to no host ({to}: {reason}); they connect to it: check its outgoing firewall rules"
            )
        }
        Scope::Between((from, to), _) => format!(
            "no host of group {} connects to group {} ({reason}); the other direction works: check routers and \
             firewalls between them",
            from + 1,
            to + 1
        ),
    }
}

fn holes(groups: &Groups<'_>, paths: &[Path]) -> Vec<Fault> {
    let fault = |scope: Scope<'_>| {
        let first = scope.first()?;
        let (mtu, link) = (first.mtu?, first.interface_mtu?);
        let message = format!(
            "{}: packets over {mtu} bytes vanish without a report (the interface of {} sends up to {link}): connections \
             hang when they carry data; set the same MTU on all interfaces and switch ports, or {mtu} on this host",
            scope.text(),
            first.from,
        );
        Some(Fault { check: "mtu-black-hole", hosts: scope.hosts(), message, cost: Some(1.0) })
    };
    scopes(groups, paths, |path| path.black_hole).into_iter().filter_map(fault).collect()
}

fn udp(groups: &Groups<'_>, paths: &[Path]) -> Vec<Fault> {
    let blocked = |path: &Path| path.connects && path.datagrams > 0 && path.arrived == 0;
    let fault = |scope: Scope<'_>| {
        let message = format!(
            "{}: no UDP datagram arrives, TCP connects: `tidecast field` cannot use it; check firewalls",
            scope.text()
        );
        Fault { check: "udp-blocked", hosts: scope.hosts(), message, cost: None }
    };
    scopes(groups, paths, blocked).into_iter().map(fault).collect()
}

/// The share of datagrams that a path loses.
fn lost(path: &Path) -> f64 {
    match path.datagrams {
        0 => 0.0,
        sent => f64::from(sent.saturating_sub(path.arrived)) / f64::from(sent),
    }
}

fn losses(hosts: &[Host], groups: &Groups<'_>, paths: &[Path]) -> Vec<Fault> {
    let lossy = |path: &Path| {
        path.arrived > 0 && lost(path) >= LOSS && path.datagrams.saturating_sub(path.arrived) >= LOST
    };
    let rate = |name: &str, of: fn(&Host) -> Option<u64>| hosts.iter().find(|h| h.name == name).and_then(of);
    let limit = |path: &Path| {
        let rtt = Duration::try_from_secs_f64(path.rtt_median_seconds?).ok().filter(|rtt| !rtt.is_zero())?;
        Some(mathis_rate(path.mtu.unwrap_or(MTU), rtt, lost(path)))
    };
    let cost = |path: &Path| {
        let able = rate(&path.from, |h| h.send_rate)?.min(rate(&path.to, |h| h.receive_rate)?);
        Some(share_lost(limit(path)?, able as f64))
    };
    let fault = |scope: Scope<'_>| {
        let worst = scope.worst(lost);
        let first = scope.first();
        let bound = first
            .and_then(limit)
            .map(|limit| format!(": one TCP stream reaches at most {} there", Rate(limit as u64)));
        let message = format!(
            "{}: {:.1}% of datagrams do not arrive{}; check cables, optics, error counters and queues of the switches",
            scope.text(),
            worst * 100.0,
            bound.unwrap_or_default()
        );
        Fault { check: "loss", hosts: scope.hosts(), message, cost: first.and_then(cost) }
    };
    scopes(groups, paths, lossy).into_iter().map(fault).collect()
}

fn slow(hosts: &[Host]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let ways: [(&str, RateOf); 2] =
        [("sends", |host| host.send_rate), ("receives", |host| host.receive_rate)];
    for (verb, of) in ways {
        let mut rates: Vec<u64> = hosts.iter().filter_map(of).collect();
        rates.sort_unstable();
        let Some(median) = rates.get(rates.len() / 2).copied().filter(|_| rates.len() >= FEWEST) else {
            continue;
        };
        for host in hosts {
            let Some(rate) = of(host).filter(|rate| (*rate as f64) < SLOW * median as f64) else { continue };
            let message = format!(
                "{} {verb} at most {}, the median host {}: check the speed and errors of its link, or run `tidecast doctor` there",
                host.name,
                Rate(rate),
                Rate(median)
            );
            let cost = Some(share_lost(rate as f64, median as f64));
            faults.push(Fault { check: "slow-host", hosts: vec![host.name.clone()], message, cost });
        }
    }
    faults
}

fn clock(host: &Host) -> Option<Fault> {
    let (clock, error) = (host.clock_seconds?, host.clock_error_seconds?);
    if clock.abs() <= CLOCK + error {
        return None;
    }
    let way = if clock > 0.0 { "ahead" } else { "behind" };
    let by = Span(Duration::try_from_secs_f64(clock.abs()).unwrap_or(Duration::MAX));
    let message = format!(
        "the clock of {} is {by} {way} of the median of all hosts: certificates may be rejected; synchronise it (chrony, NTP)",
        host.name
    );
    Some(Fault { check: "clock", hosts: vec![host.name.clone()], message, cost: None })
}

fn versions(hosts: &[Host], own: &str) -> impl Iterator<Item = Fault> {
    let other = move |host: &&Host| !host.version.is_empty() && host.version != own;
    hosts.iter().filter(other).map(move |host| {
        let message = format!(
            "{} has Tidecast {}, this host {own}: install the same version on all hosts",
            host.name, host.version
        );
        Fault { check: "version", hosts: vec![host.name.clone()], message, cost: None }
    })
}

fn named<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    let more = if names.len() > NAMED { ", .." } else { "" };
    names.into_iter().take(NAMED).collect::<Vec<_>>().join(", ") + more
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
