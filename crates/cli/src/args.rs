//! Flags that several commands have.

use std::path::PathBuf;

use clap::{ArgAction, Args};
use tidecast_secret::TRACKER;
use tidecast_text::{Rate, with_causes};

use tidecast::settings::Listen;

/// The URL of a tracker, or that which a file has.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn tracker(word: &str) -> Result<String, String> {
    TRACKER.resolve(word).map_err(|error| with_causes(&error))
}

/// Flags that every command knows.
#[derive(Args, Debug)]
pub(crate) struct Global {
    /// One JSON object a line on standard output
    #[arg(long, global = true, help_heading = "General")]
    pub(crate) json: bool,
    /// Log what is done; -vv why; -vvv everything
    #[arg(short, long, global = true, help_heading = "General", action = ArgAction::Count, conflicts_with = "quiet")]
    pub(crate) verbose: u8,
    /// No progress, no notices; warnings and errors only
    #[arg(short, long, global = true, help_heading = "General")]
    pub(crate) quiet: bool,
    /// Configuration file (TOML)
    #[arg(long, global = true, help_heading = "General", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where this node's key, tickets and unfinished work are kept [default: ~/.local/state/tidecast]
    #[arg(long, global = true, help_heading = "General", value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Threads to work with [default: one for each core]
    #[arg(long, global = true, help_heading = "General", value_name = "N")]
    pub(crate) threads: Option<usize>,
}

impl Global {
    /// What is logged: `-v` shows what is done, `-vv` why, `-vvv` everything; without them what `setting` says
    /// (`TIDECAST_LOG`, or `log` in the configuration), else warnings.
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
    /// Where to listen: ADDR:PORT, :PORT or ADDR [default: any address, port 6881 or the next free one]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<Listen>,
    /// Network to use: an interface (ib0) or a CIDR (10.1.0.0/16) [default: the fastest that both ends share]
    #[arg(long, value_name = "IFACE|CIDR")]
    pub(crate) net: Option<String>,
    /// Tracker to announce to, besides those of the manifest; @FILE has the URL (for one with a passkey); may be repeated
    #[arg(long, value_name = "URL", value_parser = tracker)]
    pub(crate) tracker: Vec<String>,
    /// Peer to connect to, HOST:PORT; may be repeated
    #[arg(long, value_name = "ADDR")]
    pub(crate) peer: Vec<String>,
    /// Open, unencrypted BitTorrent is meant: say nothing about it
    #[arg(long)]
    pub(crate) plain: bool,
    /// How the engine behaves: tidecast, or classic (BitTorrent's choking, anti-snub, super-seeding, endgame)
    #[arg(long, value_name = "POLICY", value_parser = ["tidecast", "classic"])]
    pub(crate) policy: Option<String>,
    /// Rate of this node's link (10gbit), for the efficiency shown at the end [default: what drivers of hardware say]
    #[arg(long, value_name = "RATE")]
    pub(crate) link_rate: Option<Rate>,
    /// Limit what this process sends to all peers together (e.g. 20mbit, 5MB/s) [default: no limit]
    #[arg(long, value_name = "RATE")]
    pub(crate) upload_limit: Option<Rate>,
    /// Limit what this process receives from all peers together [default: no limit]
    #[arg(long, value_name = "RATE")]
    pub(crate) download_limit: Option<Rate>,
    /// Find peers through the public DHT too (never for private manifests)
    #[arg(long)]
    pub(crate) dht: bool,
    /// Do not look for peers on the local network by multicast
    #[arg(long)]
    pub(crate) no_lsd: bool,
    /// Fetch from peers only, not from the web seeds that a manifest or magnet link names
    #[arg(long)]
    pub(crate) no_web_seeds: bool,
    /// Certificate for an SSL torrent of somebody else (PEM)
    #[arg(long, value_name = "FILE", requires = "ssl_key", help_heading = "SSL torrents")]
    pub(crate) ssl_cert: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "ssl_cert", help_heading = "SSL torrents")]
    pub(crate) ssl_key: Option<PathBuf>,
}
