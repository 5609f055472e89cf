//! A path of this host, of one that ssh reaches, or of a server.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use anyhow::{Context as _, anyhow, bail};
use tidecast_mover::end::ServerKey;

/// Where a server listens, unless said otherwise.
pub(crate) const PORT: u16 = 6870;
/// The key of a server, if its URL does not say it.
const KEY: &str = "TIDECAST_COPY_KEY";

/// Where something is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Local(String),
    Ssh { host: String, path: String },
    Server { server: ServerAt, path: String },
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerAt {
    key: Option<ServerKey>,
    /// Host and port.
    at: String,
}

impl ServerAt {
    /// Its key, from its URL or the environment.
    pub(super) fn key(&self) -> anyhow::Result<ServerKey> {
        if let Some(key) = &self.key {
            return Ok(key.clone());
        }
        let text = std::env::var(KEY).map_err(|_| {
            anyhow!("the key of tidecast://{} is not known: tidecast://KEY@{0}/…, as the server prints it, or {KEY}", self.at)
        })?;
        text.trim().parse().with_context(|| KEY)
    }

    /// Where it listens.
    pub(super) fn addresses(&self) -> anyhow::Result<Vec<SocketAddr>> {
        let all: Vec<_> =
            self.at.to_socket_addrs().with_context(|| format!("cannot find {}", self.at))?.collect();
        if all.is_empty() { Err(anyhow!("{} has no address", self.at)) } else { Ok(all) }
    }
}

impl Place {
    /// All places for which a name with a list of hosts stands: `dtn[1-3,7]:/path`, `me@a,b:/path`.
    pub(super) fn all(text: &str) -> anyhow::Result<Vec<Self>> {
        let one: Self = text.parse()?;
        let Self::Ssh { path, .. } = &one else { return Ok(vec![one]) };
        let after = if text.ends_with(':') && path == "." { 1 } else { path.len() + 1 };
        let list = text.get(..text.len().saturating_sub(after)).unwrap_or_default();
        let (user, hosts) = list.split_at(list.find('@').map_or(0, |at| at + 1));
        // An IPv6 address begins with its bracket.
        if !(hosts.contains(',') || hosts.contains('[')) || hosts.starts_with('[') {
            return Ok(vec![one]);
        }
        let hosts = tidecast_group::hosts::parse(hosts).with_context(|| list.to_owned())?;
        let place = |host: &str| Self::Ssh { host: format!("{user}{host}"), path: path.clone() };
        Ok(hosts.iter().map(|host| place(host.reach())).collect())
    }

    pub(super) fn path(&self) -> &str {
        match self {
            Self::Local(path) | Self::Ssh { path, .. } | Self::Server { path, .. } => path,
        }
    }

    pub(super) fn same_host(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Local(_), Self::Local(_)) => true,
            (Self::Ssh { host: a, .. }, Self::Ssh { host: b, .. }) => a == b,
            (Self::Server { server: a, .. }, Self::Server { server: b, .. }) => a == b,
            _ => false,
        }
    }
}

impl FromStr for Place {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        if let Some(rest) = text.strip_prefix("tidecast://") {
            let (server, path) = rest.split_once('/').unwrap_or((rest, ""));
            let (key, at) = match server.rsplit_once('@') {
                Some((key, at)) => (Some(key.parse::<ServerKey>()?), at),
                None => (None, server),
            };
            if at.is_empty() {
                bail!("{text}: of which host?");
            }
            let has_port = at.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            let at = if has_port { at.to_owned() } else { format!("{at}:{PORT}") };
            return Ok(Self::Server { server: ServerAt { key, at }, path: format!("/{path}") });
        }
        // As with rsync and scp: a colon before the first slash ends the name of a host; an IPv6 address has brackets.
        let (head, tail) = match text.find(']') {
            Some(end) if text.find('[').is_some_and(|from| from < end && !text[..from].contains('/')) => {
                text.split_at(end)
            }
            _ => text.split_at(0),
        };
        match tail.split_once(':') {
            Some((host, path)) if !host.contains('/') && host.len() + head.len() > 0 => {
                let host = format!("{head}{host}").replace(['[', ']'], "");
                Ok(Self::Ssh { host, path: if path.is_empty() { ".".into() } else { path.into() } })
            }
            _ if text.is_empty() => bail!("a path is empty"),
            _ => Ok(Self::Local(text.to_owned())),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => f.write_str(path),
            Self::Ssh { host, path } => write!(f, "{host}:{path}"),
            // Without the key: this may be logged.
            Self::Server { server, path } => write!(f, "tidecast://{}{path}", server.at),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Place {
        text.parse().unwrap()
    }

    #[test]
    fn paths_are_read_as_rsync_reads_them() {
        let ssh = |host: &str, path: &str| Place::Ssh { host: host.into(), path: path.into() };
        assert_eq!(parse("/a:b"), Place::Local("/a:b".into()));
        assert_eq!(parse("./a:b"), Place::Local("./a:b".into()));
        assert_eq!(parse("host:/a b/"), ssh("host", "/a b/"));
        assert_eq!(parse("me@host:"), ssh("me@host", "."));
        assert_eq!(parse("me@[fe80::1]:x"), ssh("me@fe80::1", "x"));
        assert_eq!(parse("[::1]:/x:y"), ssh("::1", "/x:y"));
        assert!("".parse::<Place>().is_err() && "tidecast:///x".parse::<Place>().is_err());
        let Place::Server { server, path } = parse("tidecast://host/a/b") else { panic!() };
        assert_eq!((server.at.as_str(), path.as_str()), ("host:6870", "/a/b"));
        let hosts =
            |text: &str| Place::all(text).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(hosts("me@n[1-2],m:/a[1]"), ["me@n1:/a[1]", "me@n2:/a[1]", "me@m:/a[1]"]);
        assert_eq!(hosts("n[1-2]:"), ["n1:.", "n2:."]);
        assert_eq!((hosts("[::1]:/x"), hosts("/a,b")), (vec!["::1:/x".into()], vec!["/a,b".into()]));
        assert!("tidecast://nokey@host/a".parse::<Place>().is_err());
        assert!(parse("a:x").same_host(&parse("a:y")) && !parse("a:x").same_host(&parse("b:x")));
    }
}
