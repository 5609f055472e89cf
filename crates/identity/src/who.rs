//! Whom a certificate or a node stands for: a host or a user of the site.

use std::fmt;
use std::str::FromStr;

/// Longest name of a host or user: what a certificate's common name may hold (RFC 5280, ub-common-name).
const MAX_NAME: usize = 64;

/// For whom a node acts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// The daemon of a host: acts for all owners of the site.
    Host(String),
    /// A user: acts for this owner only.
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

    /// The URI by which a certificate of [`crate::SiteCa`] names it: `tidecast:host/NAME`.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("tidecast:{}/{}", self.kind(), self.name())
    }

    /// Reads such a URI.
    #[must_use]
    pub fn from_uri(uri: &str) -> Option<Self> {
        let (kind, name) = uri.strip_prefix("tidecast:")?.split_once('/')?;
        Self::of(kind, name)
    }

    fn of(kind: &str, name: &str) -> Option<Self> {
        // Names become parts of cache names and lines of logs: nothing that could be taken for something else.
        let fits = |c: u8| c.is_ascii_alphanumeric() || b"._-@+".contains(&c);
        let sound = (1..=MAX_NAME).contains(&name.len())
            && name.bytes().all(fits)
            && name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        match kind {
            "host" if sound => Some(Self::Host(name.to_owned())),
            "user" if sound => Some(Self::User(name.to_owned())),
            _ => None,
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind(), self.name())
    }
}

/// What is not an identity, with what one looks like.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an identity: {0:?} (expected host:NAME or user:NAME; a name has 1 to 64 of a-z A-Z 0-9 . _ - @ +)"
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
        for text in ["host:node01.lab", "user:alice", "user:a@b.org", "host:_x"] {
            let who: Identity = text.parse().unwrap();
            assert_eq!(who.to_string(), text);
            assert_eq!(Identity::from_uri(&who.uri()), Some(who));
        }
    }

    #[test]
    fn what_could_mislead_is_no_name() {
        let long = format!("user:{}", "a".repeat(65));
        for text in
            ["", "alice", "group:x", "user:", "user:a b", "user:../x", "user:a/b", "host:-x", "user:é", &long]
        {
            assert!(text.parse::<Identity>().is_err(), "{text}");
        }
        assert_eq!(Identity::from_uri("tidecast:user/a/b"), None);
        assert_eq!(Identity::from_uri("http://user/a"), None);
    }
}
