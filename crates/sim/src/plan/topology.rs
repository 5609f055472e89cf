//! The topology of a question.

use std::io::Read;
use std::path::Path;

use tidecast_swarm::plan::topology::{Form, MARK, Map};
use tidecast_text::{Rate, Size, with_causes};

use super::request::{PlanError, PlanRequest};
use crate::topology::Topology;

/// Bits per second of a node's card where a file names hosts and no rates.
const CARD: u64 = 10_000_000_000;
/// Longest topology file, bytes.
const MAX_FILE: u64 = 16 << 20;

/// The requested topology: a form or a file, with the requested nodes and origin.
///
/// # Errors
/// See [`PlanError`].
pub fn topology(ask: &PlanRequest) -> Result<Topology, PlanError> {
    let named = ask.topology.as_str();
    let path = Path::new(named);
    let is_file = path.exists() && !path.is_dir();
    let card = ask.rate.map(|rate| usable(rate, "--rate")).transpose()?;
    let advice = if is_file || named.contains(':') { "" } else { ", and no file has that name" };
    let read = match is_file {
        true => of_file(&text(path)?, card).map_err(|why| format!("{}: {why}", path.display())),
        false => Topology::parse(named).map_err(|e| format!("{e}{advice}")),
    };
    let mut topology = read.map_err(|why| PlanError::Refused(format!("topology: {why}")))?;
    if let Some(rate) = card {
        topology.nodes.iter_mut().for_each(|node| node.rate = rate);
    }
    if let Some(nodes) = ask.nodes {
        topology = topology.with_nodes(nodes).map_err(|e| PlanError::Refused(format!("--nodes: {e}")))?;
    }
    if let (Some(rate), Some(origin)) = (ask.origin_rate, topology.nodes.first_mut()) {
        origin.rate = usable(rate, "--origin-rate")?;
    }
    Ok(topology)
}

/// A file of any form that a broadcast reads, too. Without a rate in the file, a node's card has the usual
/// rate.
fn of_file(text: &str, card: Option<u64>) -> Result<Topology, String> {
    let text = text.trim_start_matches(MARK);
    match Form::of(text) {
        Form::Lab => Topology::from_text(text).map_err(|e| with_causes(&e)),
        _ => {
            let map = Map::read(text).map_err(|e| with_causes(&e))?;
            Topology::of_map(&map, card.unwrap_or(CARD)).map_err(|e| with_causes(&e))
        }
    }
}

/// A rate within the bounds of topologies.
pub(super) fn usable(rate: u64, flag: &str) -> Result<u64, PlanError> {
    match rate {
        8_000..=1_000_000_000_000 => Ok(rate),
        _ => {
            let rate = Rate(rate);
            Err(PlanError::Refused(format!("{flag}: {rate} is not between 8 kbit/s and 1 Tbit/s")))
        }
    }
}

fn text(path: &Path) -> Result<String, PlanError> {
    let shown = path.display().to_string();
    let cannot = |source| PlanError::Unreadable { path: shown.clone(), source };
    let file = std::fs::File::open(path).map_err(cannot)?;
    let mut text = String::new();
    let read = file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(cannot)?;
    if read as u64 > MAX_FILE {
        let most = Size(MAX_FILE);
        return Err(PlanError::Refused(format!("{shown} is too large for a topology (limit {most})")));
    }
    Ok(text)
}
