//! A path of this host, of one that ssh reaches, or of a server.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt;

use tidecast_secret::COPY_KEY;
use tidecast_text::{Host, escaped, hostlist, with_causes};

use crate::end::ServerKey;
use crate::error::Error;

const SCHEME: &[u8] = b"tidecast://";
/// Where a server listens, unless its URL has another port.
pub const PORT: u16 = 6870;

impl ServerKey {
    /// The key given by a word: the contents of FILE for `@FILE`, standard input for `-`, else the word
    /// itself.
    ///
    /// # Errors
    /// There is no key, or it is not valid.
    pub fn given(word: &str) -> Result<Self, Error> {
        COPY_KEY.resolve(word).map_err(|e| usage(with_causes(&e)))?.parse()
    }
}

fn usage(why: impl Into<String>) -> Error {
    Error::Usage(why.into())
}

/// Where something is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// On this host.
    Local(OsString),
    /// On a host that ssh reaches.
    Ssh {
        /// The host.
        host: Host,
        /// The path there.
        path: OsString,
    },
    /// Of a copy-server.
    Server {
        /// The server.
        server: ServerAddress,
        /// The path below its root.
        path: OsString,
    },
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    key: Option<ServerKey>,
    /// With a port.
    at: Host,
}

impl ServerAddress {
    /// Its key: of its URL, else the one that is given for all, else that of the environment.
    pub(super) fn key(&self, given: Option<&ServerKey>) -> Result<ServerKey, Error> {
        if let Some(key) = self.key.as_ref().or(given) {
            return Ok(key.clone());
        }
        let variable = COPY_KEY.variable;
        let text = COPY_KEY.given(None).map_err(|e| usage(with_causes(&e)))?.ok_or_else(|| {
            usage(format!(
                "no key given for tidecast://{}; name a file that contains it with --key @FILE, or set {variable}",
                self.at
            ))
        })?;
        text.parse().map_err(|e| usage(format!("{variable}: {e}")))
    }

    /// Where it listens.
    pub(super) fn addresses(&self) -> Result<Vec<SocketAddr>, Error> {
        let found = self.at.to_string().to_socket_addrs();
        let all: Vec<_> = found.map_err(|e| usage(format!("cannot resolve {}: {e}", self.at)))?.collect();
        if all.is_empty() { Err(usage(format!("{} has no address", self.at))) } else { Ok(all) }
    }
}

impl Location {
    /// All places for which a name with a list of hosts stands: `dtn[1-3,7]:/path`, `me@a,b:/path`.
    ///
    /// # Errors
    /// It is empty, or names a daemon of rsync, or no host.
    pub fn all(text: &OsStr) -> Result<Vec<Self>, Error> {
        if text.as_bytes().starts_with(SCHEME) {
            return Self::servers(text.as_bytes());
        }
        if text.as_bytes().starts_with(b"rsync://") {
            return Err(usage(format!(
                "{}: rsync daemons are not supported; write host:/path, or tidecast://host/path for a copy-server",
                escaped(text)
            )));
        }
        let Some((list, path)) = host(text)? else {
            return match text.is_empty() {
                true => Err(usage("empty path")),
                false => Ok(vec![Self::Local(text.to_owned())]),
            };
        };
        if path.first() == Some(&b':') {
            return Err(usage(format!(
                "{}: rsync daemons (host::module) are not supported; write host:/path, an IPv6 address in brackets, or \
                 ./{0} for a file of that name",
                escaped(text)
            )));
        }
        let path = OsStr::from_bytes(if path.is_empty() { b"." } else { path }).to_owned();
        let (user, hosts) = list.split_at(list.find('@').map_or(0, |at| at + 1));
        // A file may have such a name, too.
        let none = |why: String| {
            usage(format!(
                "{} does not name a host: {why}; for a file of that name write ./{0}",
                escaped(text)
            ))
        };
        let place = |name: String| {
            let host = format!("{user}{name}").parse::<Host>().and_then(Host::without_port);
            let host = host.map_err(|e| none(with_causes(&e)))?;
            Ok(Self::Ssh { host, path: path.clone() })
        };
        names(hosts).map_err(none)?.into_iter().map(place).collect()
    }

