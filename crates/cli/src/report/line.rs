//! Progress as a line for people, and as a bar.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tidecast::event::Progress;
use tidecast::event::bcast::Hosts;
use tidecast::event::copy::Limit;
use tidecast_text::{Size, Span, bytes_per_second, count};

use crate::names;

/// One line for people.
pub(super) fn line(now: &Progress) -> String {
    let (stage, traffic) = (now.stage.name(), now.traffic.as_ref());
    let mut parts = Vec::new();
    let percent = now.bytes.min(now.total) as f64 * 100.0 / now.total.max(1) as f64;
    // Rounding must not show 100% before the end.
    let percent = if now.bytes < now.total { percent.min(99.9) } else { percent };
    if let Some(run) = &now.run {
        let name = run.run.clone();
        parts.push(if now.total > 0 { format!("{name}: {percent:.1}%") } else { name });
        parts.extend(run.simulated_seconds.map(|seconds| format!("{seconds:.3} s simulated")));
    } else if now.total > 0 {
        parts.push(format!("{stage}: {percent:.1}% of {}", Size(now.total)));
        parts.push(bytes_per_second(now.rate as f64));
    } else {
        let (sent, rate) = traffic.map_or((now.bytes, now.rate), |traffic| (traffic.sent, traffic.rate_out));
        parts.push(format!("{stage}: {} sent", Size(sent)));
        parts.push(bytes_per_second(rate as f64));
    }
    parts.extend(traffic.map(|traffic| count(traffic.peers as u64, "peer")));
    if let Some(Hosts { hosts, hosts_done, hosts_failed }) = now.hosts {
        parts.push(format!("{hosts_done} of {} done", count(hosts as u64, "host")));
        if hosts_failed > 0 {
            parts.push(format!("{hosts_failed} failed"));
        }
    }
    if let Some(copy) = &now.copy {
        let name = copy.limit.name();
        let limit = if copy.limit == Limit::Syncing { name.into() } else { format!("limit: {name}") };
        parts.push(format!("{}, {limit}", count(copy.streams.into(), "stream")));
    }
    if now.bytes < now.total && now.rate > 0 {
        let left = (now.total - now.bytes) as f64 / now.rate as f64;
        parts.push(format!("{} left", Span(Duration::from_secs_f64(left.min(3.6e6)))));
    }
    parts.join(", ")
}

/// Draws a bar of `done` of `of` (0: the total is unknown), and a line beside it.
pub(super) fn draw(bar: &ProgressBar, (done, of): (u64, u64), line: &str) {
    let known = of > 0;
    if bar.length().is_some() != known || bar.message().is_empty() {
        let template = if known { "{bar:24} {msg}" } else { "{spinner} {msg}" };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("##-"));
        }
    }
    if known {
        bar.set_length(of);
    } else {
        bar.unset_length();
    }
    bar.set_position(done.min(of));
    bar.set_message(names::line(line));
}

#[cfg(test)]
mod tests {
    use tidecast::event::sim::Running;
    use tidecast::event::{Stage, Traffic};

    use super::*;

    #[test]
    fn a_line_says_what_rate_peers_and_time_left() {
        let peers = |peers| Some(Traffic { peers, ..Traffic::default() });
        let (stage, total, rate) = (Stage::Get, 1_000_000, 250_000);
        let at = |bytes| Progress { stage, bytes, total, rate, traffic: peers(1), ..Progress::default() };
        assert_eq!(line(&at(250_000)), "get: 25.0% of 1.00 MB, 250 kB/s, 1 peer, 3.00 s left");
        assert!(line(&at(999_999)).contains("99.9%"), "not yet all");
        let run = Some(Running { run: "chain".to_owned(), simulated_seconds: Some(1.5) });
        let simulating = Progress { run, traffic: None, ..at(250_000) };
        assert_eq!(line(&simulating), "chain: 25.0%, 1.500 s simulated, 3.00 s left");
        let traffic = peers(2).map(|traffic| Traffic { sent: 5, ..traffic });
        let seeding = Progress { stage: Stage::Seed, traffic, ..Progress::default() };
        assert_eq!(line(&seeding), "seed: 5 B sent, 0 B/s, 2 peers");
    }
}
