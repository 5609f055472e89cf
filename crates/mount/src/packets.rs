//! Packets between processes of one host, over unix sockets: a message in JSON, and a descriptor with it if need be.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::Timeout;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidecast_socket::{Bound, ShortPath};

/// The longest message, bytes.
const LONGEST: usize = 128 << 10;
/// A connection that is not accepted within this time fails.
const CONNECTING: Duration = Duration::from_secs(10);

/// One end of a connection, or a socket at which connections come in.
#[derive(Debug)]
pub struct Packets(OwnedFd);

impl Packets {
    fn socket() -> io::Result<OwnedFd> {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        Ok(rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?)
    }

    /// Two connected ends.
    ///
    /// # Errors
    /// An error of the system.
    pub fn pair() -> io::Result<(Packets, Packets)> {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (a, b) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
        Ok((Packets(a), Packets(b)))
    }

    /// A connection that another process has given us.
    pub fn inherited(fd: OwnedFd) -> Packets {
        Packets(fd)
    }

    /// Listens at a path, replacing the socket of an ended process.
    ///
    /// # Errors
    /// An error of the system.
    pub fn listen(path: &Path) -> io::Result<(Packets, Bound)> {
        let (socket, bound) =
            tidecast_socket::bind(path, SocketType::SEQPACKET, 0o600).map_err(io::Error::other)?;
        Ok((Packets(socket), bound))
    }

    /// The next connection, and the user at its other end.
    ///
    /// # Errors
    /// An error of the system.
    pub fn accept(&self) -> io::Result<(Packets, u32)> {
        let socket = rustix::net::accept_with(&self.0, SocketFlags::CLOEXEC)?;
        let user = rustix::net::sockopt::socket_peercred(&socket)?.uid.as_raw();
        Ok((Packets(socket), user))
    }

    /// Connects to the process of user `owner` that listens at a path. No other user's, root's neither: who mounts a file system
    /// chooses its source, which may be the path of a server that others use.
    ///
    /// # Errors
    /// `NotFound` or `ConnectionRefused` if no process does, `PermissionDenied` if it is another user's; an error of
    /// the system.
    pub fn connect(path: &Path, owner: u32) -> io::Result<Packets> {
        let socket = Self::socket()?;
        let short = ShortPath::of(path)?;
        // Its queue may be full for ever.
        rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Send, Some(CONNECTING))?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(short.path())?)?;
        let user = rustix::net::sockopt::socket_peercred(&socket)?.uid.as_raw();
        if user != owner {
            let why = format!("the process at {} belongs to user {user}", path.display());
            return Err(io::Error::new(ErrorKind::PermissionDenied, why));
        }
        Ok(Packets(socket))
    }

    /// Sends a message, and a descriptor with it.
    ///
    /// # Errors
    /// An error of the system; a message may have 128 KiB.
    pub fn send(&self, message: &impl Serialize, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        if bytes.len() > LONGEST {
            return Err(io::Error::new(ErrorKind::InvalidInput, "the message is too long"));
        }
        let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&fds));
        }
        sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// The next message; waits for it.
    ///
    /// # Errors
    /// `UnexpectedEof` when the other end is closed, `TimedOut`, `InvalidData` when the message is malformed.
    pub fn receive<T: DeserializeOwned>(&self, within: Option<Duration>) -> io::Result<(T, Option<OwnedFd>)> {
        if let Some(within) = within {
            let time = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() };
            if poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&time))? == 0 {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        let mut bytes = vec![0; LONGEST];
        let (length, fd) = receive(&self.0, &mut bytes)?;
        let message = serde_json::from_slice(bytes.get(..length).unwrap_or_default())?;
        Ok((message, fd))
    }
}

impl AsFd for Packets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Packets> for OwnedFd {
    fn from(packets: Packets) -> OwnedFd {
        packets.0
    }
}

/// One packet: its length, and the descriptor that came with it.
pub(crate) fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(bytes)];
    let got = recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if got.bytes == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    if got.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::new(ErrorKind::InvalidData, "the message is too long"));
    }
    let mut fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fd = fds.next().and_then(|mut fds| fds.next());
    Ok((got.bytes, fd))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::File;
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn messages_arrive_one_by_one_and_descriptors_with_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let (listener, _bound) = Packets::listen(&path).unwrap();
        let here = Packets::connect(&path, rustix::process::geteuid().as_raw()).unwrap();
        let (there, user) = listener.accept().unwrap();
        assert_eq!(user, rustix::process::geteuid().as_raw());
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        here.send(&"first", None).unwrap();
        here.send(&("second", 2), Some(writer.as_fd())).unwrap();
        writer.write_all(b"one ").unwrap();
        drop(writer);
        assert_eq!(there.receive::<String>(None).unwrap().0, "first");
        let ((word, number), fd) = there.receive::<(String, u8)>(None).unwrap();
        assert_eq!((word.as_str(), number), ("second", 2));
        File::from(fd.unwrap()).write_all(b"other").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "one other");
        let late = there.receive::<String>(Some(Duration::from_millis(1)));
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
        drop(here);
        assert_eq!(there.receive::<String>(None).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn who_listens_anew_takes_the_place_of_who_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("long".repeat(50));
        std::fs::create_dir(&path).unwrap();
        let path = path.join("s");
        let me = rustix::process::geteuid().as_raw();
        assert_eq!(Packets::connect(&path, me).unwrap_err().kind(), ErrorKind::NotFound);
        drop(Packets::listen(&path).unwrap());
        assert_eq!(Packets::connect(&path, me).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let _again = Packets::listen(&path).unwrap();
        Packets::connect(&path, me).unwrap();
        if me != 0 {
            assert_eq!(Packets::connect(&path, me + 1).unwrap_err().kind(), ErrorKind::PermissionDenied);
        }
    }
}
