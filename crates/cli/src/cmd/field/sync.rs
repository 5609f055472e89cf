//! `tidecast field sync`: the paper's controller.

use anyhow::anyhow;
use tidecast::field::{Key, Steps, SyncOptions, addresses, synchronise};
use tidecast_text::Span;

use super::news::report_news;
use crate::cmd::run_operation;
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, fields_of};

/// Advance senders to the next step at fixed intervals, even if a step is not finished
///
/// Senders started with --sync stop the current step and begin the commanded one, so that all senders and viewers are at
/// the same step. It continues when the terminal is closed; Ctrl-C or SIGTERM (kill PID) ends it.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Command the senders at these addresses, those of their --sync
    #[arg(long, value_name = "HOST:PORT", required = true, value_delimiter = ',')]
    to: Vec<String>,
    /// Set the time between two steps
    #[arg(long, value_name = "TIME", default_value = "1.4s")]
    every: Span,
    /// Run from step A up to, but not including B, counted since the senders started (with --loop they start over)
    #[arg(long, value_name = "A:B", default_value = ":")]
    steps: Steps,
    /// Use the senders' key: @FILE reads it from a file, - from standard input
    #[arg(long, value_name = "KEY", conflicts_with = "plain")]
    #[arg(env = "TIDECAST_FIELD_KEY", hide_env_values = true)]
    key: Option<Key>,
    /// Send commands without authentication, to senders with --plain
    #[arg(long)]
    plain: bool,
}

pub(crate) fn run(args: &Args, reporter: &mut Reporter) -> Outcome {
    let key = args.key.as_ref().map(|key| key.secret.clone()).filter(|_| !args.plain);
    if key.is_none() && !args.plain {
        return Err(Failure::usage(anyhow!(
            "no key given; use --key @FILE with the senders' key, set TIDECAST_FIELD_KEY, or use --plain"
        )));
    }
    if args.every.0.is_zero() {
        return Err(Failure::usage(anyhow!(
            "--every 0s: the time between two steps must be more than nothing"
        )));
    }
    let to = addresses(&args.to).map_err(Failure::usage)?;
    let options = SyncOptions { to, key, every: args.every.0, steps: args.steps };
    let news = |news, reporter: &mut Reporter| report_news("sync", &news, reporter);
    let done = run_operation::serve_with_news(|| synchronise(options), reporter, |_, _| (), news)?;
    reporter.result(&done.to_string());
    Ok(fields_of(&done))
}
