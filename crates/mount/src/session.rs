//! Serving the kernel: a mount of our own, or one that an earlier process of ours has served before.
//!
//! The kernel sends FUSE_INIT only once, to the process that mounted. A process that continues a mount gets
//! the same message from this module, over a socket that then becomes the device; and the kernel sends its
//! unanswered requests again (`FUSE_NOTIFY_RESEND`, Linux 6.9; before that, such requests end when the
//! process that waits is killed).

use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use fuser::{Config, Session, SessionACL};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

use crate::error::Error;
use crate::fs::Fs;

/// Threads that take requests of the kernel: none waits for the network, but may for the disk. With more of them each
/// request wakes one that has slept longer: with 8 an open takes half as long again, with 1, 2 or 4 the same.
const THREADS: usize = 4;
/// The kernel's first request: sizes and numbers of fuse_in_header and fuse_init_in (linux/fuse.h).
const INIT: u32 = 26;
const INIT_LEN: u32 = 104;
const VERSION: (u32, u32) = (7, 40);
const READ_AHEAD: u32 = 128 << 10;
/// The code of the notice that makes the kernel send unanswered requests again.
const RESEND: i32 = 7;

/// Whether this kernel does that: what waits at one server is then served by the next.
pub(crate) fn resends() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 9)
}

/// A mount that is served, until it is unmounted.
pub(crate) struct Serving {
    session: Session<Fs>,
    again: Option<OwnedFd>,
}

impl Serving {
    /// Greets the kernel over the device of a new mount.
    pub(crate) fn begin(device: OwnedFd, fs: Fs) -> Result<Serving, Error> {
        let pages = fs.pages();
        let session = Session::from_fd(fs, device, SessionACL::All, config()).map_err(Error::Device)?;
        pages.reach(session.notifier());
        Ok(Serving { session, again: None })
    }

    /// Continues on the device of a mount that was served before.
    pub(crate) fn go_on(device: OwnedFd, fs: Fs) -> Result<Serving, Error> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(|e| Error::Device(e.into()))?;
        rustix::net::send(&theirs, &first_words(), SendFlags::NOSIGNAL)
            .map_err(|e| Error::Device(e.into()))?;
        let session = Session::from_fd(fs, ours, SessionACL::All, config());
        let session = session.map_err(Error::Device)?;
        become_device(&session, &device).map_err(Error::Device)?;
        Ok(Serving { session, again: Some(device) })
    }

    /// Serves until the mount is removed.
    pub(crate) fn run(self) -> io::Result<()> {
        if let Some(device) = self.again {
            let mut notice = Vec::with_capacity(16);
            notice.extend_from_slice(&16u32.to_ne_bytes());
            notice.extend_from_slice(&RESEND.to_ne_bytes());
            notice.extend_from_slice(&0u64.to_ne_bytes());
            if let Err(error) = File::from(device).write_all(&notice) {
                tracing::warn!(%error, "this kernel does not resend requests of the previous server");
            }
        }
        self.session.run()
    }
}

/// Puts the device in the place of the socket over which the session was greeted.
#[expect(unsafe_code, reason = "a descriptor must be replaced under its number; see the head of lib.rs")]
fn become_device(session: &Session<Fs>, device: &OwnedFd) -> io::Result<()> {
    // SAFETY: the session owns the descriptor and outlives this call; it is neither closed here nor used
    // otherwise meanwhile.
    let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(session.as_fd().as_raw_fd()) });
    rustix::io::dup3(device, &mut place, rustix::io::DupFlags::CLOEXEC)?;
    Ok(())
}

fn config() -> Config {
    let mut config = Config::default();
    config.acl = SessionACL::All;
    config.n_threads = Some(THREADS);
    config
}

/// FUSE_INIT as the kernel sends it, with every capability: the kernel already has the negotiated ones.
fn first_words() -> Vec<u8> {
    let mut words = Vec::with_capacity(INIT_LEN as usize);
    for number in [INIT_LEN, INIT] {
        words.extend_from_slice(&number.to_ne_bytes());
    }
    for number in [1u64, 0] {
        words.extend_from_slice(&number.to_ne_bytes());
    }
    for number in [0u32; 4] {
        words.extend_from_slice(&number.to_ne_bytes());
    }
    for number in [VERSION.0, VERSION.1, READ_AHEAD, u32::MAX, u32::MAX] {
        words.extend_from_slice(&number.to_ne_bytes());
    }
    words.resize(INIT_LEN as usize, 0);
    words
}
