//! The thread of one stream: reads datagrams from its socket, accepts those with a valid tag, and stores
//! their values.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::fec::{Job, Shard};
use super::hub::{HelloResult, Hub};
use super::run::Run;
use super::socket::{ReceiveSocket, answer};
use crate::control::{Accepted, Hello, Message, Report};
use crate::key::{StreamKey, TAG, parity_place};
use crate::packet::{CONTROL, Datagram, HEAD, Quad, quads, values};
use crate::parity::Packet;
use crate::shm::now;

/// How long a thread waits for a datagram before it looks whether all is over.
const PATIENCE: Duration = Duration::from_millis(100);

/// The claimed contents of a datagram with a tag: nothing is done with it before the tag has been verified.
enum Claim {
    Values { unit: u32, place: u64 },
    Parity { number: u32 },
}

/// The fate of a datagram of values or parity.
enum DatagramResult {
    Accepted,
    Duplicate,
    Stale,
    Rejected,
}

/// See the head of this file.
pub(super) struct Stream {
    hub: Arc<Hub>,
    index: usize,
    run: Option<Arc<Run>>,
    version: u64,
    key: Option<StreamKey>,
    /// The challenge that the next hello of a new session must return.
    challenge: u64,
    /// Where the session's hellos come from: without tags, values must come from there too.
    peer: Option<SocketAddr>,
    /// Counts when the session began.
    before: (u64, u64, u64),
    /// The highest batch of this session.
    highest: u32,
    /// When the last datagrams came, ns since 1970: one look at the clock for all of them.
    now: u64,
}

impl Stream {
    pub(super) fn new(hub: Arc<Hub>, index: usize) -> Self {
        let challenge = rand::random();
        Self {
            hub,
            index,
            run: None,
            version: 0,
            key: None,
            challenge,
            peer: None,
            before: (0, 0, 0),
            highest: 0,
            now: 0,
        }
    }

    /// Until the receiver ends, or the socket fails.
    pub(super) fn work(mut self, mut inlet: ReceiveSocket) -> std::io::Result<()> {
        while !self.hub.stop.load(Ordering::Relaxed) {
            inlet.fill(PATIENCE)?;
            self.now = now();
            self.follow();
            let mut any = false;
            let (socket, filled) = inlet.filled();
            for (from, bytes, stride) in filled {
                any = true;
                if bytes.is_empty() {
                    self.datagram(socket, from, bytes);
                }
                bytes.chunks_mut(stride).for_each(|datagram| self.datagram(socket, from, datagram));
            }
            if let (true, Some(run)) = (any, &self.run) {
                self.hub.publish(run, self.index, None);
            }
        }
        self.part(inlet.filled().0);
        Ok(())
    }

    /// Tells the sender that the receiver ends, and how much it had: else it would have to think that this one was lost.
    fn part(&self, socket: &UdpSocket) {
        if let (Some(run), Some(peer)) = (&self.run, self.peer)
            && let Some(batch) = run.newest_closed()
        {
            answer(socket, peer, &self.report(run.session, Accepted::Ended, batch));
        }
    }

    /// Takes up the run that is the present one.
    fn follow(&mut self) {
        let version = self.hub.version.load(Ordering::Acquire);
        if version == self.version {
            return;
        }
        self.version = version;
        self.run = self.hub.run().filter(|run| self.index < run.ranks.len());
        self.key = self.run.as_ref().and_then(|run| {
            let stream = run.terms.first + self.index as u32;
            self.hub.secret.as_ref().map(|secret| secret.stream(run.session, stream, run.terms.encrypted))
        });
        let total = self.hub.counts.get(self.index).map(|c| c.total()).unwrap_or_default();
        self.before = (total.packets, total.lost, total.bytes);
        self.highest = 0;
        self.peer = None;
    }

    fn datagram(&mut self, socket: &UdpSocket, from: SocketAddr, bytes: &mut [u8]) {
        let hub = self.hub.clone();
        let Some(counts) = hub.counts.get(self.index) else { return };
        if bytes.first_chunk() == Some(&CONTROL.to_le_bytes()) {
            match Message::read(bytes, hub.control.as_ref()) {
                Ok(Message::Hello(hello)) if !hub.is_foreign() => self.hello(socket, from, &hello),
                Ok(Message::Bye(bye)) => self.bye(bye.session),
                _ => counts.rejected.add(1),
            }
            return;
        }
        match self.data(from, bytes) {
            DatagramResult::Accepted => {}
            DatagramResult::Duplicate => counts.duplicate.add(1),
            DatagramResult::Stale => counts.stale.add(1),
            DatagramResult::Rejected => counts.rejected.add(1),
        }
    }

