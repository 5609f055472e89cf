//! Texts of a check of hosts and the paths between them.

use std::collections::BTreeMap;
use std::time::Duration;

use tidecast_text::{Rate, Size, Span, aligned, count, hostlist};

use super::plain;
use crate::peers::{Done, Fault, Host, News, Path};

/// With up to so many hosts (or groups) a matrix is shown.
const MATRIX: usize = 16;
/// Faults, hosts and paths that are shown; programs get all.
const FAULTS: usize = 40;
const HOSTS: usize = 100;
const WORST: usize = 10;
/// One stream that reaches less than this share of several is reported, on paths at least this long (seconds).
const ONE_STREAM: f64 = 0.6;
const LONG: f64 = 0.001;

impl Done {
    /// Lines for people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.head()];
        lines.extend(self.failed());
        lines.extend(faults(&self.faults));
        lines.extend(self.groups_lines());
        lines.extend(self.matrix());
        lines.extend(self.worst());
        lines.extend(self.host_lines());
        lines.extend(self.one_stream());
        lines
    }

    fn head(&self) -> String {
        let (hosts, pairs) = (count(self.hosts.len() as u64, "host"), count(self.pairs as u64, "pair"));
        let rates = match self.rates {
            true => format!(", {} sent to measure rates", Size(self.bytes)),
            false => ", rates not measured".to_owned(),
        };
        format!("{hosts}, {} of {pairs} measured in {}{rates}", self.pairs_measured, span(self.seconds))
    }

    fn failed(&self) -> Vec<String> {
        let failed: Vec<(&Host, &String)> =
            self.hosts.iter().filter_map(|host| Some((host, host.reason.as_ref()?))).collect();
        let width = failed.iter().map(|(host, _)| host.name.len()).max().unwrap_or(0);
        let line =
            |(host, reason): &(&Host, &String)| format!("FAILED {:width$}  {}", host.name, plain(reason));
        let mut lines: Vec<String> = failed.iter().take(FAULTS).map(line).collect();
        lines.extend(more(failed.len(), FAULTS, "failed host"));
        lines
    }

    fn groups_lines(&self) -> Vec<String> {
        if self.groups.len() < 2 {
            return Vec::new();
        }
        let by = if self.groups_by_rate { "round-trip times and rates" } else { "round-trip times" };
        let mut lines = vec![format!("{} by {by}:", count(self.groups.len() as u64, "group"))];
        let named = |hosts: &[String]| plain(&hostlist::fold(hosts.iter().map(String::as_str)));
        let line = |(number, group): (usize, &crate::peers::Group)| {
            format!("  {number}: {} ({})", count(group.hosts.len() as u64, "host"), named(&group.hosts))
        };
        lines.extend((1..).zip(&self.groups).take(FAULTS).map(line));
        lines.extend(more(self.groups.len(), FAULTS, "group"));
        lines
    }

    /// From rows to columns: of hosts if there are few, else of groups.
    fn matrix(&self) -> Vec<String> {
        let number = |name: &String| self.groups.iter().position(|group| group.hosts.contains(name));
        let (title, names): (&str, Vec<String>) = match (self.hosts.len(), self.groups.len()) {
            (0..=1, _) => return Vec::new(),
            (2..=MATRIX, _) => ("hosts", self.ordered()),
            (_, 2..=MATRIX) => ("groups", (1..=self.groups.len()).map(|n| n.to_string()).collect()),
            _ => return Vec::new(),
        };
        let place = |name: &String| match title {
            "hosts" => names.iter().position(|n| n == name),
            _ => number(name),
        };
        let mut cells: BTreeMap<(usize, usize), &Path> = BTreeMap::new();
        for path in &self.paths {
            let (Some(row), Some(column)) = (place(&path.from), place(&path.to)) else { continue };
            let cell = cells.entry((row, column)).or_insert(path);
            if value(path) > value(cell) {
                *cell = path;
            }
        }
        let shown = |row, column| cells.get(&(row, column)).map_or_else(String::new, |path| self.cell(path));
        let head = std::iter::once(String::new()).chain((1..=names.len()).map(|n| n.to_string()));
        let mut rows = vec![head.collect::<Vec<_>>()];
        for (row, name) in names.iter().enumerate() {
            let first = if title == "hosts" { format!("{} {}", row + 1, plain(name)) } else { name.clone() };
            let cells = (0..names.len()).map(|column| shown(row, column));
            rows.push(std::iter::once(first).chain(cells).collect());
        }
        let what = if self.rates { "rates in bit/s" } else { "round-trip times" };
        let mut lines = vec![format!("{what} from {title} (rows) to {title} (columns):")];
        lines.extend(aligned(&rows, 1).into_iter().map(|line| format!("  {line}")));
        lines
    }

    fn cell(&self, path: &Path) -> String {
        if !path.connects {
            return "none".into();
        }
        let rtt = path.rtt_min_seconds.map(|rtt| span(rtt).replace(' ', "")).unwrap_or_default();
        match path.rate.max(path.rate_streams) {
            Some(rate) => brief(rate),
            None if self.rates => "-".into(),
            None => rtt,
        }
    }

    /// Names of hosts, those of a group together.
    fn ordered(&self) -> Vec<String> {
        let mut hosts: Vec<&Host> = self.hosts.iter().collect();
        hosts.sort_by_key(|host| host.group.unwrap_or(usize::MAX));
        hosts.into_iter().map(|host| host.name.clone()).collect()
    }

    /// The slowest paths, if there are too many for a matrix of hosts.
    fn worst(&self) -> Vec<String> {
        if self.hosts.len() <= MATRIX {
            return Vec::new();
        }
        let mut rated: Vec<(&Path, u64)> =
            self.paths.iter().filter_map(|path| Some((path, path.rate.max(path.rate_streams)?))).collect();
        rated.sort_by_key(|(_, rate)| *rate);
        let Some((_, median)) = rated.get(rated.len() / 2).copied() else { return Vec::new() };
        let mut lines = vec![format!("slowest paths (median {}):", Rate(median))];
        let line = |(path, rate): &(&Path, u64)| {
            let alone = if path.alone { ", while no other pair sent" } else { "" };
            format!("  {} to {}: {}{alone}", plain(&path.from), plain(&path.to), Rate(*rate))
        };
        lines.extend(rated.iter().take(WORST).map(line));
        lines
    }

    /// A line for each host, the worst first.
    fn host_lines(&self) -> Vec<String> {
        let faults =
            |host: &Host| self.faults.iter().filter(|fault| fault.hosts.contains(&host.name)).count();
        let mut hosts: Vec<&Host> = self.hosts.iter().filter(|host| host.ok).collect();
        hosts.sort_by_key(|host| (std::cmp::Reverse(faults(host)), host.send_rate.min(host.receive_rate)));
        let mut rows = vec![
            ["host", "group", "sends", "receives", "round trip", "lost", "MTU", "CPU s/GiB", "clock"]
                .map(str::to_owned),
        ];
        rows.extend(hosts.iter().take(HOSTS).map(|host| self.row(host)));
        let mut lines = aligned(&rows, 1);
        lines.extend(more(hosts.len(), HOSTS, "host"));
        lines
    }

    fn row(&self, host: &Host) -> [String; 9] {
        let own = || self.paths.iter().filter(|path| path.from == host.name && path.connects);
        let none = || "-".to_owned();
        let least = |of: fn(&Path) -> Option<f64>| own().filter_map(of).min_by(f64::total_cmp);
        let lost = own().filter(|path| path.datagrams > 0);
        let lost = lost.map(|p| 1.0 - f64::from(p.arrived) / f64::from(p.datagrams)).max_by(f64::total_cmp);
        let mtu = own().filter_map(|path| path.mtu).min();
        let cpu = (least(|path| path.send_cpu_seconds), least(|path| path.receive_cpu_seconds));
        let rate = |rate: Option<u64>| rate.map_or_else(none, |rate| Rate(rate).to_string());
        let clock = host.clock_seconds.map(|clock| {
            let sign = if clock < 0.0 { "-" } else { "+" };
            format!("{sign}{}", span(clock.abs()))
        });
        [
            plain(&host.name),
            host.group.map_or_else(none, |group| (group + 1).to_string()),
            rate(host.send_rate),
            rate(host.receive_rate),
            least(|path| path.rtt_min_seconds).map_or_else(none, span),
            lost.map_or_else(none, |lost| format!("{:.1}%", lost * 100.0)),
            mtu.map_or_else(none, |mtu| mtu.to_string()),
            cpu.0.zip(cpu.1).map_or_else(none, |(send, receive)| format!("{send:.2}+{receive:.2}")),
            clock.unwrap_or_else(none),
        ]
    }

    fn one_stream(&self) -> Option<String> {
        let share = |path: &Path| Some(path.rate? as f64 / path.rate_streams?.max(1) as f64);
        let long = |path: &&Path| path.rtt_min_seconds.is_some_and(|rtt| rtt >= LONG);
        let weak = |path: &&Path| share(path).is_some_and(|share| share < ONE_STREAM);
        let found: Vec<&Path> = self.paths.iter().filter(long).filter(weak).collect();
        let path = found.first()?;
        Some(format!(
            "one TCP stream is slower than {} on {} ({} to {}: {} of {}): run `tidecast doctor` with --rtt {} on these hosts",
            path.streams.unwrap_or(0),
            count(found.len() as u64, "path"),
            plain(&path.from),
            plain(&path.to),
            Rate(path.rate.unwrap_or(0)),
            Rate(path.rate_streams.unwrap_or(0)),
            path.rtt_min_seconds.map(|rtt| span(rtt).replace(' ', "")).unwrap_or_default(),
        ))
    }
}

