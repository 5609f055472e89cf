//! The modelled network: streams between nodes share wires max-min fairly, as TCP connections do in the
//! long run, and start as slowly.
//!
//! | what | where |
//! |---|---|
//! | what is not topology: headers, latency, queues | `model` |
//! | fair shares of ports, recomputed only where something changed | `shares` |
//! | slow start, loss, retries | `ramp` |
//! | a stream's queue and progress | `active` |
//! | when streams are due; messages on their way | `wakes`, `event_queue` |
//! | which ports a stream passes | `paths` |
//! | standing queues | `queues` |
//!
//! Messages are a fluid: a message takes its stream's share of every port of its path at once, and arrives
//! whole, one path delay after its last byte left. Queues at full ports hold up streams that start to send
//! and control messages on idle streams ([`queues`]). Control messages take no share of a port (they are a
//! two-hundredth of payload at most), but are counted on it.
//!
//! Promises: all that is sent arrives, once and in order within its stream, unless the stream is closed;
//! times never run backwards; the same calls give the same deliveries, in the same order.

mod active;
mod model;
mod paths;
mod queues;
mod ramp;
mod shares;
mod wakes;

#[cfg(test)]
mod tests;

pub use model::Model;

use tidecast_swarm::Time;

use crate::event_queue::EventQueue;
use crate::rng::Rng;
use crate::topology::{NodeId, Port, Topology};
use active::{Active, Item, NEVER, NONE};
use paths::{Path, Paths};
use queues::Queues;
use shares::{Flow, Shares, UNCAPPED};
use wakes::Wakes;

/// One direction of a TCP connection. A number is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream(pub u32);

/// The events of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are their types; each variant is documented")]
pub enum Delivery<M> {
    /// The last byte of a bulk message has left its sender.
    Sent { stream: Stream, message: M },
    /// The message is at its receiver.
    Arrived { stream: Stream, message: M },
}

/// The state of a stream, including idle ones.
#[derive(Debug)]
struct StreamState {
    path: Path,
    /// Its slot among the active, or `NONE`.
    flow: Flow,
    /// Nothing moves on it, though its ports are alive.
    held: bool,
    /// The congestion window when it was last active; 0 before.
    window: u64,
    /// When it was last active, nanoseconds.
    idle_since: u64,
    /// When its last message arrives: no later one is earlier.
    last_arrival: u64,
}

/// The network of a topology. Times given to it never run backwards.
#[derive(Debug)]
pub struct Network<M> {
    model: Model,
    now: u64,
    paths: Paths,
    queues: Queues,
    shares: Shares,
    streams: Vec<StreamState>,
    /// Which are closed: asked for at every arrival, when nothing else of them is.
    closed: Vec<bool>,
    /// By flow.
    active: Vec<Active<M>>,
    /// Flows that have just sent everything: they keep their share until time advances.
    parting: Vec<Flow>,
    wakes: Wakes,
    /// Messages on their way, with their stream, in order of arrival.
    flights: EventQueue<(u32, M)>,
    /// Bytes over each port, without messages that have not left yet.
    carried: Vec<u64>,
    changed: Vec<Flow>,
    /// Most that a message is delayed in addition to everything else, nanoseconds; drawn for each.
    jitter: u64,
    rng: Rng,
}

impl<M: Clone> Network<M> {
    /// A network on which nothing happens yet.
    #[must_use]
    pub fn new(topology: &Topology, model: Model) -> Self {
        let ports = topology.ports();
        Network {
            model,
            now: 0,
            paths: Paths::new(topology),
            queues: Queues::new(topology, &model),
            shares: Shares::new((0..ports).map(|port| topology.port_rate(Port(port)) / 8), model.fairness),
            streams: Vec::new(),
            closed: Vec::new(),
            active: Vec::new(),
            parting: Vec::new(),
            wakes: Wakes::default(),
            flights: EventQueue::default(),
            carried: vec![0; ports as usize],
            changed: Vec::new(),
            jitter: 0,
            rng: Rng::new(0),
        }
    }

