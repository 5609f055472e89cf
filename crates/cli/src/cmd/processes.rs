//! The processes of this user that `status` shows beside mounts, for people.

use std::time::Duration;

use serde_json::Value;

use crate::report::Reporter;
use crate::units::{Size, Span, bytes_per_second, count};

/// Peers shown of one process.
const PEERS: usize = 8;
/// A peer of which nothing has moved for so long is said to be silent.
const QUIET: f64 = 5.0;

/// One process.
pub(crate) fn show(one: &Value, reporter: &Reporter) {
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
