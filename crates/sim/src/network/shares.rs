//! Max-min fair shares of ports among flows, kept up to date where they change and nowhere else.
//!
//! A flow crosses a list of ports and takes the same rate of each. Every port keeps a level: no flow in it is
//! faster. The rate of a flow is the least of its own cap and the levels of its ports, always and exactly; a
//! port whose flows do not fill it has its capacity as level. Rates are max-min fair when every full port's
//! level is the one that water-filling gives it, with the limits of its flows elsewhere: then each flow has a
//! full port (or its cap) where no other flow is faster.
//!
//! A change makes ports stale; stale ports are refilled one after the other, first come, first served, until
//! no port is stale ([`Shares::make_fair`]). A port is stale when it is over its capacity, or when its level
//! could rise by more than a step, for example a 1,024th. Lowering a level only frees capacity elsewhere, and
//! raising needs more than a step, so cascades die out. Ports of many flows have a wider step, up to a 64th
//! at 1,024 flows, and are filled half a step low: a flow that starts or ends there changes every flow's
//! share by less than that, and refilling at each would cost too much.
//!
//! Promises, once settled: no port carries more than its capacity; the same calls give the same rates.

use std::collections::VecDeque;

/// No cap.
pub(super) const UNCAPPED: u64 = u64::MAX;

/// Steps are in parts of this.
const PARTS: u64 = 1 << 16;
/// A 64th: the step of ports with this many flows and more.
const WIDEST: u64 = 1024;

/// A flow: its slot, used again after [`Shares::leave`].
pub(super) type Flow = u32;

/// A flow's place in a port.
#[derive(Clone, Copy, Debug, Default)]
struct Hop {
    port: u32,
    /// Index in the port's members.
    at: u32,
}

#[derive(Debug, Default)]
struct FlowState {
    cap: u64,
    rate: u64,
    /// How many ports it crosses.
    hops: u32,
    /// It is in the list of flows whose rate changed.
    told: bool,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    flow: Flow,
    /// Index in the flow's hops.
    hop: u32,
}

#[derive(Debug)]
struct PortState {
    capacity: u64,
    /// No flow here is faster; at most the capacity.
    level: u64,
    /// Sum of its flows' rates.
    load: u64,
    /// Flows whose rate is the level.
    bound: u32,
    /// It is in the worklist.
    waiting: bool,
    members: Vec<Member>,
}

impl PortState {
    /// Whether it is to be refilled, when its level may be so many parts below its optimum.
    fn stale(&self, step: u64) -> bool {
        if self.load > self.capacity || self.level > self.capacity {
            return true;
        }
        if self.level == self.capacity {
            return false;
        }
        let room = self.capacity - self.load;
        let enough = self.level.saturating_mul(u64::from(self.bound).saturating_mul(step));
        self.bound == 0 || room.saturating_mul(PARTS) > enough
    }

    /// A flow's rate goes from `old` to `new`.
    fn shift(&mut self, old: u64, new: u64) {
        self.load = self.load + new - old;
        self.bound += u32::from(new == self.level);
        self.bound -= u32::from(old == self.level);
    }
}

/// The ports and the flows in them.
#[derive(Debug)]
pub(super) struct Shares {
    /// Of a port with few flows, in parts.
    step: u64,
    ports: Vec<PortState>,
    flows: Vec<FlowState>,
    /// The hops of all flows, this many places for each.
    hops: Vec<Hop>,
    places: usize,
    free: Vec<Flow>,
    worklist: VecDeque<u32>,
    changed: Vec<Flow>,
    limits: Vec<u64>,
    work: Vec<u64>,
    /// Ports filled so far.
    pub(super) fills: u64,
}

impl Shares {
    /// Ports of these capacities, bytes per second, without flows; a step is one part in `fairness`.
    pub(super) fn new(capacities: impl Iterator<Item = u64>, fairness: u32) -> Self {
        let port = |capacity| PortState {
            capacity,
            level: capacity,
            load: 0,
            bound: 0,
            waiting: false,
            members: Vec::new(),
        };
        Shares {
            step: PARTS / u64::from(fairness.clamp(64, 1 << 16)),
            ports: capacities.map(port).collect(),
            flows: Vec::new(),
            hops: Vec::new(),
            places: 4,
            free: Vec::new(),
            worklist: VecDeque::new(),
            changed: Vec::new(),
            limits: Vec::new(),
            work: Vec::new(),
            fills: 0,
        }
    }

