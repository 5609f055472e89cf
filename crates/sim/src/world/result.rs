//! The result of the run: the outcome, the final checks, and the samples of link use.

use super::{World, WorldEvent};
use crate::check::Violation;
use crate::outcome::Outcome;

impl World {
    /// The outcome so far. Once: it takes the samples with it.
    pub fn outcome(&mut self) -> Outcome {
        let (ports, samples) =
            self.links.finish(self.now, &self.job.topology, |port| self.net.carried_by(self.now, port));
        let nodes = &self.nodes[1..];
        Outcome {
            algorithm: String::from("swarm"),
            finished: nodes.iter().map(|n| n.finished).collect(),
            lost: nodes.iter().filter(|n| n.finished.is_none() && !n.awaited).count() as u32,
            size: self.job.lengths.iter().map(|&l| u64::from(l)).sum(),
            origin_sent: self.tally.origin_sent,
            control: self.tally.control,
            duplicate: self.tally.duplicate,
            ports,
            events: self.tally.events,
            trace: self.checks.trace(),
            ended: self.now,
            samples,
        }
    }

    /// The outcome, if it breaks no rule of a run's end.
    pub(super) fn finish(&mut self) -> Result<Outcome, Violation> {
        let outcome = self.outcome();
        let mut checks = std::mem::take(&mut self.checks);
        let judged = checks.end(self.now, self, &outcome);
        self.checks = checks;
        judged.map(|()| outcome)
    }

    /// Notes link use, and when to do so again.
    pub(super) fn sample(&mut self) {
        self.links.sample(self.now, |port| self.net.carried_by(self.now, port));
        self.queue.push(self.links.due(), WorldEvent::Sample);
    }
}
