//! Open a TUN or TAP device in a network namespace. The only file with `unsafe`: see Cargo.toml.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::path::PathBuf;

use rustix::ioctl::{self, IntegerSetter, Setter, opcode};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use thiserror::Error;

const IFF_TUN: u16 = 0x0001;
const IFF_TAP: u16 = 0x0002;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;
/// Units may come with their sum unfinished, and hold several TCP segments of IPv4 or IPv6.
const OFFLOAD: usize = 0x01 | 0x02 | 0x04;
const NAME_MAX: usize = 15;

/// `struct ifreq`: a name and, for this request, flags.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: u16,
    padding: [u8; 22],
}

/// Why a device could not be had.
#[derive(Debug, Error)]
pub enum Error {
    /// The argument is not NAMESPACE:DEVICE.
    #[error("{0:?}: expected NAMESPACE:DEVICE, with a device name of at most {NAME_MAX} bytes")]
    Name(String),
    /// There is no such namespace.
    #[error("cannot open network namespace {path}: {source}; create it with: ip netns add")]
    Namespace {
        /// Where it was looked for.
        path: PathBuf,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// The kernel refused the device.
    #[error("cannot create device {name}: {source}; it needs root and /dev/net/tun")]
    Device {
        /// The device asked for.
        name: String,
        /// The kernel's reason.
        source: std::io::Error,
    },
}

/// Make the device `NAMESPACE:DEVICE` and return it, ready to be read and written with virtio headers.
///
/// # Errors
/// The name is not valid, the namespace is missing, or the kernel refuses.
pub fn open(place: &str, ethernet: bool) -> Result<File, Error> {
    let (namespace, name) = place.split_once(':').ok_or_else(|| Error::Name(place.to_owned()))?;
    if name.is_empty() || name.len() > NAME_MAX || namespace.is_empty() || namespace.contains('/') {
        return Err(Error::Name(place.to_owned()));
    }
    // A thread of its own: it alone moves, and a device stays where it was made.
    std::thread::scope(|scope| scope.spawn(|| open_there(namespace, name, ethernet)).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn open_there(namespace: &str, name: &str, ethernet: bool) -> Result<File, Error> {
    let path = PathBuf::from("/run/netns").join(namespace);
    let enter = |path: &PathBuf| {
        let fd = File::open(path)?;
        move_into_link_name_space(fd.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(())
    };
    enter(&path).map_err(|source| Error::Namespace { path, source })?;
    open_here(name, ethernet)
}

/// As [`open`], in the network namespace of this thread.
///
/// # Errors
/// The name is not valid, or the kernel refuses.
pub fn open_here(name: &str, ethernet: bool) -> Result<File, Error> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Error::Name(name.to_owned()));
    }
    let make = || {
        let device = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
        let kind = if ethernet { IFF_TAP } else { IFF_TUN };
        let mut request = Request { name: [0; 16], flags: kind | IFF_NO_PI | IFF_VNET_HDR, padding: [0; 22] };
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        // SAFETY: TUNSETIFF (number 202) reads one `struct ifreq`, 40 bytes, which `Request` is.
        unsafe {
            ioctl::ioctl(&device, Setter::<{ opcode::write::<i32>(b'T', 202) }, Request>::new(request))
        }?;
        // SAFETY: TUNSETOFFLOAD (number 208) takes its flags as the argument itself and no memory.
        unsafe {
            ioctl::ioctl(&device, IntegerSetter::<{ opcode::write::<u32>(b'T', 208) }>::new_usize(OFFLOAD))
        }?;
        Ok(device)
    };
    make().map_err(|source| Error::Device { name: name.to_owned(), source })
}

const _: () = assert!(size_of::<Request>() == 40);
