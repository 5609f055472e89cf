//! Tracker URLs, parsed strictly: an accepted one has exactly one host, one port, one target.

use std::fmt;
use std::net::Ipv6Addr;
use std::sync::Arc;

use hyper::Uri;

use crate::Error;
use crate::error::printable;

/// Longest tracker URL accepted, in bytes.
const MAX_URL: usize = 2048;

/// The protocol of a tracker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// HTTP (BEP 3).
    Http,
    /// HTTP over TLS.
    Https,
    /// UDP (BEP 15).
    Udp,
}

/// A tracker's URL, checked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TrackerUrl {
    text: Arc<str>,
    scheme: Scheme,
    host: Arc<str>,
    port: u16,
    target: Arc<str>,
}

impl TrackerUrl {
    /// Reads `http://`, `https://` or `udp://` `HOST[:PORT][/PATH][?QUERY]`. UDP needs a port.
    ///
    /// # Errors
    /// [`Error::Url`] for any other scheme, a user name, a fragment, a byte outside printable
    /// ASCII, an empty host, port 0, or more than 2048 bytes.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let bad = |why| Error::Url { url: printable(text.as_bytes()), why };
        if text.len() > MAX_URL {
            return Err(bad("longer than 2048 bytes"));
        }
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(bad("it contains a byte that is not printable ASCII; percent-encode it"));
        }
        if text.contains('#') {
            return Err(bad("a URL must not have a fragment"));
        }
        let uri: Uri = text.parse().map_err(|_| bad("not a URL"))?;
        let scheme = match uri.scheme_str() {
            Some("http") => Scheme::Http,
            Some("https") => Scheme::Https,
            Some("udp") => Scheme::Udp,
            _ => return Err(bad("the scheme must be http, https or udp")),
        };
        let authority = uri.authority().ok_or_else(|| bad("missing host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("user names in URLs are not supported"));
        }
        let (host, after) = authority.as_str().split_at(authority.host().len());
        let host = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
            Some(v6) if v6.parse::<Ipv6Addr>().is_ok() => v6,
            Some(_) => return Err(bad("invalid IPv6 address")),
            None => host,
        };
        if host.is_empty() || host.len() > 253 {
            return Err(bad("the host name is empty or longer than 253 bytes"));
        }
        let port = match (after.strip_prefix(':'), scheme) {
            (Some(digits), _) => digits.parse().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit())),
            (None, Scheme::Http) => Some(80),
            (None, Scheme::Https) => Some(443),
            (None, Scheme::Udp) => return Err(bad("a UDP tracker needs a port")),
        };
        let port = port.filter(|&port| port != 0);
        let port = port.ok_or_else(|| bad("the port is not a number from 1 to 65535"))?;
        Ok(Self {
            text: text.into(),
            scheme,
            host: host.into(),
            port,
            target: uri.path_and_query().map_or("/", |t| t.as_str()).into(),
        })
    }

    /// The URL of `location`, the header of a redirect.
    ///
    /// # Errors
    /// It is not usable.
    pub fn join(&self, location: &str) -> Result<Self, Error> {
        if location.contains("://") {
            return Self::parse(location);
        }
        let origin_end = self.text.len() - self.text_target_len();
        let origin = self.text.get(..origin_end).unwrap_or_default();
        if location.starts_with("//") {
            return Self::parse(&format!("{}:{location}", self.scheme));
        }
        if location.starts_with('/') {
            return Self::parse(&format!("{origin}{location}"));
        }
        let path = self.target.split('?').next().unwrap_or("/");
        let folder = path.rfind('/').and_then(|slash| path.get(..=slash)).unwrap_or("/");
        Self::parse(&format!("{origin}{folder}{location}"))
    }

    /// How many bytes of the text the target takes (none, when the text stops at the host).
    fn text_target_len(&self) -> usize {
        if self.text.ends_with(&*self.target) { self.target.len() } else { 0 }
    }

    /// Its protocol.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Host name or address, without the brackets of IPv6.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port, given or implied.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Host and port as a request names them: the scheme's own port is left out.
    pub(crate) fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.to_string() };
        match (self.scheme, self.port) {
            (Scheme::Http, 80) | (Scheme::Https, 443) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }

    /// Path and query, as they go into an HTTP request line.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The URL as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The same text, shared.
    pub(crate) fn shared(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }
}

impl fmt::Display for TrackerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Udp => "udp",
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_trackers_are_called() {
        let url = TrackerUrl::parse("http://tracker.example:6969/announce?key=a%20b").unwrap();
        assert_eq!((url.host(), url.port()), ("tracker.example", 6969));
        assert_eq!(url.target(), "/announce?key=a%20b");
        let url = TrackerUrl::parse("udp://[fd00::1]:80").unwrap();
        assert_eq!((url.scheme(), url.host(), url.port()), (Scheme::Udp, "fd00::1", 80));
        assert_eq!(TrackerUrl::parse("https://t.example/a").unwrap().port(), 443);
        assert_eq!(TrackerUrl::parse("http://t.example").unwrap().target(), "/");
    }

    #[test]
    fn refuses_what_is_not_certain() {
        for text in [
            "",
            "announce",
            "/announce",
            "ftp://h/a",
            "ws://h/a",
            "http://",
            "http:///announce",
            "http://h:0/a",
            "http://h:99999/a",
            "http://h:/a",
            "http://user:pw@h/a",
            "udp://h/a",
            "udp://h",
            "http://h/a b",
            "http://h/a#b",
            "http://h/\r\nX: y",
            "http://h/\u{e9}",
            "http://[::1/a",
            "http://[::1%25eth0]:1/",
        ] {
            assert!(TrackerUrl::parse(text).is_err(), "{text:?}");
        }
        assert!(TrackerUrl::parse(&format!("http://h/{}", "a".repeat(2048))).is_err());
    }

    #[test]
    fn follows_all_forms_of_location() {
        let url = TrackerUrl::parse("http://h:7/a/announce?x=/1").unwrap();
        let to = |location| url.join(location).unwrap().as_str().to_owned();
        assert_eq!(to("https://other/b"), "https://other/b");
        assert_eq!(to("//other/b"), "http://other/b");
        assert_eq!(to("/b?c"), "http://h:7/b?c");
        assert_eq!(to("b?c"), "http://h:7/a/b?c");
        let bare = TrackerUrl::parse("http://h:7").unwrap();
        assert_eq!(bare.join("b").unwrap().as_str(), "http://h:7/b");
        assert!(url.join("gopher://h/").is_err());
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,60}", location in "\\PC{0,60}") {
            if let Ok(url) = TrackerUrl::parse(&text) {
                prop_assert!(url.port() != 0 && !url.host().is_empty());
                let _ = url.join(&location);
            }
            if let Ok(url) = TrackerUrl::parse(&format!("http://h/{text}")) {
                let _ = url.join(&location);
            }
        }
    }
}
