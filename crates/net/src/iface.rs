//! Which network to use: this host's interfaces, their addresses and link speeds, and the choice
//! between them (`--net IFACE|CIDR`, else the fastest that both ends share).

use std::net::{IpAddr, SocketAddr};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use crate::link::link_speed;

/// One address of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// Interface name, as `ip link` shows it.
    pub interface: String,
    /// The address.
    pub ip: IpAddr,
    /// Length of the network prefix in bits.
    pub prefix: u8,
    /// Link speed in bits per second; 0 if no hardware driver reports it.
    pub speed: u64,
    /// A loopback interface.
    pub loopback: bool,
}

/// A network that the user named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// An interface by name.
    Interface(String),
    /// All addresses within a prefix.
    Prefix(IpAddr, u8),
}

impl std::str::FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((ip, bits)) = text.split_once('/') else {
            return match text.parse::<IpAddr>() {
                Ok(ip) => Ok(Network::Prefix(ip, full_prefix(ip))),
                Err(_) if text.is_empty() => {
                    Err("network missing: write an interface name or a CIDR prefix".into())
                }
                Err(_) => Ok(Network::Interface(text.to_owned())),
            };
        };
        let ip: IpAddr = ip.parse().map_err(|_| format!("{ip:?} is not an IP address"))?;
        match bits.parse::<u8>() {
            Ok(bits) if bits <= full_prefix(ip) => Ok(Network::Prefix(ip, bits)),
            _ => Err(format!("/{bits} is not a prefix length for {ip}")),
        }
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Network::Interface(name) => f.write_str(name),
            Network::Prefix(ip, bits) => write!(f, "{ip}/{bits}"),
        }
    }
}

impl Network {
    /// Whether `address` is on this network.
    pub fn holds(&self, address: &LocalAddress) -> bool {
        match self {
            Network::Interface(name) => *name == address.interface,
            Network::Prefix(ip, bits) => same_network(*ip, address.ip, *bits),
        }
    }
}

/// All addresses of interfaces that are up, fastest first, loopback last, link-local ones left out.
///
/// # Errors
/// When the kernel will not list its interfaces.
pub fn local_addresses() -> std::io::Result<Vec<LocalAddress>> {
    let mut found = Vec::new();
    for entry in getifaddrs()? {
        if !entry.flags.contains(InterfaceFlags::IFF_UP) {
            continue;
        }
        let Some(ip) = entry.address.as_ref().and_then(to_ip) else { continue };
        if matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
            continue;
        }
        let prefix = entry.netmask.as_ref().and_then(to_ip).map_or(full_prefix(ip), ones);
        let loopback = entry.flags.contains(InterfaceFlags::IFF_LOOPBACK);
        let speed = link_speed(&entry.interface_name);
        found.push(LocalAddress { interface: entry.interface_name, ip, prefix, speed, loopback });
    }
    found.sort_by_key(|a| (a.loopback, std::cmp::Reverse(a.speed), a.ip.is_ipv6()));
    Ok(found)
}

/// Every address of this machine, link-local ones with their link.
///
/// # Errors
/// When the kernel will not list its interfaces.
pub fn own_addresses() -> std::io::Result<Vec<SocketAddr>> {
    let whole = |address: &nix::sys::socket::SockaddrStorage| match address.as_sockaddr_in6() {
        Some(v6) => Some(SocketAddr::V6((*v6).into())),
        None => to_ip(address).map(|ip| (ip, 0).into()),
    };
    Ok(getifaddrs()?.filter_map(|entry| entry.address.as_ref().and_then(whole)).collect())
}

/// Orders the addresses of one remote node for dialling: addresses on networks of this host come first, those of
/// its fastest links first; the rest keep their order.
pub fn order_for_dialling(remote: &mut [SocketAddr], local: &[LocalAddress]) {
    remote.sort_by_key(|addr| {
        let shared = local.iter().find(|l| same_network(l.ip, addr.ip(), l.prefix));
        match shared {
            Some(l) => (0, std::cmp::Reverse(l.speed)),
            None if addr.ip().is_loopback() => (2, std::cmp::Reverse(0)),
            None => (1, std::cmp::Reverse(0)),
        }
    });
}

