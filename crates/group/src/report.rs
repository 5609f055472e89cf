//! The report of a broadcast.

use std::time::Duration;

use tidecast_event::bcast::Unreached;
use tidecast_event::get::LinkRateFrom;

pub use crate::control::message::{Action, ExistingFiles};

/// The result of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostReport {
    /// Its name.
    pub name: String,
    /// Other names of the list that are this host.
    pub aliases: Vec<String>,
    /// Its outcome.
    pub outcome: Outcome,
}

/// The outcome of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The copy is complete and verified.
    Done {
        /// Time since the workers were told to start.
        after: Duration,
        /// Useful payload received, bytes.
        received: u64,
        /// Payload sent to others, bytes.
        sent: u64,
        /// Payload received twice, bytes.
        duplicate: u64,
        /// Payload received that did not match its hash, bytes.
        corrupt: u64,
        /// Files that already had the right data.
        kept: u64,
        /// The result for the copy.
        action: Action,
        /// Files that existed at the destination.
        found: ExistingFiles,
    },
    /// The host does not have the copy.
    Failed {
        /// Why, as far as is known.
        reason: String,
        /// The failed connection of its worker, if that is the reason.
        unreached: Option<Unreached>,
    },
}

impl Outcome {
    /// Files that existed at the destination, if the host is complete.
    #[must_use]
    pub fn found(&self) -> Option<&ExistingFiles> {
        match self {
            Outcome::Done { found, .. } => Some(found),
            Outcome::Failed { .. } => None,
        }
    }
}

/// The report of a broadcast.
#[derive(Clone, Debug)]
pub struct Report {
    /// Bytes of the source.
    pub bytes: u64,
    /// Its files.
    pub files: u64,
    /// Bytes in a piece.
    pub piece_length: u32,
    /// Every host, in the order of the list.
    pub hosts: Vec<HostReport>,
    /// The algorithm that distributed the data, e.g. "swarm".
    pub algorithm: &'static str,
    /// The network that the members used.
    pub network: String,
    /// The hosts of each place, if places were measured.
    pub places: Option<Vec<Vec<String>>>,
    /// Link speed for the bound, bits per second; 0: unknown.
    pub link_rate: u64,
    /// The origin of this figure.
    pub link_rate_from: LinkRateFrom,
    /// Time to read and hash the source.
    pub hashing: Duration,
    /// Time from the first launch until the workers were told to start.
    pub gathering: Duration,
    /// Time from then until the last host was done.
    pub transfer: Duration,
    /// Bytes that the origin and the additional sources sent.
    pub origin_sent: u64,
    /// The additional sources, and how many bytes of `origin_sent` each sent.
    pub sources: Vec<(String, u64)>,
    /// If the manifest was broadcast too: its bytes, and how many of them the origin sent. They are not included in
    /// `origin_sent`.
    pub manifest: Option<(u64, u64)>,
}

impl Report {
    /// Number of complete hosts.
    #[must_use]
    pub fn done(&self) -> usize {
        self.hosts.iter().filter(|h| matches!(h.outcome, Outcome::Done { .. })).count()
    }

    /// Bytes that complete hosts have received: useful, duplicate, corrupt.
    #[must_use]
    pub fn received(&self) -> (u64, u64, u64) {
        let mut sums = (0, 0, 0);
        for host in &self.hosts {
            if let Outcome::Done { received, duplicate, corrupt, .. } = &host.outcome {
                sums = (sums.0 + received, sums.1 + duplicate, sums.2 + corrupt);
            }
        }
        sums
    }

    /// The maximum that a single host needed, bytes, without the data that it had before.
    #[must_use]
    pub fn needed(&self) -> u64 {
        let received = |host: &HostReport| match host.outcome {
            Outcome::Done { received, .. } => received,
            Outcome::Failed { .. } => 0,
        };
        self.hosts.iter().map(received).max().unwrap_or(0).min(self.bytes)
    }

    /// The lower bound of the time: the maximum that a host needed, at the rate of its link.
    #[must_use]
    pub fn bound(&self) -> Option<Duration> {
        let needed = self.needed();
        let known = needed > 0 && self.link_rate > 0;
        known.then(|| Duration::from_secs_f64(needed as f64 * 8.0 / self.link_rate as f64))
    }

    /// The bound divided by the measured time.
    #[must_use]
    pub fn efficiency(&self) -> Option<f64> {
        let bound = self.bound()?.as_secs_f64();
        (!self.transfer.is_zero()).then(|| bound / self.transfer.as_secs_f64())
    }

    /// The data that the origin and the additional sources sent, in copies of the data that a host needed.
    #[must_use]
    pub fn origin_copies(&self) -> Option<f64> {
        let needed = self.needed();
        (needed > 0).then(|| self.origin_sent as f64 / needed as f64)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn report() -> Report {
        let done = |received, duplicate| Outcome::Done {
            after: Duration::from_secs(1),
            received,
            sent: 0,
            duplicate,
            corrupt: 0,
            kept: 0,
            action: Action::Delivered,
            found: ExistingFiles::default(),
        };
        let host = |name: &str, outcome| HostReport { name: name.into(), aliases: Vec::new(), outcome };
        Report {
            bytes: 1_000_000,
            files: 1,
            piece_length: 16 << 10,
            hosts: vec![
                host("a", done(1_000_000, 10_000)),
                host("b", done(0, 0)),
                host("c", Outcome::Failed { reason: "dead".into(), unreached: None }),
            ],
            algorithm: "swarm",
            network: "lo".into(),
            places: None,
            link_rate: 8_000_000,
            link_rate_from: LinkRateFrom::Told,
            hashing: Duration::ZERO,
            gathering: Duration::ZERO,
            transfer: Duration::from_secs(2),
            origin_sent: 1_500_000,
            sources: Vec::new(),
            manifest: None,
        }
    }

    #[test]
    fn the_figures() {
        let report = report();
        assert_eq!((report.done(), report.received()), (2, (1_000_000, 10_000, 0)));
        assert_eq!(report.bound(), Some(Duration::from_secs(1)));
        assert_eq!((report.efficiency(), report.origin_copies()), (Some(0.5), Some(1.5)));
    }

    #[test]
    fn what_is_not_known_is_not_told() {
        let unknown = Report { link_rate: 0, ..report() };
        assert_eq!((unknown.bound(), unknown.efficiency()), (None, None));
        let idle = Report { hosts: report().hosts.split_off(1), ..report() };
        assert_eq!((idle.bound(), idle.origin_copies()), (None, None), "nobody needed anything");
    }
}
