//! Writing to a path that the user names for output (`-o FILE`).
//!
//! A regular file, or a free name, gets the content completely or not at all, by a new file and a rename. A
//! link, a pipe or a device is never replaced: the content is written to its target, as `cp` and a shell's
//! `>` do. So are files whose directory accepts no new file (a bind mount of one file, a directory of another
//! user). Nothing is written through what another user may have planted where all users may create names.

use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat, fstatfs, openat};
use rustix::io::Errno;

use crate::Root;
use crate::descriptor_mode::reopen;
use crate::way::{End, Missing, not_planted};

/// Permissions of other users than the owner.
const OTHERS: u32 = 0o077;
/// The magic number of the file system of pipes without a name.
const PIPES: rustix::fs::FsWord = 0x5049_5045;
/// How often a wait for a reader looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// Writes `bytes` to the file, pipe or device that `path` names. `mode` is that of a new file, before the
/// umask; content for the owner alone (no permissions for others) is written through only where no other user gets it.
/// `is_over` ends the wait for the reader of a pipe: it is called before each wait.
///
/// # Errors
/// The system's error; [`io::ErrorKind::PermissionDenied`] for content of the owner alone where others would get it;
/// [`io::ErrorKind::Interrupted`] when `is_over` ended a wait, and
/// [`io::ErrorKind::InvalidInput`] for a socket.
pub fn output(path: &Path, bytes: &[u8], mode: u32, is_over: &dyn Fn() -> bool) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_file() => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
        Ok(_) => return write_through(path, bytes, mode, is_over),
    }
    match replace(path, bytes, mode) {
        Err(e) if path.exists() && takes_no_new_name(&e) => write_through(path, bytes, mode, is_over),
        done => done,
    }
}

/// Whether `path` leads to this process's standard output, as `/dev/stdout` does. Output there must not be
/// mixed with log lines.
#[must_use]
pub fn is_stdout(path: &Path) -> bool {
    let is_link = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink());
    let (Ok(there), Ok(out)) = (std::fs::metadata(path), rustix::fs::fstat(rustix::stdio::stdout())) else {
        return false;
    };
    let out = crate::Meta::of(&out);
    is_link && (there.dev(), there.ino()) == out.id
}

/// Whole or not at all.
fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let name = path.file_name().ok_or(Errno::INVAL)?;
    let mut scratch = Root::open(path.parent().unwrap_or(Path::new("")))?.scratch(name, mode)?;
    scratch.file_mut().write_all(bytes)?;
    scratch.finish()
}

/// The file may be writable all the same.
fn takes_no_new_name(e: &io::Error) -> bool {
    let words = [Errno::ACCESS, Errno::PERM, Errno::ROFS, Errno::BUSY];
    Errno::from_io_error(e).is_some_and(|e| words.contains(&e))
}