    /// Holds each message up by chance, by this many nanoseconds at most; the order within a stream stays.
    #[must_use]
    pub fn with_jitter(mut self, most: u64, seed: u64) -> Self {
        (self.jitter, self.rng) = (most, Rng::new(seed));
        self
    }

    /// A stream from one node to another; it costs nothing until it is used.
    pub fn open(&mut self, now: Time, from: NodeId, to: NodeId) -> Stream {
        self.go_to(now);
        let path = self.paths.find(from, to);
        self.streams.push(StreamState {
            path,
            flow: NONE,
            held: false,
            window: 0,
            idle_since: self.now,
            last_arrival: 0,
        });
        self.closed.push(false);
        Stream(self.streams.len() as u32 - 1)
    }

    /// Ends a stream: nothing more of it is delivered.
    pub fn close(&mut self, now: Time, stream: Stream) {
        self.go_to(now);
        self.closed[stream.0 as usize] = true;
        let flow = self.streams[stream.0 as usize].flow;
        if flow != NONE {
            self.active[flow as usize].advance(self.now);
            self.count(flow, self.active[flow as usize].moved(self.now));
            self.active[flow as usize].queue.clear();
            self.part(flow);
        }
    }

    /// Sends a bulk message behind those that the stream has: [`Delivery::Sent`] when its last byte has
    /// left, [`Delivery::Arrived`] after.
    pub fn send(&mut self, now: Time, stream: Stream, bytes: u64, message: M) {
        self.go_to(now);
        if !self.closed[stream.0 as usize] {
            let wire = self.model.wire(bytes);
            self.enqueue(stream.0, Item { wire, message, bulk: true });
        }
    }

    /// Sends a control message ahead of bulk messages that have not begun. There is no
    /// [`Delivery::Sent`] for it.
    pub fn post(&mut self, now: Time, stream: Stream, bytes: u32, message: M) {
        self.go_to(now);
        if self.closed[stream.0 as usize] {
            return;
        }
        let wire = self.model.wire(u64::from(bytes));
        let state = &self.streams[stream.0 as usize];
        let (flow, path) = (state.flow, state.path);
        if flow != NONE && !self.active[flow as usize].queue.is_empty() {
            let active = &mut self.active[flow as usize];
            active.advance(self.now);
            active.ride(Item { wire, message, bulk: false });
            self.wakes.set(flow, active.wake());
            return;
        }
        let narrow = self.paths.ports(path).map(|port| self.shares.capacity(port)).min().unwrap_or(0);
        if narrow == 0 || self.streams[stream.0 as usize].held {
            self.enqueue(stream.0, Item { wire, message, bulk: false });
            return;
        }
        let takes = wire * 1_000_000_000 / narrow;
        let at = self.now + self.delay(path) + self.queueing(path) + takes;
        self.fly(at, stream.0, message);
        for port in self.paths.ports(path) {
            self.carried[port as usize] += wire;
        }
    }

    /// When [`Network::pop`] is to be called next, though nothing may come of it.
    #[expect(clippy::should_implement_trait, reason = "the word of every event queue")]
    pub fn next(&mut self) -> Option<Time> {
        self.settle();
        let wake = self.wakes.first().map(|(at, _)| at);
        let first = wake.into_iter().chain(self.flights.next().map(|at| at.0)).min();
        first.map(|at| Time(at.max(self.now)))
    }

