//! Extended attributes, access control lists among them.

use std::cell::RefCell;
use std::os::fd::AsRawFd;

use rustix::fd::AsFd;
use rustix::fs::{XattrFlags, fgetxattr, flistxattr, lgetxattr, llistxattr, lsetxattr};
use rustix::io::Errno;

use crate::part::MAX_XATTRS;

/// Longest list of names, and longest value, that the kernel gives.
const LONGEST: usize = 65_536;
/// Most are shorter.
const USUAL: usize = 256;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; LONGEST]);
}

/// Names and values.
pub(crate) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Whether a copy takes it along: the user's, access control lists, and as root those that only root may set.
/// Labels of security modules belong to a host and stay there.
pub(crate) fn travels(name: &[u8], root: bool) -> bool {
    name.starts_with(b"user.")
        || is_acl(name)
        || (root && (name == b"security.capability" || name.starts_with(b"trusted.")))
}

/// Whether it is an access control list.
pub(crate) fn is_acl(name: &[u8]) -> bool {
    name.starts_with(b"system.posix_acl_")
}

/// The attributes of an open file that are sent; None where the file system does not support any.
pub(crate) fn of(fd: impl AsFd, root: bool) -> Result<Option<Xattrs>, Errno> {
    collect(root, |buffer| flistxattr(&fd, buffer), |name, buffer| fgetxattr(&fd, name, buffer))
}

/// The same of a name in a directory, which need not be opened for it; a link is not followed.
pub(crate) fn at(dir: impl AsFd, name: &[u8], root: bool) -> Result<Option<Xattrs>, Errno> {
    let path = path(dir, name);
    collect(
        root,
        |buffer| llistxattr(path.as_slice(), buffer),
        |name, buffer| lgetxattr(path.as_slice(), name, buffer),
    )
}

/// One of a directory, whose handle may be one that only names it.
pub(crate) fn of_dir(dir: impl AsFd, attribute: &str) -> Option<Vec<u8>> {
    let path = path(dir, b"");
    BUFFER.with_borrow_mut(|buffer| {
        let len = lgetxattr(path.as_slice(), attribute, buffer.as_mut_slice()).ok()?;
        buffer.get(..len).map(<[u8]>::to_vec)
    })
}

/// Sets one of a name in a directory; a link is not followed.
pub(crate) fn set_at(dir: impl AsFd, name: &[u8], attribute: &[u8], value: &[u8]) -> Result<(), Errno> {
    lsetxattr(path(dir, name).as_slice(), attribute, value, XattrFlags::empty())
}

/// There is no call that takes a directory and a name.
fn path(dir: impl AsFd, name: &[u8]) -> Vec<u8> {
    let mut path = format!("/proc/self/fd/{}/", dir.as_fd().as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    path
}

fn collect(
    root: bool,
    list: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    get: impl Fn(&[u8], &mut [u8]) -> Result<usize, Errno>,
) -> Result<Option<Xattrs>, Errno> {
    BUFFER.with_borrow_mut(|buffer| {
        let names = match read(buffer, list) {
            Ok(0) => return Ok(Some(Vec::new())),
            Ok(len) => buffer[..len].to_vec(),
            Err(Errno::OPNOTSUPP) => return Ok(None),
            Err(e) => return Err(e),
        };
        let mut all = Vec::new();
        for name in names.split(|b| *b == 0).filter(|name| travels(name, root)) {
            if all.len() == MAX_XATTRS {
                return Err(Errno::TOOBIG);
            }
            match read(buffer, |buffer| get(name, buffer)) {
                Ok(len) => all.push((name.to_vec(), buffer[..len].to_vec())),
                // It went meanwhile.
                Err(Errno::NODATA) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(Some(all))
    })
}

/// With little room first: the kernel allocates as much as it is offered.
fn read(buffer: &mut [u8], call: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<usize, Errno> {
    match call(&mut buffer[..USUAL]) {
        Err(Errno::RANGE) => call(buffer),
        other => other,
    }
}