impl News {
    /// A line for people, if no other event has it.
    #[must_use]
    pub fn line(&self) -> Option<String> {
        Some(match self {
            Self::Path(_) => return None,
            Self::Stage { name: "start", pairs } => {
                format!("starting agents on {}", count(*pairs as u64, "host"))
            }
            Self::Stage { name: "places", pairs } => {
                format!("measuring which of {} share links", count(*pairs as u64, "host"))
            }
            Self::Stage { name, pairs } => {
                format!("measuring the {name} of {}", count(*pairs as u64, "pair"))
            }
            Self::Failed { host, reason } => format!("{}: {}", plain(host), plain(reason)),
            Self::Aliases { host, names } => format!(
                "{}: same address as {}, so the host is checked once",
                plain(&names.join(", ")),
                plain(host)
            ),
        })
    }
}

fn faults(faults: &[Fault]) -> Vec<String> {
    let cost = |fault: &Fault| fault.cost.map_or_else(String::new, |cost| format!("{:.0}%", cost * 100.0));
    let row = |fault: &Fault| [fault.check.to_owned(), cost(fault)];
    let rows: Vec<[String; 2]> = faults.iter().take(FAULTS).map(row).collect();
    let heads = aligned(&rows, 1);
    let width = heads.iter().map(|head| head.chars().count()).max().unwrap_or(0);
    let line = |(head, fault): (&String, &Fault)| format!("{head:width$}  {}", plain(&fault.message));
    let mut lines: Vec<String> = heads.iter().zip(faults).map(line).collect();
    lines.extend(more(faults.len(), FAULTS, "fault"));
    lines
}

