//! Names and addresses of hosts, as people, configuration files and schedulers write them.
//!
//! A [`Host`] cannot be mistaken for an option of `ssh`, for a shell word, or for a path. So all code that starts a
//! program on a host takes a [`Host`], never text.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Longest name, in bytes: DNS allows 253.
const MAX_NAME: usize = 253;
/// Longest user name, in bytes.
const MAX_USER: usize = 128;
/// Longest name of a network interface after `%`, in bytes.
const MAX_ZONE: usize = 32;

/// A host: `[user@]name[:port]`, where the name is a DNS name, an alias of ssh, an IPv4 address, or an IPv6 address with
/// or without brackets. A port after an IPv6 address needs brackets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Host {
    user: Option<String>,
    name: String,
    port: Option<u16>,
}

/// Why a text is not a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The text is empty.
    #[error("the host name is empty")]
    Empty,
    /// The name begins with a character that could make it an option.
    #[error("host or user name {0:?} begins with {1:?}")]
    Begins(String, char),
    /// A character that is not allowed in host and user names.
    #[error("host or user name {0:?} contains {1:?}")]
    Character(String, char),
    /// Brackets around a text that is not an IPv6 address, or a missing bracket.
    #[error("{0:?} is not an IPv6 address in brackets")]
    Brackets(String),
    /// The port is not a number from 1 to 65535.
    #[error("{0:?} is not a port (1 to 65535)")]
    Port(String),
    /// A port where it is not allowed.
    #[error("{0:?} has a port, which is not possible here")]
    UnwantedPort(String),
    /// The name is too long.
    #[error("host or user name of {0} bytes is too long")]
    Long(usize),
}

impl Host {
    /// The user to log in as.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The name or address, without brackets.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// The same host with this port, unless it has one.
    #[must_use]
    pub fn or_port(mut self, port: u16) -> Self {
        self.port.get_or_insert(port);
        self
    }

    /// The same host, checked to have no port, for callers that take the port in another way.
    ///
    /// # Errors
    /// It has a port.
    pub fn without_port(self) -> Result<Self, HostError> {
        if self.port.is_some() { Err(HostError::UnwantedPort(self.to_string())) } else { Ok(self) }
    }

    /// Whether the name is an IPv6 address.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        self.name.contains(':')
    }

    /// Whether the name is an address, which needs no lookup.
    #[must_use]
    pub fn is_address(&self) -> bool {
        self.is_ipv6() || self.name.parse::<Ipv4Addr>().is_ok()
    }

    /// The destination word of an ssh command line: `[user@]name`, never with brackets, never with a port.
    #[must_use]
    pub fn ssh(&self) -> String {
        match &self.user {
            Some(user) => format!("{user}@{}", self.name),
            None => self.name.clone(),
        }
    }
}

impl FromStr for Host {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        let (user, rest) = match text.rsplit_once('@') {
            Some((user, rest)) => (Some(user), rest),
            None => (None, text),
        };
        let (name, port) = split_port(rest)?;
        user.map(check_user).transpose()?;
        check_name(name)?;
        let port = port.map(|text| match text.parse::<u16>() {
            Ok(port) if port > 0 && text.bytes().all(|b| b.is_ascii_digit()) => Ok(port),
            _ => Err(HostError::Port(text.into())),
        });
        Ok(Self { user: user.map(Into::into), name: name.into(), port: port.transpose()? })
    }
}

/// The name without brackets, and the text of the port.
fn split_port(text: &str) -> Result<(&str, Option<&str>), HostError> {
    let brackets = || HostError::Brackets(text.into());
    if let Some(inner) = text.strip_prefix('[') {
        let (name, after) = inner.split_once(']').ok_or_else(brackets)?;
        if !is_ipv6(name) {
            return Err(brackets());
        }
        return match after.strip_prefix(':') {
            Some(port) => Ok((name, Some(port))),
            None if after.is_empty() => Ok((name, None)),
            None => Err(brackets()),
        };
    }
    match text.split_once(':') {
        // With more than one colon only an IPv6 address is valid.
        Some((_, rest)) if rest.contains(':') || is_ipv6(text) => {
            if is_ipv6(text) {
                Ok((text, None))
            } else {
                Err(brackets())
            }
        }
        Some((name, port)) => Ok((name, Some(port))),
        None => Ok((text, None)),
    }
}

/// Whether the text is an IPv6 address, optionally with `%` and the name of an interface.
fn is_ipv6(text: &str) -> bool {
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (text, None),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    address.parse::<Ipv6Addr>().is_ok()
        && zone.is_none_or(|zone| {
            !zone.is_empty() && zone.len() <= MAX_ZONE && !zone.starts_with('-') && zone.chars().all(plain)
        })
}

