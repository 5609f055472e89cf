//! From the simplest transfer to the whole one, a step at a time, as in section 5 of the 100 Gbps paper.

use std::ffi::OsString;
use std::sync::mpsc;
use std::time::Duration;

use tidecast_text::{Rate, count};

use super::attempt::{Attempt, SourceStats};
use super::event::{Event, Explanation, Step};
use super::job::{Job, Watch};
use super::location::Location;
use crate::error::Error;
use crate::spec::SendSpec;
use crate::transfer::{Outcome, Wire};

/// How long a step is watched.
const STEP: Duration = Duration::from_secs(3);
/// Most generated data: more than any link carries during a step.
const NOISE: u64 = 1 << 40;
/// Noise is written as much as the sources hold, but no more than this.
const WRITTEN: u64 = 1 << 30;
/// A shorter step measures no rate: its beginning and end dominate.
const TOO_SHORT: f64 = 0.25;
/// A step with less than this share of the rate before it is the limit.
const COSTS: f64 = 0.9;
/// The same, where the limit of the network is known.
const COSTS_SEEN: f64 = 0.5;

/// The verdict on the network when the kernel gives no detail.
const NETWORK: &str = "the network, or encryption";
/// Streams that wait for this share of their busy time are limited by the reason of the wait.
const WAITS: f64 = 0.5;
/// Of waits for a window that explains the rate, less will do: the kernel counts only those with nothing on its way.
const WAITS_EXPLAINED: f64 = 0.25;
/// A window explains a rate that is at least this share of its allowance.
const EXPLAINS: f64 = 0.6;
/// Segments sent again, of all, from which on loss is to blame.
const LOSS: f64 = 0.005;

/// Climbs, and copies.
pub(super) fn run(
    job: &Job,
    watch: &Watch,
    say: &mpsc::Sender<Event>,
) -> Result<(Outcome, Explanation), Error> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut met, mut wire) = (SourceStats::default(), Wire::default());
    let all: [(&str, &str); 4] = [
        ("noise, within this host", "this host (digests, memory)"),
        ("noise, over the network", NETWORK),
        ("the sources, over the network, not written", "reading"),
        ("noise, over the network, written and deleted", "writing"),
    ];
    let tell = |step| drop(say.send(Event::Step(step)));
    for (number, (what, limit)) in all.into_iter().enumerate() {
        let rate = steps.last().map_or(0.0, Step::rate);
        let job = step_job(job, number, &met, rate);
        // Written data must be removed as well, which only a copy does that ends by itself.
        let most = (number != 3).then_some(STEP);
        let (bytes, seconds, found) = measured(job.copy(most, watch, say)?);
        if number == 1 {
            wire = found.wire;
        }
        if number == 2 {
            met = found;
        }
        let step = Step { what, limit, bytes, seconds };
        tell(step);
        steps.push(step);
    }
    let outcome = job.whole(watch, say)?;
    let (bytes, seconds) = (outcome.written.bytes, outcome.seconds);
    tell(Step { what: "the whole", limit: "", bytes, seconds });
    let limit = overall_limit(&steps, &wire, [&job.from, &job.to]);
    Ok((outcome, Explanation { steps, limit, wire }))
}

/// The job of one step. `rate`: of the step before, bytes a second.
fn step_job(job: &Job, number: usize, met: &SourceStats, rate: f64) -> Job {
    let mut job = job.clone();
    let noise =
        |bytes: u64| SendSpec { sources: Vec::new(), null: Some((bytes, met.mean)), ..SendSpec::default() };
    match number {
        0 => {
            job.send = noise(NOISE);
            (job.from, job.to) = (Location::Local(OsString::new()), Location::Local(OsString::new()));
        }
        1 => job.send = noise(NOISE),
        2 => {}
        _ => {
            let bytes = (rate * STEP.as_secs_f64()) as u64;
            job.send = noise(bytes.min(met.bytes.unwrap_or(WRITTEN)).clamp(1, WRITTEN));
        }
    }
    job.receive.null = number < 3;
    job.receive.discard = number == 3;
    job.receive.delete = false;
    job
}

/// The limit of the whole copy.
fn overall_limit(steps: &[Step], wire: &Wire, places: [&Location; 2]) -> String {
    let limit = limit(steps);
    let [_, link, reading, writing] = steps else { return limit.to_owned() };
    if !steps.iter().all(|step| step.seconds >= TOO_SHORT) {
        return limit.to_owned();
    }
    let verdict = verdict(wire, link, places);
    // On a long way a short step costs round trips and parts of blocks: where the kernel has seen the reason, a step must
    // cost more to be another one.
    let last = reading.rate().min(writing.rate());
    let is_seen = verdict != NETWORK && last >= link.rate() * COSTS_SEEN;
    if is_seen || limit == NETWORK { verdict } else { limit.to_owned() }
}

