//! A fault as a person writes it: kind, nodes, time. `text` reads it, `apply` makes faults of it.

use std::fmt;
use std::ops::RangeInclusive;

use super::units::{show_rate, show_share, show_time};

/// One fault as it is written; its text is read by `parse` and given back by `to_string`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The fault, and its nodes.
    pub what: What,
    /// When, nanoseconds since the start.
    pub at: u64,
    /// It ends this much later; `None`: it does not.
    pub lasting: Option<u64>,
}

/// Which nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// The named nodes.
    Named(Vec<Item>),
    /// This many receivers in a million, rounded up, drawn by the seed of the job.
    Share(u32),
}

/// A part of a list of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// These numbers.
    Nodes(RangeInclusive<u32>),
    /// All nodes on the switch of this name.
    Switch(String),
}

/// A fault of nodes without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants have the names of the faults")]
pub enum NodeFault {
    Crash,
    Die,
    Freeze,
    Leave,
    /// The node is not there before.
    Join,
    DiskFull,
    Corrupt,
    Lie,
    Withhold,
    Refuse,
    Closed,
    Reset,
}

/// The fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Something that takes no value.
    Do(NodeFault, Selector),
    /// The program ends, and restarts when the fault ends.
    Restart {
        /// The nodes.
        who: Selector,
        /// Its disk is kept.
        disk: bool,
    },
    /// A network card slows down, to bits per second.
    Slow {
        /// Whose.
        who: Selector,
        /// Bits per second.
        rate: u64,
    },
    /// The links between two switches have this rate; 0 is a cut.
    Link {
        /// A switch.
        a: String,
        /// The other.
        b: String,
        /// Bits per second.
        rate: u64,
    },
    /// Groups that cannot reach each other, nor the nodes in no group.
    Partition(Vec<Selector>),
    /// Clocks jump.
    Clock {
        /// Whose.
        who: Selector,
        /// Nanoseconds.
        by: u64,
        /// Backward.
        back: bool,
    },
    /// A piece is lost on disk.
    Lost {
        /// Whose.
        who: Selector,
        /// The piece, or the next that it has; drawn if not given.
        piece: Option<u32>,
    },
    /// Messages of different connections overtake each other: each may be held up by this much, ns.
    Reorder(u64),
}

impl NodeFault {
    /// All of them, with the words for them.
    pub(super) const WORDS: [(&'static str, NodeFault); 12] = [
        ("crash", NodeFault::Crash),
        ("die", NodeFault::Die),
        ("freeze", NodeFault::Freeze),
        ("leave", NodeFault::Leave),
        ("join", NodeFault::Join),
        ("diskfull", NodeFault::DiskFull),
        ("corrupt", NodeFault::Corrupt),
        ("lie", NodeFault::Lie),
        ("withhold", NodeFault::Withhold),
        ("refuse", NodeFault::Refuse),
        ("closed", NodeFault::Closed),
        ("reset", NodeFault::Reset),
    ];

    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, verb)| *verb == self).map_or("", |(word, _)| word)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items = match self {
            Selector::Share(ppm) => return f.write_str(&show_share(*ppm)),
            Selector::Named(items) => items,
        };
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            match item {
                Item::Switch(name) => f.write_str(name)?,
                Item::Nodes(range) if range.start() == range.end() => write!(f, "{}", range.start())?,
                Item::Nodes(range) => write!(f, "{}-{}", range.start(), range.end())?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Do(verb, who) => write!(f, "{}:{who}", verb.word()),
            What::Restart { who, disk: true } => write!(f, "restart:{who}"),
            What::Restart { who, disk: false } => write!(f, "restart:{who},nodisk"),
            What::Slow { who, rate } => write!(f, "slow:{who}={}", show_rate(*rate)),
            What::Link { a, b, rate: 0 } => write!(f, "cut:{a}-{b}"),
            What::Link { a, b, rate } => write!(f, "link:{a}-{b}={}", show_rate(*rate)),
            What::Partition(groups) => {
                f.write_str("partition:")?;
                for (i, group) in groups.iter().enumerate() {
                    write!(f, "{}{group}", if i > 0 { "|" } else { "" })?;
                }
                Ok(())
            }
            What::Clock { who, by, back } => {
                write!(f, "clock:{who}{}{}", if *back { "-" } else { "+" }, show_time(*by))
            }
            What::Lost { who, piece: Some(piece) } => write!(f, "lost:{who}={piece}"),
            What::Lost { who, piece: None } => write!(f, "lost:{who}"),
            What::Reorder(by) => write!(f, "reorder={}", show_time(*by)),
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        if self.at > 0 || self.lasting.is_some() {
            write!(f, "@{}", show_time(self.at))?;
        }
        match self.lasting {
            Some(lasting) => write!(f, "+{}", show_time(lasting)),
            None => Ok(()),
        }
    }
}
