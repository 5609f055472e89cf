//! Streams: pipes, devices and standard output, to which bytes are written in order.

use std::fs::{File, FileType};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::output::{open, send};

/// Bytes read at a time.
const POUR: usize = 1 << 20;

/// Whether `path` is a pipe or a device, or a link to one: data is written there in order, and nothing is
/// replaced.
#[must_use]
pub fn is_stream(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| is(meta.file_type()))
}

fn is(kind: FileType) -> bool {
    kind.is_fifo() || kind.is_char_device() || kind.is_block_device()
}

/// A pipe, a device or standard output, open for writing.
#[derive(Debug)]
pub struct Stream(File);

impl Stream {
    /// Opens a pipe or a device; the reader of a pipe is waited for until `is_over`.
    ///
    /// # Errors
    /// As [`crate::output`]; also [`io::ErrorKind::InvalidInput`] for other files than pipes and devices.
    pub fn open(path: &Path, is_over: &dyn Fn() -> bool) -> io::Result<Self> {
        if !is_stream(path) {
            return Err(Errno::INVAL.into());
        }
        let file = open(path, None, is_over)?;
        // Another file may have its name now.
        if is(file.metadata()?.file_type()) { Ok(Self(file)) } else { Err(Errno::INVAL.into()) }
    }

    /// This process's standard output, whatever it is: a file is written from its current offset on.
    ///
    /// # Errors
    /// It is closed.
    pub fn stdout() -> io::Result<Self> {
        let file = File::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?);
        let kind = file.metadata()?.file_type();
        // Reopened, because O_NONBLOCK belongs to the open file, which other processes share.
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
        let again = || File::options().write(true).custom_flags(flags).open("/proc/self/fd/1");
        match kind.is_fifo() || kind.is_char_device() {
            true => Ok(Self(again().unwrap_or(file))),
            false => Ok(Self(file)),
        }
    }

    /// Writes all of it; `is_over` ends the wait for a reader that takes nothing.
    ///
    /// # Errors
    /// The system's error; [`io::ErrorKind::Interrupted`] when `is_over` ended the wait,
    /// [`io::ErrorKind::BrokenPipe`] when the reader of a pipe has closed it.
    pub fn write_all(&self, bytes: &[u8], is_over: &dyn Fn() -> bool) -> io::Result<()> {
        send(&self.0, bytes, is_over)
    }

    /// Everything is written: syncs it to disk, if it is on one.
    ///
    /// # Errors
    /// The system's error.
    pub fn finish(&self) -> io::Result<()> {
        match self.0.metadata()?.file_type().is_block_device() {
            true => self.0.sync_all(),
            false => Ok(()),
        }
    }
}

/// Writes the regular file `from` to a stream, in order, and returns its bytes; `wrote` is called with the bytes so
/// far. `is_over` ends the copy.
///
/// # Errors
/// As [`Stream::write_all`]; errors of reading the file.
pub fn pour(
    from: &Path,
    to: &Stream,
    is_over: &dyn Fn() -> bool,
    wrote: &mut dyn FnMut(u64),
) -> io::Result<u64> {
    // A pipe that has its name meanwhile is not waited for.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let mut source = File::options().read(true).custom_flags(flags).open(from)?;
    if !source.metadata()?.is_file() {
        return Err(Errno::INVAL.into());
    }
    let mut buffer = vec![0; POUR];
    let mut all = 0;
    loop {
        if is_over() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let n = source.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        to.write_all(buffer.get(..n).unwrap_or_default(), is_over)?;
        all += n as u64;
        wrote(all);
    }
    to.finish()?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_file_is_poured_into_a_pipe_and_into_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (from, pipe, other) =
            (dir.path().join("from"), dir.path().join("pipe"), dir.path().join("other"));
        let bytes = vec![7; 3 * POUR + 1];
        fs::write(&from, &bytes).unwrap();
        fs::write(&other, "mine").unwrap();
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(is_stream(&pipe) && !is_stream(&other) && !is_stream(dir.path()));
        Stream::open(&pipe, &|| true).unwrap_err();
        Stream::open(&other, &|| false).unwrap_err();
        assert_eq!(fs::read_to_string(&other).unwrap(), "mine");
        let path = pipe.clone();
        let reader = std::thread::spawn(move || fs::read(path).unwrap());
        let mut seen = 0;
        let to = Stream::open(&pipe, &|| false).unwrap();
        assert_eq!(pour(&from, &to, &|| false, &mut |n| seen = n).unwrap(), bytes.len() as u64);
        drop(to);
        assert!(reader.join().unwrap() == bytes && seen == bytes.len() as u64);
    }

    #[test]
    fn a_reader_that_goes_or_takes_nothing_ends_the_writing() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let path = pipe.clone();
        let reader = std::thread::spawn(move || File::open(path).unwrap());
        let to = Stream::open(&pipe, &|| false).unwrap();
        let reader = reader.join().unwrap();
        let bytes = vec![7; 3 * POUR];
        assert_eq!(to.write_all(&bytes, &|| true).unwrap_err().kind(), io::ErrorKind::Interrupted);
        drop(reader);
        assert_eq!(to.write_all(&bytes, &|| false).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
