//! The request to the simulator, and the reasons to reject it.

use crate::fault::Spec;

/// The user's request. Fields that are None get a default.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    /// A short form, or a file.
    pub topology: String,
    /// The same shape with this many nodes.
    pub nodes: Option<u32>,
    /// Rate of each node's network card, bits per second.
    pub rate: Option<u64>,
    /// Rate of the origin's, bits per second.
    pub origin_rate: Option<u64>,
    /// How much is broadcast, in bytes.
    pub size: u64,
    /// Names of ways.
    pub algorithms: Vec<String>,
    /// The faults.
    pub faults: Vec<Spec>,
    /// Another seed, another run.
    pub seed: u64,
    /// Bytes in a piece.
    pub piece_size: Option<u64>,
    /// Bytes in a segment of the ways that have them.
    pub segment: Option<u64>,
    /// The rate at which a node can verify and write, bits per second.
    pub write_rate: Option<u64>,
    /// A network of rates and delays alone.
    pub exact: bool,
}

impl Default for PlanRequest {
    fn default() -> Self {
        Self {
            topology: String::new(),
            nodes: None,
            rate: None,
            origin_rate: None,
            size: 0,
            algorithms: vec!["plan".to_owned()],
            faults: Vec::new(),
            seed: 1,
            piece_size: None,
            segment: None,
            write_rate: None,
            exact: false,
        }
    }
}

/// Why nothing is simulated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The request is not valid, or would take too long.
    #[error("{0}")]
    Refused(String),
    /// The file of the topology cannot be read.
    #[error("cannot read the topology {path}: {source}")]
    Unreadable {
        /// Its path.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
}
