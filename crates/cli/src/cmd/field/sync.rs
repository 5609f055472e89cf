//! `tidecast field sync`: the paper's controller.

use anyhow::anyhow;
use tidecast::field::{Key, Steps, SyncOptions, addresses, synchronise};
use tidecast_text::Span;

use super::tell::tell;
use crate::cmd::drive;
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, fields_of};

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
    #[arg(long, value_name = "KEY", conflicts_with = "plain")]
    #[arg(env = "TIDECAST_FIELD_KEY", hide_env_values = true)]
    key: Option<Key>,
    /// Without a tag, whatever the key, to senders that are plain too
    #[arg(long)]
    plain: bool,
}

pub(crate) fn run(args: &Args, reporter: &mut Reporter) -> Outcome {
    let key = args.key.as_ref().map(|key| key.secret.clone()).filter(|_| !args.plain);
    if key.is_none() && !args.plain {
        return Err(Failure::usage(anyhow!(
            "no key given; name a file that has the senders' with --key @FILE, set TIDECAST_FIELD_KEY, or --plain"
        )));
    }
    let to = addresses(&args.to).map_err(Failure::usage)?;
    let options = SyncOptions { to, key, every: args.every.0, steps: args.steps };
    let news = |news, reporter: &mut Reporter| tell("sync", &news, reporter);
    let done = drive::serve_with_news(|| synchronise(options), reporter, |_, _| (), news)?;
    reporter.result(&done.to_string());
    Ok(fields_of(&done))
}