    /// `tidecast://KEY@host:port/path`; also with a list of hosts, whose servers have one key. Instead of KEY there may be
    /// `@FILE`, whose name has no `@` and may have slashes, or `-`.
    fn servers(text: &[u8]) -> Result<Vec<Self>, Error> {
        let rest = text.strip_prefix(SCHEME).unwrap_or(text);
        let file = match rest.strip_prefix(b"@") {
            Some(name) => {
                let end = name.iter().position(|b| *b == b'@');
                end.ok_or_else(|| {
                    usage("missing @ after the key file in the URL; write tidecast://@FILE@host/path")
                })? + 1
            }
            None => 0,
        };
        let end = rest.iter().skip(file).position(|b| *b == b'/').map_or(rest.len(), |at| file + at);
        let (server, path) = rest.split_at(end);
        let server = std::str::from_utf8(server).map_err(|e| usage(format!("invalid server name: {e}")))?;
        let (key, at) = match server.rsplit_once('@') {
            Some((key, at)) => (Some(ServerKey::given(key)?), at),
            None => (None, server),
        };
        if at.is_empty() {
            return Err(usage("missing host in URL tidecast://"));
        }
        let slashes = path.iter().take_while(|b| **b == b'/').count();
        let path = [b"/", path.get(slashes..).unwrap_or_default()].concat();
        let server = |at: String| {
            let host = at.parse::<Host>();
            let host =
                host.map_err(|e| usage(format!("tidecast://{}: {}", escaped(&at), with_causes(&e))))?;
            let path = OsStr::from_bytes(&path).to_owned();
            Ok(Self::Server { server: ServerAddress { key: key.clone(), at: host.or_port(PORT) }, path })
        };
        names(at).map_err(usage)?.into_iter().map(server).collect()
    }

    /// Whether a copy-server has it.
    #[must_use]
    pub fn is_server(&self) -> bool {
        matches!(self, Self::Server { .. })
    }

    /// Whether it is of this host.
    #[must_use]
    pub fn is_here(&self) -> bool {
        matches!(self, Self::Local(_))
    }

