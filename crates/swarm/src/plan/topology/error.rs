//! Errors in the text of a topology.

use thiserror::Error;

use super::super::epoch::{MAX_MEMBERS, MAX_PLACES, PlanError};

/// Longest text, bytes.
pub const MAX_TEXT: usize = 16 << 20;

/// The defect of a topology's text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TopologyError {
    /// Longer than [`MAX_TEXT`].
    #[error("{0} bytes, more than the limit of {MAX_TEXT}")]
    Long(usize),
    /// A line cannot be parsed.
    #[error("line {line}: {why}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// The defect.
        why: Wrong,
    },
    /// A switch that hangs on itself.
    #[error("switch {0} is its own ancestor")]
    Ring(String),
    /// Switches that hang on one another too deep, or in a ring of several.
    #[error("the switches do not form a tree: {0}")]
    Tree(PlanError),
}

/// The defect of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Wrong {
    /// Not the form of a line.
    #[error("unknown form of line")]
    Form,
    /// Not a name.
    #[error("invalid name of a host or place; a line is like east/rack1 node[01-32] 10.1.1.0/24")]
    Name,
    /// A file in YAML that is not like Slurm's.
    #[error(
        "topology.yaml must list topologies, one of them with tree: and switches: or with block: and blocks:"
    )]
    Yaml,
    /// A topology that names no switch.
    #[error("the default topology is flat, so it has no location of hosts")]
    Flat,
    /// Not a rate such as `40mbit`.
    #[error("invalid rate; write for example 40mbit, 10gbit or 125MB/s")]
    Rate,
    /// Not a list such as `node[1-4,7]`.
    #[error("invalid list of hosts; write for example a1,node[1-4,07]")]
    List,
    /// Not a subnet such as `10.0.0.0/8`.
    #[error("invalid subnet; write for example 10.0.0.0/8 or fd00::/8")]
    Subnet,
    /// A switch that no line before it names.
    #[error("unknown switch; name it on an earlier line")]
    Unknown,
    /// A name that was given before.
    #[error("name already used on an earlier line")]
    Twice,
    /// More hosts than members are allowed, or more places.
    #[error("more than {MAX_MEMBERS} hosts or {MAX_PLACES} places")]
    Many,
}
