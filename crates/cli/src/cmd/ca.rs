//! `tidecast ca init|issue|revoke|show`: a small site's certificate authority.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Map, Value};
use tidecast::daemon::InviteOptions;
use tidecast::event::ca::Node;
use tidecast::settings::{Listen, Text};
use tidecast_identity::{Identity, NodeId, NodeKey, describe};
use tidecast_text::Span;

use super::{Context, now};
use crate::failure::Outcome;
use crate::output::{FOR_OWNER, Output};
use crate::report::{Reporter, fields_of};

/// Run a certificate authority for a small site: issue and revoke certificates of nodes
///
/// A certificate for `host:NAME` makes a node the daemon of that host, which acts for all users; a certificate for
/// `user:NAME` lets a node act for that user only. Nodes trust ca.crt of DIR and check its ca.crl: copy both to all nodes,
/// and again after each `revoke`. A site that has its own certificate authority does not need this command
/// (docs/trust.md).
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  tidecast ca init /srv/ca --name 'Lab of Genomics'
  # On node01, its node id:
  tidecast ca show
  # On the host of the authority, a certificate for that node's key, and one for a user with a new key:
  tidecast ca issue /srv/ca host:node01 --node ID -o node01.pem
  tidecast ca issue /srv/ca user:alice -o alice.pem --lifetime 30d
  tidecast ca revoke /srv/ca host:node01
  tidecast ca show /srv/ca")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Create an authority: root certificate (10 years) and key, in a directory that only you may read
    Init {
        /// Directory of the authority; keep it secret
        dir: PathBuf,
        /// Name the authority
        #[arg(long, default_value = "Tidecast site CA")]
        name: String,
    },
    /// Issue a certificate for a host or a user
    Issue {
        /// Directory of the authority
        dir: PathBuf,
        /// host:NAME or user:NAME
        identity: Identity,
        /// Certify the key of this node [default: make a new key and write it with the certificate]
        #[arg(long, value_name = "ID")]
        node: Option<NodeId>,
        /// Set the lifetime of the certificate [default: a year]
        #[arg(long, value_name = "DURATION")]
        lifetime: Option<Span>,
        /// Write the certificate to FILE (PEM, mode 0600); - is standard output [default: host-NAME.pem in this directory]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Invite a node to join the site as a host or a user, once
    ///
    /// Prints a ticket, which is a secret, for `tidecast daemon init --join`. Run it on the host that keeps the
    /// authority (the first that ran `tidecast daemon init`); its daemon must be running when the node joins.
    Invite {
        /// host:NAME or user:NAME
        identity: Identity,
        /// Accept it for this time only
        #[arg(long, value_name = "DURATION", default_value = "1h")]
        expires: Span,
        /// Lifetime of its certificates, which the node's daemon renews [default: a year]
        #[arg(long, value_name = "DURATION")]
        lifetime: Option<Span>,
        /// Directory of the daemon that keeps the authority [default: as for `tidecast daemon`]
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
        /// Address and port at which that daemon listens [default: its configuration's, else any, 6980]
        #[arg(long, value_name = "ADDR:PORT")]
        listen: Option<Listen>,
    },
    /// Revoke a certificate, or all certificates of an identity; without either, renew the date of the revocation list
    Revoke {
        /// Directory of the authority
        dir: PathBuf,
        /// Serial number, host:NAME or user:NAME
        which: Option<String>,
    },
    /// Show an authority, a certificate, or this node's id
    Show {
        /// Directory of an authority, or a certificate (PEM) [default: show this node's id]
        path: Option<PathBuf>,
    },
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    match &args.what {
        What::Init { dir, name } => {
            let made = tidecast::ca::init(dir, name)?;
            print(&made.lines(dir), reporter);
            Ok(fields_of(&made))
        }
        What::Issue { dir, identity, node, lifetime, output } => {
            let lifetime = lifetime.map(|span| span.0.as_secs());
            issue(dir, identity, *node, lifetime, output.as_deref(), reporter)
        }
        What::Invite { identity, expires, lifetime, dir, listen } => {
            let mut table = context.settings.daemon.clone().unwrap_or_default();
            // Known before this process acts as the owner of the directory.
            table.system |= rustix::process::geteuid().is_root();
            table.dir = dir.clone().or(table.dir);
            table.listen = listen.map(Text).or(table.listen);
            let options = InviteOptions {
                identity: identity.clone(),
                table,
                patience: Some(expires.0.as_secs()),
                lifetime: lifetime.map(|span| span.0.as_secs()),
                state_dir: context.state_dir().ok(),
            };
            invite(&options, reporter)
        }
        What::Revoke { dir, which } => {
            let revoked = tidecast::ca::revoke(dir, which.as_deref())?;
            print(&revoked.lines(), reporter);
            Ok(fields_of(&revoked))
        }
        What::Show { path: Some(path) } if path.is_dir() => {
            let shown = tidecast::ca::show(path)?;
            print(&shown.lines(now()), reporter);
            Ok(fields_of(&shown))
        }
        What::Show { path: Some(path) } => show_certificate(path, reporter),
        What::Show { path: None } => {
            let node = NodeKey::load_or_create(&context.own_state_dir()?)?.id().to_string();
            reporter.result(&node);
            Ok(fields_of(&Node { node }))
        }
    }
}

fn print(lines: &[String], reporter: &Reporter) {
    lines.iter().for_each(|line| reporter.result(line));
}

fn issue(
    dir: &Path,
    identity: &Identity,
    node: Option<NodeId>,
    lifetime: Option<u64>,
    output: Option<&Path>,
    reporter: &Reporter,
) -> Outcome {
    let default = || PathBuf::from(format!("{}.pem", identity.to_string().replace(':', "-")));
    let output = Output::of(&output.map_or_else(default, Path::to_path_buf), reporter)?;
    let (issued, pem) =
        tidecast::ca::issue(dir, identity, node, lifetime, output.path().map(PathBuf::as_path))?;
    if let Some(pem) = pem {
        output.write(pem.as_bytes(), FOR_OWNER, None)?;
    }
    let key = if issued.key { " and its key" } else { "" };
    reporter.result(&format!("{output}: a certificate for {identity}{key}, serial {}", issued.serial));
    Ok(fields_of(&issued))
}

fn invite(options: &InviteOptions, reporter: &Reporter) -> Outcome {
    let dir = tidecast::daemon::daemon_dir(&options.table, options.state_dir.as_deref())?;
    let _acting = tidecast::daemon::service::act_as_owner(&dir)?;
    let invited = tidecast::daemon::invite(options)?;
    reporter.result(&invited.ticket);
    Ok(fields_of(&invited))
}

fn show_certificate(path: &Path, reporter: &Reporter) -> Outcome {
    let pem = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let rows = describe(&pem).with_context(|| format!("{} is not a certificate", path.display()))?;
    let mut fields: Map<String, Value> = Map::new();
    for (name, value) in rows {
        reporter.result(&format!("{name:<10} {}", crate::names::line(&value)));
        let all = fields.entry(name).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(all) = all {
            all.push(value.into());
        }
    }
    Ok(fields)
}
