//! Texts of processes, and of the daemon.

use std::time::Duration;

use tidecast_text::{Size, Span, bytes_per_second, count};

use super::plain;
use crate::Connected;
use crate::daemon::{Status, TransferProgress};
use crate::status::{Process, Swarm};

/// Peers shown of one process.
const PEERS: usize = 8;
/// Manifests shown of one process, and transfers of a daemon.
const ROWS: usize = 64;
/// Seconds without data after which a peer is shown as silent.
const QUIET: f64 = 5.0;

impl Process {
    /// Lines for people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let about = &self.about;
        let of = about.name.as_ref().or(about.source.as_ref()).map_or(String::new(), |of| format!(" {of}"));
        let to = about.to.as_ref().or(about.dest.as_ref()).map_or(String::new(), |to| format!(" to {to}"));
        let (command, pid) = (self.command.as_deref().unwrap_or_default(), self.pid.unwrap_or_default());
        let mut lines = vec![format!("{command}{of}{to} (process {pid}): {}", self.parts().join(", "))];
        lines.extend(rows(self.swarms.iter().map(of_swarm)));
        let connected = self.connected.as_deref().unwrap_or_default();
        lines.extend(connected.iter().take(PEERS).map(of_peer));
        lines.extend((connected.len() > PEERS).then(more));
        lines.extend(self.last_error.as_ref().map(|last| {
            let ago = last.seconds.map_or(String::new(), |seconds| format!(", {} ago", span(seconds)));
            let times = last.times.filter(|times| *times > 1);
            let times = times.map_or(String::new(), |times| format!(", {}", count(times, "time")));
            format!("  last error{ago}{times}: {}", last.message)
        }));
        lines
    }

    /// Progress, peers and duration.
    fn parts(&self) -> Vec<String> {
        let mut parts = Vec::new();
        match (self.work.stage.as_deref(), &self.traffic) {
            (Some("seed"), traffic) => {
                let (sent, rate) = traffic.as_ref().map_or((0, 0), |of| (of.sent, of.rate_out));
                parts.push(format!("{} sent, {}", Size(sent), bytes_per_second(rate as f64)));
            }
            (Some(stage), _) => {
                let total = self.work.total.unwrap_or_default();
                let percent = self.work.bytes.unwrap_or_default() as f64 * 100.0 / total.max(1) as f64;
                let rate = bytes_per_second(self.work.rate.unwrap_or_default() as f64);
                parts.push(format!("{stage}: {percent:.1}% of {}, {rate}", Size(total)));
            }
            (None, _) => {}
        }
        parts.extend(self.traffic.as_ref().map(|traffic| count(traffic.peers as u64, "peer")));
        parts.extend(self.hosts.as_ref().map(|of| {
            format!(
                "{} of {} done, {} failed",
                of.hosts_done,
                count(of.hosts as u64, "host"),
                of.hosts_failed
            )
        }));
        parts.extend(self.seconds.map(|seconds| format!("for {}", span(seconds))));
        parts
    }
}

impl Status {
    /// Lines for people next to those of processes: transfers in progress, all of them for its administrator, else those of
    /// the caller.
    #[must_use]
    pub fn lines_in_short(&self) -> Vec<String> {
        let (caches, coming) = (count(self.caches, "cache"), count(self.coming.len() as u64, "transfer"));
        let (sent, received) = (Size(self.sent), Size(self.received));
        let mut lines = vec![format!(
            "daemon {}: {}, {caches}, {coming} in progress, received {received}, sent {sent}",
            plain(&self.name),
            plain(&self.state),
        )];
        lines.extend(rows(self.coming.iter().map(of_transfer)));
        lines
    }
}

fn of_transfer(of: &TransferProgress) -> String {
    let done = if of.total == 0 {
        String::new()
    } else {
        let percent = of.bytes as f64 * 100.0 / of.total as f64;
        format!(" {percent:.1}% of {},", Size(of.total))
    };
    format!("  {} for {}:{done} {}", plain(&of.name), plain(&of.owner), plain(&of.why))
}

fn more() -> String {
    "  ...".to_owned()
}

/// The rows that are shown.
fn rows(all: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    all.take(ROWS + 1).enumerate().map(|(number, row)| if number < ROWS { row } else { more() })
}

fn of_swarm(swarm: &Swarm) -> String {
    let Swarm { name, stage, bytes, total, .. } = swarm;
    let checked = match stage.as_str() {
        "check" => format!("{} of {} checked, ", Size(*bytes), Size(*total)),
        _ => String::new(),
    };
    format!("  {name}: {checked}{} sent, {}", Size(swarm.sent), count(swarm.peers as u64, "peer"))
}

fn of_peer(of: &Connected) -> String {
    let quiet = of.quiet_seconds.filter(|quiet| *quiet >= QUIET);
    let quiet = quiet.map_or(String::new(), |quiet| format!("; no data for {}", span(quiet)));
    let (addr, client) = (of.peer.addr, &of.peer.client);
    format!("  {addr} {client}: received {}, sent {}{quiet}", Size(of.peer.received), Size(of.peer.sent))
}

fn span(seconds: f64) -> Span {
    // Ten seconds and more are rounded to whole seconds.
    let seconds = if seconds < 10.0 { seconds } else { seconds.round() };
    Span(Duration::from_secs_f64(seconds.clamp(0.0, 1e9)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::status::About;
    use crate::{Progress, Stage, Traffic};

    #[test]
    fn a_process_is_told_with_what_it_is_about_and_how_far_it_is() {
        let about = About { name: Some("nt".into()), to: Some("/scratch".into()), ..About::default() };
        let (pid, command) = (Some(7), Some("get".to_owned()));
        let mut process = Process { pid, command, about, seconds: Some(3.0), ..Process::default() };
        assert_eq!(process.lines(), ["get nt to /scratch (process 7): for 3.00 s"]);
        let traffic = Some(Traffic { peers: 2, ..Traffic::default() });
        let (stage, bytes, total) = (Stage::Get, 500, 1000);
        process.advance(&Progress { stage, bytes, total, rate: 10, traffic, ..Progress::default() });
        let told = "get nt to /scratch (process 7): get: 50.0% of 1.00 kB, 10 B/s, 2 peers, for 3.00 s";
        assert_eq!(process.lines(), [told]);
        let text = serde_json::to_string(&process).unwrap();
        assert_eq!(serde_json::from_str::<Process>(&text).unwrap(), process);
    }

    #[test]
    fn what_another_version_says_is_taken_as_far_as_it_is_known() {
        let said = r#"{"pid":7,"command":"copy","new":[1],"bytes":5,"peers":"many","last_error":null}"#;
        let process: Process = serde_json::from_str(said).unwrap();
        assert_eq!((process.pid, process.work.bytes, process.traffic), (Some(7), Some(5), None));
    }
}
