//! The limit for peers that are not authenticated yet: a number of bytes, and one deadline for all of them.

use std::io::{self, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tidecast_admission::{DEADLINE, MAX_READ};

/// The number of bytes that may still be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    until: Instant,
    left: usize,
}

impl Limit {
    /// All of it, until then.
    pub(crate) fn new(until: Instant) -> Self {
        Self { until, left: MAX_READ }
    }

    /// Reads, however slowly the peer sends, no longer and no more than is left.
    pub(crate) fn read(&mut self, mut tcp: &TcpStream, buf: &mut [u8]) -> io::Result<usize> {
        let rest = self.until.saturating_duration_since(Instant::now());
        if rest < Duration::from_millis(1) {
            let why = format!("the handshake took longer than {} s", DEADLINE.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        if self.left == 0 {
            let why = format!("the peer sent more than {MAX_READ} bytes before the handshake completed");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let most = buf.len().min(self.left);
        tcp.set_read_timeout(Some(rest))?;
        let read = tcp.read(&mut buf[..most])?;
        self.left -= read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        (TcpStream::connect(listener.local_addr().unwrap()).unwrap(), listener.accept().unwrap().0)
    }

    #[test]
    fn bytes_and_time_have_an_end() {
        let (mut near, far) = pair();
        near.write_all(&[1; MAX_READ + 100]).unwrap();
        let (mut limit, mut buf, mut all) = (Limit::new(Instant::now() + DEADLINE), [0; 5000], 0);
        let error = loop {
            match limit.read(&far, &mut buf) {
                Ok(n) => all += n,
                Err(e) => break e,
            }
        };
        assert_eq!((all, error.kind()), (MAX_READ, io::ErrorKind::InvalidData));
        let mut late = Limit::new(Instant::now());
        assert_eq!(late.read(&far, &mut buf).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
