//! Mounting and unmounting: as root by mount(2), else by fusermount3; and the removal of mounts that no
//! process serves.

use std::ffi::{CString, OsString};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use tidecast_paths::openat2_again;

use crate::error::Error;
use crate::packets::{self, Packets};
use crate::place::Place;

/// Our type of file system, as mount tables show it.
const TYPE: &str = "fuse.tidecast";
const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";

/// How to mount.
#[derive(Clone, Debug)]
pub struct How {
    /// The source in mount tables: the address of the process that serves the mount.
    pub source: PathBuf,
    /// Others than the user who mounts may use it.
    pub allow_other: bool,
}

/// A mount of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Its number.
    id: u64,
    /// Where it is.
    pub at: PathBuf,
    /// Its source; see [`How::source`].
    pub source: PathBuf,
    /// The user who mounted it, as the kernel has noted.
    pub user: u32,
}

impl Mounted {
    /// Whether this user mounted it.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.user == rustix::process::geteuid().as_raw()
    }
}

/// Mounts at a directory, and gives the device over which the kernel will ask.
///
/// # Errors
/// No FUSE on this host, no right to mount.
pub fn mount(place: &Place, how: &How) -> Result<OwnedFd, Error> {
    match mount_directly(&place.by_descriptor(), how) {
        Err(Errno::PERM | Errno::ACCESS) => mount_by_helper(place, how),
        other => other.map_err(|e| Error::Mount { at: place.path().into(), why: explain(e) }),
    }
}

fn explain(error: Errno) -> String {
    match error {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => {
            format!(
                "this host has no FUSE ({DEVICE}: {error}): load the module `fuse`, or use `tidecast get`"
            )
        }
        error => error.to_string(),
    }
}

fn mount_directly(at: &Path, how: &How) -> rustix::io::Result<OwnedFd> {
    let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let others = if how.allow_other { ",allow_other" } else { "" };
    let options = format!(
        "fd={},rootmode=40000,user_id={user},group_id={group},default_permissions{others}",
        device.as_raw_fd()
    );
    let options = CString::new(options).map_err(|_| Errno::INVAL)?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
    rustix::mount::mount(how.source.as_path(), at, TYPE, flags, options.as_c_str())?;
    Ok(device)
}

/// Has the system's set-user-id helper mount for us; it sends the device over a socket.
fn mount_by_helper(place: &Place, how: &How) -> Result<OwnedFd, Error> {
    let failed = |why: String| Error::Mount { at: place.path().into(), why };
    let (ours, theirs) = UnixDatagram::pair().map_err(|e| failed(e.to_string()))?;
    let mut options = OsString::from("ro,nosuid,nodev,default_permissions,subtype=tidecast,fsname=");
    options.push(OsString::from_vec(escaped(how.source.as_os_str().as_bytes())));
    if how.allow_other {
        options.push(",allow_other");
    }
    let mut helper = Command::new(HELPER);
    // It starts in the directory that was checked, so that no other can take its place.
    helper.arg("-o").arg(options).arg("--").arg(".").current_dir(place.by_descriptor());
    // As its standard input the socket has a number that we know.
    helper.env("_FUSE_COMMFD", "0").stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
    let output = helper.stderr(Stdio::piped()).output();
    let output = output.map_err(|e| match e.kind() {
        ErrorKind::NotFound => failed(format!(
            "this user may not mount, and {HELPER} (package fuse3) is missing: install it, or use `tidecast run`"
        )),
        _ => failed(format!("{HELPER}: {e}")),
    })?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    // It has ended, so all of its output is here.
    ours.set_nonblocking(true).map_err(|e| failed(e.to_string()))?;
    let (_, fd) = packets::receive(&ours, &mut [0]).map_err(|e| failed(format!("{HELPER}: {e}")))?;
    fd.ok_or_else(|| failed(format!("{HELPER} sent no device")))
}

/// A value among options, which commas part.
fn escaped(value: &[u8]) -> Vec<u8> {
    let escape = |byte: &u8| if matches!(byte, b',' | b'\\') { vec![b'\\', *byte] } else { vec![*byte] };
    value.iter().flat_map(escape).collect()
}