/// The limit of the streams between two places, by the kernel's statistics.
fn verdict(wire: &Wire, step: &Step, [from, to]: [&Location; 2]) -> String {
    let part = |seconds: f64| if wire.busy > 0.0 { seconds / wire.busy } else { 0.0 };
    let (window, buffer) = (part(wire.window_limited), part(wire.buffer_limited));
    let allowed = |bytes: u64| bytes as f64 * f64::from(wire.streams) / wire.round_trip.max(1e-6);
    let product = |bytes: u64| {
        format!(
            "{} x {} per {} = {}",
            kib(bytes),
            count(wire.streams.into(), "stream"),
            format_args!("{:.1} ms", wire.round_trip * 1e3),
            Rate((allowed(bytes) * 8.0) as u64)
        )
    };
    let explained = step.rate() >= allowed(wire.under_way) * EXPLAINS;
    if window >= buffer && window > WAITS_EXPLAINED && explained {
        let product = product(wire.under_way);
        return format!(
            "window limited: {product}; raise net.ipv4.tcp_rmem on {} (tidecast doctor --for copy: tcp-receive-buffer)",
            host(to)
        );
    }
    if window >= buffer && window > WAITS {
        return format!("the receiver: {} cannot keep up (processors or writing)", host(to));
    }
    if buffer > WAITS {
        let bytes = wire.under_way.max(wire.send_buffer / 2);
        return format!(
            "send buffer limited: {}; raise net.ipv4.tcp_wmem on {} (tidecast doctor --for copy: tcp-send-buffer)",
            product(bytes),
            host(from)
        );
    }
    let lost = wire.again as f64 / wire.segments.max(1) as f64;
    if lost > LOSS {
        let percent = lost * 100.0;
        return format!(
            "loss: {percent:.1}% of the segments were retransmitted; check for a bad or congested link (tidecast doctor: nic-drops, nic-errors), or try --congestion bbr"
        );
    }
    NETWORK.to_owned()
}

/// As TCP's buffers are usually named.
fn kib(bytes: u64) -> String {
    if bytes < 10 << 20 { format!("{} KiB", bytes.div_ceil(1024)) } else { format!("{} MiB", bytes >> 20) }
}

fn host(place: &Location) -> String {
    match place {
        Location::Local(_) => "this host".to_owned(),
        Location::Ssh { host, .. } => host.to_string(),
        server @ Location::Server { .. } => server.to_string(),
    }
}

/// Bytes, seconds, and the files seen.
fn measured(ended: Attempt) -> (u64, f64, SourceStats) {
    match ended {
        Attempt::Complete(outcome) => {
            let met = SourceStats { wire: outcome.wire, ..SourceStats::from(&outcome.walked) };
            (outcome.written.bytes, outcome.seconds, met)
        }
        Attempt::TimeLimit { bytes, seconds, met } => (bytes, seconds, met),
    }
}

/// The step at which the rate falls most, if it falls by much; else the network.
fn limit(steps: &[Step]) -> &'static str {
    let [host, link, reading, writing] = steps else { return "" };
    if steps.iter().any(|step| step.seconds < TOO_SHORT) {
        return "unknown: the sources are too small to tell";
    }
    let last = if reading.rate() < writing.rate() { reading } else { writing };
    if last.rate() < link.rate() * COSTS {
        last.limit
    } else if link.rate() < host.rate() * COSTS {
        link.limit
    } else {
        host.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_says_which_wait_explains_the_rate() {
        let places = [&Location::Local(OsString::from("a")), &Location::Local(OsString::from("b"))];
        let step = |rate: f64| Step { what: "", limit: "", bytes: rate as u64, seconds: 1.0 };
        let wire = Wire {
            streams: 16,
            round_trip: 0.05,
            busy: 10.0,
            under_way: 64 << 10,
            segments: 10_000,
            ..Wire::default()
        };
        let limited = Wire { window_limited: 9.0, ..wire };
        let said = verdict(&limited, &step(20e6), places);
        assert_eq!(
            said,
            "window limited: 64 KiB x 16 streams per 50.0 ms = 168 Mbit/s; raise net.ipv4.tcp_rmem on this host (tidecast doctor --for copy: tcp-receive-buffer)"
        );
        assert!(
            verdict(&limited, &step(2e6), places).starts_with("the receiver: "),
            "its window is closed, not small"
        );
        let buffers = Wire { buffer_limited: 9.0, ..wire };
        assert!(verdict(&buffers, &step(20e6), places).contains("tcp_wmem"));
        assert!(verdict(&Wire { again: 200, ..wire }, &step(20e6), places).starts_with("loss: 2.0%"));
        assert_eq!(verdict(&wire, &step(20e6), places), NETWORK);
    }

    #[test]
    fn a_limit_is_named_only_where_the_steps_took_long_enough() {
        let step = |limit, bytes, seconds| Step { what: "", limit, bytes, seconds };
        let ladder =
            |writing| limit(&[step("host", 900, 3.0), step("link", 600, 3.0), step("in", 590, 3.0), writing]);
        assert_eq!(ladder(step("out", 100, 1.0)), "out");
        assert_eq!(ladder(step("out", 210, 1.0)), "link");
        assert!(ladder(step("out", 1, 0.01)).contains("too small"));
    }
}