    /// The path on its host.
    #[must_use]
    pub fn path(&self) -> &OsStr {
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

/// The hosts for which a name stands, or why it stands for none. An IPv6 address, which begins with its bracket, is one.
fn names(list: &str) -> Result<Vec<String>, String> {
    if list.starts_with('[') || !list.contains([',', '[']) {
        return Ok(vec![list.to_owned()]);
    }
    hostlist::items(list).map_err(|e| format!("{}: {e}", escaped(list)))
}

/// As with rsync and scp: a colon before the first slash ends the name of a host; an IPv6 address has brackets.
fn host(text: &OsStr) -> Result<Option<(&str, &[u8])>, Error> {
    let bytes = text.as_bytes();
    let find = |byte: u8| bytes.iter().position(|b| *b == byte);
    let slash = find(b'/').unwrap_or(bytes.len());
    let bracket = match (find(b'['), find(b']')) {
        (Some(from), Some(end)) if from < end && from < slash => end,
        _ => 0,
    };
    let after = bytes.get(bracket..).unwrap_or_default();
    if bytes.starts_with(b"::") {
        return Err(usage(format!(
            "{}: an IPv6 address needs brackets, e.g. [::1]:/path; for a file of that name write ./{0}",
            escaped(text)
        )));
    }
    let Some(colon) = after.iter().position(|b| *b == b':').map(|at| bracket + at) else { return Ok(None) };
    let (host, path) = bytes.split_at(colon);
    if host.is_empty() || host.get(bracket..).unwrap_or_default().contains(&b'/') {
        return Ok(None);
    }
    let host = std::str::from_utf8(host).map_err(|e| usage(format!("invalid host name: {e}")))?;
    Ok(Some((host, path.get(1..).unwrap_or_default())))
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => write!(f, "{}", escaped(path)),
            Self::Ssh { host, path } => write!(f, "{host}:{}", escaped(path)),
            // Without the key: this may be logged.
            Self::Server { server, path } => {
                write!(f, "tidecast://{}{}", server.at, escaped(path))
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Location {
        Location::all(OsStr::new(text)).unwrap().remove(0)
    }

    fn is_refused(text: &str) -> bool {
        Location::all(OsStr::new(text)).is_err()
    }

    #[test]
    fn paths_are_read_as_rsync_reads_them() {
        let ssh = |host: &str, path: &str| Location::Ssh { host: host.parse().unwrap(), path: path.into() };
        assert_eq!(parse("/a:b"), Location::Local("/a:b".into()));
        assert_eq!(parse("./a:b"), Location::Local("./a:b".into()));
        assert_eq!(parse("host:/a b/"), ssh("host", "/a b/"));
        assert_eq!(parse("me@host:"), ssh("me@host", "."));
        assert_eq!(parse("me@[fe80::1]:x"), ssh("me@fe80::1", "x"));
        assert_eq!(parse("[::1]:/x:y"), ssh("::1", "/x:y"));
        assert!(is_refused("") && is_refused("tidecast:///x") && is_refused("tidecast://a[1-2/x"));
        assert_eq!(parse("dir/[a]:b"), Location::Local("dir/[a]:b".into()));
        let strange = OsStr::from_bytes(b"host:/\xff/");
        let path = OsStr::from_bytes(b"/\xff/").to_owned();
        assert_eq!(Location::all(strange).unwrap(), [Location::Ssh { host: "host".parse().unwrap(), path }]);
        let Location::Server { server, path } = parse("tidecast://host/a/b") else { panic!() };
        assert_eq!((server.at.to_string().as_str(), path.to_str()), ("host:6870", Some("/a/b")));
        assert_eq!(parse("tidecast://host//a").path(), "/a");
        assert_eq!(parse("tidecast://[::1]:7/a").to_string(), "tidecast://[::1]:7/a");
        let hosts = |text: &str| {
            Location::all(OsStr::new(text)).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(hosts("me@n[1-2],m:/a[1]"), ["me@n1:/a[1]", "me@n2:/a[1]", "me@m:/a[1]"]);
        assert_eq!(hosts("n[1-2]:"), ["n1:.", "n2:."]);
        assert_eq!(
            hosts("tidecast://a[1-2]:7,b/x"),
            ["tidecast://a1:7/x", "tidecast://a2:7/x", "tidecast://b:6870/x"]
        );
        assert_eq!((hosts("[::1]:/x"), hosts("/a,b")), (vec!["[::1]:/x".into()], vec!["/a,b".into()]));
        assert!(is_refused("tidecast://nokey@host/a"));
        assert!(is_refused("tidecast://@host/a") && is_refused("tidecast://@/nowhere/key@host/a"));
        let dir = tempfile::tempdir().unwrap();
        let (file, key) = (dir.path().join("key"), "A".repeat(77));
        std::fs::write(&file, format!("{key}\n")).unwrap();
        let named = parse(&format!("tidecast://@{}@h/a/b", file.display()));
        assert_eq!(named, parse(&format!("tidecast://{key}@h/a/b")));
        for text in [
            "-oProxyCommand=touch x:y",
            "-oX:/y",
            "--ssh=x:y",
            "me@-oX:path",
            "-l@host:x",
            "[-o]:x",
            "[-a,b]:/x",
            "-a,b:/x",
            "a,-b:/x",
            "me@a,-oX:/x",
            "-n[1-2]:/x",
            "a b:/x",
            "h\n:/x",
            "h;touch x:/y",
            "$(x):/y",
            "host::mod/x",
            "rsync://host/mod/x",
            "me@host::mod",
            "::1:/x",
            "fe80::1:/x",
            ".:x",
            "tidecast://-h/x",
            "tidecast://a b/x",
            "tidecast://h:x/y",
            "tidecast://[-o]:7/x",
            "tidecast://h\u{1b}[m/x",
        ] {
            assert!(is_refused(text), "{text}");
        }
        assert_eq!(parse("host:-path"), ssh("host", "-path"));
        assert_eq!(parse("-x").to_string(), "-x");
        assert_eq!(parse("./a\u{1b}[m").to_string(), "./a\\x1b[m");
        assert!(parse("a:x").same_host(&parse("a:y")) && !parse("a:x").same_host(&parse("b:x")));
    }
}
