//! Names into addresses, and sockets that leave by the chosen network. Every wait is bounded.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream, UdpSocket, lookup_host};
use tokio::time::timeout;

use crate::Error;

/// Most addresses of one name that are used.
const MAX_ADDRESSES: usize = 16;

/// The addresses of `host`, at most 16, found within `within`.
///
/// The system's resolver runs on a thread of the runtime and cannot be stopped; when it hangs, this returns in
/// time, and the thread ends when the resolver does.
pub(crate) async fn lookup(host: &str, port: u16, within: Duration) -> Result<Vec<SocketAddr>, Error> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let found = timeout(within, lookup_host((host, port)))
        .await
        .map_err(|_| Error::Timeout { what: format!("the resolver (name {host})"), after: within })?
        .map_err(|source| Error::Resolve { host: host.to_owned(), source })?;
    let mut addrs: Vec<SocketAddr> = Vec::new();
    for addr in found {
        if addrs.len() < MAX_ADDRESSES && !addrs.contains(&addr) {
            addrs.push(addr);
        }
    }
    Ok(addrs)
}

/// The local address to bind for a packet to `to`: of `bind`, the one of the same family.
/// `None` when `bind` names addresses of the other family only.
pub(crate) fn local_for(to: SocketAddr, bind: &[IpAddr]) -> Option<SocketAddr> {
    let any: SocketAddr = if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    if bind.is_empty() {
        return Some(any);
    }
    bind.iter().find(|ip| ip.is_ipv4() == to.is_ipv4()).map(|ip| SocketAddr::new(*ip, 0))
}

/// A TCP connection to `to` from `local`, made within `within`.
pub(crate) async fn connect(to: SocketAddr, local: SocketAddr, within: Duration) -> Result<TcpStream, Error> {
    let io = |source| Error::Io { addr: to, source };
    let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.map_err(io)?;
    if !local.ip().is_unspecified() {
        socket.bind(local).map_err(io)?;
    }
    timeout(within, socket.connect(to))
        .await
        .map_err(|_| Error::Timeout { what: to.to_string(), after: within })?
        .map_err(io)
}

/// A UDP socket that sends to `to` and receives from no other address.
pub(crate) async fn udp(to: SocketAddr, local: SocketAddr) -> Result<UdpSocket, Error> {
    let io = |source| Error::Io { addr: to, source };
    let socket = UdpSocket::bind(local).await.map_err(io)?;
    socket.connect(to).await.map_err(io)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn binds_in_the_family_of_the_target() {
        let v4: SocketAddr = "192.0.2.9:1".parse().unwrap();
        let v6: SocketAddr = "[fd00::9]:1".parse().unwrap();
        let bind: Vec<IpAddr> = vec!["10.0.0.1".parse().unwrap()];
        assert_eq!(local_for(v4, &bind), Some("10.0.0.1:0".parse().unwrap()));
        assert_eq!(local_for(v6, &bind), None);
        assert_eq!(local_for(v6, &[]), Some("[::]:0".parse().unwrap()));
    }

    #[tokio::test]
    async fn an_address_needs_no_resolver() {
        let found = lookup("fd00::1", 5, Duration::ZERO).await.unwrap();
        assert_eq!(found, vec!["[fd00::1]:5".parse().unwrap()]);
    }
}
