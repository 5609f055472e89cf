//! Where hosts are: the topology as an administrator writes it.
//!
//! Four texts are read, each into the same [`Map`]: Slurm's `topology.conf` and `topology.yaml`, the file of our own lab,
//! and rules that name a place for host names and subnets. Place 0 is above all others, and holds every host
//! that the text does not name. Texts are bounded and may hold anything. Where nobody has written one, [`discover`] finds
//! out.

pub mod discover;
mod hostlist;
mod lab;
mod rules;
mod slurm;
mod yaml;

use std::collections::BTreeMap;
use std::net::IpAddr;

use thiserror::Error;
use tidecast_text::units;

use super::epoch::{MAX_MEMBERS, MAX_PLACES, Place, PlanError};
use super::places::Tree;
use rules::Rule;

/// Longest text, bytes.
pub const MAX_TEXT: usize = 16 << 20;

/// The mark of byte order with which editors of other systems begin a text.
pub const MARK: char = '\u{feff}';

/// Places, and who is at which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    places: Vec<Place>,
    names: BTreeMap<String, u32>,
    hosts: BTreeMap<String, u32>,
    rules: Vec<(Rule, u32)>,
    /// The first host or switch that hangs on a second switch, and how many do.
    repeated: Option<(String, usize)>,
}

/// Which of the texts one is, which its first line shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `SwitchName=s0 Nodes=n[0-3]`: Slurm's `topology.conf`.
    Slurm,
    /// `- topology: default`: Slurm's `topology.yaml`.
    Yaml,
    /// `switch s0`: the lab's.
    Lab,
    /// `east/rack1 n[0-3]`: rules.
    Rules,
}

impl Form {
    /// The form of a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let lines = text
            .trim_start_matches(MARK)
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default().trim());
        let first = lines.into_iter().find(|line| !line.is_empty()).unwrap_or_default().to_ascii_lowercase();
        let key = first.split(['=', ' ', '\t']).next().unwrap_or_default();
        let begins = |starts: &[&str]| starts.iter().any(|start| first.starts_with(start));
        if first.contains('=')
            && matches!(key, "switchname" | "blockname" | "ringname" | "blocksizes" | "allowemptyswitch")
        {
            Self::Slurm
        } else if begins(&["---", "- ", "%yaml", "tree:", "block:", "ring:", "topology:", "[", "{"]) {
            Self::Yaml
        } else if key == "switch" {
            Self::Lab
        } else {
            Self::Rules
        }
    }
}

/// Why a text is no topology.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TopologyError {
    /// Longer than [`MAX_TEXT`].
    #[error("{0} bytes are more than {MAX_TEXT}")]
    Long(usize),
    /// A line says nothing that can be understood.
    #[error("line {line}: {why}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        why: Wrong,
    },
    /// A switch that hangs on itself.
    #[error("switch {0} hangs on itself")]
    Ring(String),
    /// Switches that hang on one another too deep, or in a ring of several.
    #[error("the switches are no tree: {0}")]
    Tree(PlanError),
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Wrong {
    /// Not the form of a line.
    #[error("it has not the form of any line that is known")]
    Form,
    /// Not a name.
    #[error("it names a host or place by what no name is; a line is like east/rack1 node[01-32] 10.1.1.0/24")]
    Name,
    /// A file in YAML that is not like Slurm's.
    #[error(
        "topology.yaml has a list of topologies, of which one has tree: with switches: or block: with blocks:"
    )]
    Yaml,
    /// A topology that names no switch.
    #[error("the default topology is flat, which does not say where hosts are")]
    Flat,
    /// Not a rate such as `40mbit`.
    #[error("a rate is like 40mbit, 10gbit or 125MB/s")]
    Rate,
    /// Not a list such as `node[1-4,7]`.
    #[error("a list of hosts is like a1,node[1-4,07]")]
    List,
    /// Not a subnet such as `10.0.0.0/8`.
    #[error("a subnet is like 10.0.0.0/8 or fd00::/8")]
    Subnet,
    /// A switch that no line before it names.
    #[error("it names a switch that is not there")]
    Unknown,
    /// A name that was given before.
    #[error("it names what an earlier line names already")]
    Twice,
    /// More hosts than members are allowed, or more places.
    #[error("more than {MAX_MEMBERS} hosts or {MAX_PLACES} places")]
    Many,
}

impl Map {
    /// Reads whichever of the texts it is.
    ///
    /// # Errors
    /// See [`TopologyError`].
    pub fn read(text: &str) -> Result<Map, TopologyError> {
        let text = text.trim_start_matches(MARK);
        match Form::of(text) {
            Form::Slurm => slurm::read(text),
            Form::Yaml => yaml::read(text),
            Form::Lab => lab::read(text),
            Form::Rules => rules::read(text),
        }
    }

    /// Reads Slurm's `topology.conf`: lines of `SwitchName=` with `Nodes=` or `Switches=`, for trees, and
    /// of `BlockName=` with `Nodes=`, for blocks. `LinkSpeed` has no unit and says nothing to us. As Slurm does, it takes
    /// a host or switch that hangs on several; here the first counts ([`Map::repeated`]).
    ///
    /// # Errors
    /// See [`TopologyError`].
    pub fn from_slurm(text: &str) -> Result<Map, TopologyError> {
        slurm::read(text)
    }

