//! The minimum time of any mover of small files here: the cost of the system calls that every copy of a tree
//! over TCP needs, and of the cipher, without anything else. No process waits for another, nothing is looked
//! up, kept or handed over: each core reads some files, sends them to itself over loopback, and writes them.
//!
//! `floor plain|tls SOURCE TARGET [final]`: copies the folders in SOURCE, each with its files, into TARGET. Each file is written under
//! another name and renamed, as a name is given only to what is whole; with `final` it is written under its own.

use std::error::Error;
use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rustix::fs::{Mode, OFlags, Timespec, Timestamps, fstat, futimens, openat, renameat};
use rustls::{ClientConnection, Connection, ServerConnection};
use socket2::SockRef;
use tidecast_identity::{NodeKey, Tls, placeholder_name};
use tidecast_paths::PageBuffer;
use twox_hash::XxHash3_128;

type Tried<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Bytes that are read, sent and written at a time: they stay in a core's own cache.
const BATCH: usize = 256 << 10;
const PROTOCOL: &[u8] = b"floor";

fn main() -> Tried {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (words, renames) = match words.split_last() {
        Some((last, words)) if last == "final" => (words, false),
        _ => (words.as_slice(), true),
    };
    let [guard, source, target] = words else {
        return Err("floor plain|tls SOURCE TARGET [final]".into());
    };
    let tls = if guard == "tls" { Some(Tls::new(&NodeKey::generate()?)?) } else { None };
    let folders = fs::read_dir(source)?.map(|entry| Ok(entry?.path())).collect::<Tried<Vec<PathBuf>>>()?;
    let cores = std::thread::available_parallelism()?.get();
    let next = AtomicUsize::new(0);
    rustix::process::umask(Mode::empty());
    std::thread::scope(|scope| {
        let one = || {
            let mut lane = Lane::new(tls.as_ref(), renames)?;
            while let Some(folder) = folders.get(next.fetch_add(1, Relaxed)) {
                lane.folder(folder, &Path::new(target).join(folder.file_name().unwrap_or_default()))?;
            }
            Ok(())
        };
        let all: Vec<_> = (0..cores).map(|_| scope.spawn(one)).collect();
        all.into_iter().try_for_each(|lane| lane.join().unwrap_or_else(|_| Err("a thread panicked".into())))
    })
}

/// The state of a file in transit.
struct Entry {
    name: Vec<u8>,
    len: usize,
    mode: Mode,
    times: Timestamps,
    digest: u128,
}

/// The state of one core: both ends of a connection, and the data in transit.
struct Lane {
    ways: (TcpStream, TcpStream),
    session: Option<(Connection, Connection)>,
    sent: PageBuffer,
    come: PageBuffer,
    entries: Vec<Entry>,
    renames: bool,
}

fn directory(path: &Path) -> Tried<OwnedFd> {
    fs::DirBuilder::new().mode(0o755).create(path)?;
    Ok(File::open(path)?.into())
}

impl Lane {
    fn new(tls: Option<&Tls>, renames: bool) -> Tried<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let ways = (TcpStream::connect(listener.local_addr()?)?, listener.accept()?.0);
        SockRef::from(&ways.0).set_send_buffer_size(2 * BATCH)?;
        SockRef::from(&ways.1).set_recv_buffer_size(4 * BATCH)?;
        Ok(Self {
            ways,
            session: tls.map(session).transpose()?,
            sent: PageBuffer::new(BATCH),
            come: PageBuffer::new(BATCH),
            entries: Vec::new(),
            renames,
        })
    }

    fn folder(&mut self, from: &Path, to: &Path) -> Tried {
        let (source, target) = (File::open(from)?, directory(to)?);
        let mut len = 0;
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name().as_bytes().to_vec();
            let file = openat(&source, name.as_slice(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            let seen = fstat(&file)?;
            let size = usize::try_from(seen.st_size)?;
            if len + size > BATCH {
                self.carry(std::mem::take(&mut len), &target)?;
            }
            let room = self.sent.get_mut(len..len + size).ok_or("a file that is no small one")?;
            File::from(file).read_exact(room)?;
            let at = |tv_sec, tv_nsec: u64| Timespec { tv_sec, tv_nsec: tv_nsec as i64 };
            let last_access = at(seen.st_atime, seen.st_atime_nsec as u64);
            let times =
                Timestamps { last_access, last_modification: at(seen.st_mtime, seen.st_mtime_nsec as u64) };
            let digest = XxHash3_128::oneshot(room);
            self.entries.push(Entry {
                name,
                len: size,
                mode: Mode::from_raw_mode(seen.st_mode),
                times,
                digest,
            });
            len += size;
        }
        self.carry(len, &target)?;
        Ok(fs::set_permissions(to, Permissions::from_mode(fs::metadata(from)?.permissions().mode()))?)
    }

    /// Sends the read data, and writes it.
    fn carry(&mut self, len: usize, target: &OwnedFd) -> Tried {
        match &mut self.session {
            None => {
                self.ways.0.write_all(&self.sent[..len])?;
                self.ways.1.read_exact(&mut self.come[..len])?;
            }
            Some((near, far)) => {
                near.writer().write_all(&self.sent[..len])?;
                while near.wants_write() {
                    near.write_tls(&mut self.ways.0)?;
                }
                let mut done = 0;
                while done < len {
                    far.read_tls(&mut self.ways.1)?;
                    let ready = far.process_new_packets()?.plaintext_bytes_to_read();
                    far.reader().read_exact(&mut self.come[done..done + ready])?;
                    done += ready;
                }
            }
        }
        let mut data = &self.come[..];
        for (n, entry) in self.entries.drain(..).enumerate() {
            let (content, rest) = data.split_at(entry.len);
            data = rest;
            if self.renames {
                let temporary = format!(".{n}");
                write(target, temporary.as_bytes(), &entry, content)?;
                renameat(target, &temporary, target, entry.name.as_slice())?;
            } else {
                write(target, &entry.name, &entry, content)?;
            }
        }
        Ok(())
    }
}

fn write(target: &OwnedFd, name: &[u8], entry: &Entry, content: &[u8]) -> Tried {
    if XxHash3_128::oneshot(content) != entry.digest {
        return Err("damaged on its way".into());
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(target, name, flags, entry.mode)?;
    rustix::io::write(&file, content)?;
    Ok(futimens(file.as_fd(), &entry.times)?)
}

/// Two ends that have shaken hands already.
fn session(tls: &Tls) -> Tried<(Connection, Connection)> {
    let client = ClientConnection::new(tls.client_speaking(PROTOCOL, None)?, placeholder_name())?;
    let mut near = Connection::from(client);
    let mut far = Connection::from(ServerConnection::new(Arc::clone(&tls.server_speaking(&[PROTOCOL])))?);
    near.set_buffer_limit(Some(2 * BATCH));
    while near.is_handshaking() || far.is_handshaking() || near.wants_write() || far.wants_write() {
        hand(&mut near, &mut far)?;
        hand(&mut far, &mut near)?;
    }
    Ok((near, far))
}

fn hand(from: &mut Connection, to: &mut Connection) -> Tried {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes)?;
    }
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        to.read_tls(&mut rest)?;
        to.process_new_packets()?;
    }
    Ok(())
}
