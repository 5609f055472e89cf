//! `--explain`: from the simplest transfer to the whole one, a step at a time, as in section 5 of the 100 Gbps paper.

use std::ffi::OsString;
use std::time::Duration;

use serde_json::{Value, json};
use tidecast_mover::job::Walked;
use tidecast_mover::spec::SendSpec;

use super::place::Place;
use super::session::{self, Ended, Job};
use super::tell;
use crate::cmd::Context;
use crate::failure::Failure;
use crate::report::{Reporter, object, round};
use crate::units::bytes_per_second;

/// How long a step is watched.
const STEP: Duration = Duration::from_secs(3);
/// What noise is sent, at most: more than any link carries while it is watched.
const NOISE: u64 = 1 << 40;
/// Noise is written as much as the sources hold, but no more than this.
const WRITTEN: u64 = 1 << 30;
/// What took less tells no rate: beginning and end are most of it.
const TOO_SHORT: f64 = 0.25;
/// A step that goes at less than this part of the one before is what holds the copy up.
const COSTS: f64 = 0.9;

/// One step.
struct Step {
    what: &'static str,
    /// What should be looked at if this step is where the rate falls.
    limit: &'static str,
    bytes: u64,
    seconds: f64,
}

impl Step {
    /// Bytes a second.
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-3)
    }
}

/// Climbs, and copies.
pub(super) fn run(job: &Job<'_>, context: &Context<'_>, reporter: &mut Reporter) -> crate::failure::Outcome {
    reporter.started("copy", object(json!({ "from": job.from.to_string(), "to": job.to.to_string() })));
    let mut steps: Vec<Step> = Vec::new();
    let mut met = Met::default();
    let all: [(&str, &str); 4] = [
        ("noise, within this host", "this host (digests, memory)"),
        ("noise, over the network", "the network, or encryption"),
        ("the sources, over the network, not written", "reading"),
        ("noise, over the network, written and deleted", "writing"),
    ];
    for (number, (what, limit)) in all.into_iter().enumerate() {
        let rate = steps.last().map_or(0.0, Step::rate);
        let job = rung(job, number, &met, rate);
        // What is written must be removed as well, which only a copy does that ends by itself.
        let most = (number != 3).then_some(STEP);
        let (bytes, seconds, found) = measured(session::copy(&job, most, context, reporter)?);
        if number == 2 {
            met = found;
        }
        let step = Step { what, limit, bytes, seconds };
        reporter.clear();
        reporter.result(&line(&step));
        steps.push(step);
    }
    let ended = session::copy(job, None, context, reporter)?;
    let Ended::Whole(outcome) = ended else { return Err(Failure::cut("cut off")) };
    let (bytes, seconds) = (outcome.written.bytes, outcome.seconds);
    reporter.clear();
    reporter.result(&line(&Step { what: "the whole", limit: "", bytes, seconds }));
    let limit = limit(&steps);
    reporter.result(&format!("the limit: {limit}"));
    let ladder: Vec<Value> = steps
        .iter()
        .map(|step| json!({ "step": step.what, "bytes_per_second": step.rate().round(), "seconds": round(step.seconds) }))
        .collect();
    let mut fields = tell::tell(&outcome, false, None, reporter)?;
    fields.extend(object(json!({ "ladder": ladder, "limit": limit })));
    Ok(fields)
}

/// What the sources hold, as far as it was seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Met {
    /// Bytes of files, if it was all seen.
    pub(super) bytes: Option<u64>,
    /// Of a file, in the mean.
    pub(super) mean: u64,
}

impl From<&Walked> for Met {
    fn from(walked: &Walked) -> Self {
        let bytes = walked.complete.then_some(walked.bytes);
        Self { bytes, mean: walked.bytes / walked.files.max(1) }
    }
}

/// What is copied at one step. `rate`: of the step before, bytes a second.
fn rung<'a>(job: &Job<'a>, number: usize, met: &Met, rate: f64) -> Job<'a> {
    let mut job = job.clone();
    let noise =
        |bytes: u64| SendSpec { sources: Vec::new(), null: Some((bytes, met.mean)), ..SendSpec::default() };
    match number {
        0 => {
            job.send = noise(NOISE);
            (job.from, job.to) = (Place::Local(OsString::new()), Place::Local(OsString::new()));
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

/// Bytes, seconds, and what was met.
fn measured(ended: Ended) -> (u64, f64, Met) {
    match ended {
        Ended::Whole(outcome) => (outcome.written.bytes, outcome.seconds, Met::from(&outcome.walked)),
        Ended::Cut { bytes, seconds, met } => (bytes, seconds, met),
    }
}

/// The step at which the rate falls most, if it falls by much; else the network.
fn limit(steps: &[Step]) -> &'static str {
    let [host, link, reading, writing] = steps else { return "" };
    if steps.iter().any(|step| step.seconds < TOO_SHORT) {
        return "not known: the sources are too small to tell";
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

fn line(step: &Step) -> String {
    format!("{:>12}  {}", bytes_per_second(step.rate()), step.what)
}

#[cfg(test)]
mod tests {
    use super::*;

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
