//! The network interfaces of this host, by name, with their addresses.

use std::io;
use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};

/// A network interface that is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name, `eth0`.
    pub name: String,
    /// The kernel's number for it.
    pub index: u32,
    /// Its addresses, IPv4 and IPv6.
    pub addrs: Vec<IpAddr>,
    /// Whether it reports multicast support. Loopback supports it without reporting it.
    pub multicast: bool,
    /// Whether it leads back to this host.
    pub loopback: bool,
}

/// All interfaces that are up and have an address, in the kernel's order.
///
/// # Errors
/// When the kernel does not tell.
pub fn list() -> io::Result<Vec<Interface>> {
    let mut all: Vec<Interface> = Vec::new();
    for entry in getifaddrs()? {
        let Some(addr) = entry.address.as_ref() else { continue };
        let ip = match (addr.as_sockaddr_in(), addr.as_sockaddr_in6()) {
            (Some(v4), _) => IpAddr::V4(v4.ip()),
            (_, Some(v6)) => IpAddr::V6(v6.ip()),
            _ => continue,
        };
        if !entry.flags.contains(InterfaceFlags::IFF_UP) {
            continue;
        }
        if let Some(known) = all.iter_mut().find(|i| i.name == entry.interface_name) {
            known.addrs.push(ip);
            continue;
        }
        // One that vanished in this instant has no index.
        let Ok(index) = if_nametoindex(entry.interface_name.as_str()) else { continue };
        all.push(Interface {
            name: entry.interface_name,
            index,
            addrs: vec![ip],
            multicast: entry.flags.contains(InterfaceFlags::IFF_MULTICAST),
            loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn loopback_is_there() {
        let all = list().unwrap();
        let lo = all.iter().find(|i| i.loopback).expect("a loopback interface");
        assert!(lo.index > 0 && lo.addrs.iter().any(IpAddr::is_loopback));
        let mut names: Vec<_> = all.iter().map(|i| &i.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all.len());
    }
}
