//! Sockets from and notifications to the service manager (systemd's protocols, without its library: notifying is one
//! datagram).

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};

use listenfd::ListenFd;

/// The socket that listens for us already; None: we make it ourselves.
pub(crate) fn listener() -> io::Result<Option<UnixListener>> {
    let listener = ListenFd::from_env().take_unix_listener(0)?;
    listener.iter().try_for_each(|listener| listener.set_nonblocking(true))?;
    Ok(listener)
}

/// Sends a status to the service manager, if there is one.
pub(crate) fn notify(state: &str) {
    let Some(place) = std::env::var("NOTIFY_SOCKET").ok().filter(|place| !place.is_empty()) else { return };
    let said = || -> io::Result<usize> {
        let addr = match place.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(&place)?,
        };
        UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &addr)
    };
    if let Err(error) = said() {
        tracing::warn!(%error, "cannot notify the service manager");
    }
}
