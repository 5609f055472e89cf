//! The setting of a run without engines: the modelled network, other events in the order of time, and the
//! report of both.

use tidecast_swarm::Time;

use crate::event_queue::EventQueue;
use crate::links::Links;
use crate::network::{Delivery, Model, Network};
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::topology::Topology;
use crate::trace::Trace;

/// Steps between two reports of progress.
const REPORT: u64 = 1024;

/// `M` is the content of messages, `T` an event beside the network.
pub(crate) struct Stage<'a, M: Clone, T> {
    pub(crate) now: Time,
    pub(crate) net: Network<M>,
    pub(crate) queue: EventQueue<T>,
    topology: &'a Topology,
    links: Links,
    until: Time,
    progress: &'a Progress,
    steps: u64,
    /// Nodes that have everything, and how many want it.
    pub(crate) done: u64,
    pub(crate) of: u64,
    trace: Trace,
}

/// The next event.
pub(crate) enum Step<M, T> {
    Net(Delivery<M>),
    Beside(T),
}

impl<'a, M: Clone, T> Stage<'a, M, T> {
    pub(crate) fn new(topology: &'a Topology, model: Model, until: Time, progress: &'a Progress) -> Self {
        Stage {
            now: Time(0),
            net: Network::new(topology, model),
            queue: EventQueue::default(),
            topology,
            links: Links::new(topology),
            until,
            progress,
            steps: 0,
            done: 0,
            of: 0,
            trace: Trace::default(),
        }
    }

    /// The next step; `None` when every receiver is complete, nothing happens any longer, time is up or the
    /// run was told to stop.
    pub(crate) fn next(&mut self) -> Option<Step<M, T>> {
        while self.done < self.of {
            let next = [self.net.next(), self.queue.next()].into_iter().flatten().min()?;
            if next > self.until {
                return None;
            }
            while self.links.due() <= next {
                self.now = self.links.due();
                self.links.sample(self.now, |port| self.net.carried_by(self.now, port));
            }
            self.now = next;
            self.steps += 1;
            if self.steps.is_multiple_of(REPORT) && !self.progress.tell(self.now, self.done, self.of) {
                return None;
            }
            if let Some(delivery) = self.net.pop(next) {
                return Some(Step::Net(delivery));
            }
            if self.queue.next().is_some_and(|at| at <= next) {
                return self.queue.pop().map(Step::Beside);
            }
        }
        None
    }

    /// Makes the time and `what` part of the run's trace.
    pub(crate) fn note(&mut self, what: u64) {
        self.trace.number(self.now, what);
    }

    /// The part of the outcome known here; the rest is zero and empty.
    pub(crate) fn finish(mut self) -> Outcome {
        let (ports, samples) =
            self.links.finish(self.now, self.topology, |port| self.net.carried_by(self.now, port));
        Outcome {
            algorithm: String::new(),
            finished: Vec::new(),
            lost: 0,
            size: 0,
            origin_sent: 0,
            control: 0,
            duplicate: 0,
            ports,
            events: self.steps,
            trace: self.trace.value(),
            ended: self.now,
            samples,
        }
    }
}
