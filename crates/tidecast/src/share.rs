//! `share`: publish and seed in one, privately.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidecast_event::seed::Done;
use tidecast_event::{Context as _, Error, Fault as _};
use tidecast_net::Security;
use tidecast_node::{MessageSender, Part, Running, SwarmOptions, SwarmSettings, access};

use crate::describe::{Means, TreeOptions, describe};
use crate::operation::start;
use crate::seed::{self, Doing, Seed, TicketOptions};
use crate::{begun, state};

/// How to describe and serve.
#[derive(Debug, Clone, Default)]
pub struct ShareOptions {
    /// How the tree is described.
    pub tree: TreeOptions,
    /// The ticket that is made.
    pub ticket: TicketOptions,
    /// How to take part in the swarm.
    pub swarm: SwarmOptions,
    /// Where this node keeps its key, tickets and unfinished work. Default:
    /// [`default_state_dir`](crate::default_state_dir).
    pub state_dir: Option<PathBuf>,
    /// Threads to work with. Default: one for each core.
    pub threads: Option<usize>,
}

/// Describes a file or directory and serves it until stopped; `started` has the ticket with which others
/// [`get`](crate::get()) it.
///
/// The swarm is private: all is encrypted, and only nodes that enrol with the ticket can join, until it is
/// [revoked](crate::revoke()). With [`SwarmOptions::plain`] it is open, unencrypted BitTorrent, and the
/// ticket only has the addresses.
///
/// ```
/// use tidecast::{ShareOptions, SwarmOptions, Ticket, share};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let data = dir.path().join("data");
/// # std::fs::write(&data, "the same bytes")?;
/// # let state_dir = Some(dir.path().join("state"));
/// let sharing = share(&data, ShareOptions { swarm: SwarmOptions::loopback(), state_dir, ..Default::default() });
/// let started = sharing.ready_blocking()?;
/// let ticket: Ticket = started.ticket.unwrap_or_default().parse()?;
/// assert_eq!(ticket.addrs, started.listen);
///
/// sharing.stop();
/// sharing.wait_blocking()?;
/// # Ok(())
/// # }
/// ```
pub fn share(path: impl AsRef<Path>, options: ShareOptions) -> Seed {
    let path = path.as_ref().to_owned();
    start(options.threads.unwrap_or(0), async move |work| run(&path, &options, work).await)
}

async fn run(path: &Path, options: &ShareOptions, work: &Doing) -> Result<Done, Error> {
    let settings = SwarmSettings::new(&options.swarm)?;
    let terms = options.ticket.terms(!settings.plain && !options.tree.ssl_torrent)?;
    let state_dir = state::own(options.state_dir.as_deref())?;
    let messages = MessageSender::new(work);
    let leaves = tempfile::NamedTempFile::new_in(&state_dir)
        .or_else(|_| tempfile::NamedTempFile::new_in(tidecast_paths::temporary_dir()?));
    let leaves = leaves.context("cannot create a temporary file")?;
    let means = Means {
        trackers: &settings.trackers,
        private: !settings.plain,
        state_dir: &state_dir,
        threads: options.threads,
        leaves: Some(leaves.path()),
    };
    let manifest = Arc::new(describe(path, &options.tree, means, work, &messages).await?.manifest);
    let mut opened = seed::open(&manifest, path, &state_dir)?;
    // Every byte has just been read and hashed.
    opened.accept_hashes(leaves.as_file()).fault()?;
    let (security, authority) = if manifest.ssl_cert().is_some() {
        (access::ssl(&manifest, settings.ssl.as_ref(), &state_dir)?, None)
    } else if settings.plain {
        (Security::Open, None)
    } else {
        let (security, authority) = access::owner(&manifest, &state_dir)?;
        (security, Some(authority))
    };
    let running = Running::start(opened, security, &settings, Part::Seed)?;
    let (listen, network) = (running.swarm.listen_addrs(), settings.network.as_ref());
    let ticket = access::ticket(&manifest, authority.as_ref(), terms, settings.plain, listen, network)?;
    let open = access::is_open(&manifest, settings.plain);
    work.started(begun("share", &running, Some(ticket.to_string()), open));
    seed::serve(running, &settings, work, &messages).await
}
