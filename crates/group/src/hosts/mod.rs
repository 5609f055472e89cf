//! Host lists of a broadcast, as people, MPI libraries and schedulers write them.
//!
//! ```text
//! node[001-064,100]          node001 .. node064, node100
//! n[0-10/2]!n4               every second host, without n4
//! r[1-2]n[01-16],login       several brackets, several names
//! me@login:2222,[fd00::1]    a user and a port of ssh; an IPv6 address
//! a=10.0.0.1,b=10.0.0.2      a name, and the address to connect to
//! n[1-4]=10.0.0.[1-4]        the same for several hosts
//! ```
//!
//! Invariants: pure; at most [`MAX_HOSTS`] hosts for any text; a name is safe as part of a path and of a command line.

pub mod job;
mod line;
mod program_output;
pub mod roster;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tidecast_text as text;
use tidecast_text::hostlist::{self, Budget, ListError};

pub use self::program_output::program_output;
/// Maximum number of hosts of one broadcast.
pub use tidecast_text::hostlist::MAX_HOSTS;

/// A host that receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name in reports and in `{host}`.
    pub name: String,
    /// The address to connect to, if it is not the name: `[USER@]NAME`.
    pub address: Option<String>,
    /// The port of its ssh server, if it is not the default.
    pub port: Option<u16>,
}

impl Host {
    /// A host whose name is its address.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), address: None, port: None }
    }

    /// The address to connect to.
    #[must_use]
    pub fn reach(&self) -> &str {
        self.address.as_deref().unwrap_or(&self.name)
    }

    /// The user to log in as, if given, and the name or address.
    #[must_use]
    pub fn login(&self) -> (Option<&str>, &str) {
        let reach = self.reach();
        reach.rsplit_once('@').map_or((None, reach), |(user, name)| (Some(user), name))
    }
}

/// Why a list of hosts cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The list is empty.
    #[error("the list of hosts is empty")]
    Empty,
    /// All hosts are excluded.
    #[error("all hosts of the list are excluded")]
    AllExcluded,
    /// Brackets, ranges or operators, or too many.
    #[error(transparent)]
    List(#[from] ListError),
    /// An unknown option of a host in a machine file.
    #[error("unknown option {0:?} of a host in a machine file; use slots=4, user=NAME, port=2222")]
    Option(String),
    /// An invalid name.
    #[error("invalid host {0:?}: {1}")]
    Name(String, #[source] text::HostError),
    /// `NAME=ADDR` with different numbers of names and addresses.
    #[error("{item:?}: {addresses} addresses given for {names} host names")]
    Uneven {
        /// The text.
        item: String,
        /// The number of names.
        names: usize,
        /// The number of addresses.
        addresses: usize,
    },
    /// One name with two addresses.
    #[error(
        "{name} is given twice, with different users, ports or addresses; give each its own name, as in x={name}"
    )]
    Twice {
        /// The name.
        name: String,
    },
}

/// Parses a list of hosts of one or more lines; duplicates count once. `#` begins a comment.
///
/// # Errors
/// The list is invalid.
pub fn parse(text: &str) -> Result<Vec<Host>, HostError> {
    let (mut hosts, mut budget) = (Vec::new(), Budget::default());
    for line in text.trim_start_matches('\u{feff}').lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            line::read(line, &mut hosts, &mut budget)?;
        }
        if hosts.len() > 2 * MAX_HOSTS {
            hosts = merge(hosts)?;
        }
    }
    merge(hosts)
}

/// Removes the hosts of `list` by name. An empty list removes none, because scripts exclude the hosts that are down today.
///
/// # Errors
/// The second list is invalid, or no host is left.
pub fn without(hosts: Vec<Host>, list: &str) -> Result<Vec<Host>, HostError> {
    let gone = match parse(list) {
        Err(HostError::Empty) => return Ok(hosts),
        gone => gone?,
    };
    let mut hosts = hosts;
    hostlist::Operator::Remove.apply(&mut hosts, gone, |host| host.name.clone());
    if hosts.is_empty() { Err(HostError::AllExcluded) } else { Ok(hosts) }
}

/// The largest number after a name that is a number of processes, as MPI libraries write it, instead of a port of ssh.
const MAX_SLOTS: u16 = 1023;
/// The port of ssh, which is never a number of processes.
const SSH: u16 = 22;

