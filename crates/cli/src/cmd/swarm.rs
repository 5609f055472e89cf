//! Flags and settings of commands that take part in a swarm, as options of the library.

use anyhow::anyhow;
use tidecast::settings::policy;
use tidecast::{Network, SslFiles, SwarmOptions, TicketOptions};
use tidecast_text::{Rate, Span};

use super::Context;
use crate::args::SwarmArgs;
use crate::failure::Failure;

impl SwarmArgs {
    /// Flags over settings.
    ///
    /// # Errors
    /// Usage errors: what does not parse.
    pub(crate) fn options(&self, context: &Context<'_>) -> Result<SwarmOptions, Failure> {
        let set = context.settings.swarm()?;
        let net = self.net.as_ref().map(|net| net.parse::<Network>()).transpose();
        let or = |flags: &[String], set: Vec<String>| if flags.is_empty() { set } else { flags.to_vec() };
        let bytes = |rate: Rate| rate.0 / 8;
        Ok(SwarmOptions {
            listen: self.listen.map_or(set.listen, |listen| listen.addr()),
            net: net.map_err(|e| Failure::usage(anyhow!("--net: {e}")))?.or(set.net),
            peers: or(&self.peer, set.peers),
            trackers: or(&self.tracker, set.trackers),
            upload_limit: self.upload_limit.map(bytes).or(set.upload_limit),
            download_limit: self.download_limit.map(bytes).or(set.download_limit),
            policy: self.policy.as_deref().map(policy).transpose()?.unwrap_or(set.policy),
            dht: self.dht || set.dht,
            lsd: !self.no_lsd && set.lsd,
            web_seeds: !self.no_web_seeds,
            plain: self.plain || set.plain,
            link_rate: self.link_rate.map(|rate| rate.0).or(set.link_rate),
            ssl: self.ssl_cert.clone().zip(self.ssl_key.clone()).map(|(cert, key)| SslFiles { cert, key }),
        })
    }
}

/// For how long and for how many a new ticket is good.
#[derive(clap::Args, Debug, Clone, Copy)]
pub(crate) struct TicketArgs {
    /// Expire the ticket after this time (e.g. 12h, 7d); default: valid until revoked
    #[arg(long, value_name = "DURATION")]
    expires: Option<Span>,
    /// Limit the number of nodes that may enrol; default: no limit
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(tidecast_identity::MAX_USES)))]
    uses: Option<u32>,
}

impl From<TicketArgs> for TicketOptions {
    fn from(args: TicketArgs) -> Self {
        Self { expires: args.expires.map(|span| span.0), uses: args.uses }
    }
}
