//! Limits the rate at which the kernel sends on a socket (`SO_MAX_PACING_RATE`, socket(7)): it spreads data
//! over time, so that no bursts are dropped at a narrow link further on.
//!
//! A crate of its own because no library offers the option without `unsafe`: one call, whose argument outlives it.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Limits `socket` to this many bytes a second; `None`: no limit. For TCP sockets the kernel enforces it
/// (Linux 4.13), for others only if the queue of the network card is `fq`.
///
/// # Errors
/// The system's error: it is not a socket, or the system is older than the option.
pub fn pace(socket: impl AsFd, bytes_per_second: Option<u64>) -> io::Result<()> {
    let rate = bytes_per_second.unwrap_or(u64::MAX);
    let (value, len) = ((&raw const rate).cast(), size_of_val(&rate) as libc::socklen_t);
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `value` points to `len` bytes that are initialised and live until the call returns; the descriptor is borrowed.
    #[allow(unsafe_code)]
    let answer = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, value, len) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_stream_sends_no_faster_than_it_may() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut stream = TcpStream::connect(listener.local_addr()?)?;
        let (mut reader, _) = listener.accept()?;
        pace(&stream, Some(20_000_000))?;
        let began = Instant::now();
        let reading = std::thread::spawn(move || io::copy(&mut reader, &mut io::sink()));
        stream.write_all(&vec![0; 10_000_000])?;
        drop(stream);
        assert_eq!(reading.join().map_err(|_| io::ErrorKind::Other)??, 10_000_000);
        // Half a second by the rate; unpaced it is a few milliseconds.
        assert!(began.elapsed() > Duration::from_millis(300), "{:?}", began.elapsed());
        Ok(())
    }

    #[test]
    fn what_is_no_socket_is_an_error() -> io::Result<()> {
        assert!(pace(std::fs::File::open("/dev/null")?, Some(1)).is_err());
        Ok(())
    }
}
