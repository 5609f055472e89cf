//! Who takes part: host lists as people and schedulers write them.
//!
//! ```text
//! node[001-064,100]          node001 .. node064, node100
//! r[1-2]n[01-16],login       several brackets, several names
//! a=10.0.0.1,b=10.0.0.2      a name and where to reach it
//! n[1-4]=10.0.0.[1-4]        both at once, side by side
//! ```
//!
//! Promises: pure; at most [`MAX_HOSTS`] hosts whatever is written; a name can be part of a path and of a command
//! line without being mistaken for anything else.

mod expand;
pub mod job;
pub mod roster;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tidecast_text as text;

/// Most hosts of one broadcast.
pub const MAX_HOSTS: usize = 65_536;

/// A host that is to receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// What it is called, in reports and in `{host}`.
    pub name: String,
    /// How to reach it, where that is not its name.
    pub address: Option<String>,
}

impl Host {
    /// How to reach it.
    #[must_use]
    pub fn reach(&self) -> &str {
        self.address.as_deref().unwrap_or(&self.name)
    }

    /// The user to log in as, where one is given, and the name or address.
    #[must_use]
    pub fn login(&self) -> (Option<&str>, &str) {
        let reach = self.reach();
        reach.rsplit_once('@').map_or((None, reach), |(user, name)| (Some(user), name))
    }
}

/// Why a list of hosts cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// Nobody to send to.
    #[error("the list names no host")]
    Empty,
    /// Too many.
    #[error("more than {MAX_HOSTS} hosts")]
    TooMany,
    /// A bracket without its other half, or one in another.
    #[error("{0:?}: the brackets do not match; write node[001-064,100]")]
    Brackets(String),
    /// What stands in brackets is no number or range.
    #[error("{0:?} is no range; write 001-064, or 7")]
    Range(String),
    /// A name that is none.
    #[error("invalid host {0:?}: {1}")]
    Name(String, #[source] text::HostError),
    /// `NAME=ADDR` with unlike numbers of names and addresses.
    #[error("{0:?}: as many addresses as names, please")]
    Uneven(String),
    /// One name, two addresses.
    #[error("{name} is named twice, with different addresses")]
    Twice {
        /// The name.
        name: String,
    },
}

/// Reads a list of hosts; those named twice count once.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str) -> Result<Vec<Host>, HostError> {
    let mut hosts = Vec::new();
    for item in expand::split(text)? {
        let (names, addresses) = match item.split_once('=') {
            Some((names, addresses)) => (names, Some(addresses)),
            None => (item, None),
        };
        let names = expand::expand(names)?;
        let addresses = match addresses {
            Some(text) => expand::expand(text)?.into_iter().map(Some).collect(),
            None => vec![None; names.len()],
        };
        if names.len() != addresses.len() {
            return Err(HostError::Uneven(item.into()));
        }
        for (name, address) in names.into_iter().zip(addresses) {
            hosts.push(host(name, address)?);
        }
        if hosts.len() > MAX_HOSTS {
            return Err(HostError::TooMany);
        }
    }
    merge(hosts)
}

/// The texts that the items of a list stand for, each with its brackets expanded: for lists whose items are no [`Host`].
///
/// # Errors
/// What is wrong with it.
pub fn items(list: &str) -> Result<Vec<Vec<String>>, HostError> {
    let all: Vec<_> = expand::split(list)?.into_iter().map(expand::expand).collect::<Result<_, _>>()?;
    match all.iter().map(Vec::len).sum::<usize>() {
        0 => Err(HostError::Empty),
        n if n > MAX_HOSTS => Err(HostError::TooMany),
        _ => Ok(all),
    }
}

/// Reads a file of hosts: a list on each line, `#` begins a comment.
///
/// # Errors
/// What is wrong with it.
pub fn parse_file(text: &str) -> Result<Vec<Host>, HostError> {
    let mut hosts = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            hosts.extend(parse(line)?);
        }
        if hosts.len() > 2 * MAX_HOSTS {
            return Err(HostError::TooMany);
        }
    }
    merge(hosts)
}