/// The local address to dial `remote` from, when the user chose a network.
pub(crate) fn source_for(remote: IpAddr, chosen: &[LocalAddress]) -> Option<IpAddr> {
    let same_family = |l: &&LocalAddress| l.ip.is_ipv4() == remote.is_ipv4();
    shared_source(remote, chosen).or_else(|| chosen.iter().find(same_family).map(|l| l.ip))
}

/// The local address for dialling `remote`, if one of these is on its network: a listening address, so that peers
/// recognise the node.
pub(crate) fn shared_source(remote: IpAddr, listening: &[LocalAddress]) -> Option<IpAddr> {
    listening.iter().find(|l| same_network(l.ip, remote, l.prefix)).map(|l| l.ip)
}

/// The networks of listening addresses; unspecified ones are left out.
pub(crate) fn listening(addrs: &[SocketAddr], local: &[LocalAddress]) -> Vec<LocalAddress> {
    let specific = addrs.iter().map(SocketAddr::ip).filter(|ip| !ip.is_unspecified());
    let of = |ip: IpAddr| {
        let network = local.iter().find(|l| same_network(l.ip, ip, l.prefix))?;
        Some(LocalAddress { ip, ..network.clone() })
    };
    specific.filter_map(of).collect()
}

fn same_network(a: IpAddr, b: IpAddr, bits: u8) -> bool {
    let shift = |width: u8| u32::from(width.saturating_sub(bits));
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            let differ = u32::from(a) ^ u32::from(b);
            differ.checked_shr(shift(32)).unwrap_or(0) == 0
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            let differ = u128::from(a) ^ u128::from(b);
            differ.checked_shr(shift(128)).unwrap_or(0) == 0
        }
        _ => false,
    }
}

fn full_prefix(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

fn to_ip(address: &nix::sys::socket::SockaddrStorage) -> Option<IpAddr> {
    if let Some(v4) = address.as_sockaddr_in() {
        return Some(IpAddr::V4(v4.ip()));
    }
    address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()))
}

fn ones(mask: IpAddr) -> u8 {
    let bits = match mask {
        IpAddr::V4(m) => u32::from(m).leading_ones(),
        IpAddr::V6(m) => u128::from(m).leading_ones(),
    };
    u8::try_from(bits).unwrap_or(128)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn local(ip: &str, prefix: u8, speed: u64) -> LocalAddress {
        let ip: IpAddr = ip.parse().unwrap();
        LocalAddress { interface: "x".into(), ip, prefix, speed, loopback: ip.is_loopback() }
    }

    #[test]
    fn loopback_is_always_there_and_last() {
        let all = local_addresses().unwrap();
        assert!(all.last().unwrap().loopback);
    }

    #[test]
    fn the_fastest_shared_network_is_dialled_first() {
        let ours = [local("10.1.0.1", 16, 100), local("10.9.0.1", 24, 1)];
        let mut theirs: Vec<SocketAddr> =
            ["127.0.0.1:1", "192.168.0.1:1", "10.9.0.7:1", "10.1.3.4:1"].map(|a| a.parse().unwrap()).into();
        order_for_dialling(&mut theirs, &ours);
        let ips: Vec<String> = theirs.iter().map(|a| a.ip().to_string()).collect();
        assert_eq!(ips, ["10.1.3.4", "10.9.0.7", "192.168.0.1", "127.0.0.1"]);
    }

    #[test]
    fn a_node_dials_its_neighbours_from_where_it_listens() {
        let host = [local("10.1.0.1", 16, 100), local("127.0.0.1", 8, 0)];
        let ours = listening(&["127.0.0.3:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap()], &host);
        assert_eq!(shared_source("127.0.0.9".parse().unwrap(), &ours), Some("127.0.0.3".parse().unwrap()));
        assert_eq!(shared_source("10.1.0.9".parse().unwrap(), &ours), None);
    }

    #[test]
    fn networks_parse_and_match() {
        for text in ["10.1.0.0/16", "fd00::/8", "ib0"] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
        }
        let net: Network = "10.1.0.0/16".parse().unwrap();
        assert!(net.holds(&local("10.1.200.3", 24, 0)));
        assert!(!net.holds(&local("10.2.0.3", 24, 0)));
        assert_eq!("ib0".parse::<Network>().unwrap(), Network::Interface("ib0".into()));
        assert!("10.1.0.0/33".parse::<Network>().is_err());
        assert!("0.0.0.0/0".parse::<Network>().unwrap().holds(&local("9.9.9.9", 8, 0)));
    }
}