    /// A new flow through these ports, each named once, at most this fast.
    pub(super) fn join(&mut self, path: impl Iterator<Item = u32>, cap: u64) -> Flow {
        let flow = self.free.pop().unwrap_or_else(|| {
            self.flows.push(FlowState::default());
            self.hops.resize(self.flows.len() * self.places, Hop::default());
            self.flows.len() as Flow - 1
        });
        let mut rate = cap;
        let mut hops = 0;
        for number in path {
            if hops == self.places {
                self.make_room();
            }
            let port = &mut self.ports[number as usize];
            rate = rate.min(port.level);
            self.hops[flow as usize * self.places + hops] =
                Hop { port: number, at: port.members.len() as u32 };
            port.members.push(Member { flow, hop: hops as u32 });
            hops += 1;
        }
        let state = &mut self.flows[flow as usize];
        (state.cap, state.rate, state.hops) = (cap, rate, hops as u32);
        self.note_changed(flow);
        for at in self.places_of(flow) {
            let number = self.hops[at].port;
            let port = &mut self.ports[number as usize];
            port.load += rate;
            port.bound += u32::from(rate == port.level);
            self.look(number);
        }
        flow
    }

    /// The flow ends; its slot is free.
    pub(super) fn leave(&mut self, flow: Flow) {
        let rate = self.flows[flow as usize].rate;
        for place in self.places_of(flow) {
            let Hop { port: number, at } = self.hops[place];
            let port = &mut self.ports[number as usize];
            port.load -= rate;
            port.bound -= u32::from(rate == port.level);
            port.members.swap_remove(at as usize);
            if let Some(moved) = port.members.get(at as usize) {
                self.hops[moved.flow as usize * self.places + moved.hop as usize].at = at;
            }
            self.look(number);
        }
        self.flows[flow as usize].hops = 0;
        self.free.push(flow);
    }

    /// The flow is at most this fast from now on.
    pub(super) fn set_cap(&mut self, flow: Flow, cap: u64) {
        self.flows[flow as usize].cap = cap;
        let rate = self.limit(flow, u32::MAX);
        self.set_rate(flow, rate, u32::MAX);
    }

    /// The port carries this much from now on.
    pub(super) fn set_capacity(&mut self, port: u32, capacity: u64) {
        let state = &mut self.ports[port as usize];
        let idle = state.level == state.capacity;
        state.capacity = capacity;
        if idle && capacity > state.level {
            // Refilled whatever the step: it is to be at its capacity again when it is not full.
            self.fill(port);
        }
        self.look(port);
    }

    /// Whether nothing changed since they were fair.
    pub(super) fn is_fair(&self) -> bool {
        self.worklist.is_empty() && self.changed.is_empty()
    }

    /// Makes shares fair; returns the flows whose rate changed since the last time, each once.
    pub(super) fn make_fair(&mut self, changed: &mut Vec<Flow>) {
        // Rates cannot oscillate for ever: after this many fills the steps get wider.
        let patience = 16 * self.ports.len() as u64 + 64;
        let start = self.fills;
        while let Some(port) = self.worklist.pop_front() {
            self.ports[port as usize].waiting = false;
            let widen = ((self.fills - start) / patience).min(32) as u32;
            if self.ports[port as usize].stale(self.step(port) << widen) {
                self.fill(port);
            }
        }
        for flow in &self.changed {
            self.flows[*flow as usize].told = false;
        }
        changed.append(&mut self.changed);
    }

    pub(super) fn rate(&self, flow: Flow) -> u64 {
        self.flows[flow as usize].rate
    }

    pub(super) fn capacity(&self, port: u32) -> u64 {
        self.ports[port as usize].capacity
    }

    /// Flows that would be faster if the port were (or if another port with the same level were too).
    pub(super) fn bound(&self, port: u32) -> u32 {
        self.ports[port as usize].bound
    }