/// A host whose name and address are fit for paths and command lines, as [`text::Host`] says.
fn host(name: String, address: Option<String>) -> Result<Host, HostError> {
    let read = |text: &str| text.parse::<text::Host>().and_then(text::Host::without_port);
    let refused = |text: &str, why: text::HostError| HostError::Name(text.into(), why);
    let named = read(&name).map_err(|why| refused(&name, why))?;
    // The name is part of paths: a user has no place in it.
    if named.user().is_some() {
        return Err(refused(&name, text::HostError::Character(name.clone(), '@')));
    }
    // user@10.0.0.1, fe80::1%eth0
    let address = address.map(|text| read(&text).map(|host| host.ssh()).map_err(|why| refused(&text, why)));
    Ok(Host { name: named.name().to_owned(), address: address.transpose()? })
}

/// Each host once, in the order of first mention.
fn merge(all: Vec<Host>) -> Result<Vec<Host>, HostError> {
    let mut seen: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut hosts = Vec::new();
    for host in all {
        match seen.entry(host.name.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(host.address.clone());
                hosts.push(host);
            }
            Entry::Occupied(entry) if *entry.get() == host.address => {}
            Entry::Occupied(_) => return Err(HostError::Twice { name: host.name }),
        }
    }
    match hosts.len() {
        0 => Err(HostError::Empty),
        n if n > MAX_HOSTS => Err(HostError::TooMany),
        _ => Ok(hosts),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn names(text: &str) -> Vec<String> {
        parse(text).unwrap().into_iter().map(|h| h.name).collect()
    }

    #[test]
    fn lists() {
        assert_eq!(names("a"), ["a"]);
        assert_eq!(names(" a , b,,c "), ["a", "b", "c"]);
        assert_eq!(names("n[08-11,100]"), ["n08", "n09", "n10", "n11", "n100"]);
        assert_eq!(names("r[1-2]n[1,3].x,y"), ["r1n1.x", "r1n3.x", "r2n1.x", "r2n3.x", "y"]);
        assert_eq!(names("a,b,a"), ["a", "b"], "named twice counts once");
    }

    #[test]
    fn addresses() {
        let hosts = parse("n[1-2]=10.0.0.[7-8],c=user@fd00::1,d").unwrap();
        let reach: Vec<&str> = hosts.iter().map(Host::reach).collect();
        assert_eq!(reach, ["10.0.0.7", "10.0.0.8", "user@fd00::1", "d"]);
    }

    #[test]
    fn files() {
        let hosts = parse_file("# ours\na\n\n b , c # two\nn[1-2]\na").unwrap();
        assert_eq!(hosts.len(), 5);
        assert_eq!(parse_file("# nobody\n"), Err(HostError::Empty));
    }

    #[test]
    fn mistakes() {
        use HostError as E;
        assert_eq!(parse(""), Err(E::Empty));
        assert_eq!(parse("a=1,a=2"), Err(E::Twice { name: "a".into() }));
        assert!(matches!(parse("n[1-2]=x"), Err(E::Uneven(_))));
        for bad in ["n[1", "n1]", "n[[1]]", "n[1]]"] {
            assert!(matches!(parse(bad), Err(E::Brackets(_))), "{bad}");
        }
        for bad in ["n[]", "n[a]", "n[2-1]", "n[1-]", "n[-1]", "n[1,,2]", "n[99999999999999999999]"] {
            assert!(matches!(parse(bad), Err(E::Range(_))), "{bad}");
        }
        for bad in [
            "../x",
            "-oProxyCommand=x",
            "a/b",
            "a;b",
            ".",
            "..",
            "é",
            "a=-x",
            "=x",
            "n:22",
            "me@n",
            "a=me@-oX",
            "a=-l@b",
            "n%1",
            "a~",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!(parse("n[1-9999999999]"), Err(E::TooMany));
        assert_eq!(parse("n[1-1000][1-1000]"), Err(E::TooMany));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a-c0-9=.,@\\[\\]\\- -]{0,40}", any in "\\PC{0,40}") {
            for text in [text, any] {
                if let Ok(hosts) = parse(&text) {
                    prop_assert!(!hosts.is_empty() && hosts.len() <= MAX_HOSTS);
                    prop_assert!(hosts.iter().all(|h| !h.name.contains('/') && !h.name.starts_with('-')));
                }
                let _ = parse_file(&text);
            }
        }

        #[test]
        fn a_range_is_what_it_says(from in 0u64..2000, more in 0u64..200, width in 1usize..6) {
            let text = format!("n[{from:0width$}-{}]", from + more);
            let expected: Vec<String> = (from..=from + more).map(|i| format!("n{i:0width$}")).collect();
            prop_assert_eq!(names(&text), expected);
        }
    }
}
