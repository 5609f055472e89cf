//! `tidecast admin`: what an administrator has the daemon of this host do.

use clap::Subcommand;
use serde_json::{Value, json};
use std::time::Duration;
use tidecast_daemon::api::types::{Limit, Status};
use tidecast_daemon::client::Client;

use super::{Context, daemon};
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, object};
use crate::stop::block_on;
use crate::units::{Size, Span};

/// Look after the daemon of this host: status, pause, drain, limits, check
///
/// For root, or for the user whose daemon it is. It takes effect at once.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  tidecast admin status\n  tidecast admin limit --capacity 500GB\n  tidecast admin fsck"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// How the daemon is
    Status,
    /// Take nothing new, and have others wait
    Pause,
    /// Take nothing new; what is here is still given to others
    Drain,
    /// Take new caches again
    Resume,
    /// Change limits, until the daemon is started anew
    Limit(LimitArgs),
    /// Verify every byte of the store; what is damaged is marked INVALID, and comes anew when it is asked for
    Fsck,
}

#[derive(clap::Args, Debug)]
#[group(required = true, multiple = true)]
struct LimitArgs {
    /// Most that caches may occupy
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,
    /// Caches that are fetched at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    transfers: Option<u32>,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let client = Client::new(&daemon::to_ask(context)?);
    let failed = |error| Failure::from(anyhow::Error::from(error));
    block_on(context.threads(), async {
        let (word, limit) = match &args.what {
            What::Status => {
                let status: Status = client.get("/v1/daemon").await.map_err(failed)?;
                return tell(&status, reporter);
            }
            What::Fsck => {
                let long = Duration::from_secs(7 * 86_400);
                let report: Value = client.post("/v1/fsck", &json!({}), long).await.map_err(failed)?;
                return checked(report, reporter);
            }
            What::Pause => ("pause", Limit::default()),
            What::Drain => ("drain", Limit::default()),
            What::Resume => ("resume", Limit::default()),
            What::Limit(args) => {
                ("limit", Limit { capacity: args.capacity.map(|c| c.0), transfers: args.transfers })
            }
        };
        let path = format!("/v1/admin/{word}");
        let status: Status = client.post(&path, &limit, Duration::ZERO).await.map_err(failed)?;
        tell(&status, reporter)
    })
}

fn tell(status: &Status, reporter: &Reporter) -> Outcome {
    let up = Span(Duration::from_secs(super::now().saturating_sub(status.started)));
    reporter.result(&format!("{}, {} for {up}, tidecast {}", status.name, status.state, status.version));
    reporter.result(&format!(
        "{} caches, {} of {}, {} reserved; sent {}, received {}",
        status.caches,
        Size(status.bytes),
        Size(status.capacity),
        Size(status.reserved),
        Size(status.sent),
        Size(status.received)
    ));
    for (what, names) in [("speaks with", &status.peers), ("fetches", &status.transfers)] {
        if !names.is_empty() {
            reporter.result(&format!("{what} {}", names.join(", ")));
        }
    }
    Ok(object(json!(status)))
}

fn checked(report: Value, reporter: &Reporter) -> Outcome {
    let number = |key: &str| report.get(key).and_then(Value::as_u64).unwrap_or(0);
    let clean = report.get("clean").and_then(Value::as_bool) == Some(true);
    let what =
        format!("{} caches, {} objects, {} read", number("caches"), number("objects"), Size(number("bytes")));
    let fields = object(report.clone());
    if clean {
        reporter.result(&format!("{what}: clean"));
        return Ok(fields);
    }
    let error = anyhow::anyhow!("{what}: {} are damaged, see --json", number("bad"));
    Err(Failure::from(error).with(fields))
}