    /// Reads the file of the lab: lines of `switch`, `nodes` and `link`. Hosts are named `n000`, `n001`..
    /// Where switches form rings, they hang on the first as by fewest links, at an unknown rate.
    ///
    /// # Errors
    /// See [`TopologyError`].
    pub fn from_lab(text: &str) -> Result<Map, TopologyError> {
        lab::read(text)
    }

    /// Reads rules: lines of a place, as a path, and the hosts there, as lists, patterns and subnets.
    ///
    /// ```text
    /// # PATH [rate=RATE] HOSTS..            the rate is that of the link upwards
    /// east          rate=10gbit  login[1-2]
    /// east/rack1    node[001-032]  10.1.1.0/24
    /// west          w-*  2001:db8:7::/48
    /// ```
    ///
    /// A host is where the first line says so that fits its name or its address.
    ///
    /// # Errors
    /// See [`TopologyError`].
    pub fn from_rules(text: &str) -> Result<Map, TopologyError> {
        rules::read(text)
    }

    /// Hosts by name, those of each list at one place below the first; who is named twice is where it is named first.
    #[must_use]
    pub fn of(places: &[Vec<String>]) -> Map {
        let mut map = Map { places: vec![Place::default()], ..Map::default() };
        for hosts in places.iter().take(MAX_PLACES - 1) {
            let place = map.places.len() as u32;
            map.places.push(Place { above: Some(0), rate: 0 });
            map.names.insert(format!("place{place}"), place);
            for host in hosts {
                map.hosts.entry(host.clone()).or_insert(place);
            }
        }
        map
    }

    /// The places: number 0 is above all others.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// The number of the place of this name: a switch, a block, or the path of a rule.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<u32> {
        self.names.get(name).copied()
    }

    /// Each host that is named itself, not by a pattern or subnet, and its place: by place, and numbers as they count.
    #[must_use]
    pub fn listed(&self) -> Vec<(&str, u32)> {
        let mut all: Vec<(&str, u32)> =
            self.hosts.iter().map(|(name, place)| (name.as_str(), *place)).collect();
        all.sort_by_key(|(name, place)| (*place, name.len(), *name));
        all
    }

    /// Names of places, with their numbers.
    pub fn names(&self) -> impl Iterator<Item = (&str, u32)> {
        self.names.iter().map(|(name, place)| (name.as_str(), *place))
    }

    /// The first host or switch that a text of Slurm's hangs on a second switch, and how many it does: each counts below
    /// the first.
    #[must_use]
    pub fn repeated(&self) -> Option<(&str, usize)> {
        self.repeated.as_ref().map(|(first, count)| (first.as_str(), *count))
    }

    fn repeat(&mut self, name: &str) {
        self.repeated.get_or_insert_with(|| (name.to_owned(), 0)).1 += 1;
    }

    /// Whether a host may be known by its address alone.
    #[must_use]
    pub fn has_subnets(&self) -> bool {
        self.rules.iter().any(|(rule, _)| matches!(rule, Rule::Subnet { .. }))
    }

    /// Where a host is; 0 where nothing says so. A full name is known by its first label too.
    #[must_use]
    pub fn place(&self, host: &str, address: Option<IpAddr>) -> u32 {
        let short = host.split('.').next().unwrap_or(host);
        let listed = self.hosts.get(host).or_else(|| self.hosts.get(short));
        let ruled =
            || self.rules.iter().find(|(r, _)| r.fits(host, address) || r.fits(short, None)).map(|r| &r.1);
        listed.or_else(ruled).copied().unwrap_or(0)
    }

    /// One place that holds everyone.
    fn empty(text: &str) -> Result<Map, TopologyError> {
        if text.len() > MAX_TEXT {
            return Err(TopologyError::Long(text.len()));
        }
        Ok(Map::of(&[]))
    }

    /// Itself, where its places are a tree.
    fn checked(self) -> Result<Map, TopologyError> {
        Tree::new(&self.places).map_err(TopologyError::Tree)?;
        Ok(self)
    }

    fn add_place(&mut self, name: &str, place: Place) -> Result<u32, Wrong> {
        if self.places.len() >= MAX_PLACES {
            return Err(Wrong::Many);
        }
        let number = self.places.len() as u32;
        if self.names.insert(name.to_owned(), number).is_some() {
            return Err(Wrong::Twice);
        }
        self.places.push(place);
        Ok(number)
    }

    fn add_host(&mut self, name: String, place: u32) -> Result<(), Wrong> {
        if self.hosts.len() >= MAX_MEMBERS {
            return Err(Wrong::Many);
        }
        if self.hosts.insert(name, place).is_some() { Err(Wrong::Twice) } else { Ok(()) }
    }
}

/// The words of each line that has any, with its number; what follows a `#` is a remark.
fn lines(text: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    text.lines().enumerate().filter_map(|(i, line)| {
        let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        (!words.is_empty()).then_some((i + 1, words))
    })
}

/// Bytes per second of a rate such as `40mbit`, `2.5gbit` or `125MB/s`.
fn rate(word: &str) -> Result<u64, Wrong> {
    units::rate(word).ok().filter(|bits| *bits >= 8).map(|bits| bits / 8).ok_or(Wrong::Rate)
}

/// A number of digits only.
fn number_of(word: &str) -> Option<u64> {
    word.bytes().all(|b| b.is_ascii_digit()).then(|| word.parse().ok()).flatten()
}
