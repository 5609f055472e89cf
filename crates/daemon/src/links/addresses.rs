//! Where other daemons can reach this one.

use std::net::SocketAddr;

use tidecast_net::local_addresses;

/// Addresses of this host that are announced, at most.
const MOST: usize = 8;

/// The addresses that `listen` covers, with the real port: all of this host where it is unspecified.
pub(crate) fn of(listen: Option<SocketAddr>, port: u16) -> Vec<SocketAddr> {
    let Some(listen) = listen else { return Vec::new() };
    if !listen.ip().is_unspecified() {
        return vec![SocketAddr::new(listen.ip(), port)];
    }
    let mut ips: Vec<_> = local_addresses().unwrap_or_default().iter().map(|a| a.ip).collect();
    ips.retain(|ip| listen.is_ipv6() || ip.is_ipv4());
    // Every host has loopback addresses: other hosts cannot use them, so they are announced only if there is
    // no other address.
    if ips.iter().any(|ip| !ip.is_loopback()) {
        ips.retain(|ip| !ip.is_loopback());
    }
    ips.truncate(MOST);
    ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()
}
