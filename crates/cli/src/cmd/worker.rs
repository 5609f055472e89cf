//! `tidecast worker`: one host's part in a broadcast; `tidecast bcast` starts it.

use std::io::Read as _;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use serde_json::Map;
use tidecast::{GroupTicket, WorkerOptions, worker};
use tidecast_group::launch::TICKET_VARIABLE;

use super::{Context, drive};
use crate::failure::{Failure, Outcome};
use crate::report::Reporter;

/// Whoever starts a worker hands it the ticket at once.
const PATIENCE: Duration = Duration::from_secs(60);
/// No ticket is longer.
const MAX_LINE: u64 = 8192;

/// Take part in a broadcast as one of its hosts
///
/// `tidecast bcast` starts this on every host. The ticket comes in the first line of standard input, or in the
/// environment as TIDECAST_GROUP.
#[derive(clap::Args, Debug)]
#[command(hide = true)]
pub(crate) struct Args {
    /// What the broadcast calls this host [default: its own name]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let ticket = ticket()?;
    let options = WorkerOptions {
        host: args.host.clone(),
        state_dir: context.state_dir().ok(),
        threads: context.threads_for_operation(),
    };
    drive::run(|| worker(ticket, options), reporter, |(), _| ())?;
    Ok(Map::new())
}

fn ticket() -> Result<GroupTicket, Failure> {
    let text = match std::env::var(TICKET_VARIABLE) {
        Ok(text) => text,
        Err(_) => {
            let (say, heard) = std::sync::mpsc::channel();
            std::thread::spawn(move || say.send(first_line()));
            let read =
                heard.recv_timeout(PATIENCE).map_err(|_| anyhow!("no ticket came on standard input"))?;
            read.context("cannot read standard input")?
        }
    };
    text.parse().map_err(|error| Failure::usage(anyhow!("{error}: `tidecast bcast` starts workers")))
}

/// Byte by byte: what follows the line is not ours.
fn first_line() -> std::io::Result<String> {
    let mut line = Vec::new();
    for byte in std::io::stdin().lock().take(MAX_LINE).bytes() {
        match byte? {
            b'\n' => break,
            byte => line.push(byte),
        }
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}
