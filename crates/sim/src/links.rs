//! Which wires a run reports, and their use over time.

use tidecast_swarm::Time;

use crate::outcome::PortUse;
use crate::topology::{Port, Topology};

/// Nodes whose own ports are listed; of more only the origin's.
const LISTED: usize = 64;
/// Samples of link use in a run, at most; when there are more, every second one goes.
const SAMPLES: usize = 200;
/// Time between samples at first, nanoseconds.
const EVERY: u64 = 1_000_000;

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Links {
    ports: Vec<Port>,
    samples: Vec<(Time, Vec<u64>)>,
    every: u64,
}

impl Links {
    pub(crate) fn new(topology: &Topology) -> Links {
        let nodes = topology.nodes.len();
        let links = 2 * nodes as u32..topology.ports();
        let own = 0..2 * if nodes <= LISTED { nodes as u32 } else { 1 };
        Links { ports: links.chain(own).map(Port).collect(), samples: Vec::new(), every: EVERY }
    }

    /// When the next sample is due.
    pub(crate) fn due(&self) -> Time {
        Time(self.samples.last().map_or(0, |(at, _)| at.0 + self.every))
    }

    /// Records the bytes that each port has carried by now.
    pub(crate) fn sample(&mut self, now: Time, carried: impl Fn(Port) -> u64) {
        self.samples.push((now, self.ports.iter().map(|&p| carried(p)).collect()));
        if self.samples.len() > SAMPLES {
            let mut number = 0;
            self.samples.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.every *= 2;
        }
    }

    /// The ports with the total bytes of each, and the samples, the last one at the end.
    pub(crate) fn finish(
        &mut self,
        now: Time,
        topology: &Topology,
        carried: impl Fn(Port) -> u64,
    ) -> (Vec<PortUse>, Vec<(Time, Vec<u64>)>) {
        self.sample(now, &carried);
        let used = |port: Port| PortUse {
            name: topology.port_name(port),
            bytes: carried(port),
            rate: topology.port_rate(port) / 8,
        };
        (self.ports.iter().map(|&p| used(p)).collect(), std::mem::take(&mut self.samples))
    }
}