    fn data(&mut self, from: SocketAddr, bytes: &mut [u8]) -> DatagramResult {
        let Some(run) = self.run.clone() else { return DatagramResult::Rejected };
        if run.retired.load(Ordering::Relaxed)
            || (self.peer.is_some_and(|peer| peer != from) && self.key.is_none())
        {
            return DatagramResult::Rejected;
        }
        let length = bytes.len();
        let tag = if self.key.is_some() { TAG } else { 0 };
        let Some((inner, _)) = length.checked_sub(tag).and_then(|end| bytes.split_at_checked(end)) else {
            return DatagramResult::Rejected;
        };
        let (batch, claim) = match Datagram::read(inner) {
            Ok(Datagram::Values { batch, word, body }) if run.terms.foreign => {
                return self.foreign(&run, batch, word, body, length);
            }
            Ok(Datagram::Values { batch, word, body }) => match unit(&run, self.index, word, body) {
                Some((unit, rank)) => (batch, Claim::Values { unit, place: rank.into() }),
                None => return DatagramResult::Rejected,
            },
            Ok(Datagram::Parity { batch, number, body }) if self.expects(&run, number, body) => {
                (batch, Claim::Parity { number })
            }
            _ => return DatagramResult::Rejected,
        };
        let place = match claim {
            Claim::Values { place, .. } => place,
            Claim::Parity { number } => parity_place(number),
        };
        let opened = match &self.key {
            Some(key) => key.open(batch, place, bytes),
            None => Some(&*bytes),
        };
        let Some(body) = opened.and_then(|inner| inner.get(HEAD..)) else { return DatagramResult::Rejected };
        self.count_verified(batch, length);
        match claim {
            Claim::Values { unit, .. } => self.values(&run, batch, unit, body, length),
            Claim::Parity { number } => self.parity(&run, batch, number, body, length),
        }
    }

    /// Whether a parity packet of this number is one of this stream, and of the right length.
    fn expects(&self, run: &Run, number: u32, body: &[u8]) -> bool {
        run.fec.as_ref().is_some_and(|fec| {
            fec.layout.parity_shard(number).is_some()
                && fec.layout.parity_stream(number) as usize == self.index
                && body.len() == fec.shard
        })
    }

    /// Counts a datagram of values or parity that has been verified.
    fn count_verified(&mut self, batch: u32, bytes: usize) {
        self.highest = self.highest.max(batch);
        if let Some(counts) = self.hub.counts.get(self.index) {
            counts.packets.add(1);
            counts.bytes.add(bytes as u64);
            counts.last_data.set(self.now);
            counts.last.set(self.now);
        }
    }

    /// Has the slab's part of this batch, with the slab locked. `Err`: too late.
    fn with_part<T>(
        &self,
        run: &Run,
        batch: u32,
        work: impl FnOnce(&mut super::slot::Part, bool, &mut dyn FnMut(u32) -> bool) -> T,
    ) -> Result<T, DatagramResult> {
        let Some(lock) = run.slot(self.index) else { return Err(DatagramResult::Rejected) };
        let mut slot = lock.lock();
        if slot.run != run.id {
            return Err(DatagramResult::Rejected);
        }
        if slot.part(batch).is_none() {
            // While it waits for a place it must not hold the slab.
            drop(slot);
            if run.is_closed(batch) {
                return Err(DatagramResult::Stale);
            }
            let open = run.enter(batch, &self.hub.kick).ok_or(DatagramResult::Stale)?;
            slot = lock.lock();
            if run.insert(&mut slot, &open, self.index).is_none() {
                return Err(DatagramResult::Stale);
            }
            // A step before it may have waited for this stream.
            let _ = self.hub.kick.try_send(());
        }
        let late = slot.newest.is_some_and(|(newest, _)| newest > batch);
        // Taken out of the slot, so that the other parts can be consulted.
        let Some(mut part) = slot.take(batch) else { return Err(DatagramResult::Stale) };
        let done = work(&mut part, late, &mut |unit| run.is_covered(&mut slot, self.index, batch, unit));
        slot.parts.push(part);
        Ok(done)
    }

