//! Names of caches: `[ORIGIN/]NAME[@VERSION]`, and as a URL `tidecast://ORIGIN/NAME[@VERSION][/PATH]`.

use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::str::FromStr;

use tidecast_text::percent_decode;

/// Most bytes of a name, and of an origin.
pub const MAX_NAME: usize = 128;
/// Most bytes that a user's name takes in the name of a daemon.
const MAX_USER: usize = 63;
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
        "{0:?} is not a cache name: write ORIGIN/NAME@VERSION or NAME, each part of at most {MAX_NAME} letters, digits and . _ + -, not starting with . or -"
    )]
    Name(String),
    /// A new cache cannot have this name.
    #[error(
        "{0:?} cannot be the name of a new cache: a name has at most {MAX_NAME} letters, digits and . _ + -, and does not start with . or -; this host's name and the version are added to it"
    )]
    New(String),
    /// The version is not a number from 1.
    #[error("{0:?} is not a version: versions are numbers from 1")]
    Version(String),
    /// Not a URL of a cache.
    #[error("{0:?} is not a cache URL: write tidecast://ORIGIN/NAME[@VERSION][/PATH]")]
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

/// The user's part in the name of the user's daemon, `USER.HOST`. Names from directory services have letters
/// that names of daemons cannot have (`alice@site.org`, `SITE\alice`). These letters are written `+XX`, in
/// hexadecimal, and so is a `+` that could be read as such; a name that is too long ends with a digest.
/// Different users get different names.
#[must_use]
pub fn of_user(user: &str) -> String {
    let bytes = user.as_bytes();
    let mut part = String::with_capacity(bytes.len());
    for (at, &byte) in bytes.iter().enumerate() {
        let is_hex = |after: usize| bytes.get(at + after).is_some_and(u8::is_ascii_hexdigit);
        let stays = match byte {
            b'+' => !(is_hex(1) && is_hex(2)),
            b'.' | b'-' => at > 0,
            _ => byte.is_ascii_alphanumeric() || byte == b'_',
        };
        if stays {
            part.push(char::from(byte));
        } else {
            let _ = write!(part, "+{byte:02X}");
        }
    }
    if part.len() > MAX_USER {
        let digest = tidecast_hash::sha256(bytes);
        part.truncate(MAX_USER - 18);
        let _ = write!(part, "+{}", data_encoding::HEXLOWER.encode(&digest[..8]));
    }
    part
}

/// Whether a daemon of this name can be the user's.
#[must_use]
pub fn is_of_user(name: &str, user: &str) -> bool {
    let host = name.strip_prefix(&of_user(user)).and_then(|rest| rest.strip_prefix('.'));
    host.is_some_and(|host| !host.is_empty())
}

/// The default name of a user's daemon on a host.
#[must_use]
pub fn of_daemon(user: &str, host: &str) -> String {
    let name = format!("{}.{}", of_user(user), of_user(host));
    // A long host name is known by its first part.
    match host.split_once('.') {
        Some((short, _)) if name.len() > MAX_NAME => of_daemon(user, short),
        _ => name,
    }
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

    /// Splits a URL into the cache and a path in it ("" for all of it), as written there: see [`decoded`].
    /// The path is not checked.
    ///
    /// # Errors
    /// [`NameError`]: it is not of the form `tidecast://ORIGIN/NAME[@VERSION][/PATH]`.
    pub fn of_url(url: &str) -> Result<(Self, &str), NameError> {
        let (scheme, rest) = url.split_at_checked(SCHEME.len()).unwrap_or((url, ""));
        let rest = rest.split_once('/').filter(|_| scheme.eq_ignore_ascii_case(SCHEME));
        let (origin, rest) = rest.ok_or_else(|| NameError::Url(url.into()))?;
        let (name, path) = rest.split_once('/').unwrap_or((rest, ""));
        let plain = |part: &str| {
            let bytes = percent_decode(part).ok_or_else(|| NameError::Url(url.into()))?;
            String::from_utf8(bytes).map_err(|_| NameError::Url(url.into()))
        };
        Ok((Self::new(Some(&plain(origin)?), &plain(name)?)?, path.trim_matches('/')))
    }
}