/// What makes a path the better one of a cell.
fn value(path: &Path) -> (bool, Option<u64>) {
    (path.connects, path.rate.max(path.rate_streams))
}

/// A time for people, of any size: 35 us, 1.20 ms, 4.00 s.
fn span(seconds: f64) -> String {
    match seconds {
        ..0.001 => format!("{:.0} us", seconds * 1e6),
        ..0.1 => format!("{:.2} ms", seconds * 1e3),
        ..1.0 => format!("{:.0} ms", seconds * 1e3),
        _ => Span(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)).to_string(),
    }
}

/// A rate without its unit, for a matrix: 901M.
fn brief(rate: u64) -> String {
    Rate(rate).to_string().replace("bit/s", "").replace(' ', "")
}

fn more(all: usize, shown: usize, what: &str) -> Option<String> {
    (all > shown).then(|| format!("and {}", count((all - shown) as u64, &format!("more {what}"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Group;

    fn host(name: String, group: usize) -> Host {
        Host {
            name: name.clone(),
            ok: true,
            reason: None,
            hostname: name,
            version: "1".into(),
            kernel: "6".into(),
            group: Some(group),
            clock_seconds: Some(-0.25),
            clock_error_seconds: Some(0.001),
            send_rate: Some(1_000_000_000),
            receive_rate: Some(2_000_000_000),
            aliases: Vec::new(),
        }
    }

    fn done(hosts: usize) -> Done {
        let name = |n: usize| format!("n{n:03}");
        let of = |n: usize| n * 4 / hosts;
        let path = |from: usize, to: usize| Path {
            from: name(from),
            to: name(to),
            connects: (from, to) != (1, 0),
            rate: Some(900_000_000 + from as u64 * 1_000_000),
            rtt_min_seconds: Some(0.0002),
            datagrams: 400,
            arrived: 400,
            mtu: Some(1500),
            ..Path::default()
        };
        let paths = (0..hosts).flat_map(|a| [path(a, (a + 1) % hosts), path((a + 1) % hosts, a)]).collect();
        let group = |number| Group { hosts: (0..hosts).filter(|n| of(*n) == number).map(name).collect() };
        let message = "n001 cannot connect to n000".into();
        Done {
            seconds: 9.0,
            hosts: (0..hosts).map(|n| host(name(n), of(n))).collect(),
            paths,
            pairs_measured: hosts,
            pairs: hosts * (hosts - 1) / 2,
            groups: (0..4).map(group).collect(),
            faults: vec![Fault { check: "one-way", hosts: vec![name(1), name(0)], message, cost: Some(1.0) }],
            rates: true,
            groups_by_rate: true,
            bytes: 1 << 30,
        }
    }

    #[test]
    fn few_hosts_are_a_matrix() {
        let lines = done(8).lines();
        let text = lines.join("\n");
        assert!(lines.iter().any(|l| l.starts_with("one-way  100%  n001 cannot connect to n000")), "{text}");
        let row = lines.iter().find(|line| line.starts_with("  2 n001")).map(String::as_str);
        assert!(row.is_some_and(|row| row.contains("none") && row.contains("901M")), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() < 200), "{text}");
    }

    #[test]
    fn a_hundred_hosts_are_a_matrix_of_groups_the_worst_paths_and_a_line_each() {
        let lines = done(100).lines();
        let text = lines.join("\n");
        assert!(lines.len() < 140, "{text}");
        assert!(
            text.contains("rates in bit/s from groups (rows) to groups (columns):")
                && text.contains("slowest paths"),
            "{text}"
        );
        assert!(text.contains("1: 25 hosts (n[000-024])"), "{text}");
        // The hosts with the fault are first in the list of hosts.
        let head = lines.iter().position(|line| line.starts_with("host ")).unwrap_or(0);
        assert!(lines[head + 1].starts_with("n000") && lines[head + 2].starts_with("n001"), "{text}");
    }
}
