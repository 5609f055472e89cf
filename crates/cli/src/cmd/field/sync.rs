//! `tidecast field sync`: the paper's controller.

use serde_json::json;
use tidecast_field::send::Controller;
use tidecast_text::{Span, count};

use super::key::Key;
use super::place::{Steps, places, until_stopped};
use crate::cmd::Context;
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, Snapshot, object};

/// Tell senders to go to the next step, finished or not, by the clock
///
/// Senders that were started with --sync stop what they send and begin the step that they are told, so that all of them, and all
/// who look, are at the same step.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The senders, as their --sync says
    #[arg(long, value_name = "HOST:PORT", required = true, value_delimiter = ',')]
    to: Vec<String>,
    /// Time between two steps
    #[arg(long, value_name = "TIME", default_value = "1.4s")]
    every: Span,
    /// Steps from A up to B, without B, as counted since the senders began (they may go round)
    #[arg(long, value_name = "A:B", default_value = ":")]
    steps: Steps,
    /// The senders' key: @FILE has it, - reads it from standard input
    #[arg(
        long,
        value_name = "KEY",
        env = "TIDECAST_FIELD_KEY",
        hide_env_values = true,
        conflicts_with = "plain"
    )]
    key: Option<Key>,
    /// Without a tag, whatever the key, to senders that are plain too
    #[arg(long)]
    plain: bool,
}

pub(crate) fn run(args: &Args, _context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    if args.key.is_none() && !args.plain {
        return Err(Failure::usage(anyhow::anyhow!(
            "no key given; name a file that has the senders' with --key @FILE, set TIDECAST_FIELD_KEY, or --plain"
        )));
    }
    let to = places(&args.to).map_err(Failure::usage)?;
    let batch = |step: u64| u32::try_from(step).unwrap_or(u32::MAX - 1);
    let batches = batch(args.steps.begin)..batch(args.steps.end.unwrap_or(u64::MAX));
    let secret = args.key.as_ref().filter(|_| !args.plain).map(|key| &key.secret);
    let controller = Controller::new(to.clone(), secret)?;
    reporter.started("field sync", object(json!({ "to": to, "every": args.every.0.as_secs_f64() })));
    let stopped = until_stopped()?;
    let mut said = 0u64;
    controller.run(
        batches,
        args.every.0,
        || !stopped(),
        |batch| {
            said += 1;
            if reporter.is_json() {
                reporter.happened("go", object(json!({ "batch": batch })));
            } else {
                let said = Some(format!("step {batch}"));
                reporter.progress(&Snapshot { stage: "sync", said, ..Snapshot::default() });
            }
        },
    )?;
    reporter.clear();
    reporter.result(&format!("{} told to go on, {}", count(to.len() as u64, "sender"), count(said, "time")));
    Ok(object(json!({ "goes": said })))
}
