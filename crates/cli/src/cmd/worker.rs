//! `tidecast worker`: one host's part in a broadcast; `tidecast bcast` starts it.

use std::io::Read as _;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tidecast_group::GroupTicket;
use tidecast_group::launch::TICKET_VARIABLE;

use super::{Context, RECORDS};
use crate::failure::{Failure, Outcome};
use crate::report::Reporter;
use crate::stop::{Stop, block_on};

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

pub(crate) fn run(args: &Args, context: &Context<'_>, _reporter: &mut Reporter) -> Outcome {
    block_on(context.threads(), async {
        let stop = Stop::listen()?;
        let ticket = ticket().await?;
        // Without a place for records nothing is known to be a former version, and all else goes on.
        let records =
            context.own_state_dir().map(|dir| Some(dir.join(RECORDS))).map_err(|error| format!("{error:#}"));
        match tidecast_group::work(&ticket, args.host.clone(), records, None, stop.wait()).await {
            Ok(()) => Ok(serde_json::Map::new()),
            Err(tidecast_group::Error::Stopped) => Err(Failure::cut("interrupted")),
            Err(error) => Err(error.into()),
        }
    })
}

async fn ticket() -> Result<GroupTicket, Failure> {
    let text = match std::env::var(TICKET_VARIABLE) {
        Ok(text) => text,
        Err(_) => {
            let reading = tokio::time::timeout(PATIENCE, tokio::task::spawn_blocking(first_line));
            let read = reading.await.map_err(|_| anyhow!("no ticket came on standard input"))?;
            read.context("a thread of Tidecast failed")?.context("cannot read standard input")?
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