/// A host whose name and address are safe in paths and command lines, by [`text::Host`]. A user and a port in the name are
/// moved to its address, because the name is part of paths.
fn host(name: &str, address: Option<&str>) -> Result<Host, HostError> {
    let read = |text: &str| text.parse::<text::Host>().map_err(|why| HostError::Name(text.into(), why));
    let named = read(name)?;
    let Some(address) = address else {
        let slots = |port: &u16| {
            *port <= MAX_SLOTS && *port != SSH && named.user().is_none() && !name.starts_with('[')
        };
        let port = named.port().filter(|port| !slots(port));
        let address = named.user().map(|_| named.ssh());
        return Ok(Host { name: named.name().to_owned(), address, port });
    };
    if named.user().is_some() || named.port().is_some() {
        return Err(HostError::Name(
            name.into(),
            text::HostError::Character(name.into(), if named.user().is_some() { '@' } else { ':' }),
        ));
    }
    // user@10.0.0.1:2222, fe80::1%eth0
    let address = read(address)?;
    Ok(Host { name: named.name().to_owned(), address: Some(address.ssh()), port: address.port() })
}

/// Each host once, in the order of first mention.
fn merge(all: Vec<Host>) -> Result<Vec<Host>, HostError> {
    let mut seen: BTreeMap<String, (Option<String>, Option<u16>)> = BTreeMap::new();
    let mut hosts = Vec::new();
    for host in all {
        match seen.entry(host.name.clone()) {
            Entry::Vacant(entry) => {
                entry.insert((host.address.clone(), host.port));
                hosts.push(host);
            }
            Entry::Occupied(entry) if *entry.get() == (host.address.clone(), host.port) => {}
            Entry::Occupied(_) => return Err(HostError::Twice { name: host.name }),
        }
    }
    match hosts.len() {
        0 => Err(HostError::Empty),
        n if n > MAX_HOSTS => Err(ListError::TooMany(MAX_HOSTS).into()),
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

    /// The hosts of a list, as `name[=address][:port]`.
    fn reached(text: &str) -> String {
        let host = |h: &Host| {
            let address = h.address.as_ref().map_or(String::new(), |a| format!("={a}"));
            let port = h.port.map_or(String::new(), |p| format!(":{p}"));
            format!("{}{address}{port}", h.name)
        };
        parse(text).unwrap().iter().map(host).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn users_ports_and_addresses_of_ipv6() {
        for (list, hosts) in [
            ("me@n1:2222", "n1=me@n1:2222"),
            ("n1:22,n2:2200", "n1:22 n2:2200"),
            ("me@n1:4", "n1=me@n1:4"),
            ("[::1]", "::1"),
            ("[::1]:4", "::1:4"),
            ("me@[fd00::1]:2222,fd00::2", "fd00::1=me@fd00::1:2222 fd00::2"),
            ("a=me@[fd00::1]:2222", "a=me@fd00::1:2222"),
            ("me@n[1-2]:2222!n2", "n1=me@n1:2222"),
            ("a=10.0.0.1:2201,b=10.0.0.1:2202", "a=10.0.0.1:2201 b=10.0.0.1:2202"),
            ("n[1-4/2]=10.0.0.[1-4/2]", "n1=10.0.0.1 n3=10.0.0.3"),
        ] {
            assert_eq!(reached(list), hosts, "{list}");
        }
    }

    #[test]
    fn files() {
        let hosts = parse("# ours\na\n\n b , c # two\nn[1-2]\na").unwrap();
        assert_eq!(hosts.len(), 5);
        assert_eq!(parse("# nobody\n"), Err(HostError::Empty));
        assert_eq!(reached("n[1-4]\n!n2\nx"), "n1 n3 n4 x");
    }

    #[test]
    fn machine_files() {
        for (name, file, hosts) in [
            ("Open MPI", "a slots=4\nb slots=8 max_slots=16\nc slots = 2 max-slots = 4 # x\n\na", "a b c"),
            ("Open MPI", "me@a slots=1\n10.0.0.1 slots=2\nb slots=2 user=you", "a=me@a 10.0.0.1 b=you@b"),
            ("Hydra", "a:4\nb:22\nc:8 binding=user:0,1,2 \nd:1 user=me ifname=ib0", "a b:22 c d=me@d"),
            ("Hydra", "c:8 binding=user:0,1,2\nfd00::1 slots=1 user=me", "c fd00::1=me@fd00::1"),
            ("Intel MPI", "a:96\nb:96 # next rack\nc:128", "a b c"),
            ("DeepSpeed", "worker-[1-2] slots=8", "worker-1 worker-2"),
            ("PBS", "a\na\na\nb\nb\n", "a b"),
            ("LSF", "a 16\nb 16", "a b"),
            ("LSF", "a 16 b 16", "a b"),
            ("from Windows", "\u{feff}a slots=2\r\nb\r\n", "a b"),
            ("Grid Engine", "a 4 all.q@a UNDEFINED\nb 4 all.q@b <NULL>", "a b"),
            ("a list", "a b x.q C", "a b x.q C"),
            ("a list", "a b 4", "a b 4"),
            ("ports", "a port=2222\nb slots=2 port=2200", "a:2222 b slots"),
        ] {
            let hosts = hosts.replace("b slots", "b:2200");
            assert_eq!(reached(file), hosts, "{name}: {file}");
        }
        assert_eq!(reached("a b=10.0.0.2 c"), "a b=10.0.0.2 c");
        assert_eq!(reached("1 2 3"), "1 2 3");
        for bad in ["a slots=4 b", "a slots=4 colour=red", "a port=0", "a user=-oX", "a user=me;x"] {
            assert!(matches!(parse(bad), Err(HostError::Option(_))), "{bad}");
        }
    }

    #[test]
    fn exclusion() {
        let left = |list: &str, x: &str| without(parse(list).unwrap(), x).map(|h| h.len());
        assert_eq!(left("n[1-9]", "n[2-8/2],x"), Ok(5));
        assert_eq!(left("me@n1:2222", "n1"), Err(HostError::AllExcluded));
        for none in ["", " \n", "# none is down today\n"] {
            assert_eq!(left("n[1-9]", none), Ok(9), "{none:?}");
        }
        assert_eq!(parse("n[1-3]!n[1-3]"), Err(HostError::Empty));
    }

    #[test]
    fn mistakes() {
        use HostError as E;
        use ListError as L;
        assert_eq!(parse(""), Err(E::Empty));
        assert_eq!(parse("a=1,a=2"), Err(E::Twice { name: "a".into() }));
        assert_eq!(parse("me@a,a"), Err(E::Twice { name: "a".into() }));
        assert!(matches!(parse("n[1-2]=x"), Err(E::Uneven { names: 2, addresses: 1, .. })));
        for bad in ["n[1", "n1]", "n[[1]]", "n[1]]"] {
            assert!(matches!(parse(bad), Err(E::List(L::Brackets(_)))), "{bad}");
        }
        for bad in
            ["n[]", "n[a]", "n[2-1]", "n[1-]", "n[-1]", "n[1,,2]", "n[0-4/0]", "n[99999999999999999999]"]
        {
            assert!(matches!(parse(bad), Err(E::List(L::Range(_)))), "{bad}");
        }
        for bad in ["!a", "a!", "a!!b"] {
            assert!(matches!(parse(bad), Err(E::List(L::Operator(..)))), "{bad}");
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
            "n:x",
            "n:99999",
            "@n",
            "me@-n",
            "-me@n",
            "a:22=b",
            "me@a=b",
            "a=me@-oX",
            "a=-l@b",
            "n%1",
            "a~",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!(parse("n[1-9999999999]"), Err(L::TooMany(MAX_HOSTS).into()));
        assert_eq!(parse("n[1-1000][1-1000]"), Err(L::TooMany(MAX_HOSTS).into()));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a-c0-9=.,@!:/\\n\\[\\]\\- -]{0,40}", any in "\\PC{0,40}") {
            for text in [text, any] {
                if let Ok(hosts) = parse(&text) {
                    prop_assert!(!hosts.is_empty() && hosts.len() <= MAX_HOSTS);
                    prop_assert!(hosts.iter().all(|h| !h.name.contains('/') && !h.name.starts_with('-')));
                }
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
