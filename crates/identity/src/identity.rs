//! The identity of a certificate or a node: a host or a user of the site.

use std::fmt;
use std::str::FromStr;

use tidecast_text::{escaped, percent_decode, percent_encode};

/// Longest name of a host or user: the limit of a certificate's common name (RFC 5280, ub-common-name).
const MAX_NAME: usize = 64;

/// The host or user that a node acts for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// The daemon of a host: acts for all owners of the site.
    Host(String),
    /// A user, as the host's user database writes the name (`alice`, `alice@site.org`, `SITE\alice`): acts for this owner only.
    User(String),
}

impl Identity {
    /// The name without its kind.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Host(name) | Self::User(name) => name,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Host(_) => "host",
            Self::User(_) => "user",
        }
    }

    /// The URI by which a certificate of [`crate::SiteCa`] names it: `tidecast:host/NAME`, percent-encoded.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("tidecast:{}/{}", self.kind(), percent_encode(self.name().as_bytes(), "@+"))
    }

    /// Parses such a URI, in exactly the form that [`Identity::uri`] writes.
    #[must_use]
    pub fn from_uri(uri: &str) -> Option<Self> {
        let (kind, name) = uri.strip_prefix("tidecast:")?.split_once('/')?;
        let who = Self::of(kind, &String::from_utf8(percent_decode(name)?).ok()?)?;
        (who.uri() == uri).then_some(who)
    }

    fn of(kind: &str, name: &str) -> Option<Self> {
        if !(1..=MAX_NAME).contains(&name.len()) {
            return None;
        }
        match kind {
            "host" if is_host(name) => Some(Self::Host(name.to_owned())),
            "user" if is_user(name) => Some(Self::User(name.to_owned())),
            _ => None,
        }
    }
}

/// The host's name is the name of its daemon, and part of the names of its caches.
fn is_host(name: &str) -> bool {
    let fits = |c: u8| c.is_ascii_alphanumeric() || b"._-@+".contains(&c);
    name.bytes().all(fits) && name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
}

/// Directory services have names such as `alice@site.org`, `SITE\alice` and `SITE\john smith`. They appear in log
/// lines, so ambiguous characters are rejected.
fn is_user(name: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || c == ' ' || (c.is_ascii_graphic() && !"/:\"`".contains(c));
    name.chars().all(fits)
        && name.starts_with(|c: char| c.is_alphanumeric() || c == '_')
        && !name.ends_with([' ', '\\'])
        && escaped(name).to_string() == name
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind(), self.name())
    }
}

/// A text that is not an identity; the message shows the format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an identity: {0:?} (expected host:NAME or user:NAME; a host has 1 to 64 of a-z A-Z 0-9 . _ - @ +, a user as in the \
     user database has at most 64 bytes)"
)]
pub struct BadIdentity(String);

impl FromStr for Identity {
    type Err = BadIdentity;

    fn from_str(text: &str) -> Result<Self, BadIdentity> {
        let found = text.split_once(':').and_then(|(kind, name)| Self::of(kind, name));
        found.ok_or_else(|| BadIdentity(text.chars().take(80).collect()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_read_and_written_the_same() {
        for text in [
            "host:node01.lab",
            "user:alice",
            "user:a@b.org",
            "host:_x",
            "user:SITE\\alice",
            "user:SITE\\john smith",
            "user:jürgen",
            "user:12345",
            "user:host$",
            "user:o'neil",
            "user:100%",
        ] {
            let who: Identity = text.parse().unwrap();
            assert_eq!(who.to_string(), text);
            assert!(who.uri().bytes().all(|b| b.is_ascii_graphic() && b != b'\\'), "{}", who.uri());
            assert_eq!(Identity::from_uri(&who.uri()), Some(who));
        }
        assert_eq!(Identity::User("a@b.org".into()).uri(), "tidecast:user/a@b.org");
        assert_eq!(Identity::User("SITE\\a b".into()).uri(), "tidecast:user/SITE%5Ca%20b");
    }

    #[test]
    fn what_could_mislead_is_no_name() {
        let long = format!("user:{}", "a".repeat(65));
        for text in [
            "",
            "alice",
            "group:x",
            "user:",
            "user: a",
            "user:a ",
            "user:../x",
            "user:a/b",
            "host:-x",
            "host:é",
            "host:a b",
            "host:S\\a",
            "user:a\\",
            "user:\\a",
            "user:a\nb",
            "user:a:b",
            "user:a\u{202e}b",
            "user:-a",
            &long,
        ] {
            assert!(text.parse::<Identity>().is_err(), "{text}");
        }
        for uri in [
            "tidecast:user/a/b",
            "tidecast:user/%61",
            "tidecast:user/a%5cb",
            "tidecast:user/a%2Fb",
            "tidecast:user/%",
        ] {
            assert_eq!(Identity::from_uri(uri), None, "{uri}");
        }
        assert_eq!(Identity::from_uri("http://user/a"), None);
    }
}
