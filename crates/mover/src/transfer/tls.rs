//! TLS over a socket that blocks: `tidecast-tls` has the session, this moves its bytes.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;

use rustls::pki_types::CertificateDer;
use tidecast_admission::{MAX_HELD, MAX_READ};
use tidecast_tls::{RECORD, Session};

use super::limit::Limit;

/// More than a flight of the handshake.
const FLIGHT: usize = 4 << 10;
// All buffers of an unauthenticated peer are within the limit: that for incoming data is at most doubled when
// it is full, and its decrypted data waits in another.
const _: () = assert!(2 * MAX_READ + MAX_READ + FLIGHT <= MAX_HELD && RECORD <= MAX_READ);

/// A session and its connection.
#[derive(Debug)]
pub(crate) struct Stream {
    session: Session,
    pub(crate) tcp: TcpStream,
    /// The limit for a peer that is not authenticated yet.
    limit: Option<Limit>,
}

impl Stream {
    /// Shakes hands.
    ///
    /// # Errors
    /// Errors of the connection; or rustls's error, within an [`io::Error`].
    pub(crate) fn open(session: Session, tcp: TcpStream, limit: Option<Limit>) -> io::Result<Self> {
        let mut stream = Self { session, tcp, limit };
        loop {
            let shaken = stream.session.shake_hands();
            let sent = stream.send();
            if shaken? {
                return sent.map(|()| stream);
            }
            sent?;
            stream.receive()?;
        }
    }

    /// The peer is authenticated: from now on nothing of it is limited.
    pub(crate) fn prove(&mut self) {
        self.limit = None;
    }

    /// The peer's certificates.
    pub(crate) fn certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.session.agreed().peer_certificates()
    }

    /// The value that binds a proof to this session, if the ends have agreed on that protocol.
    pub(crate) fn binding(&self, protocol: &[u8]) -> Option<[u8; 32]> {
        let agreed = self.session.agreed().alpn_protocol() == Some(protocol);
        self.session.binding().filter(|_| agreed)
    }

    /// Sends close_notify.
    ///
    /// # Errors
    /// Errors of the connection.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        self.session.close()?;
        self.send()
    }

    /// Reads the available data from the kernel, or waits for it.
    fn receive(&mut self) -> io::Result<()> {
        loop {
            let room = self.session.room()?;
            let read = match &mut self.limit {
                Some(limit) => limit.read(&self.tcp, room),
                None => self.tcp.read(room),
            };
            match read {
                // The end of a connection without a goodbye is a break.
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    self.session.received(n);
                    return Ok(());
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn send(&mut self) -> io::Result<()> {
        let waiting = self.session.waiting();
        let sent = self.tcp.write_all(waiting);
        self.session.sent(waiting.len());
        sent
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        loop {
            let read = self.session.read(buf.len(), |plain| {
                buf[filled..filled + plain.len()].copy_from_slice(plain);
                filled += plain.len();
            });
            match read {
                Ok(tidecast_tls::Read::Plain(_) | tidecast_tls::Read::End) => return Ok(filled),
                Ok(tidecast_tls::Read::Wanting) => self.receive()?,
                Err(e) => {
                    // A failure to send the alert is not the error to report.
                    let _ = self.send();
                    return Err(e.into());
                }
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let written = self.session.write(buf)?;
        self.send()?;
        Ok(written)
    }

    /// Short slices are sent together with those that follow.
    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = self.session.write_vectored(bufs, 0)?;
        self.send()?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use tidecast_identity::{NodeKey, Tls, placeholder_name};
    use tidecast_tls::WRITE;

    use super::*;

    fn ways() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        (TcpStream::connect(listener.local_addr().unwrap()).unwrap(), listener.accept().unwrap().0)
    }

    fn accept(tcp: TcpStream) -> io::Result<Stream> {
        let tls = Tls::new(&NodeKey::generate().unwrap()).unwrap();
        Stream::open(Session::server(tls.server()).unwrap(), tcp, None)
    }

    fn pair() -> (Stream, Stream) {
        let (near, far) = ways();
        let far = thread::spawn(|| accept(far));
        let tls = Tls::new(&NodeKey::generate().unwrap()).unwrap();
        let session = Session::client(tls.client(), placeholder_name()).unwrap();
        (Stream::open(session, near, None).unwrap(), far.join().unwrap().unwrap())
    }

    #[test]
    fn all_comes_in_order_and_an_end_is_told_from_a_break() {
        for says_goodbye in [true, false] {
            let (mut near, mut far) = pair();
            assert!(near.certificates().is_some() && far.certificates().is_some());
            let data: Vec<u8> = (0..3_000_000_usize).map(|i| (i * 7 / 3) as u8).collect();
            let expected = data.clone();
            let sender = thread::spawn(move || {
                let (head, mut rest) = data.split_at(100);
                // Short slices are sent together with the following ones, and nothing is lost between them.
                let mut sent = near
                    .write_vectored(&[IoSlice::new(&[]), IoSlice::new(head), IoSlice::new(rest)])
                    .unwrap();
                assert_eq!(sent, WRITE);
                rest = &data[sent..];
                for len in [1, 3, WRITE - 1, WRITE + 1].into_iter().cycle() {
                    if rest.is_empty() {
                        break;
                    }
                    sent = near.write(&rest[..len.min(rest.len())]).unwrap();
                    rest = &rest[sent..];
                }
                if says_goodbye {
                    near.close().unwrap();
                }
            });
            let (mut got, mut room) = (Vec::new(), vec![0; 200_000]);
            let end = loop {
                let len = [1, 24, 5000, 200_000][got.len() % 4];
                match far.read(&mut room[..len]) {
                    Ok(0) => break None,
                    Ok(n) => got.extend_from_slice(&room[..n]),
                    Err(e) => break Some(e.kind()),
                }
            };
            sender.join().unwrap();
            assert!(got == expected);
            assert_eq!(end, (!says_goodbye).then_some(io::ErrorKind::UnexpectedEof));
            if says_goodbye {
                // The other end may still send, until it has closed, too.
                far.write_all(b"more").unwrap_or_default();
                far.close().unwrap_or_default();
                assert!(far.write(b"more").is_err());
            }
        }
    }

    #[test]
    fn who_speaks_something_else_hears_an_alert() {
        for words in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            &[22, 3, 1, 0, 4, 1, 0, 0, 0],
            &[21, 3, 3, 0, 2, 2, 40],
            &[0; 300],
        ] {
            let (mut near, far) = ways();
            let far = thread::spawn(|| accept(far).map(drop));
            near.write_all(words).unwrap();
            near.shutdown(std::net::Shutdown::Write).unwrap();
            let error = far.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{words:?}: {error}");
            let mut heard = Vec::new();
            let _ = near.read_to_end(&mut heard);
            assert!(heard.first().is_none_or(|kind| *kind == 21), "{heard:?}");
        }
    }
}
