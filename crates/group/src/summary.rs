//! The result of a broadcast for programs: its last event.

use tidecast_event::bcast::{Action, Done, ExistingFiles, Figures, Host, Link, Source};
use tidecast_event::round;

use crate::report::{self, HostReport, Outcome, Report};

impl Report {
    /// Bytes per second that a host received during the transfer.
    #[must_use]
    pub fn rate(&self) -> f64 {
        match self.transfer.as_secs_f64() {
            seconds if seconds > 0.0 => self.needed() as f64 / seconds,
            _ => 0.0,
        }
    }

    /// The last event; `seconds` since the start of the command.
    #[must_use]
    pub fn summary(&self, seconds: f64) -> Done {
        let (received, duplicate, corrupt) = self.received();
        let link = self.bound().zip(self.efficiency()).map(|(bound, efficiency)| Link {
            link_rate: self.link_rate,
            link_rate_from: self.link_rate_from,
            bound_seconds: bound.as_secs_f64(),
            efficiency,
        });
        Done {
            seconds,
            bytes: self.bytes,
            files: self.files,
            piece_length: self.piece_length,
            algorithm: self.algorithm,
            network: self.network.clone(),
            hash_seconds: self.hashing.as_secs_f64(),
            gather_seconds: self.gathering.as_secs_f64(),
            transfer_seconds: self.transfer.as_secs_f64(),
            rate: self.rate().round() as u64,
            received,
            duplicate,
            corrupt,
            origin_sent: self.origin_sent,
            origin_copies: self.origin_copies().map(round),
            hosts: self.hosts.iter().map(of_host).collect(),
            hosts_done: self.done(),
            hosts_failed: self.hosts.len() - self.done(),
            places: self.places.clone(),
            sources: self
                .sources
                .iter()
                .map(|(name, sent)| Source { name: name.clone(), sent: *sent })
                .collect(),
            manifest_bytes: self.manifest.map(|(bytes, _)| bytes),
            manifest_sent: self.manifest.map(|(_, sent)| sent),
            host_limits: Vec::new(),
            link,
        }
    }
}

fn of_host(host: &HostReport) -> Host {
    let (name, aliases) = (host.name.clone(), host.aliases.clone());
    match &host.outcome {
        Outcome::Done { after, received, sent, duplicate, corrupt, kept, action, found } => {
            let report::ExistingFiles { replaced, replaced_foreign, stale, foreign, deleted } = *found;
            let figures = Figures {
                seconds: after.as_secs_f64(),
                received: *received,
                sent: *sent,
                duplicate: *duplicate,
                corrupt: *corrupt,
                kept: *kept,
                found: ExistingFiles { replaced, replaced_foreign, stale, foreign, deleted },
            };
            let action = match action {
                report::Action::Delivered => Action::Delivered,
                report::Action::Replaced => Action::Replaced,
                report::Action::Unchanged => Action::Unchanged,
            };
            Host { name, ok: true, action, done: Some(figures), reason: None, unreached: None, aliases }
        }
        Outcome::Failed { reason, unreached } => {
            let (reason, unreached) = (Some(reason.clone()), unreached.clone());
            Host { name, ok: false, action: Action::Failed, done: None, reason, unreached, aliases }
        }
    }
}

/// The hosts of each place, as rules that [`crate::choose::topology`] reads.
#[must_use]
pub fn topology_rules(places: &[Vec<String>]) -> String {
    let line = |(number, hosts): (usize, &Vec<String>)| format!("place{number} {}\n", hosts.join(" "));
    (1..).zip(places).map(line).collect()
}
