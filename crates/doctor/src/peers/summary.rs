//! What was measured as events, and as a topology. Pure.

use std::time::Duration;

use tidecast_event::peers::{Done, Group, Host, Path};
use tidecast_text::hostlist;

use super::clocks::{Differences, clocks};
use super::coordinator::{Measured, Results, STREAMS, best_rates, lowest};
use super::judge::judge;
use super::message::{Probed, Sent};

/// One GiB.
const GIB: f64 = (1u64 << 30) as f64;

impl Results {
    /// The result of the whole check, `seconds` after its start.
    #[must_use]
    pub fn summary(&self, seconds: f64) -> Done {
        let paths: Vec<Path> = self.paths.keys().filter_map(|(from, to)| self.path(*from, *to)).collect();
        let hosts = self.hosts();
        let faults = judge(&hosts, &paths, env!("CARGO_PKG_VERSION"));
        let count = self.hosts.len();
        let pair = |(a, b): &(usize, usize)| a < b || !self.paths.contains_key(&(*b, *a));
        Done {
            seconds,
            groups: self.group_list(),
            pairs_measured: self.paths.keys().filter(|path| pair(path)).count(),
            pairs: count * count.saturating_sub(1) / 2,
            hosts,
            paths,
            faults,
            rates: self.rates,
            groups_by_rate: self.by_rate,
            bytes: self.bytes,
        }
    }

    /// One path; `None` if it was not measured.
    #[must_use]
    pub fn path(&self, from: usize, to: usize) -> Option<Path> {
        let measured = self.paths.get(&(from, to))?;
        let name = |place: usize| self.hosts.get(place).map(|host| host.name.clone());
        let mut path = Path { from: name(from)?, to: name(to)?, ..Path::default() };
        match measured.probed.as_ref()? {
            Ok(probed) => fill(&mut path, probed),
            Err(reason) => path.reason = Some(reason.clone()),
        }
        rates(&mut path, measured);
        Some(path)
    }

    fn hosts(&self) -> Vec<Host> {
        let best = best_rates(&self.paths);
        let (clocks, groups) = (clocks(self.hosts.len(), &self.differences()), self.group_list());
        let host = |(place, seen): (usize, &super::coordinator::Seen)| Host {
            name: seen.name.clone(),
            ok: seen.failed.is_none(),
            reason: seen.failed.clone(),
            hostname: seen.hostname.clone(),
            version: seen.version.clone(),
            kernel: seen.kernel.clone(),
            group: groups.iter().position(|group| group.hosts.contains(&seen.name)),
            clock_seconds: clocks.get(&place).map(|(clock, _)| *clock),
            clock_error_seconds: clocks.get(&place).map(|(_, error)| *error),
            send_rate: best.get(&place).map(|rates| rates.0),
            receive_rate: best.get(&place).map(|rates| rates.1),
            aliases: seen.aliases.clone(),
        };
        self.hosts.iter().enumerate().map(host).collect()
    }

    /// The differences of clocks, each with half of its round-trip time as error.
    fn differences(&self) -> Differences {
        let one = |(path, measured): (&(usize, usize), &Measured)| {
            let probed = measured.probed.as_ref()?.as_ref().ok()?;
            let error = lowest(measured)?.as_secs_f64() / 2.0;
            Some((*path, probed.clock as f64 / 1e9, error))
        };
        self.paths.iter().filter_map(one).collect()
    }

    fn group_list(&self) -> Vec<Group> {
        let count = self.groups.iter().max().map_or(0, |max| max + 1);
        let of = |group: usize| {
            let inside = self
                .hosts
                .iter()
                .zip(&self.groups)
                .filter(|(host, of)| **of == group && host.failed.is_none());
            Group { hosts: inside.map(|(host, _)| host.name.clone()).collect() }
        };
        (0..count).map(of).filter(|group| !group.hosts.is_empty()).collect()
    }
}

fn fill(path: &mut Path, probed: &Probed) {
    let seconds = |nanos: u64| Duration::from_nanos(nanos).as_secs_f64();
    let mut rtts = probed.rtts.clone();
    rtts.sort_unstable();
    path.connects = true;
    path.address = probed.address.map(|address| address.ip().to_canonical().to_string());
    path.rtt_min_seconds = rtts.first().map(|nanos| seconds(*nanos));
    path.rtt_median_seconds = rtts.get(rtts.len() / 2).map(|nanos| seconds(*nanos));
    path.clock_seconds = (!rtts.is_empty()).then_some(probed.clock as f64 / 1e9);
    // Counts of another host may be anything.
    path.datagrams = probed.datagrams;
    path.arrived = probed.arrived.min(probed.datagrams);
    path.answered = probed.answered.min(probed.datagrams);
    path.interface_mtu = Some(probed.interface_mtu).filter(|mtu| *mtu > 0);
    path.mtu = Some(probed.mtu).filter(|mtu| *mtu > 0);
    path.black_hole = probed.mtu > 0 && probed.mtu < probed.interface_mtu && !probed.learned;
}

fn rates(path: &mut Path, measured: &Measured) {
    let per_gib = |sent: &Sent, cpu: u64| {
        (sent.bytes > 0).then(|| Duration::from_nanos(cpu).as_secs_f64() / (sent.bytes as f64 / GIB))
    };
    path.rate = measured.one.map(|sent| sent.rate);
    path.rate_streams = measured.several.map(|sent| sent.rate);
    path.streams = measured.several.map(|_| STREAMS);
    path.send_cpu_seconds = measured.one.and_then(|sent| per_gib(&sent, sent.send_cpu));
    path.receive_cpu_seconds = measured.one.and_then(|sent| per_gib(&sent, sent.receive_cpu));
    path.alone = measured.alone;
}

/// The groups as rules, which `bcast --topology` and `tidecast sim` read: a line for each group, with the rate of its link
/// to the others if it was measured.
#[must_use]
pub fn topology(done: &Done) -> String {
    let mut rates: Vec<u64> = done.hosts.iter().filter_map(|host| host.send_rate).collect();
    rates.sort_unstable();
    let median = rates.get(rates.len() / 2).copied();
    let mut text = format!(
        "# measured by tidecast doctor --peers: {} hosts in {} groups\n",
        done.hosts.len(),
        done.groups.len()
    );
    if let Some(rate) = median {
        text.push_str(&format!(
            "# tidecast sim FILE --size 1GiB --rate {}: the rate of the median host\n",
            bits(rate)
        ));
    }
    for (number, group) in (1..).zip(&done.groups) {
        let inside = |name: &String| group.hosts.contains(name);
        let crosses = |path: &&Path| inside(&path.from) != inside(&path.to);
        let rate = done.paths.iter().filter(crosses).filter_map(|p| p.rate.max(p.rate_streams)).max();
        let rate =
            rate.filter(|rate| *rate > 0).map_or(String::new(), |rate| format!(" rate={}", bits(rate)));
        let hosts = hostlist::fold(group.hosts.iter().map(String::as_str));
        text.push_str(&format!("place{number}{rate} {}\n", hosts.replace(',', " ")));
    }
    text
}

/// A rate as topologies have it, in whole units.
fn bits(rate: u64) -> String {
    match rate {
        0..1_000_000 => format!("{}kbit", (rate / 1000).max(8)),
        _ => format!("{}mbit", rate / 1_000_000),
    }
}
