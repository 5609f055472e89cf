//! `tidecast daemon init`: this host founds a site of daemons, or joins one.

use std::path::PathBuf;

use tidecast::daemon::{InitOptions, daemon_dir, init, service};
use tidecast_identity::Invitation;
use tidecast_identity::date::utc;
use tidecast_secret::TICKET;
use tidecast_text::quote;

use crate::cmd::Context;
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, fields_of};

/// Make this host the first of a site, or join a site
///
/// Without --join: make a certificate authority, and a certificate for this host. With --join: get a certificate from
/// the authority that the ticket names, whose daemon must be running. Both end with a daemon that other daemons of
/// the site trust; it renews its certificate and the list of revoked ones automatically. Run by root on a host with
/// systemd, install and start the service. Files are in the daemon's directory, below `ca` and `site`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  # Two hosts that share caches
  tidecast daemon init                              # on head
  tidecast ca invite host:node01 > ticket           # on head
  tidecast daemon init --join @ticket               # on node01")]
pub(crate) struct Args {
    /// Join by this ticket of `tidecast ca invite`; @FILE has it, - reads it from standard input
    #[arg(long, value_name = "TICKET")]
    join: Option<String>,
    /// Name of this host in the site, without --join [default: the host's name]
    #[arg(long, value_name = "NAME", conflicts_with = "join")]
    name: Option<String>,
    /// Name of the site, without --join [default: Tidecast site CA]
    #[arg(long, value_name = "NAME", conflicts_with = "join")]
    site: Option<String>,
    /// Serve all users of this host, as an ordinary user such as tidecast [default: if root runs it]
    #[arg(long)]
    system: bool,
    /// Directory of the daemon [default: /var/lib/tidecast with --system or for root]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let mut table = context.settings.daemon.clone().unwrap_or_default();
    table.system |= args.system || rustix::process::geteuid().is_root();
    table.dir = args.dir.clone().or(table.dir);
    table.name = args.name.clone().or(table.name);
    let state_dir = context.state_dir().ok();
    let dir = daemon_dir(&table, state_dir.as_deref())?;
    let join = args.join.as_deref().map(invitation).transpose()?;
    // The unit has the default directory; a daemon with another directory must be started by its user.
    let is_service = service::is_manageable() && args.dir.is_none();
    if is_service {
        service::prepare(&dir)?;
    }
    let options = InitOptions { table, join, site: args.site.clone(), state_dir };
    let made = {
        let _acting = service::act_as_owner(&dir)?;
        init(&options)?
    };
    let until = utc(made.not_after);
    let (identity, files) = (&made.identity, made.dir.display());
    reporter
        .result(&format!("{identity}: certificate valid until {until}, renewed before; files in {files}"));
    if is_service {
        let unit = service::start()?;
        reporter.result(&format!("the daemon is running and starts at boot ({})", unit.display()));
    } else {
        let words = args.dir.iter().map(|dir| format!(" --dir {}", quote(&dir.to_string_lossy())));
        let command: String = std::iter::once("tidecast daemon".to_owned()).chain(words).collect();
        reporter.result(&format!("start the daemon: {command}"));
    }
    if made.authority {
        reporter.result("invite other hosts: tidecast ca invite host:NAME");
    }
    Ok(fields_of(&made))
}

fn invitation(word: &str) -> Result<Invitation, Failure> {
    let failed = |error: String| Failure::usage(anyhow::anyhow!("--join: {error}"));
    let text = TICKET.given(Some(word)).map_err(|error| failed(error.to_string()))?;
    text.unwrap_or_default()
        .parse()
        .map_err(|error: tidecast_identity::TicketError| failed(error.to_string()))
}
