//! Sockets from and notifications to the service manager (systemd's protocols, without its library).

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// The first socket that was handed over; the number is part of the protocol.
const FIRST: i32 = 3;

/// The socket that listens for us already; None: we make it ourselves.
pub(crate) fn listener() -> io::Result<Option<UnixListener>> {
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID") != Some(std::process::id()) || number("LISTEN_FDS").is_none_or(|n| n == 0) {
        return Ok(None);
    }
    // Duplicates the descriptor with this number, by way of the kernel.
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    let listener = UnixListener::from(pidfd_getfd(&this, FIRST, PidfdGetfdFlags::empty())?);
    listener.local_addr()?;
    listener.set_nonblocking(true)?;
    Ok(Some(listener))
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