    fn values(&self, run: &Arc<Run>, batch: u32, unit: u32, body: &[u8], bytes: usize) -> DatagramResult {
        let Some(counts) = self.hub.counts.get(self.index) else { return DatagramResult::Rejected };
        let units = run.units.get(self.index).copied().unwrap_or_default();
        let packet = Packet { stream: self.index as u32, number: unit };
        let done = self.with_part(run, batch, |part, late, covered| {
            if !part.claim(unit) {
                return None;
            }
            part.received += 1;
            part.bytes += bytes as u64;
            counts.reordered.add(u64::from(late || unit < part.highest));
            part.highest = part.highest.max(unit);
            if !covered(unit) {
                match run.terms.packing {
                    crate::packet::Packing::Run => {
                        run.place(self.index, part.volume, unit * run.terms.unit, body);
                    }
                    crate::packet::Packing::Xyz => self.scatter(run, part.volume, body),
                }
            }
            // Before the slab is seen to be full: parity that comes when the step has closed finds all counted.
            let fec = run.fec.as_ref().zip(part.blocks.as_ref());
            let ripe = fec.and_then(|(fec, blocks)| fec.data(blocks, packet));
            Some((part.filled == units, ripe))
        });
        match done {
            // Parity that overtook it has brought it, and the step has closed.
            Err(DatagramResult::Stale) if run.is_spare(batch, Shard::Data(packet)) => {
                DatagramResult::Duplicate
            }
            Err(fate) => fate,
            Ok(None) => DatagramResult::Duplicate,
            Ok(Some((full, ripe))) => {
                self.recover(run, batch, ripe);
                if full {
                    let _ = self.hub.kick.try_send(());
                }
                DatagramResult::Accepted
            }
        }
    }

    fn parity(&self, run: &Arc<Run>, batch: u32, number: u32, body: &[u8], bytes: usize) -> DatagramResult {
        let Some(fec) = &run.fec else { return DatagramResult::Rejected };
        let blocks = self.with_part(run, batch, |part, _, _| {
            part.bytes += bytes as u64;
            part.blocks.clone()
        });
        match blocks {
            // The step has closed because it was complete: its parity is not late, but not needed.
            Err(DatagramResult::Stale) if run.is_spare(batch, Shard::Parity(number)) => {
                DatagramResult::Accepted
            }
            Err(fate) => fate,
            Ok(None) => DatagramResult::Rejected,
            Ok(Some(blocks)) => match fec.parity(&blocks, batch, number, body) {
                Err(()) => DatagramResult::Duplicate,
                Ok(block) => {
                    self.recover(run, batch, block);
                    DatagramResult::Accepted
                }
            },
        }
    }

    fn recover(&self, run: &Arc<Run>, batch: u32, block: Option<u64>) {
        if let Some(block) = block {
            // With too much to recover, the rest stays lost.
            let _ = self.hub.jobs.try_send(Job { run: run.clone(), batch, block });
        }
    }

    /// Stores each quad at its position; `unit` has made sure that all are in this slab.
    fn scatter(&self, run: &Run, volume: usize, body: &[u8]) {
        let Some(ranks) = run.ranks.get(self.index) else { return };
        let (slab, offset) = (ranks.slab(), ranks.slab().offset() as usize);
        for quad in body.as_chunks().0.iter().map(Quad::read) {
            if let Some(place) = slab.place(quad.x, quad.y, quad.z) {
                run.area.shared.write(volume, offset + place as usize, &quad.value);
            }
        }
    }