    /// The flows in a port.
    pub(super) fn flows(&self, port: u32) -> impl Iterator<Item = Flow> + '_ {
        self.ports[port as usize].members.iter().map(|member| member.flow)
    }

    /// Where the hops of a flow are.
    fn places_of(&self, flow: Flow) -> std::ops::Range<usize> {
        let first = flow as usize * self.places;
        first..first + self.flows[flow as usize].hops as usize
    }

    fn hops(&self, flow: Flow) -> &[Hop] {
        &self.hops[self.places_of(flow)]
    }

    /// Twice as many places for the hops of each flow.
    fn make_room(&mut self) {
        let old = std::mem::take(&mut self.hops);
        self.hops = vec![Hop::default(); 2 * old.len()];
        for (new, old) in self.hops.chunks_exact_mut(2 * self.places).zip(old.chunks_exact(self.places)) {
            new[..self.places].copy_from_slice(old);
        }
        self.places *= 2;
    }

    /// The rate that the flow could have without port `but`.
    fn limit(&self, flow: Flow, but: u32) -> u64 {
        let others = self.hops(flow).iter().filter(|hop| hop.port != but);
        others.map(|hop| self.ports[hop.port as usize].level).fold(self.flows[flow as usize].cap, u64::min)
    }

    /// Fills a port: finds its level and gives its flows their rates.
    fn fill(&mut self, number: u32) {
        self.fills += 1;
        let mut limits = std::mem::take(&mut self.limits);
        limits.clear();
        let port = &self.ports[number as usize];
        limits.extend(port.members.iter().map(|member| {
            let rate = self.flows[member.flow as usize].rate;
            // Flows slower than this port's level are limited elsewhere.
            if rate < port.level { rate } else { self.limit(member.flow, number) }
        }));
        let capacity = port.capacity;
        let level = match water(&limits, capacity, &mut self.work) {
            None => capacity,
            Some(level) if limits.len() as u64 > self.step => level - level * self.step(number) / (2 * PARTS),
            Some(level) => level,
        };
        let port = &mut self.ports[number as usize];
        port.level = level;
        port.load = 0;
        port.bound = 0;
        for (i, limit) in limits.iter().enumerate() {
            let rate = level.min(*limit);
            let port = &mut self.ports[number as usize];
            port.load += rate;
            port.bound += u32::from(rate == level);
            let flow = port.members[i].flow;
            self.set_rate(flow, rate, number);
        }
        self.limits = limits;
    }

    /// Gives a flow its rate; port `but` has booked it already.
    fn set_rate(&mut self, flow: Flow, rate: u64, but: u32) {
        let old = std::mem::replace(&mut self.flows[flow as usize].rate, rate);
        if old == rate {
            return;
        }
        self.note_changed(flow);
        for place in self.places_of(flow) {
            let number = self.hops[place].port;
            if number != but {
                self.ports[number as usize].shift(old, rate);
                self.look(number);
            }
        }
    }

    fn note_changed(&mut self, flow: Flow) {
        if !std::mem::replace(&mut self.flows[flow as usize].told, true) {
            self.changed.push(flow);
        }
    }

    /// Puts a port in the worklist if it is stale.
    fn look(&mut self, number: u32) {
        let step = self.step(number);
        let port = &mut self.ports[number as usize];
        if !port.waiting && port.stale(step) {
            port.waiting = true;
            self.worklist.push_back(number);
        }
    }

    /// How far a level may be below its optimum, in parts.
    fn step(&self, port: u32) -> u64 {
        (self.ports[port as usize].members.len() as u64).min(WIDEST).max(self.step)
    }
}

/// The level to which a port is filled: flows take it or their limit, whichever is less. `None` where
/// the limits leave room. At least 1 where there is any capacity, so that every flow moves.
fn water(limits: &[u64], capacity: u64, work: &mut Vec<u64>) -> Option<u64> {
    let total = limits.iter().fold(0u64, |sum, limit| sum.saturating_add(*limit));
    if total <= capacity {
        return None;
    }
    work.clear();
    work.extend_from_slice(limits);
    let mut rest = capacity;
    loop {
        let level = rest / work.len() as u64;
        let before = work.len();
        work.retain(|limit| {
            let small = *limit <= level;
            rest -= if small { *limit } else { 0 };
            !small
        });
        if work.len() == before {
            return Some(level.max(u64::from(capacity > 0)));
        }
    }
}

#[cfg(test)]
mod tests;
