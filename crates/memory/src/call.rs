//! One call of a group in the hub: which ranks have called, and then the role of each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;

use crate::message::{Down, Enter, Hello, Part, Role};

/// Size of the window in shared memory when all ranks are on one host, bytes.
pub(crate) const RING: u64 = 32 << 20;

/// A message for a rank.
pub(crate) type Outgoing = (u32, Down, Bytes);

/// A call: it gathers until all ranks have called, then runs.
#[derive(Debug)]
pub(crate) struct Call {
    /// The start of waiting for the other ranks, and its maximum.
    pub(crate) began: Duration,
    pub(crate) patience: Duration,
    pub(crate) entered: BTreeMap<u32, Enter>,
    payload: Bytes,
    pub(crate) running: Option<Running>,
}

impl Call {
    pub(crate) fn new(began: Duration, patience: Duration) -> Self {
        Self { began, patience, entered: BTreeMap::new(), payload: Bytes::new(), running: None }
    }

    /// A rank has called; false if the call is already running.
    pub(crate) fn enter(&mut self, rank: u32, enter: Enter, payload: Bytes) -> bool {
        if self.running.is_some() {
            return false;
        }
        if matches!(enter.role, Role::Offer { .. }) {
            self.payload = payload;
        }
        self.entered.insert(rank, enter);
        true
    }

    /// Starts the call when all ranks except lost ones have called: assigns the parts; true if the call is already over.
    pub(crate) fn begin<'a>(
        &mut self,
        number: u64,
        lost: &BTreeMap<u32, &str>,
        placement: &dyn Fn(u32) -> Option<(u32, &'a Hello)>,
        out: &mut Vec<Outgoing>,
    ) -> bool {
        let (root, len, inline) = match self.offer(lost) {
            Ok(offer) => offer,
            Err(why) => {
                for (rank, enter) in &self.entered {
                    if !matches!(enter.role, Role::Unfit(_)) {
                        out.push((*rank, Down::Failed { call: number, why: why.clone() }, Bytes::new()));
                    }
                }
                return true;
            }
        };
        let mut missed: BTreeSet<u32> = lost.keys().copied().collect();
        let mut receivers = Vec::new();
        for (rank, enter) in &self.entered {
            match &enter.role {
                Role::Offer { .. } => {}
                Role::Want { len: wanted } if *wanted == len => receivers.push(*rank),
                Role::Want { len: wanted } => {
                    let why = format!("rank {root} sends {len} bytes, this rank's buffer has {wanted} bytes");
                    out.push((*rank, Down::Failed { call: number, why }, Bytes::new()));
                    missed.insert(*rank);
                }
                Role::Unfit(_) => {
                    missed.insert(*rank);
                }
            }
        }
        if inline || receivers.is_empty() {
            for rank in receivers {
                let go = Down::Go { call: number, part: Part::Inline };
                out.push((rank, go, self.payload.clone()));
            }
            let missed = missed.into_iter().collect();
            out.push((root, Down::End { call: number, missed }, Bytes::new()));
            return true;
        }
        self.running = Some(Running::begin(number, root, len, missed, &receivers, placement, out));
        false
    }

    /// The root, the length, and whether the payload is the whole buffer.
    fn offer(&self, lost: &BTreeMap<u32, &str>) -> Result<(u32, u64, bool), String> {
        let Some((first, root)) = self.entered.iter().next().map(|(rank, e)| (*rank, e.root)) else {
            return Err("no rank is left in the group".into());
        };
        if let Some((other, enter)) = self.entered.iter().find(|(_, e)| e.root != root) {
            return Err(format!(
                "the ranks disagree on the root: rank {first} has root {root}, rank {other} has root {}",
                enter.root
            ));
        }
        match self.entered.get(&root).map(|e| &e.role) {
            Some(Role::Offer { len, inline }) => Ok((root, *len, *inline)),
            Some(Role::Unfit(why)) => Err(format!("the root, rank {root}, cannot send: {why}")),
            Some(Role::Want { .. }) => Err(format!("rank {root} is the root, but called as a receiver")),
            None => {
                let why = lost.get(&root).copied().unwrap_or("unknown rank");
                Err(format!("the root, rank {root}, was removed from the group: {why}"))
            }
        }
    }
}

/// A rank that receives.
#[derive(Debug)]
struct Receiver {
    /// The rank whose directory it reads from; a leader reads from its own.
    writer: u32,
    taken: u64,
    busy: bool,
}

/// A call that is transferring data.
#[derive(Debug)]
pub(crate) struct Running {
    number: u64,
    root: u32,
    len: u64,
    capacity: u64,
    /// The root may write up to this byte.
    room: u64,
    /// The leaders have the ticket of the broadcast.
    ticketed: bool,
    receivers: BTreeMap<u32, Receiver>,
    missed: BTreeSet<u32>,
}

impl Running {
    fn begin<'a>(
        number: u64,
        root: u32,
        len: u64,
        missed: BTreeSet<u32>,
        ranks: &[u32],
        placement: &dyn Fn(u32) -> Option<(u32, &'a Hello)>,
        out: &mut Vec<Outgoing>,
    ) -> Self {
        let host = |rank: u32| placement(rank).map(|(host, _)| host);
        let mut writers = BTreeMap::from([(host(root), root)]);
        let mut leaders = Vec::new();
        for rank in ranks {
            // The first is the lowest rank of its host, because ranks are in order.
            if *writers.entry(host(*rank)).or_insert(*rank) == *rank {
                leaders.extend(placement(*rank).map(|(_, hello)| own_path(hello)));
            }
        }
        // A root that sends to other hosts needs the whole buffer in shared memory.
        let capacity = if leaders.is_empty() { len.min(RING) } else { len };
        let mut send =
            |rank: u32, part: Part| out.push((rank, Down::Go { call: number, part }, Bytes::new()));
        send(root, Part::Source { leaders, capacity });
        let mut receivers = BTreeMap::new();
        for rank in ranks {
            let writer = writers.get(&host(*rank)).copied().unwrap_or(*rank);
            let dir = placement(writer).map_or_else(String::new, |(_, hello)| hello.dir.clone());
            let reader = Part::Reader { dir, capacity };
            send(*rank, if writer == *rank { Part::Leader } else { reader });
            receivers.insert(*rank, Receiver { writer, taken: 0, busy: true });
        }
        Self { number, root, len, capacity, room: capacity, ticketed: false, receivers, missed }
    }

