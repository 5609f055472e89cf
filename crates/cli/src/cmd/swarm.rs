//! Flags and settings of commands that join a swarm, as options of the library.

use tidecast::settings::Settings;
use tidecast::{SslFiles, SwarmOptions, TicketOptions};
use tidecast_text::Span;

use super::Context;
use crate::args::SwarmArgs;
use crate::failure::Failure;

impl SwarmArgs {
    /// The options: flags override settings.
    ///
    /// # Errors
    /// Usage errors: a value that is not valid.
    pub(crate) fn options(&self, context: &Context<'_>) -> Result<SwarmOptions, Failure> {
        let set = context.settings;
        let or =
            |flags: &[String], set: &[String]| if flags.is_empty() { set.to_vec() } else { flags.to_vec() };
        let settings = Settings {
            listen: self.listen.or(set.listen),
            net: self.net.clone().or_else(|| set.net.clone()),
            peer: or(&self.peer, &set.peer),
            tracker: or(&self.tracker, &set.tracker),
            upload_limit: self.upload_limit.or(set.upload_limit),
            download_limit: self.download_limit.or(set.download_limit),
            policy: self.policy.or(set.policy),
            dht: self.dht.then_some(true).or(set.dht),
            lsd: self.no_lsd.then_some(false).or(set.lsd),
            plain: self.plain.then_some(true).or(set.plain),
            link_rate: self.link_rate.or(set.link_rate),
            ..set.clone()
        };
        let ssl = self.ssl_cert.clone().zip(self.ssl_key.clone()).map(|(cert, key)| SslFiles { cert, key });
        Ok(SwarmOptions { web_seeds: !self.no_web_seeds, ssl, ..settings.swarm()? })
    }
}

/// Limits of a new ticket.
#[derive(clap::Args, Debug, Clone, Copy)]
pub(crate) struct TicketArgs {
    /// Expire the ticket after this time (e.g. 12h, 7d) [default: valid until revoked]
    #[arg(long, value_name = "DURATION")]
    expires: Option<Span>,
    /// Limit the number of nodes that may enrol [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(tidecast_identity::MAX_USES)))]
    uses: Option<u32>,
}

impl From<TicketArgs> for TicketOptions {
    fn from(args: TicketArgs) -> Self {
        Self { expires: args.expires.map(|span| span.0), uses: args.uses }
    }
}
