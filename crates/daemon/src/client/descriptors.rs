//! Open files over a unix socket (SCM_RIGHTS), in batches: the protocol of `GET /v1/caches/{id}/files` after its upgrade.
//!
//! The daemon sends frames of eight bytes: a kind and a number, both `u32` in little-endian order. [`FILES`]: this number of
//! descriptors comes with the frame. Before each of its frames the client sends one byte: the first when it has left HTTP, which
//! would lose descriptors, the next when it has used the received files.
//! [`END`]: there are no more. [`FAILED`]: this number of bytes follows, with the reason why there are no more.
//!
//! Only regular files, opened for reading, are sent. A descriptor of a directory would lead a process out of its container.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

/// The protocol of the upgrade.
pub(crate) const PROTOCOL: &str = "tidecast-files";
/// Descriptors of one frame; the system takes 253.
pub(crate) const BATCH: usize = 128;
/// Bytes of a reason.
const REASON: usize = 4096;
/// The other end takes or sends a frame within this time.
const FRAME: Duration = Duration::from_secs(60);
/// A batch is used within this time.
const USED: Duration = Duration::from_secs(3600);

/// Whether the last frame was received is looked at this often.
const POLL: Duration = Duration::from_millis(20);

const FILES: u32 = 1;
const END: u32 = 2;
const FAILED: u32 = 3;

fn head(kind: u32, number: usize) -> [u8; 8] {
    let mut head = [0; 8];
    head[..4].copy_from_slice(&kind.to_le_bytes());
    head[4..].copy_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
    head
}

/// Sends files until `next` returns none. `is_asked`: the client's first byte was read already.
///
/// # Errors
/// The other end has closed the connection, or is too slow.
pub(crate) fn send<E: std::fmt::Display>(
    stream: &UnixStream,
    mut is_asked: bool,
    mut next: impl FnMut() -> Option<Result<File, E>>,
) -> io::Result<()> {
    stream.set_write_timeout(Some(FRAME))?;
    stream.set_read_timeout(Some(USED))?;
    loop {
        if !std::mem::take(&mut is_asked) {
            (&mut &*stream).read_exact(&mut [0])?;
        }
        // Descriptors that are on their way count for this process. A client that asks before it has received them could
        // have any number of them on their way.
        if tidecast_socket::unread(stream)? > 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "asked for a frame before receiving the last one",
            ));
        }
        let mut batch = Vec::new();
        let mut failed = None;
        while batch.len() < BATCH && failed.is_none() {
            match next() {
                Some(Ok(file)) => batch.push(file),
                Some(Err(error)) => failed = Some(error.to_string()),
                None => break,
            }
        }
        if let Some(why) = failed {
            let why: String = why.chars().take(REASON / 4).collect();
            (&mut &*stream).write_all(&head(FAILED, why.len()))?;
            (&mut &*stream).write_all(why.as_bytes())?;
            return received(stream);
        }
        if batch.is_empty() {
            (&mut &*stream).write_all(&head(END, 0))?;
            return received(stream);
        }
        let descriptors: Vec<BorrowedFd<'_>> = batch.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let head = head(FILES, batch.len());
        let sent = rustix::net::sendmsg(stream, &[IoSlice::new(&head)], &mut control, SendFlags::NOSIGNAL)?;
        if sent != head.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
}

/// Waits until the other end has received all, or has closed the connection.
fn received(stream: &UnixStream) -> io::Result<()> {
    let until = Instant::now() + USED;
    while tidecast_socket::unread(stream)? > 0 && Instant::now() < until {
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// Files that are received, one after the other.
pub struct Descriptors {
    stream: UnixStream,
    queue: VecDeque<OwnedFd>,
}

impl Descriptors {
    /// Of an upgraded connection.
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(FRAME))?;
        stream.set_write_timeout(Some(FRAME))?;
        Ok(Self { stream, queue: VecDeque::new() })
    }

    /// The next file; `None` after the last.
    ///
    /// # Errors
    /// The daemon failed, did not answer, or sent something other than a regular file.
    pub fn next(&mut self) -> io::Result<Option<File>> {
        if self.queue.is_empty() && !self.receive()? {
            return Ok(None);
        }
        let Some(next) = self.queue.pop_front() else { return Ok(None) };
        let file = File::from(next);
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the daemon sent a descriptor that is not a regular file",
            ));
        }
        Ok(Some(file))
    }

    /// Receives a batch; false at the end.
    fn receive(&mut self) -> io::Result<bool> {
        self.stream.write_all(&[1])?;
        let mut head = [0; 8];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = rustix::net::recvmsg(
            &self.stream,
            &mut [IoSliceMut::new(&mut head)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.queue.extend(descriptors);
            }
        }
        if got.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.stream.read_exact(&mut head[got.bytes..])?;
        let [k0, k1, k2, k3, n @ ..] = head;
        let number = usize::try_from(u32::from_le_bytes(n)).unwrap_or(usize::MAX);
        match u32::from_le_bytes([k0, k1, k2, k3]) {
            FILES if number == self.queue.len() && number > 0 => Ok(true),
            FILES => Err(io::Error::other(format!(
                "the daemon sent {number} open files and {} arrived: the limit of open files (ulimit -n) is too low",
                self.queue.len()
            ))),
            END => Ok(false),
            FAILED => {
                let mut why = vec![0; number.min(REASON)];
                self.stream.read_exact(&mut why)?;
                Err(io::Error::other(String::from_utf8_lossy(&why).into_owned()))
            }
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "malformed reply from the daemon")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Seek;

    use super::*;

    fn file(number: usize) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(number.to_string().as_bytes()).unwrap();
        file.rewind().unwrap();
        file
    }

    #[test]
    fn files_come_in_order_and_in_batches() {
        for count in [0, 1, BATCH, 3 * BATCH + 7] {
            let (here, there) = UnixStream::pair().unwrap();
            let sending = std::thread::spawn(move || {
                let mut all = (0..count).map(|number| Ok::<_, io::Error>(file(number)));
                send(&there, false, || all.next())
            });
            let mut files = Descriptors::new(here).unwrap();
            for number in 0..count {
                let text = io::read_to_string(files.next().unwrap().unwrap()).unwrap();
                assert_eq!(text, number.to_string());
                assert!(files.queue.len() < BATCH);
            }
            assert!(files.next().unwrap().is_none());
            sending.join().unwrap().unwrap();
        }
    }

    #[test]
    fn a_failure_is_told_and_a_directory_refused() {
        let (here, there) = UnixStream::pair().unwrap();
        let sending = std::thread::spawn(move || send(&there, true, || Some(Err("it is gone"))));
        assert_eq!(Descriptors::new(here).unwrap().next().unwrap_err().to_string(), "it is gone");
        sending.join().unwrap().unwrap();

        let (here, there) = UnixStream::pair().unwrap();
        let mut once = Some(Ok::<_, io::Error>(File::open("/").unwrap()));
        let sending = std::thread::spawn(move || send(&there, false, || once.take()));
        let mut files = Descriptors::new(here).unwrap();
        assert_eq!(files.next().unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(files);
        assert!(sending.join().unwrap().is_err(), "the other end is gone");
    }

    #[test]
    fn a_client_that_asks_without_receiving_gets_one_frame() {
        let (mut here, there) = UnixStream::pair().unwrap();
        here.write_all(&[1; 10]).unwrap();
        let mut given = 0;
        let error = send(&there, false, || {
            given += 1;
            Some(Ok::<_, io::Error>(file(given)))
        });
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(given, BATCH);
    }
}
