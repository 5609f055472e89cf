//! Files below a directory that another user may also write to.
//!
//! A [`Root`] is an open directory. Its methods take paths relative to it, and every path is resolved beneath the open
//! directory and through no symbolic link: by the kernel ([`openat2`] with `RESOLVE_BENEATH`, `NO_SYMLINKS` and
//! `NO_MAGICLINKS`), or component by component with `O_NOFOLLOW` where the kernel has no `openat2` or a sandbox filters it.
//! A directory that is swapped for a link at any moment makes an operation fail with `ELOOP` ([`is_link`]), and never
//! leads it elsewhere.
//!
//! Rules that all methods keep:
//!
//! - A path with `..`, a leading `/` or a leading `.` is refused with `EINVAL`. The empty path is the root itself, for methods
//!   that can do something with it.
//! - A method that names a last component (stat, rename, link, remove, chown, times) acts on that name and never on the target
//!   of a link.
//! - Only regular files are opened; a planted FIFO, socket or device is `EINVAL` at once and never blocks.
//! - Trees are walked by descriptors, with a bounded number of them open and without recursion. They are not left over a mount.
//! - Modes are changed on a descriptor. [`Root::remove_all`] makes a directory passable only if its descriptor shows that this
//!   user owns it.
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! # let dir = std::env::temp_dir();
//! let root = tidecast_paths::Root::open(&dir)?;
//! assert!(root.open_file("../outside").is_err());
//! # Ok(())
//! # }
//! ```
//!
//! [`openat2`]: https://man7.org/linux/man-pages/man2/openat2.2.html

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod acl;
mod attributes;
mod descent;
mod descriptor_mode;
mod entries;
mod file;
mod meta;
mod output;
mod page_buffer;
mod planted;
mod resolve;
mod root;
mod stream;
#[cfg(test)]
mod tests;
mod tree;
mod umask;
mod unreplaceable;
mod way;

pub use attributes::Time;
pub use descent::{Descent, Left};
pub use descriptor_mode::reopen;
pub use file::{Copied, Lock, Scratch, copy, fill, sync};
pub use meta::{Kind, Meta};
pub use output::{is_stdout, open_not_planted, output};
pub use page_buffer::PageBuffer;
pub use planted::{Access, OTHERS_WRITE, STICKY, others_write, unmapped, unmapped_now};
pub use resolve::{mount_of, openat2_again};
pub use root::{Root, last_there};
pub use stream::{Stream, is_stream, pour};
pub use umask::umask;
pub use unreplaceable::{Fault, Replaceable, open_unreplaceable, replaceable, temporary_dir};
pub use way::{End, Missing, Step, follow, named, refuse_planted, refuse_planted_link};

use rustix::io::Errno;

/// Whether an operation failed for lack of descriptors or memory: a problem of this host, not of the file.
#[must_use]
pub fn is_exhausted(e: &std::io::Error) -> bool {
    let short = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::AGAIN];
    Errno::from_io_error(e).is_some_and(|e| short.contains(&e))
}

/// Whether an operation failed because the disk or the server below a file system does: that is a trouble of this host, too, and another
/// attempt may succeed.
#[must_use]
pub fn is_failing(e: &std::io::Error) -> bool {
    let words = [
        Errno::IO,
        Errno::REMOTEIO,
        Errno::NXIO,
        Errno::NODEV,
        Errno::NOMEDIUM,
        Errno::BADMSG,
        Errno::UCLEAN,
        Errno::STALE,
        Errno::TIMEDOUT,
        Errno::NOTCONN,
        Errno::HOSTDOWN,
        Errno::HOSTUNREACH,
    ];
    Errno::from_io_error(e).is_some_and(|e| words.contains(&e))
}

/// Whether an operation failed because a symbolic link stands on its path.
#[must_use]
pub fn is_link(e: &std::io::Error) -> bool {
    Errno::from_io_error(e) == Some(Errno::LOOP)
}
