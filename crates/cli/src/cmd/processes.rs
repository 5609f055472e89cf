//! The processes of this user that `status` shows beside mounts, for people; and the daemon that it can ask.

use std::time::Duration;

use serde_json::Value;
use tidecast_daemon::api::types::{Status, Underway};
use tidecast_daemon::client::Client;
use tidecast_text::{Size, Span, bytes_per_second, count};

use super::{Context, daemon, show};
use crate::report::Reporter;
use crate::stop::block_on;

/// Peers shown of one process.
const PEERS: usize = 8;
/// Manifests shown of one process, and transfers of a daemon.
const ROWS: usize = 64;
/// A daemon has so long to answer.
const ANSWER: Duration = Duration::from_secs(2);
/// A peer of which nothing has moved for so long is said to be silent.
const QUIET: f64 = 5.0;

/// One process.
pub(crate) fn show_one(one: &Value, reporter: &Reporter) {
    let text = |key: &str| one.get(key).and_then(Value::as_str).unwrap_or_default();
    let number = |key: &str| one.get(key).and_then(Value::as_u64).unwrap_or_default();
    let mut parts = Vec::new();
    let (done, total) = (number("bytes"), number("total"));
    if text("stage") == "seed" {
        parts.push(format!("{} sent, {}", Size(number("sent")), bytes_per_second(number("rate_out") as f64)));
    } else if one.get("stage").is_some() {
        let percent = done as f64 * 100.0 / total.max(1) as f64;
        parts.push(format!(
            "{}: {percent:.1}% of {}, {}",
            text("stage"),
            Size(total),
            bytes_per_second(number("rate") as f64)
        ));
    }
    if one.get("peers").is_some() {
        parts.push(count(number("peers"), "peer"));
    }
    if one.get("hosts").is_some() {
        let hosts = count(number("hosts"), "host");
        parts.push(format!("{} of {hosts} done, {} failed", number("hosts_done"), number("hosts_failed")));
    }
    if let Some(seconds) = one.get("seconds").and_then(Value::as_f64) {
        parts.push(format!("for {}", span(seconds)));
    }
    let of = ["name", "source"].into_iter().map(text).find(|of| !of.is_empty()).map(|of| format!(" {of}"));
    let to = ["to", "dest"].into_iter().map(text).find(|to| !to.is_empty()).map(|to| format!(" to {to}"));
    let (of, to) = (of.unwrap_or_default(), to.unwrap_or_default());
    reporter.result(&format!(
        "{}{of}{to} (process {}): {}",
        text("command"),
        number("pid"),
        parts.join(", ")
    ));
    let swarms = one.get("swarms").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    rows(swarms.iter().map(of_swarm), reporter);
    let connected = one.get("connected").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    connected.iter().take(PEERS).for_each(|peer| reporter.result(&of_peer(peer)));
    if connected.len() > PEERS {
        reporter.result("  ...");
    }
    if let Some(last) = one.get("last_error").filter(|last| last.is_object()) {
        let message = last.get("message").and_then(Value::as_str).unwrap_or_default();
        let ago = last.get("seconds").and_then(Value::as_f64).map(|s| format!(", {} ago", span(s)));
        let times = last.get("times").and_then(Value::as_u64).filter(|times| *times > 1);
        let times = times.map(|times| format!(", {}", count(times, "time"))).unwrap_or_default();
        reporter.result(&format!("  last error{}{times}: {message}", ago.unwrap_or_default()));
    }
}

/// As many as are shown.
fn rows(all: impl Iterator<Item = String>, reporter: &Reporter) {
    for (number, row) in all.take(ROWS + 1).enumerate() {
        reporter.result(if number < ROWS { &row } else { "  ..." });
    }
}

fn of_swarm(swarm: &Value) -> String {
    let text = |key: &str| swarm.get(key).and_then(Value::as_str).unwrap_or_default();
    let number = |key: &str| swarm.get(key).and_then(Value::as_u64).unwrap_or_default();
    let peers = count(number("peers"), "peer");
    let (done, total) = (Size(number("bytes")), Size(number("total")));
    let checked =
        if text("stage") == "check" { format!("{done} of {total} checked, ") } else { String::new() };
    format!("  {}: {checked}{} sent, {peers}", text("name"), Size(number("sent")))
}

/// The daemon that serves this user, as far as there is one.
pub(crate) fn daemon(context: &Context<'_>) -> Option<Status> {
    let socket = daemon::to_ask(context).ok().filter(|socket| socket.exists())?;
    let asked = async {
        let client = Client::new(&socket);
        let asked = tokio::time::timeout(ANSWER, client.get::<Status>("/v1/daemon")).await;
        Ok(asked.ok().and_then(Result::ok))
    };
    block_on(1, asked).ok().flatten()
}

/// A daemon, and what is on its way: all of it for its administrator, else what comes for this user.
pub(crate) fn show_daemon(daemon: &Status, reporter: &Reporter) {
    let (caches, coming) = (count(daemon.caches, "cache"), count(daemon.coming.len() as u64, "transfer"));
    let (sent, received) = (Size(daemon.sent), Size(daemon.received));
    reporter.result(&format!(
        "daemon {}: {}, {caches}, {coming} under way, received {received}, sent {sent}",
        show::plain(&daemon.name),
        show::plain(&daemon.state),
    ));
    let row = |one: &Underway| {
        let done = if one.total == 0 {
            String::new()
        } else {
            let percent = one.bytes as f64 * 100.0 / one.total as f64;
            format!(" {percent:.1}% of {},", Size(one.total))
        };
        format!(
            "  {} for {}:{done} {}",
            show::plain(&one.name),
            show::plain(&one.owner),
            show::plain(&one.why)
        )
    };
    rows(daemon.coming.iter().map(row), reporter);
}

fn of_peer(peer: &Value) -> String {
    let text = |key: &str| peer.get(key).and_then(Value::as_str).unwrap_or_default();
    let bytes = |key: &str| Size(peer.get(key).and_then(Value::as_u64).unwrap_or_default());
    let quiet = peer.get("quiet_seconds").and_then(Value::as_f64).filter(|quiet| *quiet >= QUIET);
    let quiet = quiet.map(|quiet| format!("; no byte for {}", span(quiet))).unwrap_or_default();
    let (received, sent) = (bytes("received"), bytes("sent"));
    format!("  {} {}: received {received}, sent {sent}{quiet}", text("addr"), text("client"))
}

fn span(seconds: f64) -> Span {
    // As whole seconds where there are many: nobody reads more.
    let seconds = if seconds < 10.0 { seconds } else { seconds.round() };
    Span(Duration::from_secs_f64(seconds.clamp(0.0, 1e9)))
}
