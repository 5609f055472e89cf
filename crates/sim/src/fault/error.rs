//! Errors in the text of a fault.

/// Errors in the text of a fault, or in its reference to this cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// The first word is unknown.
    #[error("unknown fault {0:?}; write FAULT:NODES@TIME, for example crash:3@2s. FAULT is one of {words}", words = super::text::words())]
    Unknown(String),
    /// A part of it has the wrong form.
    #[error("{text:?}: {part:?} is not {wanted}; write for example {example}")]
    Part {
        /// All of it.
        text: String,
        /// The part.
        part: String,
        /// The expected form.
        wanted: &'static str,
        /// One that is right.
        example: &'static str,
    },
    /// An end for a fault without one.
    #[error("{text:?}: this fault has no end, so it takes no +TIME; write for example {example}")]
    Endless {
        /// All of it.
        text: String,
        /// One that is right.
        example: &'static str,
    },
    /// A node beyond the last.
    #[error("unknown node {node}; nodes are 0 (the origin) to {last}")]
    NoNode {
        /// The request.
        node: u32,
        /// The last there is.
        last: u32,
    },
    /// A switch of another cluster.
    #[error("unknown switch {name:?}; switches are {all}")]
    NoSwitch {
        /// The request.
        name: String,
        /// The existing ones.
        all: String,
    },
    /// Two switches that no link joins.
    #[error("no link between {a} and {b}; links are {all}")]
    NoLink {
        /// One end.
        a: String,
        /// The other.
        b: String,
        /// The existing ones.
        all: String,
    },
    /// A piece beyond the last.
    #[error("unknown piece {piece}; pieces are 0 to {last}")]
    NoPiece {
        /// The request.
        piece: u32,
        /// The last there is.
        last: u32,
    },
    /// Node 0 is where the data is.
    #[error("node 0 is the origin, which is present from the start and cannot join later")]
    OriginJoins,
}
