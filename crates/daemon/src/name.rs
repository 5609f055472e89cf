//! What a cache is called: `[ORIGIN/]NAME[@VERSION]`, and as a URL `tidecast://ORIGIN/NAME[@VERSION][/PATH]`.

use std::fmt;
use std::str::FromStr;

/// Most bytes of a name, and of an origin.
pub const MAX_NAME: usize = 128;
/// How URLs begin.
pub const SCHEME: &str = "tidecast://";

/// The name of a cache as people write it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CacheName {
    /// The host that made it; None: any, this host before others.
    pub origin: Option<String>,
    /// Its name there.
    pub name: String,
    /// Which version; None: the newest.
    pub version: Option<u64>,
}

/// Why a text names no cache.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// A part is empty, too long, or has letters that names do not have.
    #[error(
        "{0:?} is no name: write ORIGIN/NAME@VERSION, or NAME alone, each of at most {MAX_NAME} letters, digits and . _ + -, not beginning with . or -"
    )]
    Name(String),
    /// The version is not a number from 1.
    #[error("{0:?} is no version: versions are numbered from 1")]
    Version(String),
    /// Not a URL of a cache.
    #[error("{0:?} is no URL of a cache: write tidecast://ORIGIN/NAME[@VERSION][/PATH]")]
    Url(String),
}

/// Whether a cache with this full name is meant by `asked`, which may leave out origin and version.
pub(crate) fn is_called(full: &str, asked: &str) -> bool {
    let (Ok(full), Ok(asked)) = (full.parse::<CacheName>(), asked.parse::<CacheName>()) else { return false };
    full.name == asked.name
        && (asked.origin.is_none() || asked.origin == full.origin)
        && (asked.version.is_none() || asked.version == full.version)
}

/// Whether `part` may be an origin or a name of a cache.
#[must_use]
pub fn is_name(part: &str) -> bool {
    let fine = |b: u8| b.is_ascii_alphanumeric() || b"._+-".contains(&b);
    (1..=MAX_NAME).contains(&part.len()) && part.bytes().all(fine) && !part.starts_with(['.', '-'])
}

impl CacheName {
    fn new(origin: Option<&str>, rest: &str) -> Result<Self, NameError> {
        let (name, version) = match rest.split_once('@') {
            Some((name, version)) => (name, Some(number(version)?)),
            None => (rest, None),
        };
        match [origin, Some(name)].into_iter().flatten().find(|part| !is_name(part)) {
            Some(bad) => Err(NameError::Name(bad.into())),
            None => Ok(Self { origin: origin.map(Into::into), name: name.into(), version }),
        }
    }

    /// Takes a URL apart into the cache and a path in it ("" for all of it). The path is not looked at.
    ///
    /// # Errors
    /// [`NameError`]: it is not of the form `tidecast://ORIGIN/NAME[@VERSION][/PATH]`.
    pub fn of_url(url: &str) -> Result<(Self, &str), NameError> {
        let rest = url.strip_prefix(SCHEME).and_then(|rest| rest.split_once('/'));
        let (origin, rest) = rest.ok_or_else(|| NameError::Url(url.into()))?;
        let (name, path) = rest.split_once('/').unwrap_or((rest, ""));
        Ok((Self::new(Some(origin), name)?, path.trim_matches('/')))
    }
}

/// Decimal, canonical, from 1.
fn number(text: &str) -> Result<u64, NameError> {
    let canonical = !text.starts_with(['0', '+']);
    text.parse().ok().filter(|_| canonical).ok_or_else(|| NameError::Version(text.into()))
}

impl FromStr for CacheName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match text.split_once('/') {
            Some((origin, rest)) => Self::new(Some(origin), rest),
            None => Self::new(None, text),
        }
    }
}

impl fmt::Display for CacheName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{origin}/")?;
        }
        f.write_str(&self.name)?;
        self.version.map_or(Ok(()), |version| write!(f, "@{version}"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for text in ["blast", "blast@3", "head1/blast", "head-1.site.edu/nt_v5+x@18446744073709551615"] {
            assert_eq!(text.parse::<CacheName>().unwrap().to_string(), text);
        }
        for bad in [
            "", "/", "a/", "/a", "a//b", "a/b/c", ".a", "-a", "a b", "a@", "a@0", "a@01", "a@+1", "a@1@2",
            "é", "../a", "a/..",
        ] {
            assert!(bad.parse::<CacheName>().is_err(), "{bad}");
        }
        assert!("x".repeat(MAX_NAME).parse::<CacheName>().is_ok());
        assert!("x".repeat(MAX_NAME + 1).parse::<CacheName>().is_err());
    }

    #[test]
    fn a_url_has_an_origin_and_may_have_a_path() {
        let (name, path) = CacheName::of_url("tidecast://head1/blast@2/db/nt.00.nhr").unwrap();
        assert_eq!((name.to_string().as_str(), path), ("head1/blast@2", "db/nt.00.nhr"));
        for (url, path) in [
            ("tidecast://h/b", ""),
            ("tidecast://h/b/", ""),
            ("tidecast://h/b//", ""),
            ("tidecast://h/b//d/", "d"),
            ("tidecast://h/b/../c", "../c"),
        ] {
            assert_eq!(CacheName::of_url(url).unwrap().1, path);
        }
        for bad in ["tidecast://blast", "http://h/b", "tidecast:///b", "tidecast://h/", "tidecast://h/@1"] {
            assert!(CacheName::of_url(bad).is_err(), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_read_is_written_the_same(text in "[a-b@/.0-1-]{0,8}") {
            if let Ok(name) = text.parse::<CacheName>() {
                proptest::prop_assert_eq!(name.to_string(), text);
            }
        }
    }
}
