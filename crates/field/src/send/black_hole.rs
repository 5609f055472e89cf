//! Detection of paths that drop datagrams because of their size: a link on the path has a smaller MTU than
//! this host's, and the ICMP message about it is dropped (a black hole, RFC 2923). As in RFC 8899, arrival is
//! the criterion: if a receiver answers small hellos and receives none of many packets, smaller ones are
//! tried. Pure.

use std::net::SocketAddr;

use super::reports::Reports;

/// MTUs that links have: Ethernet, most tunnels, the least of IPv6, the least that IPv4 hosts take.
const MTUS: [usize; 4] = [1500, 1400, 1280, 576];
/// Reports in a row, one each 250 ms, that tell of no packet more.
const REPORTS: u32 = 4;
/// Packets that are lost in a row, of all streams of a receiver, and of one stream: its path may be another one.
const PACKETS: (u64, u64) = (16, 64);

/// A size that does not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlackHole {
    /// Where it was to go.
    pub to: SocketAddr,
    /// Bytes of a full datagram.
    pub size: usize,
    /// None of this size has ever arrived.
    pub never: bool,
}

impl BlackHole {
    /// The datagram size to try next; `None`: no other size would help.
    #[must_use]
    pub fn smaller(&self) -> Option<usize> {
        let head = if self.to.is_ipv4() { 28 } else { 48 };
        MTUS.iter().map(|mtu| mtu - head).find(|size| *size < self.size)
    }
}

/// Whether a receiver has had nothing for so long that its path must swallow the packets; these are its streams.
pub(super) fn drops_size(streams: &[Reports]) -> bool {
    let dry = |reports: &&Reports| reports.is_accepted() && reports.dry_reports() >= REPORTS;
    let all: u64 = streams.iter().map(Reports::dry_packets).sum();
    let silent = streams.iter().all(|reports| reports.is_idle() || dry(&reports));
    (silent && all >= PACKETS.0)
        || streams.iter().filter(dry).any(|reports| reports.dry_packets() >= PACKETS.1)
}

/// Whether a receiver that accepts the session has received none of it at the end.
pub(super) fn dropped_size(streams: &[Reports]) -> bool {
    let sent = streams.iter().filter(|reports| reports.is_accepted()).map(Reports::dry_packets).sum::<u64>();
    sent > 0 && streams.iter().all(|reports| reports.full_received() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Accepted, Report};

    fn hear(reports: &mut Reports, sent: u64, received: u64) {
        reports.ask(sent);
        let (challenge, accepted) = (1, Accepted::Yes);
        reports.on_report(&Report { session: 1, challenge, accepted, batch: 0, received, lost: 0, bytes: 0 });
    }

    #[test]
    fn what_never_arrives_is_swallowed_and_what_is_lost_is_not() {
        let mut streams = vec![Reports::default(); 2];
        streams.iter_mut().for_each(|reports| hear(reports, 0, 0));
        for report in 1..=REPORTS {
            assert!(!drops_size(&streams) && (report == 1 || dropped_size(&streams)));
            streams.iter_mut().for_each(|reports| hear(reports, u64::from(report) * 10, 0));
        }
        assert!(drops_size(&streams));
        // One packet of the other stream arrives: the path lets this size through.
        hear(&mut streams[1], 50, 1);
        assert!(!drops_size(&streams) && !dropped_size(&streams));
        // Paths of streams may differ, which takes more packets to be sure.
        for report in 1..=REPORTS {
            hear(&mut streams[0], 40 + 10 * u64::from(report), 0);
            hear(&mut streams[1], 50 + 10 * u64::from(report), 1 + u64::from(report));
        }
        assert!(drops_size(&streams));
        hear(&mut streams[0], 90, 3);
        assert!(!drops_size(&streams));
    }

    #[test]
    fn last_packets_of_slabs_pass_where_full_ones_do_not() {
        let mut reports = Reports::new(1472, 200);
        let (challenge, accepted) = (1, Accepted::Yes);
        let mut report = Report { session: 1, challenge, accepted, batch: 0, received: 0, lost: 0, bytes: 0 };
        for n in 0..=u64::from(REPORTS) {
            reports.ask(n * 40);
            (report.received, report.bytes) = (n, n * 200);
            reports.on_report(&report);
        }
        assert!(drops_size(&[reports.clone()]) && dropped_size(&[reports.clone()]));
        reports.ask(201);
        (report.received, report.bytes) = (6, 5 * 200 + 1472);
        reports.on_report(&report);
        assert!(!drops_size(&[reports.clone()]) && !dropped_size(&[reports]));
    }

    #[test]
    fn packets_before_a_receiver_takes_them_do_not_count() {
        let mut reports = Reports::default();
        reports.ask(1000);
        for _ in 0..8 {
            hear(&mut reports, 1000, 0);
        }
        assert!(!drops_size(&[reports.clone()]) && !dropped_size(&[reports]));
    }

    #[test]
    fn sizes_go_down_to_an_end() {
        let next = |to: &str, size| BlackHole { to: to.parse().unwrap(), size, never: true }.smaller();
        assert_eq!(
            [8972, 1472, 1300, 508].map(|size| next("10.0.0.1:1", size)),
            [Some(1472), Some(1372), Some(1252), None]
        );
        assert_eq!(next("[::1]:1", 1452), Some(1352));
    }
}
