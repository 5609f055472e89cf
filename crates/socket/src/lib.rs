//! Unix sockets at paths: of any length ([`ShortPath`]), and made without removing anything but a dead socket ([`bind`]).
//!
//! [`unread`] asks the kernel with one line of `unsafe`, as no library does.
//!
//! A socket grants access, so [`bind`] also refuses a directory in which another user could replace it.

mod bind;
mod short_path;
mod unread;

pub use bind::{BindError, Bound, bind, listen};
pub use rustix::net::SocketType;
pub use short_path::ShortPath;
pub use unread::unread;

use std::path::Path;

/// Whether a process listens there.
#[must_use]
pub fn answers(path: &Path) -> bool {
    ShortPath::of(path).is_ok_and(|short| std::os::unix::net::UnixStream::connect(short.path()).is_ok())
}
