//! Peers that the user names: `HOST:PORT` or `[IPV6]:PORT`, resolved within a bounded time.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::error::printable;
use crate::socket::lookup;
use crate::{Error, usable};

/// A peer as it was written: an address, or a name that is still to be resolved.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PeerAddr {
    /// An IP address and port.
    Ip(SocketAddr),
    /// A host name and port.
    Name(String, u16),
}

/// Reads `1.2.3.4:5`, `[fd00::1]:5`, `[fe80::1%2]:5` or `name:5`, without asking the network.
///
/// # Errors
/// [`Error::Address`] when the text has none of these forms, or the address is not usable.
pub fn parse(text: &str) -> Result<PeerAddr, Error> {
    let bad = |why| Error::Address { text: printable(text.as_bytes()), why };
    if let Ok(addr) = text.parse::<SocketAddr>() {
        return if usable(&addr) { Ok(PeerAddr::Ip(addr)) } else { Err(bad("not a usable peer address")) };
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(|| bad("the port is missing"))?;
    if host.contains([':', '[', ']']) {
        return Err(bad("an IPv6 address must be in brackets"));
    }
    let port = match port.parse::<u16>() {
        Ok(number) if number != 0 && !port.starts_with(['+', '0']) => number,
        _ => return Err(bad("the port is not a number from 1 to 65535")),
    };
    let letters = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    if host.is_empty() || host.len() > 253 || !host.bytes().all(letters) {
        return Err(bad("invalid host name"));
    }
    if host.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit())) {
        return Err(bad("invalid IPv4 address"));
    }
    Ok(PeerAddr::Name(host.to_owned(), port))
}

/// Reads `text` as [`parse`] does and resolves a name, giving it at most `within`.
///
/// # Errors
/// As [`parse`]; [`Error::Resolve`] or [`Error::Timeout`] when the name does not resolve, and
/// [`Error::NoAddress`] when it resolves to nothing that one can connect to.
pub async fn resolve(text: &str, within: Duration) -> Result<Vec<SocketAddr>, Error> {
    match parse(text)? {
        PeerAddr::Ip(addr) => Ok(vec![addr]),
        PeerAddr::Name(host, port) => {
            let mut found = lookup(&host, port, within).await?;
            found.retain(usable);
            if found.is_empty() {
                return Err(Error::NoAddress { host });
            }
            Ok(found)
        }
    }
}

/// Whether `addr` is of this host's own site (loopback, private or link-local), where a lost packet
/// is worth asking about again at once.
pub(crate) fn is_near(addr: &SocketAddr) -> bool {
    match addr.ip() {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_addresses_and_names() {
        assert_eq!(parse("10.0.0.1:6881").unwrap(), PeerAddr::Ip("10.0.0.1:6881".parse().unwrap()));
        assert_eq!(parse("[fd00::1]:1").unwrap(), PeerAddr::Ip("[fd00::1]:1".parse().unwrap()));
        assert_eq!(parse("[fe80::1%2]:1").unwrap(), PeerAddr::Ip("[fe80::1%2]:1".parse().unwrap()));
        assert_eq!(parse("node-7.cluster:80").unwrap(), PeerAddr::Name("node-7.cluster".into(), 80));
    }

    #[test]
    fn refuses_the_rest() {
        for text in [
            "",
            ":",
            ":80",
            "host",
            "host:",
            "host:0",
            "host:65536",
            "host:+80",
            "host:080",
            "fd00::1:80",
            "[fd00::1]",
            "[fd00::1]:0",
            "0.0.0.0:80",
            "10.0.0.256:80",
            "10.0.0:80",
            "a b:80",
            "h\u{e9}:80",
            "host:80:80",
            "http://h:80",
            "239.0.0.1:80",
            "[fe80::1]:80",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,40}") {
            let _ = parse(&text);
        }
    }

    #[tokio::test]
    async fn resolves_localhost() {
        let found = resolve("localhost:6881", Duration::from_secs(10)).await.unwrap();
        assert!(found.iter().all(|a| a.ip().is_loopback() && a.port() == 6881));
        assert!(!found.is_empty());
    }
}