    /// The ranks that still read from `writer`.
    fn readers(&self, writer: u32) -> Vec<u32> {
        let waits =
            |(rank, r): (&u32, &Receiver)| (r.busy && r.writer == writer && *rank != writer).then_some(*rank);
        self.receivers.iter().filter_map(waits).collect()
    }

    fn send(&self, rank: u32, down: Down, out: &mut Vec<Outgoing>) {
        out.push((rank, down, Bytes::new()));
    }

    pub(crate) fn ready(&self, rank: u32, bytes: u64, out: &mut Vec<Outgoing>) {
        for reader in self.readers(rank) {
            self.send(reader, Down::Ready { call: self.number, bytes }, out);
        }
    }

    pub(crate) fn taken(&mut self, rank: u32, bytes: u64, out: &mut Vec<Outgoing>) {
        if let Some(receiver) = self.receivers.get_mut(&rank) {
            receiver.taken = receiver.taken.max(bytes);
        }
        self.make_room(out);
    }

    /// Lets the root write as far as its slowest reader allows.
    fn make_room(&mut self, out: &mut Vec<Outgoing>) {
        let readers = self.receivers.values().filter(|r| r.busy && r.writer == self.root);
        let slowest = readers.map(|r| r.taken).min().unwrap_or(self.len);
        let room = slowest.saturating_add(self.capacity).min(self.len);
        if room > self.room {
            self.room = room;
            self.send(self.root, Down::Room { call: self.number, bytes: room }, out);
        }
    }

    pub(crate) fn ticket(&mut self, rank: u32, ticket: &str, out: &mut Vec<Outgoing>) {
        if rank == self.root {
            self.ticketed = true;
            for leader in self.leaders() {
                self.send(leader, Down::Ticket { call: self.number, ticket: ticket.to_owned() }, out);
            }
        }
    }

    /// The ranks that receive from other hosts.
    fn leaders(&self) -> Vec<u32> {
        self.receivers.iter().filter(|(rank, r)| r.writer == **rank).map(|(rank, _)| *rank).collect()
    }

    pub(crate) fn done(&mut self, rank: u32, error: Option<String>, out: &mut Vec<Outgoing>) {
        match error {
            Some(why) if rank == self.root => {
                self.fail_all(&format!("the root, rank {rank}, failed: {why}"), out);
            }
            Some(why) => self.miss(rank, &why, out),
            None => {
                if let Some(receiver) = self.receivers.get_mut(&rank) {
                    receiver.busy = false;
                }
            }
        }
        self.make_room(out);
    }

    pub(crate) fn lost(&mut self, rank: u32, why: &str, out: &mut Vec<Outgoing>) {
        if rank == self.root {
            let why = format!("the root, rank {rank}, was removed from the group: {why}");
            if self.ticketed {
                // Leaders may still complete among themselves; the broadcast tells them if they cannot.
                self.readers(rank).into_iter().for_each(|reader| self.fail(reader, &why, out));
            } else {
                self.fail_all(&why, out);
            }
            self.missed.insert(rank);
        } else {
            self.miss(rank, why, out);
        }
        self.make_room(out);
    }

    /// A receiver failed, and so do the ranks that read its copy.
    fn miss(&mut self, rank: u32, why: &str, out: &mut Vec<Outgoing>) {
        let Some(receiver) = self.receivers.get_mut(&rank).filter(|r| r.busy) else { return };
        receiver.busy = false;
        self.missed.insert(rank);
        let why = format!("rank {rank}, which receives for this host, failed: {why}");
        self.readers(rank).into_iter().for_each(|reader| self.fail(reader, &why, out));
    }

    fn fail_all(&mut self, why: &str, out: &mut Vec<Outgoing>) {
        let busy: Vec<u32> = self.receivers.iter().filter(|(_, r)| r.busy).map(|(rank, _)| *rank).collect();
        busy.into_iter().for_each(|rank| self.fail(rank, why, out));
    }

    fn fail(&mut self, rank: u32, why: &str, out: &mut Vec<Outgoing>) {
        if let Some(receiver) = self.receivers.get_mut(&rank) {
            receiver.busy = false;
        }
        self.missed.insert(rank);
        self.send(rank, Down::Failed { call: self.number, why: why.to_owned() }, out);
    }

    /// True when no rank is busy; then the ranks that hold the data are notified.
    pub(crate) fn over(&self, out: &mut Vec<Outgoing>) -> bool {
        if self.receivers.values().any(|r| r.busy) {
            return false;
        }
        let missed: Vec<u32> = self.missed.iter().copied().collect();
        for rank in std::iter::once(self.root).chain(self.leaders()) {
            self.send(rank, Down::End { call: self.number, missed: missed.clone() }, out);
        }
        true
    }
}

/// The path of a rank's directory on its host.
fn own_path(hello: &Hello) -> String {
    Path::new(&hello.base).join(&hello.dir).to_string_lossy().into_owned()
}
