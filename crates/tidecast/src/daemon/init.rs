//! How a host founds a site of daemons that trust each other, or joins one.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tidecast_daemon::site::{self, Invite, Joined};
use tidecast_daemon::{PORT, Serves};
use tidecast_event::ca::Invited;
use tidecast_event::daemon::Initialized;
use tidecast_event::{Context as _, Error};
use tidecast_identity::{Identity, Invitation};

use super::config::{ANY, address, directory, names};
use super::socket::serves;
use crate::settings::Table;

/// For how long an invitation is valid by default, seconds: an hour.
const PATIENCE: u64 = 3600;

/// How to make this host a member of a site.
#[derive(Debug, Clone, Default)]
pub struct InitOptions {
    /// The daemon's settings in the configuration: its directory, its name.
    pub table: Table,
    /// The invitation to join by. Default: this host founds a site, and keeps its certificate authority.
    pub join: Option<Invitation>,
    /// The name of a site that is founded. Default: `Tidecast site CA`.
    pub site: Option<String>,
    /// Where this node keeps its state, as for [`DaemonOptions`](super::DaemonOptions).
    pub state_dir: Option<PathBuf>,
}

/// The identity to invite.
#[derive(Debug, Clone)]
pub struct InviteOptions {
    /// The host or user that the joining node becomes.
    pub identity: Identity,
    /// The settings of the daemon that keeps the authority.
    pub table: Table,
    /// For how long the invitation is valid, seconds. Default: an hour.
    pub patience: Option<u64>,
    /// How long each of its certificates lasts, seconds. Default: a year.
    pub lifetime: Option<u64>,
    /// Where this node keeps its state, as for [`DaemonOptions`](super::DaemonOptions).
    pub state_dir: Option<PathBuf>,
}

/// The daemon's directory.
///
/// # Errors
/// There is no home directory.
pub fn daemon_dir(table: &Table, state_dir: Option<&Path>) -> Result<PathBuf, Error> {
    directory(table, serves(table.system), state_dir)
}

/// Founds a site or joins one, below the daemon's directory; a daemon that is started there afterwards is of the site.
///
/// # Errors
/// This host has joined a site already; the authority does not answer, or refuses; a file cannot be written.
pub fn init(options: &InitOptions) -> Result<Initialized, Error> {
    let serves = serves(options.table.system);
    let dir = directory(&options.table, serves, options.state_dir.as_deref())?;
    let joined = match &options.join {
        Some(invitation) => join(&dir, serves, invitation)?,
        None => {
            let (name, user) = names(options.table.name.clone(), serves)?;
            let identity = user.map_or(Identity::Host(name), Identity::User);
            let site = options.site.as_deref().unwrap_or("Tidecast site CA");
            site::found(&dir, site, identity).context("cannot found a site")?
        }
    };
    let Joined { identity, node, not_after, files } = joined;
    Ok(Initialized {
        identity: identity.to_string(),
        node: node.to_string(),
        dir: files,
        authority: options.join.is_none(),
        not_after,
    })
}

fn join(dir: &Path, serves: Serves, invitation: &Invitation) -> Result<Joined, Error> {
    // A daemon cannot serve with the certificate of another kind: found out before the invitation is used.
    let fits = match (&invitation.identity, serves) {
        (Identity::Host(_), Serves::Everyone) => true,
        (Identity::User(user), Serves::Owner) => tidecast_daemon::user().is_ok_and(|this| this == *user),
        _ => false,
    };
    if !fits {
        let identity = &invitation.identity;
        return Err(Error::usage(format!(
            "the ticket is for {identity}: a host is joined by root or with --system, a user by that user"
        )));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start a thread")?;
    runtime.block_on(site::join(dir, invitation)).context("cannot join the site")
}

/// Makes an invitation, on the host that keeps the authority.
///
/// # Errors
/// The authority is not kept below the daemon's directory, or its state cannot be written.
pub fn invite(options: &InviteOptions) -> Result<Invited, Error> {
    let dir = daemon_dir(&options.table, options.state_dir.as_deref())?;
    let listen = options.table.listen.map_or(SocketAddr::new(ANY, PORT), |listen| address(listen.0));
    let patience = options.patience.unwrap_or(PATIENCE);
    let (identity, lifetime) = (options.identity.clone(), options.lifetime);
    let invitation = site::invite(&dir, &Invite { identity, patience, lifetime, listen });
    let invitation = invitation.context("cannot invite")?;
    let expires = tidecast_node::now().saturating_add(patience);
    Ok(Invited { identity: invitation.identity.to_string(), ticket: invitation.to_string(), expires })
}
