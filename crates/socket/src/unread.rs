//! How much of what was sent the other end has not read yet. No library offers the question (`SIOCOUTQ`, unix(7)) without
//! `unsafe`: one call, whose argument outlives it.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Bytes of memory of messages in a unix stream that the other end has not read. 0: it has read all of them, or has
/// closed its end.
///
/// # Errors
/// The system's error: it is not a socket.
pub fn unread(socket: impl AsFd) -> io::Result<usize> {
    let mut unread: libc::c_int = 0;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes one `int`, to which the pointer leads until the call returns; the descriptor is borrowed.
    #[allow(unsafe_code)]
    let answer = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut unread) };
    if answer == 0 {
        usize::try_from(unread).map_err(io::Error::other)
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_is_read_counts_no_longer() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        assert_eq!(unread(&here).unwrap(), 0);
        here.write_all(b"abc").unwrap();
        assert!(unread(&here).unwrap() >= 3);
        there.read_exact(&mut [0; 3]).unwrap();
        assert_eq!(unread(&here).unwrap(), 0);
        here.write_all(b"abc").unwrap();
        drop(there);
        assert_eq!(unread(&here).unwrap(), 0);
    }
}
