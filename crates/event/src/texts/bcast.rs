//! Texts of a broadcast.

use std::collections::BTreeMap;
use std::time::Duration;

use tidecast_text::{Rate, Size, Span, bytes_per_second, count};

use super::{existing_files, plain};
use crate::bcast::{Action, Done, ExistingFiles, Host, Late, News, Open, Waiting};

/// Slowest hosts that are named.
const SLOWEST: usize = 4;
/// Hosts of a place that are named.
const TOGETHER: usize = 3;
/// Failed hosts that are named; programs get all.
const NAMED: usize = 40;

impl Done {
    /// Lines for people. `whole`: seconds of the whole command.
    #[must_use]
    pub fn lines(&self, whole: f64) -> Vec<String> {
        lines(self, whole)
    }
}

impl News {
    /// A line for people, if no other event has it.
    #[must_use]
    pub fn line(&self) -> Option<String> {
        Some(match self {
            Self::Waiting(of) => waiting(of),
            Self::Aliases { host, names } => aliases(host, names),
            Self::Network { name, rate } => {
                let rate = if *rate > 0 { format!(", links of {}", Rate(*rate)) } else { String::new() };
                format!("network: {name}{rate}")
            }
            Self::Places(of) => places(of),
            Self::Open(Open { torrent, peers }) => {
                let peers = peers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
                format!("BitTorrent clients can join: {}, peer {peers}", torrent.display())
            }
            Self::Ticket(_) | Self::Failed { .. } => return None,
        })
    }
}

fn lines(done: &Done, whole: f64) -> Vec<String> {
    let mut lines = Vec::new();
    let hosts = count(done.hosts.len() as u64, "host");
    if done.hosts_done > 0 {
        lines.push(format!(
            "{} in {} on {} of {hosts}, every piece verified, in {}",
            Size(done.bytes),
            count(done.files, "file"),
            done.hosts_done,
            span(done.transfer_seconds),
        ));
        lines.push(format!(
            "whole command {}: hashing {}, launching {} (at the same time), then the transfer",
            span(whole),
            span(done.hash_seconds),
            span(done.gather_seconds),
        ));
    }
    if done.received > 0 {
        lines.push(bound(done));
        let mut parts = vec![bytes_per_second(done.rate as f64) + " a host"];
        let who = match done.sources.len() {
            0 => "origin".into(),
            more => count(more as u64 + 1, "source"),
        };
        parts.extend(done.origin_copies.map(|copies| format!("{who} sent {copies:.2} copies")));
        parts.push(format!("duplicates {:.2}%", done.duplicate as f64 * 100.0 / done.received as f64));
        if done.corrupt > 0 {
            parts.push(format!("damaged {}", Size(done.corrupt)));
        }
        let (how, piece) = (done.algorithm, Size(done.piece_length.into()));
        parts.push(format!("{how} on {}, pieces of {piece}", plain(&done.network)));
        lines.push(parts.join(", "));
        lines.extend(done.manifest_bytes.zip(done.manifest_sent).map(|(bytes, sent)| {
            let copies = sent as f64 / bytes.max(1) as f64;
            format!("manifest of {} broadcast before the data: origin sent {copies:.2} copies", Size(bytes))
        }));
        lines.extend(slowest(done));
    } else if done.hosts_done > 0 {
        lines.push("nothing was sent: the hosts already had the data".into());
    }
    lines.extend(actions(done));
    lines.extend(former(done));
    lines.extend(failures(done));
    lines.extend(super::host_limits(&done.host_limits, "bcast"));
    lines
}

fn span(seconds: f64) -> Span {
    Span(Duration::from_secs_f64(seconds))
}

/// The result for the copy of each host: one line per kind.
fn actions(done: &Done) -> Vec<String> {
    let mut by_action: BTreeMap<Action, Vec<&str>> = BTreeMap::new();
    for host in done.hosts.iter().filter(|host| host.ok) {
        by_action.entry(host.action).or_default().push(&host.name);
    }
    let line = |(action, hosts): (Action, Vec<&str>)| {
        let named: Vec<_> = hosts.iter().take(NAMED).map(|name| plain(name)).collect();
        let more = if hosts.len() > NAMED { " .." } else { "" };
        format!("{}: {} ({}{more})", action.name(), count(hosts.len() as u64, "host"), named.join(" "))
    };
    by_action.into_iter().map(line).collect()
}

