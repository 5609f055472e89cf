//! Flags and settings of commands that take part in a swarm, as options of the library.

use anyhow::anyhow;
use tidecast::{Network, Policy, SslFiles, SwarmOptions, TicketOptions};
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
        let settings = context.settings;
        let net = self.net.as_ref().or(settings.net.as_ref()).map(|net| net.parse::<Network>());
        let policy = match self.policy.as_deref().or(settings.policy.as_deref()) {
            None | Some("tidecast") => Policy::Tidecast,
            Some("classic") => Policy::Classic,
            Some(other) => {
                return Err(Failure::usage(anyhow!("policy is {other:?}: write tidecast or classic")));
            }
        };
        let defaults = SwarmOptions::default();
        let or = |flags: &[String], settings: &[String]| {
            if flags.is_empty() { settings.to_vec() } else { flags.to_vec() }
        };
        let bytes = |rate: Rate| rate.0 / 8;
        Ok(SwarmOptions {
            listen: self.listen.or(settings.listen).map_or(defaults.listen, |listen| listen.addr()),
            net: net.transpose().map_err(|e| Failure::usage(anyhow!("--net: {e}")))?,
            peers: or(&self.peer, &settings.peer),
            trackers: or(&self.tracker, &settings.tracker),
            upload_limit: self.upload_limit.or(settings.upload_limit).map(bytes),
            download_limit: self.download_limit.or(settings.download_limit).map(bytes),
            policy,
            dht: self.dht || settings.dht == Some(true),
            lsd: !self.no_lsd && settings.lsd != Some(false),
            web_seeds: !self.no_web_seeds,
            plain: self.plain || settings.plain == Some(true),
            link_rate: self.link_rate.or(settings.link_rate).map(|rate| rate.0),
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
