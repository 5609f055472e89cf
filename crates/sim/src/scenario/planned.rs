//! Scenarios with a plan, and those with a plan on demand. They are drawn independently, so that existing
//! seeds keep their meaning.

use tidecast_swarm::{Policy, Time};

use super::{Draw, SECOND};
use crate::job::{Job, Opens, Protocols};
use crate::planned::{Knowledge, stripes};
use crate::rng::Rng;

/// Files that are opened.
const FILES: u64 = 8;
/// The longest time that one file may need to arrive: the longest pauses of the engine, several times.
const FILE: u64 = 400 * SECOND;

/// The plan of one broadcast in some. A broadcast gives every member everything: a node that wants parts is
/// not a member, and would be pushed the beginning of every piece, each time again.
pub(super) fn plan(job: &Job) -> Option<(Knowledge, u16)> {
    let mut draw = Draw(Rng::new(job.seed ^ 0x00D1_CE0F_71A2_0002));
    if !job.wants.is_empty() {
        return None;
    }
    if job.protocols != Protocols::Tidecast || job.policy != Policy::TIDECAST || !draw.chance(3, 10) {
        return None;
    }
    let knows = draw.0.pick(&[Knowledge::Topology, Knowledge::Nothing]);
    let receivers = job.topology.len() - 1;
    let longest = job.lengths.iter().copied().max().unwrap_or(1);
    let size = job.lengths.iter().map(|&len| u64::from(len)).sum();
    let suits = stripes(&job.topology, knows, size, longest);
    let any = 1 + draw.0.below(16.min(u64::from(receivers))) as u16;
    Some((knows, draw.0.pick(&[suits, any])))
}

/// Some plans are on demand: a program starts everywhere and opens files.
pub(super) fn open(job: &mut Job) {
    let mut draw = Draw(Rng::new(job.seed ^ 0x00D1_CE0F_0BE2_0003));
    if job.plan.is_none() || !draw.0.one_in(4) {
        return;
    }
    let pieces = job.lengths.len() as u32;
    let file = |draw: &mut Draw| {
        let start = draw.0.below(pieces.into()) as u32;
        start..start + draw.log(1, u64::from(pieces - start)) as u32
    };
    let files: Vec<_> = (0..draw.log(1, FILES)).map(|_| file(&mut draw)).collect();
    let start = Time(draw.0.pick(&[0, 1, 10]) * SECOND);
    let think = draw.0.pick(&[20_000, SECOND]);
    job.policy.on_demand = true;
    job.until = Time(job.until.0 + start.0 + files.len() as u64 * (think + FILE));
    job.opens = Some(Opens { files, start, think });
}