fn check_name(name: &str) -> Result<(), HostError> {
    if is_ipv6(name) {
        return Ok(());
    }
    // `+` occurs in aliases of ssh's configuration.
    check(name, MAX_NAME, &['-', '.'], "._-+")
}

fn check_user(user: &str) -> Result<(), HostError> {
    // `@`, `%` and `\` occur in user names of proxies and domains. ssh splits at the last `@`, and rejects a `\` at the
    // end.
    check(user, MAX_USER, &['-', '\\'], "._-+@%=\\")?;
    if user.ends_with('\\') { Err(HostError::Character(user.into(), '\\')) } else { Ok(()) }
}

fn check(text: &str, most: usize, first: &[char], more: &str) -> Result<(), HostError> {
    match text.chars().next() {
        None => return Err(HostError::Empty),
        Some(c) if first.contains(&c) => return Err(HostError::Begins(text.into(), c)),
        Some(_) if text.len() > most => return Err(HostError::Long(text.len())),
        Some(_) => {}
    }
    match text.chars().find(|c| !c.is_ascii_alphanumeric() && !more.contains(*c)) {
        Some(c) => Err(HostError::Character(text.into(), c)),
        None => Ok(()),
    }
}

/// In the form that [`FromStr`] reads: an IPv6 address has brackets.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        if self.is_ipv6() { write!(f, "[{}]", self.name) } else { f.write_str(&self.name) }?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(text: &str) -> (Option<String>, String, Option<u16>) {
        let host: Host = text.parse().unwrap();
        (host.user, host.name, host.port)
    }

    #[test]
    fn hosts_are_read_in_their_usual_forms() {
        let of = |user: Option<&str>, name: &str, port| (user.map(str::to_owned), name.to_owned(), port);
        assert_eq!(parts("node-01.site"), of(None, "node-01.site", None));
        assert_eq!(parts("me@node_1:22"), of(Some("me"), "node_1", Some(22)));
        assert_eq!(parts("10.0.0.1:7"), of(None, "10.0.0.1", Some(7)));
        assert_eq!(parts("::1"), of(None, "::1", None));
        assert_eq!(parts("me@fe80::1%eth0"), of(Some("me"), "fe80::1%eth0", None));
        assert_eq!(parts("[fe80::1%eth0]:22"), of(None, "fe80::1%eth0", Some(22)));
        assert_eq!(parts("me@realm@jump+x"), of(Some("me@realm"), "jump+x", None));
        assert_eq!(parts("SITE\\me@node1"), of(Some("SITE\\me"), "node1", None));
        assert_eq!("me@[::1]".parse::<Host>().unwrap().ssh(), "me@::1");
        assert_eq!("h".parse::<Host>().unwrap().or_port(7).to_string(), "h:7");
        assert!("h:7".parse::<Host>().unwrap().without_port().is_err());
    }

    #[test]
    fn what_a_program_could_take_for_something_else_is_refused() {
        for text in [
            "",
            "-oProxyCommand=touch x",
            "-h",
            "me@-oX",
            "-l@host",
            "@host",
            "me@",
            "a b",
            "a\tb",
            "h\n",
            "h\0",
            "h\u{1b}[1m",
            "größe",
            "a;b",
            "$(x)",
            "`x`",
            "a|b",
            "a&b",
            "a>b",
            "a'b",
            "a\"b",
            "a\\b",
            "a/b",
            "..",
            ".x",
            "~x",
            "*",
            "a,b",
            "[-o]",
            "[a]",
            "[::1",
            "::1]",
            "[::1]x",
            "[::1]:",
            "fe80::1%-x",
            "fe80::1%",
            "fe80::1%a b",
            "a:b",
            "a:",
            "a:0",
            "a:65536",
            "a:+7",
            "a:1:2",
            "us er@h",
        ] {
            assert!(text.parse::<Host>().is_err(), "{text:?}");
        }
        assert!("x".repeat(254).parse::<Host>().is_err());
        let said = "-oX".parse::<Host>().unwrap_err().to_string();
        assert_eq!(said, "host or user name \"-oX\" begins with '-'");
    }

    proptest! {
        #[test]
        fn a_host_is_harmless_and_is_read_again(text in "[a-z0-9@:.%\\[\\]\\-+ '$\\\\]{0,20}", any in "\\PC{0,20}") {
            for text in [text, any] {
                let Ok(host) = text.parse::<Host>() else { continue };
                prop_assert_eq!(&host.to_string().parse::<Host>().unwrap(), &host);
                let word = host.ssh();
                prop_assert!(!word.starts_with('-') && !host.name().starts_with(['-', '.']));
                let plain = |c: char| c.is_ascii_alphanumeric() || "._-+@%=:\\".contains(c);
                prop_assert!(word.chars().all(plain) && !host.name().contains('\\'));
            }
        }
    }
}
