//! Ways through the network, each list of trunks kept once however many streams take it.

use std::collections::BTreeMap;

use crate::topology::{NodeId, Routes, Topology};

/// The ports between two nodes' own ports.
#[derive(Debug)]
struct Middle {
    ports: Box<[u32]>,
    delay: u64,
    loss: u32,
}

#[derive(Debug)]
pub(super) struct Paths {
    routes: Routes,
    middles: Vec<Middle>,
    known: BTreeMap<Box<[u32]>, u32>,
}

/// A path: whose, and which trunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) from: u32,
    pub(super) to: u32,
    middle: u32,
}

impl Paths {
    pub(super) fn new(topology: &Topology) -> Self {
        Paths { routes: Routes::new(topology), middles: Vec::new(), known: BTreeMap::new() }
    }

    /// The path between two nodes.
    pub(super) fn find(&mut self, from: NodeId, to: NodeId) -> Path {
        let route = self.routes.path(from, to);
        let inner = route.ports.get(1..route.ports.len().saturating_sub(1)).unwrap_or(&[]);
        let ports: Box<[u32]> = inner.iter().map(|port| port.0).collect();
        let middle = *self.known.entry(ports).or_insert_with_key(|ports| {
            self.middles.push(Middle { ports: ports.clone(), delay: route.delay, loss: route.loss });
            self.middles.len() as u32 - 1
        });
        Path { from: from.0, to: to.0, middle }
    }

    /// Its ports, from the sender's to the receiver's.
    pub(super) fn ports(&self, path: Path) -> impl Iterator<Item = u32> + '_ {
        let middle = self.middles[path.middle as usize].ports.iter().copied();
        std::iter::once(2 * path.from).chain(middle).chain(std::iter::once(2 * path.to + 1))
    }

    /// Delay of its links, nanoseconds.
    pub(super) fn delay(&self, path: Path) -> u64 {
        self.middles[path.middle as usize].delay
    }

    /// Packets lost on it, parts per million.
    pub(super) fn loss(&self, path: Path) -> u32 {
        self.middles[path.middle as usize].loss
    }
}