    /// The paper's packets, of a sender without hellos: any quads of this slab, in any order.
    fn foreign(
        &mut self,
        run: &Arc<Run>,
        batch: u32,
        count: u32,
        body: &[u8],
        bytes: usize,
    ) -> DatagramResult {
        let Some(slab) = run.ranks.get(self.index).map(|ranks| *ranks.slab()) else {
            return DatagramResult::Rejected;
        };
        let whole = |mut quads: Box<dyn Iterator<Item = Quad> + '_>| {
            quads.all(|q| slab.place(q.x, q.y, q.z).is_some())
        };
        if !quads(count, body).is_ok_and(|quads| whole(Box::new(quads))) {
            return DatagramResult::Rejected;
        }
        self.count_verified(batch, bytes);
        run.largest.fetch_max(count, Ordering::Relaxed);
        let units = slab.values();
        let done = self.with_part(run, batch, |part, late, covered| {
            let before = part.filled;
            for quad in body.as_chunks().0.iter().map(Quad::read) {
                let Some(place) = slab.place(quad.x, quad.y, quad.z) else { continue };
                if part.claim(place) && !covered(place) {
                    run.area.shared.write(part.volume, slab.offset() as usize + place as usize, &quad.value);
                }
            }
            let new = part.filled > before;
            part.received += u64::from(new);
            part.bytes += if new { bytes as u64 } else { 0 };
            (new, late, part.filled == units)
        });
        match done {
            Err(DatagramResult::Stale) => {
                self.hub.begin_again(run);
                DatagramResult::Stale
            }
            Err(fate) => fate,
            Ok((false, ..)) => DatagramResult::Duplicate,
            Ok((true, late, full)) => {
                if let Some(counts) = self.hub.counts.get(self.index) {
                    counts.reordered.add(u64::from(late));
                }
                if full {
                    let _ = self.hub.kick.try_send(());
                }
                DatagramResult::Accepted
            }
        }
    }

    fn hello(&mut self, socket: &UdpSocket, from: SocketAddr, hello: &Hello) {
        let hub = self.hub.clone();
        // Without a key it proves the address at least: a forged hello takes no memory for a volume.
        let proven = hello.challenge == self.challenge;
        let accepted = match hub.hello(hello, self.index, proven) {
            HelloResult::Unproven => Accepted::NotYet,
            HelloResult::Refused => Accepted::Refused,
            HelloResult::Present => Accepted::Yes,
            HelloResult::New => {
                // It is used up: a recorded hello of this session opens nothing any more.
                self.challenge = rand::random();
                Accepted::Yes
            }
        };
        if accepted == Accepted::Yes {
            self.follow();
            self.peer = Some(from);
            if let Some(counts) = hub.counts.get(self.index) {
                counts.last.set(now());
            }
        }
        answer(socket, from, &self.report(hello.session, accepted, self.highest));
    }

    fn report(&self, session: u64, accepted: Accepted, batch: u32) -> Vec<u8> {
        let total = self.hub.counts.get(self.index).map(|counts| counts.total()).unwrap_or_default();
        let (packets, lost, bytes) = self.before;
        let report = Report {
            session,
            challenge: self.challenge,
            accepted,
            batch,
            received: total.packets.saturating_sub(packets),
            lost: total.lost.saturating_sub(lost),
            bytes: total.bytes.saturating_sub(bytes),
        };
        Message::Report(report).write(self.hub.control.as_ref())
    }

    fn bye(&mut self, session: u64) {
        if let Some(run) = self.run.as_ref().filter(|run| run.session == session) {
            // The first one counts: each stream sends it.
            let _ = run.farewell.compare_exchange(0, now(), Ordering::Relaxed, Ordering::Relaxed);
            let _ = self.hub.kick.try_send(());
        }
    }
}

/// Which unit a packet of values is, and the rank of its first value, if it is one of this slab with all that it should have.
fn unit(run: &Run, index: usize, word: u32, body: &[u8]) -> Option<(u32, u32)> {
    let ranks = run.ranks.get(index)?;
    let (rank, count) = match run.terms.packing {
        crate::packet::Packing::Run => (word, values(body).ok()?),
        crate::packet::Packing::Xyz => {
            let mut quads = quads(word, body).ok()?;
            let slab = ranks.slab();
            let first = quads.next()?;
            let inside = |quad: &Quad| slab.place(quad.x, quad.y, quad.z).is_some();
            if !inside(&first) || !quads.all(|quad| inside(&quad)) {
                return None;
            }
            (ranks.rank(first.x, first.y, first.z)?, word)
        }
    };
    let unit = rank / run.terms.unit;
    let known = unit < run.units.get(index).copied().unwrap_or_default();
    (known && run.values_of(index, unit) == (rank, count)).then_some((unit, rank))
}