    /// The first thing that is done by `now` and was not told yet.
    pub fn pop(&mut self, now: Time) -> Option<Delivery<M>> {
        loop {
            let (mut wake, mut flow) = self.wakes.first().unwrap_or((NEVER, NONE));
            if wake > self.now {
                // Only effects of its own changes happen at this instant.
                self.settle();
                (wake, flow) = self.wakes.first().unwrap_or((NEVER, NONE));
            }
            let arrival = self.flights.next().map_or(NEVER, |at| at.0);
            let at = wake.min(arrival);
            if at > now.0 || at == NEVER {
                return None;
            }
            self.now = self.now.max(at);
            if arrival < wake {
                let (stream, message) = self.flights.pop()?;
                if !self.closed[stream as usize] {
                    return Some(Delivery::Arrived { stream: Stream(stream), message });
                }
            } else if let Some(sent) = self.wake(flow) {
                return Some(sent);
            }
        }
    }

    /// A port has this rate from now on, bytes per second. At 0 its traffic waits, and continues some time
    /// after it is repaired: TCP retries at growing intervals.
    pub fn set_rate(&mut self, now: Time, port: Port, bytes_per_s: u64) {
        self.go_to(now);
        self.shares.set_capacity(port.0, bytes_per_s);
    }

    /// From now on nothing moves on this stream, as if a port of it were dead, or it continues.
    pub fn hold(&mut self, now: Time, stream: Stream, on: bool) {
        self.go_to(now);
        let state = &mut self.streams[stream.0 as usize];
        if std::mem::replace(&mut state.held, on) == on || state.flow == NONE {
            return;
        }
        let flow = state.flow;
        if on {
            self.stall(flow);
        } else {
            let active = &mut self.active[flow as usize];
            let retry = ramp::retry(active.stalled, self.now, active.rtt);
            active.due = if self.model.ramp { retry } else { self.now };
            self.wakes.set(flow, active.wake());
        }
    }

    /// The flow of a stream that is held stands still until its window opens again.
    fn stall(&mut self, flow: Flow) {
        let active = &mut self.active[flow as usize];
        active.advance(self.now);
        active.stalled = active.stalled.min(self.now);
        (active.cap, active.due) = (0, NEVER);
        self.wakes.set(flow, active.wake());
        self.shares.set_cap(flow, 0);
    }

    /// Bytes over a port so far, headers included.
    #[must_use]
    pub fn carried(&self, port: Port) -> u64 {
        self.carried_by(Time(0), port)
    }

    /// Bytes over a port by `now`, before which everything that was due was popped.
    #[must_use]
    pub fn carried_by(&self, now: Time, port: Port) -> u64 {
        let now = now.0.max(self.now);
        let under_way = self.shares.flows(port.0).map(|flow| self.active[flow as usize].moved(now));
        self.carried[port.0 as usize] + under_way.sum::<u64>()
    }

    /// Bytes of a stream that have not left, headers included.
    #[must_use]
    pub fn backlog(&self, stream: Stream) -> u64 {
        let flow = self.streams[stream.0 as usize].flow;
        if flow == NONE { 0 } else { self.active[flow as usize].backlog(self.now) }
    }

    /// The rate of the stream, bytes per second on the wire.
    pub fn rate(&mut self, stream: Stream) -> u64 {
        self.settle();
        let flow = self.streams[stream.0 as usize].flow;
        if flow == NONE { 0 } else { self.shares.rate(flow) }
    }

    /// When bytes of the stream last left its sender: now, if they do.
    pub fn moved(&mut self, now: Time, stream: Stream) -> Time {
        self.go_to(now);
        self.settle();
        let state = &self.streams[stream.0 as usize];
        let Some(active) = self.active.get(state.flow as usize) else { return Time(state.idle_since) };
        Time(if active.rate > 0 { self.now } else { active.stalled.min(self.now) })
    }

    /// The round trip between two nodes when nothing queues, nanoseconds.
    pub fn rtt(&mut self, from: NodeId, to: NodeId) -> u64 {
        let path = self.paths.find(from, to);
        2 * self.delay(path)
    }

    /// Shares recomputed so far: port fillings.
    #[must_use]
    pub fn fills(&self) -> u64 {
        self.shares.fills
    }

