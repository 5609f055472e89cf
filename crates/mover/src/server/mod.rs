//! A server of a directory: its keys, its user, and its URL.

mod keys;
mod user;

use std::net::SocketAddr;

use tidecast_text::escaped;

use crate::end::{Server, ServerKey, ServerOptions};
use crate::error::Error;

pub use keys::Keys;
pub use user::User;

/// Checks that root has chosen the user of a server; `ways` are the flags for it: as another user, or as
/// root.
///
/// # Errors
/// [`Error::User`]: it has not.
pub fn check_user(user: Option<&User>, as_root: bool, ways: [&str; 2]) -> Result<(), Error> {
    if rustix::process::geteuid().is_root() && user.is_none() && !as_root {
        let [other, root] = ways;
        return Err(Error::User(format!(
            "root must choose the user of a server: {other} serves as that user, {root} as root, which lets every holder of \
             the writing key change files of root"
        )));
    }
    Ok(())
}

/// A server that runs until this is dropped.
#[derive(Debug)]
pub struct Served {
    _server: Server,
    /// With the key for writing; where nothing can be written, for reading.
    pub url: String,
    /// With the key for reading.
    pub url_read: String,
    /// Without a key.
    pub bare: String,
    /// Where it listens.
    pub at: SocketAddr,
}

/// Starts a server of `options.root`, resolved now through all links.
///
/// # Errors
/// The directory cannot be read, or the address cannot be had.
pub fn start(options: ServerOptions, listen: SocketAddr, keys: &Keys) -> Result<Served, Error> {
    let shown = escaped(&options.root).to_string();
    let cannot = |e: std::io::Error| {
        let user = rustix::process::geteuid().as_raw();
        Error::User(format!("cannot serve {shown} as user {user}: {e}"))
    };
    let root = std::fs::canonicalize(&options.root).map_err(cannot)?;
    std::fs::read_dir(&root).map_err(cannot)?;
    let read_only = options.read_only;
    let server = Server::start(listen, &keys.node, &keys.secrets, ServerOptions { root, ..options })?;
    let at = server.address().ok_or_else(|| Error::User("the server is not listening".into()))?;
    let host = if at.ip().is_unspecified() { hostname() } else { at.ip().to_string() };
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let bare = format!("tidecast://{host}:{}/", at.port());
    let with = |key: &ServerKey| format!("tidecast://{key}@{host}:{}/", at.port());
    let url_read = with(server.reading_key());
    let url = if read_only { url_read.clone() } else { with(server.key()) };
    Ok(Served { _server: server, url, url_read, bare, at })
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
