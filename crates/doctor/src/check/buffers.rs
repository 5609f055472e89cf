//! Socket buffers against bandwidth x delay.

use std::time::Duration;

use tidecast_text::{Rate, Size, count};

use super::words::{FAR, STREAMS_FAR, ms};
use crate::{Change, Facts, Finding, Goal, Purpose, model};

const PAPER: &str = "100 Gbit/s paper, section 6.1; fasterdata.es.net/host-tuning/linux";
/// Streams that `copy` begins with on a short path.
const STREAMS_NEAR: u32 = 2;
/// Datagrams come over so many sockets of a field by default.
const FIELD_STREAMS: u32 = 4;
/// The socket buffer that each stream of a field asks for.
const FIELD_BUFFER: u64 = 64 << 20;
/// The default of a kernel, where a buffer's parameter has only one value to give.
const LEAST: u64 = 4096;

pub(super) fn check(facts: &Facts, goal: &Goal) -> Vec<Finding> {
    let mut found = Vec::new();
    let (receive, send) = (model::WINDOW_OF_BUFFER, model::FLIGHT_OF_BUFFER);
    found.extend(tcp(goal, "tcp-receive-buffer", "net.ipv4.tcp_rmem", receive, facts.sockets.tcp_rmem));
    found.extend(tcp(goal, "tcp-send-buffer", "net.ipv4.tcp_wmem", send, facts.sockets.tcp_wmem));
    found.extend(udp(goal, facts.sockets.rmem_max));
    found
}

/// Streams of a purpose that share the link.
fn streams(purpose: Purpose, rtt: Duration) -> u32 {
    match purpose {
        Purpose::Copy if rtt > FAR => STREAMS_FAR,
        Purpose::Copy => STREAMS_NEAR,
        Purpose::Field => FIELD_STREAMS,
        Purpose::Bcast | Purpose::Mount | Purpose::Daemon => 1,
    }
}

/// Bytes on the way of one stream when the link is full.
fn share(goal: &Goal, purpose: Purpose) -> f64 {
    let rtt = goal.rtt_for(purpose);
    model::bandwidth_delay(goal.link, rtt) as f64 / f64::from(streams(purpose, rtt))
}

/// The purpose whose TCP streams need the largest buffers; fields have none.
fn worst(goal: &Goal) -> Option<Purpose> {
    let all = goal.purposes().filter(|purpose| *purpose != Purpose::Field);
    all.max_by(|one, other| share(goal, *one).total_cmp(&share(goal, *other)))
}

/// The round-trip time and the number of TCP streams that buffers are judged for.
pub(super) fn path(goal: &Goal) -> (Duration, u32) {
    let rtt = goal.rtt_for(worst(goal).unwrap_or(Purpose::Field));
    (rtt, worst(goal).map_or(1, |worst| streams(worst, rtt)))
}

/// A size that people write.
fn rounded(bytes: u64) -> u64 {
    bytes.checked_next_power_of_two().unwrap_or(1 << 63)
}

/// The most that a TCP buffer grows to, for the purpose that suffers most. `part` of a buffer is window.
fn tcp(goal: &Goal, check: &'static str, name: &str, part: f64, read: Option<[u64; 3]>) -> Option<Finding> {
    let worst = worst(goal)?;
    let needed = (share(goal, worst) / part) as u64;
    let (rtt, needs) = (goal.rtt_for(worst), rounded(needed.max(LEAST)));
    let Some([least, usual, most]) = read else {
        let why = format!("{name} cannot be read here");
        return Some(Finding::new(check, "", "", Size(needs).to_string(), PAPER).unknown().because(why));
    };
    let count_of = streams(worst, rtt);
    let window = most as f64 * part;
    let reached = model::window_rate(window, count_of, rtt);
    let model = format!(
        "{} x {} of window / {} = {} of {}",
        count(count_of.into(), "stream"),
        Size(window as u64),
        ms(rtt),
        Rate(reached as u64),
        Rate(goal.link)
    );
    let value = format!("{least} {usual} {}", needs.min(i32::MAX as u64));
    let finding = Finding::new(
        check,
        "",
        format!("{name}: at most {}", Size(most)),
        Size(needs).to_string(),
        PAPER,
    )
    .because(format!(
        "a stream of `{worst}` sends at most one window a round trip, and {:.0}% of the buffer is window",
        part * 100.0
    ))
    .costs(model::share_lost(reached, goal.link as f64), model)
    .mend([Change::sysctl(name, value)]);
    Some(finding)
}

/// The buffer of a field's socket: what comes while the receiver's thread does not run.
fn udp(goal: &Goal, read: Option<u64>) -> Option<Finding> {
    const CHECK: &str = "udp-receive-buffer";
    if !goal.is_for(Purpose::Field) {
        return None;
    }
    let pause = model::THREAD_PAUSE;
    let needs = model::bandwidth_delay(goal.link, pause) / u64::from(FIELD_STREAMS);
    let needs = rounded(needs).clamp(4 << 20, FIELD_BUFFER);
    let Some(most) = read else {
        let why = "net.core.rmem_max cannot be read in this namespace; root's receivers need it not";
        return Some(Finding::new(CHECK, "", "", Size(needs).to_string(), PAPER).unknown().because(why));
    };
    let each = most.min(FIELD_BUFFER);
    let reached = model::window_rate(each as f64, FIELD_STREAMS, pause);
    let model = format!(
        "{} x {} / a pause of {} = {} of {}",
        count(FIELD_STREAMS.into(), "socket"),
        Size(each),
        ms(pause),
        Rate(reached as u64),
        Rate(goal.link)
    );
    let finding = Finding::new(
        CHECK,
        "",
        format!("net.core.rmem_max: {}", Size(most)),
        Size(needs).to_string(),
        PAPER,
    )
    .because(
        "datagrams that come while the receiver's thread does not run are dropped where the buffer is full",
    )
    .costs(model::share_lost(reached, goal.link as f64), model)
    .mend([Change::sysctl("net.core.rmem_max", needs.to_string())]);
    Some(finding)
}