    /// Time advances: changes of the last instant take effect.
    fn go_to(&mut self, now: Time) {
        if now.0 > self.now {
            self.settle();
            self.now = now.0;
        }
    }

    /// One way, when nothing queues.
    fn delay(&self, path: Path) -> u64 {
        self.paths.delay(path) + self.model.latency
    }

    /// The delay of queues on the path.
    fn queueing(&self, path: Path) -> u64 {
        self.paths.ports(path).map(|port| self.queues.wait(port, &self.shares)).sum()
    }

    /// Appends a message to the stream's queue and makes sure that the queue moves.
    fn enqueue(&mut self, stream: u32, item: Item<M>) {
        if self.streams[stream as usize].flow == NONE {
            self.activate(stream);
        }
        let flow = self.streams[stream as usize].flow;
        let active = &mut self.active[flow as usize];
        active.queue.push_back(item);
        if active.queue.len() == 1 {
            active.begin(self.now);
            self.wakes.set(flow, active.wake());
        }
    }

    /// An idle stream takes part in sharing from now on.
    fn activate(&mut self, stream: u32) {
        let state = &self.streams[stream as usize];
        let path = state.path;
        let lag = self.queueing(path);
        let rtt = 2 * self.delay(path) + lag;
        let segment = u64::from(self.model.frame);
        let window = match state.window {
            0 => ramp::initial(segment),
            window => ramp::after_idle(window, self.now - state.idle_since, rtt, segment),
        };
        let cap = self.cap(path, window, rtt);
        let flow = self.shares.join(self.paths.ports(path), cap);
        while self.active.len() <= flow as usize {
            self.active.push(Active::vacant());
        }
        let slot = &mut self.active[flow as usize];
        let queue = std::mem::take(&mut slot.queue);
        *slot = Active { stream, window, cap, rtt, lag, queue, since: self.now, ..Active::vacant() };
        let state = &mut self.streams[stream as usize];
        state.flow = flow;
        if state.held {
            self.stall(flow);
        }
    }

    /// The rate that a window allows; none where it fills the path.
    fn cap(&self, path: Path, window: u64, rtt: u64) -> u64 {
        if !self.model.ramp {
            return UNCAPPED;
        }
        let narrow = self.paths.ports(path).map(|port| self.shares.capacity(port)).min().unwrap_or(0);
        let most = ramp::with_loss(u64::from(self.model.frame), self.paths.loss(path));
        let cap = ramp::rate(window.min(most), rtt);
        if cap >= narrow { UNCAPPED } else { cap }
    }

    /// Whether a larger window would make a larger cap.
    fn grows(&self, flow: Flow) -> bool {
        let active = &self.active[flow as usize];
        let path = self.streams[active.stream as usize].path;
        active.cap != UNCAPPED
            && active.window < ramp::with_loss(u64::from(self.model.frame), self.paths.loss(path))
    }

    /// A flow leaves the sharing; its stream is idle from now on.
    fn part(&mut self, flow: Flow) {
        let active = &mut self.active[flow as usize];
        let state = &mut self.streams[active.stream as usize];
        state.flow = NONE;
        state.window = active.window;
        state.idle_since = self.now;
        active.stream = NONE;
        active.rate = 0;
        active.head = 0;
        self.wakes.remove(flow);
        self.shares.leave(flow);
    }

    /// Bytes of a flow's first message are counted on its ports.
    fn count(&mut self, flow: Flow, bytes: u64) {
        let path = self.streams[self.active[flow as usize].stream as usize].path;
        for port in self.paths.ports(path) {
            self.carried[port as usize] += bytes;
        }
    }

