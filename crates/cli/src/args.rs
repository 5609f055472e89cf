//! Flags that several commands have.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use clap::{ArgAction, Args};
use tidecast_secret::TRACKER;
use tidecast_text::{Rate, with_causes};

use tidecast::Policy;
use tidecast::settings::{self, Listen};

/// The URL of a tracker, or with `@FILE` the one in that file.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn tracker(word: &str) -> Result<String, String> {
    TRACKER.resolve(word).map_err(|error| with_causes(&error))
}

fn policies() -> impl TypedValueParser<Value = Policy> {
    PossibleValuesParser::new(["tidecast", "classic"]).try_map(|name| settings::policy(&name))
}

fn thread_counts() -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::<usize>::new().range(0..=settings::MAX_THREADS as u64)
}

/// Flags of all commands.
#[derive(Args, Debug)]
pub(crate) struct Global {
    /// Write one JSON object per line to standard output
    #[arg(long, global = true, help_heading = "General")]
    pub(crate) json: bool,
    /// Log actions; -vv: reasons too; -vvv: everything
    #[arg(short, long, global = true, help_heading = "General", action = ArgAction::Count, conflicts_with = "quiet")]
    pub(crate) verbose: u8,
    /// Show results, warnings and errors only: no progress, no notices
    #[arg(short, long, global = true, help_heading = "General")]
    pub(crate) quiet: bool,
    /// Read settings from FILE (TOML) [default: ~/.config/tidecast/config.toml]
    #[arg(long, global = true, help_heading = "General", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Keep this node's key, tickets and unfinished work in DIR [default: ~/.local/state/tidecast]
    #[arg(long, global = true, help_heading = "General", value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Use N threads, at most 1024; 0: one for each core [default: 0]
    #[arg(long, global = true, help_heading = "General", value_name = "N", value_parser = thread_counts())]
    pub(crate) threads: Option<usize>,
}

impl Global {
    /// The filter of the log: `-v` info, `-vv` debug, `-vvv` trace; without them `setting` (`TIDECAST_LOG`, or `log` in
    /// the configuration), else warnings.
    pub(crate) fn log_filter<'a>(&self, setting: Option<&'a str>) -> &'a str {
        match (self.quiet, self.verbose) {
            (true, _) => "error",
            (_, 0) => setting.unwrap_or("warn"),
            (_, 1) => "info",
            (_, 2) => "debug",
            _ => "trace",
        }
    }
}

/// Flags of the commands that take part in a swarm.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct SwarmArgs {
    /// Listen on ADDR:PORT, :PORT or ADDR [default: any address, port 6881 or the next free one]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<Listen>,
    /// Use this network: an interface (ib0) or a CIDR (10.1.0.0/16) [default: the fastest that both ends share]
    #[arg(long, value_name = "IFACE|CIDR")]
    pub(crate) net: Option<String>,
    /// Announce to this tracker besides those in the manifest; @FILE reads the URL from a file (for a URL with a passkey);
    /// may be repeated
    #[arg(long, value_name = "URL", value_parser = tracker)]
    pub(crate) tracker: Vec<String>,
    /// Connect to this peer, HOST:PORT; may be repeated
    #[arg(long, value_name = "ADDR")]
    pub(crate) peer: Vec<String>,
    /// Allow open, unencrypted BitTorrent, without a notice about it
    #[arg(long)]
    pub(crate) plain: bool,
    /// Select the engine's policy: tidecast, or classic (BitTorrent's choking, anti-snub, super-seeding, endgame)
    /// [default: tidecast]
    #[arg(long, value_name = "POLICY", value_parser = policies())]
    pub(crate) policy: Option<Policy>,
    /// Compute the efficiency shown at the end for this rate of the node's link (10gbit) [default: as the driver reports]
    #[arg(long, value_name = "RATE")]
    pub(crate) link_rate: Option<Rate>,
    /// Limit the sending rate, all peers together (e.g. 20mbit, 5MB/s) [default: no limit]
    #[arg(long, value_name = "RATE")]
    pub(crate) upload_limit: Option<Rate>,
    /// Limit the receiving rate, all peers together [default: no limit]
    #[arg(long, value_name = "RATE")]
    pub(crate) download_limit: Option<Rate>,
    /// Find peers through the public DHT too, except for private manifests
    #[arg(long)]
    pub(crate) dht: bool,
    /// Do not look for peers on the local network by multicast
    #[arg(long)]
    pub(crate) no_lsd: bool,
    /// Fetch from peers only, not from the web seeds in the manifest or magnet link
    #[arg(long)]
    pub(crate) no_web_seeds: bool,
    /// Use this certificate (PEM) for another publisher's SSL torrent
    #[arg(long, value_name = "FILE", requires = "ssl_key", help_heading = "SSL torrents")]
    pub(crate) ssl_cert: Option<PathBuf>,
    /// Use this private key (PEM) with --ssl-cert
    #[arg(long, value_name = "FILE", requires = "ssl_cert", help_heading = "SSL torrents")]
    pub(crate) ssl_key: Option<PathBuf>,
}
