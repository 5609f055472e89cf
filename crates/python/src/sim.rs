//! The simulator.

use pyo3::prelude::*;
use tidecast::sim::{Fault, SimulateOptions};
use tidecast_text::{Rate, Size};

use crate::operation::Operation;
use crate::usage;

/// A number of bytes, or a number of bytes a second; or words of the program (`10GiB`, `10gbit`).
#[derive(FromPyObject)]
pub(crate) enum Amount {
    Bytes(u64),
    Words(String),
}

impl Amount {
    fn bytes(self, what: &str) -> PyResult<u64> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Words(text) => text.parse::<Size>().map(|s| s.0).map_err(|e| usage(format!("{what}: {e}"))),
        }
    }

    /// Bits a second.
    fn rate(self, what: &str) -> PyResult<u64> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.saturating_mul(8)),
            Self::Words(text) => text.parse::<Rate>().map(|r| r.0).map_err(|e| usage(format!("{what}: {e}"))),
        }
    }
}

/// The attributes of `tidecast.sim.Simulated`.
#[derive(FromPyObject)]
pub(crate) struct Simulated {
    topology: String,
    size: Amount,
    algorithms: Vec<String>,
    faults: Vec<String>,
    nodes: Option<u32>,
    rate: Option<Amount>,
    origin_rate: Option<Amount>,
    write_rate: Option<Amount>,
    piece_size: Option<Amount>,
    segment: Option<Amount>,
    seed: u64,
    exact: bool,
}

#[pyfunction]
pub(crate) fn simulate(what: Simulated) -> PyResult<Operation> {
    let rate = |rate: Option<Amount>, name| rate.map(|rate| rate.rate(name)).transpose();
    let bytes = |bytes: Option<Amount>, name| bytes.map(|bytes| bytes.bytes(name)).transpose();
    let fault = |text: &String| text.parse::<Fault>().map_err(|error| usage(format!("faults: {error}")));
    let options = SimulateOptions {
        topology: what.topology,
        nodes: what.nodes,
        rate: rate(what.rate, "rate")?,
        origin_rate: rate(what.origin_rate, "origin_rate")?,
        size: what.size.bytes("size")?,
        algorithms: what.algorithms,
        faults: what.faults.iter().map(fault).collect::<PyResult<_>>()?,
        seed: what.seed,
        piece_size: bytes(what.piece_size, "piece_size")?,
        segment: bytes(what.segment, "segment")?,
        write_rate: rate(what.write_rate, "write_rate")?,
        exact: what.exact,
    };
    Ok(Operation::new(tidecast::sim::simulate(options, false)))
}
