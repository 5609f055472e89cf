//! `--explain`: from the simplest transfer to the whole one, a step at a time, as in section 5 of the 100 Gbps paper.

use std::ffi::OsString;
use std::time::Duration;

use serde_json::{Value, json};
use tidecast_mover::spec::SendSpec;

use super::place::Place;
use super::session::{self, Ended, Job};
use super::tell;
use crate::cmd::Context;
use crate::failure::Failure;
use crate::report::{Reporter, object};
use crate::units::bytes_per_second;

/// How long a step is watched.
const STEP: Duration = Duration::from_secs(3);
/// What noise is sent, at most: more than any link carries while it is watched.
const NOISE: u64 = 1 << 40;
/// What noise is written: so that it comes from memory nowhere, but ends soon on a slow disk.
const WRITTEN: std::ops::RangeInclusive<u64> = 64 << 20..=4 << 30;
/// A step that goes at less than this part of the one before is what holds the copy up.
const COSTS: f64 = 0.9;

/// One step.
struct Step {
    what: &'static str,
    /// What should be looked at if this step is where the rate falls.
    limit: &'static str,
    /// Bytes a second.
    rate: f64,
}

/// Climbs, and copies.
pub(super) fn run(job: &Job<'_>, context: &Context<'_>, reporter: &mut Reporter) -> crate::failure::Outcome {
    reporter.started("copy", object(json!({ "from": job.from.to_string(), "to": job.to.to_string() })));
    let mut steps: Vec<Step> = Vec::new();
    let mut file = 0;
    let all: [(&str, &str); 4] = [
        ("noise, within this host", "this host (digests, memory)"),
        ("noise, over the network", "the network, or encryption"),
        ("the sources, over the network, not written", "reading"),
        ("noise, over the network, written and deleted", "writing"),
    ];
    for (number, (what, limit)) in all.into_iter().enumerate() {
        let link = steps.last().map_or(0.0, |step| step.rate);
        let job = rung(job, number, file, link);
        // What is written must be removed as well, which only a copy does that ends by itself.
        let most = (number != 3).then_some(STEP);
        let (rate, mean) = measured(session::copy(&job, most, context, reporter)?);
        if number == 2 {
            file = mean;
        }
        let step = Step { what, limit, rate };
        reporter.clear();
        reporter.result(&line(&step));
        steps.push(step);
    }
    let ended = session::copy(job, None, context, reporter)?;
    let Ended::Whole(outcome) = ended else { return Err(Failure::cut("cut off")) };
    let rate = outcome.written.bytes as f64 / outcome.seconds.max(1e-3);
    reporter.clear();
    reporter.result(&line(&Step { what: "the whole", limit: "", rate }));
    let limit = limit(&steps);
    reporter.result(&format!("the limit: {limit}"));
    let ladder: Vec<Value> = steps
        .iter()
        .map(|step| json!({ "step": step.what, "bytes_per_second": step.rate.round() }))
        .collect();
    let mut fields = tell::tell(&outcome, false, None, reporter)?;
    fields.extend(object(json!({ "ladder": ladder, "limit": limit })));
    Ok(fields)
}

/// What is copied at one step. `file`: the mean size of the files; `rate`: of the step before, bytes a second.
fn rung<'a>(job: &Job<'a>, number: usize, file: u64, rate: f64) -> Job<'a> {
    let mut job = job.clone();
    let noise =
        |bytes: u64| SendSpec { sources: Vec::new(), null: Some((bytes, file)), ..SendSpec::default() };
    match number {
        0 => {
            job.send = noise(NOISE);
            (job.from, job.to) = (Place::Local(OsString::new()), Place::Local(OsString::new()));
        }
        1 => job.send = noise(NOISE),
        2 => {}
        _ => {
            let bytes = (rate * STEP.as_secs_f64()) as u64;
            job.send = noise(bytes.clamp(*WRITTEN.start(), *WRITTEN.end()));
        }
    }
    job.receive.null = number < 3;
    job.receive.discard = number == 3;
    job.receive.delete = false;
    job
}

/// Bytes a second, and the mean size of the files that were met.
fn measured(ended: Ended) -> (f64, u64) {
    match ended {
        Ended::Whole(outcome) => {
            let mean = outcome.walked.bytes / outcome.walked.files.max(1);
            (outcome.written.bytes as f64 / outcome.seconds.max(1e-3), mean)
        }
        Ended::Cut { bytes, seconds, mean } => (bytes as f64 / seconds.max(1e-3), mean),
    }
}

/// The step at which the rate falls most, if it falls by much; else the network.
fn limit(steps: &[Step]) -> &'static str {
    let [host, link, reading, writing] = steps else { return "" };
    let last = if reading.rate < writing.rate { reading } else { writing };
    if last.rate < link.rate * COSTS {
        last.limit
    } else if link.rate < host.rate * COSTS {
        link.limit
    } else {
        host.limit
    }
}

fn line(step: &Step) -> String {
    format!("{:>12}  {}", bytes_per_second(step.rate), step.what)
}