/// The hosts of each place.
fn places(places: &[Vec<String>]) -> String {
    let named = |hosts: &Vec<String>| {
        let names: Vec<_> = hosts.iter().take(TOGETHER).map(|name| plain(name)).collect();
        let more = if hosts.len() > TOGETHER { ".." } else { "" };
        format!("{} ({}{more})", hosts.len(), names.join(" "))
    };
    let all: Vec<_> = places.iter().take(NAMED).map(named).collect();
    format!("hosts by place: {}; use --save-topology FILE to save this", all.join(", "))
}

/// The hosts for which the launch waits.
fn waiting(waiting: &Waiting) -> String {
    let named = |late: &Late| format!("{} ({})", plain(&late.name), span(late.seconds));
    let hosts: Vec<_> = waiting.hosts.iter().take(SLOWEST).map(named).collect();
    let more = waiting.hosts.len().saturating_sub(SLOWEST);
    let more = if more > 0 { format!(" and {}", count(more as u64, "more host")) } else { String::new() };
    let queued = match waiting.queued {
        0 => String::new(),
        queued => format!("; {} not launched yet", count(queued as u64, "host")),
    };
    let by = match waiting.launchers.is_empty() {
        true => String::new(),
        false => format!(", launched by {}", plain(&waiting.launchers.join(", "))),
    };
    let said = if waiting.said.is_empty() { String::new() } else { format!(": {}", plain(&waiting.said)) };
    format!("waiting for the worker of {}{more}{queued}{by}{said}", hosts.join(", "))
}

/// Names of the list that are one host.
fn aliases(host: &str, names: &[String]) -> String {
    let more = if names.len() > NAMED { " .." } else { "" };
    let named: Vec<_> = names.iter().take(NAMED).map(|name| plain(name)).collect();
    format!("{}{more}: same address as {}, so the host is served once", named.join(", "), plain(host))
}

/// The efficiency, in comparison with the rate of the links.
fn bound(done: &Done) -> String {
    match &done.link {
        Some(link) => format!(
            "efficiency {:.1}%: links of {} (rate {}) need at least {}",
            link.efficiency * 100.0,
            Rate(link.link_rate),
            existing_files::known_from(link.link_rate_from),
            span(link.bound_seconds)
        ),
        None => "efficiency unknown: no driver reports the rate of the links; set it with --link-rate".into(),
    }
}

/// The treatment of files that existed at the destination.
fn former(done: &Done) -> Vec<String> {
    let found: Vec<&ExistingFiles> =
        done.hosts.iter().filter_map(|host| Some(&host.done.as_ref()?.found)).collect();
    existing_files::lines(|of| {
        let each: Vec<u64> = found.iter().map(|found| of(found)).filter(|n| *n > 0).collect();
        (each.iter().sum(), format!("DEST on {}", count(each.len() as u64, "host")))
    })
}

fn slowest(done: &Done) -> Option<String> {
    let time = |host: &Host| Some((Duration::from_secs_f64(host.done?.seconds), host.name.clone()));
    let mut times: Vec<(Duration, String)> = done.hosts.iter().filter_map(time).collect();
    times.sort_by(|a, b| b.cmp(a));
    let median = times.get(times.len() / 2)?.0;
    let named = times.iter().take(SLOWEST).map(|(after, name)| format!("{name} {}", Span(*after)));
    let named = named.collect::<Vec<_>>().join(", ");
    (times.len() > SLOWEST).then(|| format!("slowest: {named}; median {}", Span(median)))
}

fn failures(done: &Done) -> Vec<String> {
    let failed: Vec<_> =
        done.hosts.iter().filter_map(|host| Some((host.name.as_str(), host.reason.as_ref()?))).collect();
    let width = failed.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut lines: Vec<String> = failed
        .iter()
        .take(NAMED)
        .map(|(name, reason)| format!("FAILED {name:width$}  {}", plain(reason)))
        .collect();
    if failed.len() > NAMED {
        lines.push(format!("and {} more", failed.len() - NAMED));
    }
    lines
}
