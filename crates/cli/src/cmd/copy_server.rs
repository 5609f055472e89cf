//! `tidecast copy-server` and the hidden `tidecast copy-end`: ends of copies for those who run `tidecast copy` elsewhere.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rand::Rng as _;
use serde_json::json;
use tidecast_identity::NodeKey;
use tidecast_mover::end::{Pipes, Server, ServerOptions, answer};

use super::Context;
use super::copy::Cpus;
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, object};
use crate::settings::Listen;
use crate::stop::{Stop, block_on};

/// Serve a directory to `tidecast copy`; the first line on standard output is its URL
///
/// Whoever has the URL may read, and unless --read-only write, below the directory and nowhere else, as the user who runs
/// the server; and may have it sent to another server. The key in it is kept in the state directory, so it stays the same. Ctrl-C stops
/// the server.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  tidecast copy-server --root /archive --read-only\n  # elsewhere:\n  tidecast copy tidecast://KEY@host:6870/cmip6 /data"
)]
pub(crate) struct Args {
    /// The directory
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Where to listen
    #[arg(long, value_name = "[ADDR]:PORT", default_value = ":6870")]
    listen: Listen,
    /// Nothing can be written
    #[arg(long)]
    read_only: bool,
    /// Data unencrypted; who connects must still prove that they know the key
    #[arg(long)]
    plain: bool,
    /// Work on these cores: 0-3,8, node:N (of a NUMA node), card:NAME (those next to a network card)
    #[arg(long, value_name = "LIST")]
    cpus: Option<Cpus>,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    if let Some(cpus) = &args.cpus {
        cpus.keep_to().map_err(Failure::usage)?;
    }
    let options = ServerOptions { root: args.root.clone(), read_only: args.read_only, plain: args.plain };
    let (_server, url, at) = start(options, args.listen, &context.own_state_dir()?)?;
    reporter.result(&url);
    reporter
        .started("copy-server", object(json!({ "url": url, "address": at, "read_only": args.read_only })));
    block_on(1, async {
        Stop::listen()?.wait().await;
        Ok::<_, Failure>(())
    })?;
    Ok(serde_json::Map::new())
}

/// Starts a server whose keys are kept in `state`: its URL, and where it listens.
pub(super) fn start(
    options: ServerOptions,
    listen: Listen,
    state: &Path,
) -> anyhow::Result<(Server, String, SocketAddr)> {
    let node = NodeKey::load_or_create(state)?;
    let secret = secret(state)?;
    let root = std::fs::canonicalize(&options.root)
        .with_context(|| format!("cannot serve {}", options.root.display()))?;
    let server = Server::start(listen.addr(), &node, secret, ServerOptions { root, ..options })?;
    let at = server.address().context("the server does not listen")?;
    let host = if at.ip().is_unspecified() { hostname() } else { at.ip().to_string() };
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let url = format!("tidecast://{}@{host}:{}/", server.key(), at.port());
    Ok((server, url, at))
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The secret of this host's copy servers, made the first time.
fn secret(state: &Path) -> anyhow::Result<[u8; 16]> {
    let path = state.join("copy-server.key");
    let read = || -> anyhow::Result<Option<[u8; 16]>> {
        match std::fs::read(&path) {
            Ok(bytes) => {
                Ok(Some(bytes.try_into().ok().with_context(|| format!("{} is damaged", path.display()))?))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| format!("cannot read {}", path.display())),
        }
    };
    if let Some(secret) = read()? {
        return Ok(secret);
    }
    let mut secret = [0; 16];
    rand::rng().fill_bytes(&mut secret);
    let file = tempfile::NamedTempFile::new_in(state).context("cannot keep the key")?;
    std::fs::write(file.path(), secret)?;
    match file.persist_noclobber(&path) {
        Ok(_) => Ok(secret),
        // Another server was quicker.
        Err(_) => read()?.with_context(|| format!("cannot keep {}", path.display())),
    }
}

/// An end of a copy that `tidecast copy` has started by ssh: speaks on standard input and output.
pub(crate) fn end() -> Outcome {
    let file = |fd: std::io::Result<std::os::fd::OwnedFd>| fd.map(File::from).context("no pipe");
    let incoming = file(rustix::io::dup(std::io::stdin()).map_err(Into::into))?;
    let outgoing = file(rustix::io::dup(std::io::stdout()).map_err(Into::into))?;
    answer(Pipes { incoming, outgoing })?;
    Ok(serde_json::Map::new())
}