/// Unmounts. `lazy`: even while it is in use; it is removed when its last user ends.
///
/// # Errors
/// Not a mount of ours, in use, no right.
pub fn unmount(at: &Path, lazy: bool) -> Result<(), Error> {
    let failed = |why: String| Error::Unmount { at: at.into(), why };
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    let busy = || failed("it is in use: end the processes that use it, or use --lazy".to_owned());
    match unmount_ours(at, flags) {
        Ok(()) => return Ok(()),
        Err(Errno::PERM) => {}
        Err(Errno::BUSY) => return Err(busy()),
        Err(e) => return Err(failed(e.to_string())),
    }
    let mut helper = Command::new(HELPER);
    helper.args(if lazy { &["-u", "-z"][..] } else { &["-u"][..] }).arg("--").arg(at);
    let output = helper.stdin(Stdio::null()).output().map_err(|e| failed(format!("{HELPER}: {e}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("resource busy") { Err(busy()) } else { Err(failed(said.trim().to_owned())) }
}

/// Unmounts a mount of ours in the directory that is looked at: no link of a user who owns one above it leads to another.
fn unmount_ours(at: &Path, flags: UnmountFlags) -> Result<(), Errno> {
    let (Some(parent), Some(name)) = (at.parent(), at.file_name()) else { return Err(Errno::INVAL) };
    let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = openat2_again(CWD, parent, path, ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS)?;
    let mount = rustix::fs::openat(&dir, name, path | OFlags::NOFOLLOW, Mode::empty())?;
    let id = mount_id(&mount).ok_or(Errno::INVAL)?;
    if !mounts().is_ok_and(|all| all.iter().any(|mounted| mounted.id == id)) {
        return Err(Errno::INVAL);
    }
    drop(mount);
    let place = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name);
    rustix::mount::unmount(place, flags | UnmountFlags::NOFOLLOW)
}

/// The number of the mount that a descriptor is in.
fn mount_id(fd: &OwnedFd) -> Option<u64> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

/// All mounts of ours that this process can see, the topmost of each place.
///
/// # Errors
/// The mount table cannot be read.
pub fn mounts() -> io::Result<Vec<Mounted>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

/// Tidecast's mount at a path, without access to the mounted file system.
pub fn mounted_at(at: &Path) -> Option<Mounted> {
    // Later mounts cover earlier ones.
    mounts().ok()?.into_iter().rev().find(|mounted| mounted.at == at)
}

/// Removes a mount that a killed process has left at a path, and that no process serves.
///
/// # Errors
/// It cannot be unmounted.
pub fn clean(at: &Path) -> Result<bool, Error> {
    // Another user's may not answer the question below.
    let Some(mounted) = mounted_at(at).filter(Mounted::is_own) else { return Ok(false) };
    // A live server answers at its socket, and must not be asked over a mount that it may just be starting.
    if Packets::connect(&mounted.source, mounted.user).is_ok() {
        return Ok(false);
    }
    // Unlike others, this question always goes to the server: the kernel knows whether there is one.
    if !matches!(rustix::fs::statfs(at), Err(Errno::NOTCONN | Errno::CONNABORTED)) {
        return Ok(false);
    }
    unmount(at, true)?;
    Ok(true)
}

fn parse(table: &[u8]) -> Vec<Mounted> {
    // ID PARENT MAJOR:MINOR ROOT PLACE OPTIONS [TAG...] - TYPE SOURCE SUPER-OPTIONS
    let line = |line: &[u8]| {
        let mut words = line.split(|byte| *byte == b' ');
        let id = str::from_utf8(words.next()?).ok()?.parse().ok()?;
        let at = words.nth(3)?;
        let mut rest = words.skip_while(|word| *word != b"-").skip(1);
        let (kind, source, options) = (rest.next()?, rest.next()?, rest.next()?);
        let user = options.split(|byte| *byte == b',').find_map(|option| option.strip_prefix(b"user_id="))?;
        let user = str::from_utf8(user).ok()?.parse().ok()?;
        (kind == TYPE.as_bytes()).then(|| Mounted {
            id,
            at: table_path(at),
            source: table_path(source),
            user,
        })
    };
    table.split(|byte| *byte == b'\n').filter_map(line).collect()
}

/// A path as mount tables write it: blanks and backslashes are octal.
pub fn table_path(word: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal {
            Some(byte) => {
                out.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_tables_are_read() {
        let table = b"25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
            99 25 0:55 / /opt/my\\040env ro,nosuid - fuse.tidecast /run/a\\134b.sock ro,user_id=7,group_id=8\n\
            100 25 0:56 / /x ro master:2 shared:9 - fuse.sshfs h:/ ro\n";
        let expected = Mounted { id: 99, at: "/opt/my env".into(), source: "/run/a\\b.sock".into(), user: 7 };
        assert_eq!(parse(table), [expected]);
        assert_eq!(parse(b"rubbish - \n\n1 2 3 4 /x - fuse.tidecast"), []);
    }
}
