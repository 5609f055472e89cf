//! The user of a node, a program that opens files one after the other.

use tidecast_swarm::{Event, Time};

use super::{NodeEvent, World};
use crate::topology::NodeId;

impl World {
    /// The program starts with those of the other nodes.
    pub(super) fn begin_to_open(&mut self, id: NodeId) {
        let Some(start) = self.job.opens.as_ref().filter(|_| id.0 != 0).map(|o| o.start) else { return };
        self.later(start.max(self.now), id, NodeEvent::Open);
    }

    /// The program has something to open yet.
    pub(super) fn opens(&self, id: NodeId) -> bool {
        self.job.opens.is_some() && id.0 != 0 && self.nodes[id.0 as usize].finished.is_none()
    }

    /// The next file is opened: a reader waits for all of it.
    pub(super) fn open(&mut self, id: NodeId) {
        let (now, Some(opens)) = (self.now, &self.job.opens) else { return };
        let node = &mut self.nodes[id.0 as usize];
        let Some(pieces) = opens.files.get(node.files).cloned() else {
            node.finished = node.finished.or(Some(Time(now.0.saturating_sub(opens.start.0))));
            return self.excuse(id);
        };
        node.reads = true;
        let at = node.local(now);
        self.give(id, Event::Deadline { pieces: pieces.clone(), at });
        self.give(id, Event::Priority { pieces, priority: 1 });
        self.read_on(id);
    }

    /// Continues with the next file when all of this one is there.
    pub(super) fn read_on(&mut self, id: NodeId) {
        let Some(opens) = &self.job.opens else { return };
        let node = &mut self.nodes[id.0 as usize];
        let there = |pieces: std::ops::Range<u32>| pieces.into_iter().all(|p| node.truth.has(p));
        if node.reads && opens.files.get(node.files).cloned().is_none_or(there) {
            (node.reads, node.files) = (false, node.files + 1);
            let at = Time(self.now.0 + opens.think);
            self.later(at, id, NodeEvent::Open);
        }
    }
}
