//! `tidecast tracker`: the embedded tracker, HTTP and UDP on one port.

use tidecast::event::tracker::News;
use tidecast::settings::Listen;
use tidecast_text::count;

use super::{Context, run_operation};
use crate::failure::Outcome;
use crate::report::{Reporter, fields_of};

/// The conventional port of trackers.
const PORT: u16 = 6969;

/// Run a tracker, through which the nodes of a swarm find each other
///
/// It serves HTTP (/announce, /scrape) and UDP on the same port, for Tidecast and other BitTorrent clients, and stores
/// nothing on disk. It continues when the terminal is closed; Ctrl-C or SIGTERM (kill PID) stops it.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  tidecast tracker --listen :6969\n  tidecast publish DIR --tracker http://HOST:6969/announce"
)]
pub(crate) struct Args {
    /// Listen on this address [default: any address, port 6969]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<Listen>,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let listen = args.listen.or(context.settings.listen).unwrap_or(Listen { ip: None, port: PORT }).addr();
    let begin = || tidecast::serve_tracker(listen, context.threads_for_operation());
    let done = run_operation::serve_with_news(
        begin,
        reporter,
        |started, reporter| {
            let [http, udp] = &started.urls;
            reporter.result(&format!("tracker at {http} and {udp}"));
        },
        |News::Known { swarms, peers }, reporter| {
            let (swarms, peers) = (count(swarms as u64, "swarm"), count(peers as u64, "peer"));
            reporter.note(&format!("{swarms}, {peers}"));
        },
    )?;
    Ok(fields_of(&done))
}
