//! Where hosts are: the topology as an administrator writes it.
//!
//! Four texts are read, each into the same [`Map`]: Slurm's `topology.conf` and `topology.yaml`, the file of
//! our own lab, and rules that name a place for host names and subnets. Place 0 is above all others, and
//! holds every host that the text does not name. Texts are bounded and may hold anything. Without a text,
//! [`discover`] measures the topology.

pub mod discover;
mod error;
mod hostlist;
mod lab;
mod line;
mod map;
mod rule;
mod rules;
mod slurm;
mod yaml;

pub use error::{MAX_TEXT, TopologyError, Wrong};
pub use map::Map;

/// The mark of byte order with which editors of other systems begin a text.
pub const MARK: char = '\u{feff}';

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

    /// Reads Slurm's `topology.conf`: lines of `SwitchName=` with `Nodes=` or `Switches=`, for trees, and of
    /// `BlockName=` with `Nodes=`, for blocks. `LinkSpeed` has no unit and is ignored. As Slurm does, it
    /// accepts a host or switch that is linked to several; here the first counts ([`Map::repeated`]).
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
    /// The place of a host is that of the first line that fits its name or its address.
    ///
    /// # Errors
    /// See [`TopologyError`].
    pub fn from_rules(text: &str) -> Result<Map, TopologyError> {
        rules::read(text)
    }
}
