//! `tidecast tracker`: the embedded tracker, HTTP and UDP on one port.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;
use tidecast_discovery::server::{Options, Tracker};
use tidecast_text::count;

use super::Context;
use crate::failure::Outcome;
use crate::report::{Reporter, object};
use crate::settings::Listen;
use crate::stop::{Stop, block_on, hangups};

/// The port that trackers are expected at.
const PORT: u16 = 6969;

/// Run a tracker: nodes of a swarm find each other through it
///
/// It serves HTTP (/announce, /scrape) and UDP at the same port, for Tidecast and every other BitTorrent client,
/// and keeps nothing on disk. Ctrl-C stops it.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  tidecast tracker --listen :6969\n  tidecast publish DIR --tracker http://HOST:6969/announce"
)]
pub(crate) struct Args {
    /// Where to listen [default: any address, port 6969]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<Listen>,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let listen = args.listen.or(context.settings.listen).unwrap_or(Listen { ip: None, port: PORT }).addr();
    block_on(context.threads(), async {
        let stop = Stop::listen()?;
        let _hangups = hangups()?;
        let tracker = Tracker::bind(listen, Options::default()).context("cannot start the tracker")?;
        let addr = tracker.local_addr();
        // What others can use instead of "any address".
        let host = if addr.ip().is_unspecified() { "HOST".to_owned() } else { addr.ip().to_string() };
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let port = addr.port();
        let urls = [format!("http://{host}:{port}/announce"), format!("udp://{host}:{port}")];
        reporter.started("tracker", object(json!({ "listen": addr.to_string(), "urls": urls })));
        reporter.result(&format!("tracker at {} and {}", urls[0], urls[1]));
        let mut seen = tracker.stats();
        loop {
            tokio::select! {
                () = stop.wait() => break,
                () = tokio::time::sleep(Duration::from_secs(10)) => {}
            }
            let stats = tracker.stats();
            if (stats.swarms, stats.peers) != (seen.swarms, seen.peers) {
                let (swarms, peers) =
                    (count(stats.swarms as u64, "swarm"), count(stats.peers as u64, "peer"));
                reporter.note(&format!("{swarms}, {peers}"));
                seen = stats;
            }
        }
        // For a tracker, being told to stop is the normal end.
        Ok(object(serde_json::to_value(tracker.stats())?))
    })
}
