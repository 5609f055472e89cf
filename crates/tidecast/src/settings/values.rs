//! Values that settings have as text.

use std::net::SocketAddr;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

/// A value of the file that is written as text, or as a bare number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Text<T>(pub T);

impl<'de, T: FromStr<Err = String>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        text(d)?.map(Self).ok_or_else(|| D::Error::custom("expected a value"))
    }
}

/// A value that is written as text, or as a bare number.
pub(super) fn text<'de, D: Deserializer<'de>, T: FromStr<Err = String>>(d: D) -> Result<Option<T>, D::Error> {
    quantity(d, str::parse).map(Some)
}

/// The same, read by `parse`.
pub(super) fn quantity<'de, D: Deserializer<'de>, T>(
    d: D,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    let text = match toml::Value::deserialize(d)? {
        toml::Value::String(s) => s,
        toml::Value::Integer(n) => n.to_string(),
        other => return Err(D::Error::custom(format!("expected text, found {}", other.type_str()))),
    };
    parse(&text).map_err(D::Error::custom)
}

/// Where to listen: `ADDR:PORT`, `ADDR`, `:PORT` or `PORT`; an absent part means any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen {
    /// The address, unless any will do.
    pub ip: Option<std::net::IpAddr>,
    /// The port; 0 is any that is free.
    pub port: u16,
}

impl Listen {
    /// As a socket address; any address is `[::]`, which means IPv4 too.
    #[must_use]
    pub fn addr(self) -> SocketAddr {
        SocketAddr::new(self.ip.unwrap_or(std::net::Ipv6Addr::UNSPECIFIED.into()), self.port)
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(addr) = text.parse::<SocketAddr>() {
            return Ok(Self { ip: Some(addr.ip()), port: addr.port() });
        }
        if let Ok(ip) = text.trim_matches(['[', ']']).parse() {
            return Ok(Self { ip: Some(ip), port: 0 });
        }
        if let Ok(port) = text.strip_prefix(':').unwrap_or(text).parse() {
            return Ok(Self { ip: None, port });
        }
        Err(format!("{text:?} is not a listening address; write 10.0.0.1:6881, [fd00::1]:6881 or :6881"))
    }
}
