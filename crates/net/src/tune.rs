//! Socket options.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// A control channel ends when nothing was acknowledged for this long.
const GONE: Duration = Duration::from_secs(5);
/// Socket buffers are set only where the system allows this much; below it the kernel's own
/// tuning goes further than we could.
const BUFFER: usize = 8 << 20;
/// Unsent data that the kernel may hold of a connection (TCP_NOTSENT_LOWAT). Without this bound a slow receiver's
/// megabytes sit in its buffer and count as sent, which would mislead the distribution of pieces by free capacity.
/// Less would let fast lines run dry between two wake-ups: it is a millisecond at 1 Gbit/s.
const UNSENT: u32 = 128 << 10;

/// Settings that every connection gets; none is vital, so failures are passed over.
pub(crate) fn tune(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let socket = SockRef::from(stream);
    let _ = socket.set_tcp_notsent_lowat(UNSENT);
}

/// Ends an idle connection within seconds when its other end, or the link, has failed: sent data must be
/// acknowledged within [`GONE`], and so must a keep-alive probe of the kernel. Otherwise TCP would wait longer and
/// longer between two tries, and resume long after the link is back.
pub fn end_when_gone(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let _ = socket.set_tcp_user_timeout(Some(GONE));
    let _ = socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(2 * GONE).with_interval(GONE / 5));
}

/// Buffers for a peer that is proven, or that we have dialled.
pub(crate) fn widen(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    if system_limit("rmem_max") >= BUFFER {
        let _ = socket.set_recv_buffer_size(BUFFER);
    }
    if system_limit("wmem_max") >= BUFFER {
        let _ = socket.set_send_buffer_size(BUFFER);
    }
}

fn system_limit(name: &str) -> usize {
    let text = std::fs::read_to_string(format!("/proc/sys/net/core/{name}")).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn little_is_held_back_on_either_side_of_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dialled = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        for stream in [&dialled, &accepted] {
            tune(stream);
            assert!(stream.nodelay().unwrap());
            assert_eq!(SockRef::from(stream).tcp_notsent_lowat().unwrap(), UNSENT);
        }
    }
}