fn write_through(path: &Path, bytes: &[u8], mode: u32, is_over: &dyn Fn() -> bool) -> io::Result<()> {
    let mut file = open(path, Some(mode), is_over)?;
    let meta = file.metadata()?;
    if mode & OTHERS == 0 && !is_stdout(path) && !keeps_secrets(&file, &meta)? {
        let why = "it belongs to another user, or other users may read it (chmod 600)";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    if !meta.is_file() {
        return send(&file, bytes, is_over);
    }
    file.set_len(0)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Whether what is written to an open file, pipe or device reaches no other user. Another user may have given it the
/// name that is written to.
fn keeps_secrets(file: &File, meta: &Metadata) -> io::Result<bool> {
    let (kind, me) = (meta.file_type(), rustix::process::geteuid().as_raw());
    Ok(match meta.uid() {
        uid if uid == me => !kind.is_file() || meta.mode() & OTHERS == 0,
        0 if kind.is_char_device() => true,
        // A pipe without a name was given to this process when it started.
        _ => kind.is_fifo() && fstatfs(file)?.f_type == PIPES,
    })
}

/// Opens what is at a path for reading, unless another user may have planted it or a name on the way.
///
/// # Errors
/// The system's error; [`io::ErrorKind::PermissionDenied`] for a planted name.
pub fn open_not_planted(path: &Path) -> io::Result<File> {
    match not_planted(path)? {
        End::Dir(found) | End::Other(found) => Ok(reopen(found, OFlags::RDONLY | OFlags::NOCTTY)?.into()),
        End::Missing(_) => Err(Errno::NOENT.into()),
    }
}

/// Opens the existing file, or the target of a link, for writing, unless another user may have planted one of the two or a
/// link on the way. A missing target of a link is made with the mode `new`. For a pipe, waits for a reader.
pub(crate) fn open(path: &Path, new: Option<u32>, is_over: &dyn Fn() -> bool) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let found = match not_planted(path)? {
        End::Other(found) => found,
        End::Dir(_) => return Err(Errno::ISDIR.into()),
        End::Missing(Missing { above, names, .. }) => {
            let ([name], Some(mode)) = (names.as_slice(), new) else { return Err(Errno::NOENT.into()) };
            let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
            return Ok(openat(&above, name, flags, Mode::from_raw_mode(mode))?.into());
        }
    };
    loop {
        match reopen(&found, flags) {
            Err(e)
                if Errno::from_io_error(&e) == Some(Errno::NXIO)
                    && FileType::from_raw_mode(fstat(&found)?.st_mode) == FileType::Fifo =>
            {
                if is_over() {
                    return Err(io::Error::new(io::ErrorKind::Interrupted, "no process reads this pipe"));
                }
                std::thread::sleep(LOOK);
            }
            opened => return opened.map(File::from),
        }
    }
}

/// Writes to a pipe or a device, whose reader may be slow.
pub(crate) fn send(mut file: &File, mut bytes: &[u8], is_over: &dyn Fn() -> bool) -> io::Result<()> {
    let pause = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if is_over() {
                    return Err(io::Error::new(
                        io::ErrorKind::Interrupted,
                        "the reader of the pipe stopped reading",
                    ));
                }
                poll(&mut [PollFd::new(file, PollFlags::OUT)], Some(&pause))?;
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rustix::fs::{CWD, mknodat};

    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut all: Vec<String> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    }

    #[test]
    fn a_file_is_replaced_whole_and_a_link_stays_one() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        output(&at("new"), b"one", 0o600, &|| true).unwrap();
        assert_eq!(fs::metadata(at("new")).unwrap().permissions().mode() & 0o777, 0o600);
        let reader = File::open(at("new")).unwrap();
        output(&at("new"), b"two", 0o600, &|| true).unwrap();
        assert_eq!(io::read_to_string(&reader).unwrap(), "one", "who has the old one open keeps it");
        symlink("new", at("link")).unwrap();
        symlink("none", at("dangling")).unwrap();
        output(&at("link"), b"3", 0o666, &|| true).unwrap();
        output(&at("dangling"), b"4", 0o666, &|| true).unwrap();
        assert_eq!((fs::read(at("new")).unwrap(), fs::read(at("none")).unwrap()), (b"3".into(), b"4".into()));
        assert!(["link", "dangling"].iter().all(|name| fs::symlink_metadata(at(name)).unwrap().is_symlink()));
        symlink(".", at("dir")).unwrap();
        assert_eq!(
            output(&at("dir"), b"5", 0o666, &|| true).unwrap_err().kind(),
            io::ErrorKind::IsADirectory
        );
        output(&at("no/such"), b"6", 0o666, &|| true).unwrap_err();
        assert_eq!(names(dir.path()), ["dangling", "dir", "link", "new", "none"]);
    }

    #[test]
    fn a_pipe_is_written_to_and_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let error = output(&pipe, b"x", 0o666, &|| true).unwrap_err();
        assert!(error.to_string().contains("no process reads this pipe"), "{error}");
        // More than a pipe holds.
        let bytes = vec![7; 1 << 20];
        let path = pipe.clone();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            File::open(path).unwrap().read_to_end(&mut all).unwrap();
            all
        });
        output(&pipe, &bytes, 0o666, &|| false).unwrap();
        assert!(reader.join().unwrap() == bytes && fs::metadata(&pipe).unwrap().file_type().is_fifo());
    }

    #[test]
    fn what_is_for_the_owner_alone_is_not_written_where_others_read() {
        let dir = tempfile::tempdir().unwrap();
        let (open, link) = (dir.path().join("open"), dir.path().join("link"));
        fs::write(&open, "old").unwrap();
        symlink("open", &link).unwrap();
        let error = output(&link, b"key", 0o600, &|| true).unwrap_err();
        assert_eq!(
            (error.kind(), fs::read(&open).unwrap()),
            (io::ErrorKind::PermissionDenied, b"old".into())
        );
        output(&link, b"no secret", 0o644, &|| true).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o600)).unwrap();
        output(&link, b"key", 0o600, &|| true).unwrap();
        assert_eq!(fs::read(&open).unwrap(), b"key");
        output(Path::new("/dev/null"), b"key", 0o600, &|| true).unwrap();
        let (reader, writer) = io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
        output(Path::new(&path), b"key", 0o600, &|| true).unwrap();
        drop(writer);
        assert_eq!(io::read_to_string(reader).unwrap(), "key");
    }

    #[test]
    fn a_socket_is_refused_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        output(&path, b"x", 0o666, &|| false).unwrap_err();
        assert!(fs::metadata(&path).unwrap().file_type().is_socket());
    }
}
