//! What came of a broadcast, for programs: the fields of its last event, and of those that say for whom it waits.

use std::time::Duration;

use serde::Serialize;

use crate::broadcast::Waiting;
use crate::report::{Action, HostReport, Outcome, Report};

/// Of the whole.
#[derive(Clone, Debug, Serialize)]
pub struct Summary<'r> {
    bytes: u64,
    files: u64,
    piece_length: u32,
    algorithm: &'static str,
    network: &'r str,
    hash_seconds: f64,
    gather_seconds: f64,
    transfer_seconds: f64,
    rate: u64,
    received: u64,
    duplicate: u64,
    corrupt: u64,
    origin_sent: u64,
    origin_copies: Option<f64>,
    hosts: Vec<OfHost<'r>>,
    hosts_done: usize,
    hosts_failed: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    places: Option<&'r [Vec<String>]>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sources: Vec<OfSource<'r>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest_sent: Option<u64>,
    #[serde(flatten)]
    link: Option<OfLink>,
}

/// What the links could have done.
#[derive(Clone, Debug, Serialize)]
struct OfLink {
    link_rate: u64,
    link_rate_from: &'static str,
    bound_seconds: f64,
    efficiency: f64,
}

#[derive(Clone, Debug, Serialize)]
struct OfSource<'r> {
    name: &'r str,
    sent: u64,
}

#[derive(Clone, Debug, Serialize)]
struct OfHost<'r> {
    name: &'r str,
    ok: bool,
    action: &'static str,
    #[serde(flatten)]
    done: Option<Figures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'r str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    aliases: &'r [String],
}

#[derive(Clone, Debug, Serialize)]
struct Figures {
    seconds: f64,
    received: u64,
    sent: u64,
    duplicate: u64,
    corrupt: u64,
    kept: u64,
    replaced: u64,
    stale: u64,
    foreign: u64,
    deleted: u64,
}

/// Of hosts whose workers have not come.
#[derive(Clone, Debug, Serialize)]
pub struct WaitingSummary<'w> {
    hosts: Vec<OfWaiting<'w>>,
    queued: usize,
    launchers: &'w [String],
    said: &'w str,
}

#[derive(Clone, Debug, Serialize)]
struct OfWaiting<'w> {
    name: &'w str,
    seconds: f64,
}

/// To the millisecond.
fn seconds(time: Duration) -> f64 {
    round(time.as_secs_f64())
}

fn round(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

impl Action {
    /// For people and programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Replaced => "replaced",
            Self::Unchanged => "unchanged",
        }
    }
}

impl Report {
    /// Bytes a second that a host received while the transfer ran.
    #[must_use]
    pub fn rate(&self) -> f64 {
        match self.transfer.as_secs_f64() {
            seconds if seconds > 0.0 => self.needed() as f64 / seconds,
            _ => 0.0,
        }
    }

    /// The same for programs: it is serialized as the fields of the event that ends a broadcast.
    #[must_use]
    pub fn summary(&self) -> Summary<'_> {
        let (received, duplicate, corrupt) = self.received();
        let link = self.bound().zip(self.efficiency()).map(|(bound, efficiency)| OfLink {
            link_rate: self.link_rate,
            link_rate_from: self.link_rate_from.name(),
            bound_seconds: seconds(bound),
            efficiency: round(efficiency),
        });
        Summary {
            bytes: self.bytes,
            files: self.files,
            piece_length: self.piece_length,
            algorithm: self.algorithm,
            network: &self.network,
            hash_seconds: seconds(self.hashing),
            gather_seconds: seconds(self.gathering),
            transfer_seconds: seconds(self.transfer),
            rate: self.rate().round() as u64,
            received,
            duplicate,
            corrupt,
            origin_sent: self.origin_sent,
            origin_copies: self.origin_copies().map(round),
            hosts: self.hosts.iter().map(of_host).collect(),
            hosts_done: self.done(),
            hosts_failed: self.hosts.len() - self.done(),
            places: self.places.as_deref(),
            sources: self.sources.iter().map(|(name, sent)| OfSource { name, sent: *sent }).collect(),
            manifest_bytes: self.manifest.map(|(bytes, _)| bytes),
            manifest_sent: self.manifest.map(|(_, sent)| sent),
            link,
        }
    }
}

fn of_host(host: &HostReport) -> OfHost<'_> {
    let (name, aliases) = (host.name.as_str(), host.aliases.as_slice());
    match &host.outcome {
        Outcome::Done { after, received, sent, duplicate, corrupt, kept, action, found } => {
            let figures = Figures {
                seconds: seconds(*after),
                received: *received,
                sent: *sent,
                duplicate: *duplicate,
                corrupt: *corrupt,
                kept: *kept,
                replaced: found.replaced,
                stale: found.stale,
                foreign: found.foreign,
                deleted: found.deleted,
            };
            OfHost { name, ok: true, action: action.name(), done: Some(figures), reason: None, aliases }
        }
        Outcome::Failed { reason } => {
            OfHost { name, ok: false, action: "failed", done: None, reason: Some(reason), aliases }
        }
    }
}

impl Waiting {
    /// The same for programs: it is serialized as the fields of an event.
    #[must_use]
    pub fn summary(&self) -> WaitingSummary<'_> {
        WaitingSummary {
            hosts: self
                .hosts
                .iter()
                .map(|(name, since)| OfWaiting { name, seconds: seconds(*since) })
                .collect(),
            queued: self.queued,
            launchers: &self.launchers,
            said: &self.said,
        }
    }
}

/// Which hosts are together, as rules that [`crate::choose::topology`] reads.
#[must_use]
pub fn topology_rules(places: &[Vec<String>]) -> String {
    let line = |(number, hosts): (usize, &Vec<String>)| format!("place{number} {}\n", hosts.join(" "));
    (1..).zip(places).map(line).collect()
}
