//! The pipes to another program. A wait on one can be ended by a timeout or from another thread: a stopped
//! program keeps its pipes open, so a plain read or write would block forever.

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// The standard input and output of a program.
#[derive(Debug)]
pub struct Pipes {
    /// Incoming data.
    pub(crate) incoming: Pipe,
    /// Outgoing data.
    pub(crate) outgoing: Pipe,
}

impl Pipes {
    /// Both pipes of a program.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn new(incoming: File, outgoing: File) -> io::Result<Self> {
        Ok(Self { incoming: Pipe::new(incoming)?, outgoing: Pipe::new(outgoing)? })
    }

    pub(crate) fn set_patience(&mut self, patience: Option<Duration>) {
        self.incoming.patience = patience;
        self.outgoing.patience = patience;
    }
}

/// One end of a pipe, or of a descriptor used like one.
#[derive(Debug)]
pub(crate) struct Pipe {
    file: File,
    cut: Arc<Interrupt>,
    /// How long a read or a write may wait; None: until it is cut.
    pub(crate) patience: Option<Duration>,
}

/// Ends all waiting on a pipe, now and from now on.
#[derive(Debug)]
pub(crate) struct Interrupt(OwnedFd);

impl Interrupt {
    pub(crate) fn cut(&self) {
        // It fails only where it was cut very often.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

impl Pipe {
    fn new(file: File) -> io::Result<Self> {
        fcntl_setfl(&file, fcntl_getfl(&file)? | OFlags::NONBLOCK)?;
        let cut = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { file, cut: Arc::new(Interrupt(cut)), patience: None })
    }

    pub(crate) fn cutter(&self) -> Arc<Interrupt> {
        self.cut.clone()
    }

    /// Tries until it need not wait.
    fn tried<T>(&self, ready: PollFlags, mut what: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            match what() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait(ready)?,
                other => return other,
            }
        }
    }

    fn wait(&self, ready: PollFlags) -> io::Result<()> {
        let timeout = self.patience.and_then(|patience| Timespec::try_from(patience).ok());
        let mut fds = [PollFd::new(&self.file, ready), PollFd::new(&self.cut.0, PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Ok(_) if !fds[1].revents().is_empty() => Err(io::ErrorKind::ConnectionAborted.into()),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

impl Read for Pipe {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.tried(PollFlags::IN, || (&self.file).read(buf))
    }
}

impl Write for Pipe {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.tried(PollFlags::OUT, || (&self.file).write(buf))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.tried(PollFlags::OUT, || (&self.file).write_vectored(bufs))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipes() -> (Pipe, Pipe) {
        let (read, write) = std::io::pipe().unwrap();
        let pipe = |fd: OwnedFd| Pipe::new(fd.into()).unwrap();
        (pipe(read.into()), pipe(write.into()))
    }

    #[test]
    fn waiting_ends_by_time_and_by_others() {
        let (mut read, mut write) = pipes();
        write.write_all(b"word").unwrap();
        let mut word = [0; 4];
        read.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"word");
        read.patience = Some(Duration::from_millis(1));
        write.patience = read.patience;
        assert_eq!(read.read(&mut word).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(write.write_all(&[0; 1 << 21]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        // Two pipes: one is written to, the other is waited on.
        let (mut read, _silent) = pipes();
        let (_deaf, mut write) = pipes();
        let cut = (read.cutter(), write.cutter());
        let ended = std::thread::scope(|scope| {
            let reads = scope.spawn(|| read.read(&mut [0; 4]).unwrap_err().kind());
            let writes = scope.spawn(|| write.write_all(&[0; 1 << 21]).unwrap_err().kind());
            // Whether they wait already or only later.
            cut.1.cut();
            let ended = writes.join().unwrap();
            cut.0.cut();
            (ended, reads.join().unwrap())
        });
        assert_eq!(ended.0, io::ErrorKind::ConnectionAborted);
    }
}