    /// Changes of this instant take effect: shares are fair again.
    fn settle(&mut self) {
        if self.parting.is_empty() && self.shares.is_fair() {
            return;
        }
        while let Some(flow) = self.parting.pop() {
            let active = &self.active[flow as usize];
            if active.stream != NONE && active.queue.is_empty() {
                self.part(flow);
            }
        }
        let mut changed = std::mem::take(&mut self.changed);
        loop {
            self.shares.make_fair(&mut changed);
            if changed.is_empty() {
                break;
            }
            for flow in changed.drain(..) {
                self.apply(flow);
            }
        }
        self.changed = changed;
    }

    /// A flow continues at its new rate.
    fn apply(&mut self, flow: Flow) {
        let rate = self.shares.rate(flow);
        let active = &mut self.active[flow as usize];
        if active.stream == NONE {
            return;
        }
        active.advance(self.now);
        active.rate = rate;
        if rate == 0 && active.cap > 0 && active.stalled == NEVER {
            active.stalled = self.now;
            active.due = NEVER;
        } else if rate > 0 && active.stalled != NEVER {
            if self.model.ramp {
                active.due = ramp::retry(active.stalled, self.now, active.rtt);
                active.cap = 0;
                self.shares.set_cap(flow, 0);
            } else {
                active.stalled = NEVER;
            }
        }
        self.watch(flow);
    }

    /// Sets when the flow is to be looked at: its window grows while it holds the flow back.
    fn watch(&mut self, flow: Flow) {
        let binding = self.active[flow as usize].rate >= self.active[flow as usize].cap && self.grows(flow);
        let active = &mut self.active[flow as usize];
        if active.cap > 0 {
            active.due = match binding {
                true => active.due.min(self.now + active.rtt),
                false => NEVER,
            };
        }
        self.wakes.set(flow, active.wake());
    }

    /// A flow is due: its first message has left, or its window changes.
    fn wake(&mut self, flow: Flow) -> Option<Delivery<M>> {
        let active = &mut self.active[flow as usize];
        active.advance(self.now);
        if active.done() {
            return self.finish(flow);
        }
        if active.due <= self.now {
            let segment = u64::from(self.model.frame);
            let window =
                if active.cap == 0 { ramp::initial(segment) } else { active.window.saturating_mul(2) };
            let (stream, rtt) = (active.stream, active.rtt);
            let cap = self.cap(self.streams[stream as usize].path, window, rtt);
            let active = &mut self.active[flow as usize];
            active.window = window;
            active.cap = cap;
            active.due = NEVER;
            self.shares.set_cap(flow, cap);
            if self.shares.rate(flow) > 0 {
                active.stalled = NEVER;
            }
        }
        self.watch(flow);
        None
    }

    /// The first message of a flow and its riders have left.
    fn finish(&mut self, flow: Flow) -> Option<Delivery<M>> {
        let active = &self.active[flow as usize];
        let (stream, lag) = (active.stream, active.lag);
        self.count(flow, active.head);
        let path = self.streams[stream as usize].path;
        let at = self.now + self.delay(path) + lag;
        let active = &mut self.active[flow as usize];
        let riders = active.riders;
        let first = active.queue.pop_front()?;
        let sent =
            first.bulk.then(|| Delivery::Sent { stream: Stream(stream), message: first.message.clone() });
        self.fly(at, stream, first.message);
        for _ in 0..riders {
            let rider = self.active[flow as usize].queue.pop_front()?;
            self.fly(at, stream, rider.message);
        }
        let active = &mut self.active[flow as usize];
        active.begin(self.now);
        self.wakes.set(flow, active.wake());
        if active.queue.is_empty() {
            self.parting.push(flow);
        }
        sent
    }

    /// A message has left: it arrives at this time, or later, after those before it.
    fn fly(&mut self, at: u64, stream: u32, message: M) {
        let held = if self.jitter > 0 { self.rng.below(self.jitter + 1) } else { 0 };
        let state = &mut self.streams[stream as usize];
        state.last_arrival = state.last_arrival.max(at + held);
        self.flights.push(Time(state.last_arrival), (stream, message));
    }
}