/// The paths that the path of a URL may mean: percent-decoded, as URLs are, and then as it is written, for names with a `%`.
#[must_use]
pub fn decoded(path: &str) -> Vec<PathBuf> {
    let plain = percent_decode(path).filter(|bytes| !bytes.contains(&0)).map(OsString::from_vec);
    let mut all: Vec<PathBuf> = plain.into_iter().map(PathBuf::from).collect();
    all.extend(Some(PathBuf::from(path)).filter(|path| !all.contains(path)));
    all
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
    use std::path::Path;

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
        let (name, path) = CacheName::of_url("TideCast://he%61d1/bl%61st%402/my%20file%252").unwrap();
        assert_eq!((name.to_string().as_str(), path), ("head1/blast@2", "my%20file%252"));
        for (path, means) in [
            ("a", &["a"][..]),
            ("my%20file", &["my file", "my%20file"]),
            ("100%", &["100%"]),
            ("50%25", &["50%", "50%25"]),
            ("%2e%2e/x", &["../x", "%2e%2e/x"]),
            ("a%00b", &["a%00b"]),
            ("", &[""]),
        ] {
            assert!(decoded(path).iter().map(PathBuf::as_path).eq(means.iter().map(Path::new)), "{path}");
        }
        for bad in [
            "tidecast://blast",
            "http://h/b",
            "tidecast:///b",
            "tidecast://h/",
            "tidecast://h/@1",
            "tidecast://h/a%2Fb",
            "tidecast://h%2Fa/b",
            "tidecast://h/a%zz",
            "tidecast://h/%ff",
            "tidecast",
            "tidecast:/é/b/c",
        ] {
            assert!(CacheName::of_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn users_of_directory_services_have_names_for_daemons() {
        for (user, host, name) in [
            ("alice", "n1.lab", "alice.n1.lab"),
            ("alice@site.org", "n1", "alice+40site.org.n1"),
            ("SITE\\alice", "n1", "SITE+5Calice.n1"),
            ("SITE\\john smith", "n1", "SITE+5Cjohn+20smith.n1"),
            ("a+b", "n1", "a+b.n1"),
            ("a+40b", "n1", "a+2B40b.n1"),
            ("uid1234", "(none)", "uid1234.+28none+29"),
            (".x", "n1", "+2Ex.n1"),
            ("é", "n1", "+C3+A9.n1"),
        ] {
            assert_eq!(of_daemon(user, host), name);
            assert!(is_name(name) && is_of_user(name, user), "{name}");
        }
        assert!(
            !is_of_user("alice+40site.org.n1", "alice")
                && !is_of_user("alice+40site.org.n1", "alice+40site.org")
        );
        assert!(
            !is_of_user("alice.", "alice")
                && !is_of_user("alice", "alice")
                && !is_of_user("alicex.n1", "alice")
        );
        let (long, host) = ("é".repeat(100), "node".repeat(15) + ".a-long-domain.example.org");
        assert!(is_name(&of_daemon(&long, &host)) && is_of_user(&of_daemon(&long, &host), &long));
        assert_ne!(of_user(&long), of_user(&"é".repeat(101)));
    }

    proptest::proptest! {
        #[test]
        fn no_two_users_have_one_name(a in "[+.4aB@-]{1,5}", b in "[+.4aB@-]{1,5}") {
            proptest::prop_assert_eq!(of_user(&a) == of_user(&b), a == b);
        }

        #[test]
        fn every_user_has_a_name(user in "\\PC{1,80}", host in "\\PC{1,64}") {
            proptest::prop_assert!(is_name(&of_daemon(&user, &host)));
        }

        #[test]
        fn whatever_is_read_is_written_the_same(text in "[a-b@/.0-1-]{0,8}") {
            if let Ok(name) = text.parse::<CacheName>() {
                proptest::prop_assert_eq!(name.to_string(), text);
            }
        }
    }
}
