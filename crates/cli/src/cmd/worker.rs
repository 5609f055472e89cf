//! `tidecast worker`: the process of one host in a broadcast; `tidecast bcast` starts it.

use serde_json::Map;
use tidecast::{Handed, NoTicketReceived, WorkerOptions, agent, worker, worker_ticket};

use super::{Context, run_operation};
use crate::failure::{Failure, Outcome};
use crate::report::Reporter;

/// Join a broadcast as one of its hosts
///
/// `tidecast bcast` starts this on every host. The ticket is the first line of standard input, or TIDECAST_GROUP in the
/// environment.
#[derive(clap::Args, Debug)]
#[command(hide = true)]
pub(crate) struct Args {
    /// Use this name of the host in the broadcast [default: its own name]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let ticket = worker_ticket().map_err(|error| match error {
        NoTicketReceived::Malformed(_) => Failure::usage(error),
        other => other.into(),
    })?;
    let ticket = match ticket {
        Handed::Worker(ticket) => ticket,
        Handed::Agent(ticket) => {
            run_operation::run(|| agent(ticket, args.host.clone()), reporter, |(), _| ())?;
            return Ok(Map::new());
        }
    };
    let options = WorkerOptions {
        host: args.host.clone(),
        state_dir: context.state_dir().ok(),
        threads: context.threads_for_operation(),
    };
    run_operation::run(|| worker(ticket, options), reporter, |(), _| ())?;
    Ok(Map::new())
}
