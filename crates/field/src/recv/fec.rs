//! Parity: lost packets are computed from those that arrived. These are in the volume already, so only parity
//! is kept separately; nothing is copied for a block that needs no parity.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::Receiver;
use parking_lot::Mutex;

use super::Hub;
use super::run::Run;
use crate::packet::VALUE;
use crate::parity::{Decoder, Error, Layout, Packet};

/// Bytes of parity that are kept for blocks under way.
const KEPT: usize = 128 << 20;
/// Blocks to recover that may wait.
pub(super) const WAITING: usize = 64;
/// How long the thread waits for work before it looks whether all is over.
const PATIENCE: Duration = Duration::from_millis(100);

/// A packet of a block.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shard {
    Data(Packet),
    /// By its number.
    Parity(u32),
}

/// The received packets of each block of one step: data packets in the low half, parity packets in the high
/// one.
#[derive(Debug)]
pub(super) struct Blocks(Vec<AtomicU64>);

impl Blocks {
    /// True when with this packet a block has as many as it needs, and not all of its data.
    fn count(&self, block: u64, parity: bool, needed: u32) -> bool {
        let Some(count) = self.0.get(block as usize) else { return false };
        let one = if parity { 1 << 32 } else { 1 };
        let now = count.fetch_add(one, Ordering::AcqRel) + one;
        let (data, parity) = (now & u64::from(u32::MAX), now >> 32);
        data + parity == u64::from(needed) && parity > 0
    }

    /// Data and parity packets received of a block.
    fn received(&self, block: u64) -> (u64, u64) {
        let count = self.0.get(block as usize).map_or(0, |count| count.load(Ordering::Acquire));
        (count & u64::from(u32::MAX), count >> 32)
    }

    fn is_whole(&self, block: u64, needed: u32) -> bool {
        self.received(block).0 >= needed.into()
    }
}

/// A block that can be recovered.
pub(super) struct Job {
    pub(super) run: Arc<Run>,
    pub(super) batch: u32,
    pub(super) block: u64,
}

/// Parity packets of one block.
struct Held {
    batch: u32,
    block: u64,
    numbers: Vec<u32>,
    bytes: Vec<u8>,
}

/// Parity of one run.
pub(super) struct Fec {
    pub(super) layout: Layout,
    /// Bytes of a shard.
    pub(super) shard: usize,
    held: Mutex<VecDeque<Held>>,
}

impl Fec {
    pub(super) fn new(layout: Layout, shard: usize) -> Self {
        Self { layout, shard, held: Mutex::new(VecDeque::new()) }
    }

    pub(super) fn blocks(&self) -> Arc<Blocks> {
        Arc::new(Blocks((0..self.layout.blocks()).map(|_| AtomicU64::new(0)).collect()))
    }

    /// Counts a data packet that is in the volume: the block that can be recovered now.
    pub(super) fn data(&self, blocks: &Blocks, packet: Packet) -> Option<u64> {
        let (block, _) = self.layout.shard(packet)?;
        blocks.count(block, false, self.layout.data(block)).then_some(block)
    }

    /// Keeps a parity packet: `Err` if it was received before, else the block that can be recovered now.
    pub(super) fn parity(
        &self,
        blocks: &Blocks,
        batch: u32,
        number: u32,
        bytes: &[u8],
    ) -> Result<Option<u64>, ()> {
        let Some((block, number)) = self.layout.parity_shard(number) else { return Ok(None) };
        let needed = self.layout.data(block);
        if blocks.is_whole(block, needed) {
            return Ok(None);
        }
        let mut held = self.held.lock();
        let at = held.iter().position(|held| (held.batch, held.block) == (batch, block));
        let at = match at {
            Some(at) => at,
            None => {
                // The oldest gives its memory to the newest.
                let most = (KEPT / (self.shard * self.layout.parity() as usize).max(1)).clamp(4, 64);
                let (mut numbers, mut bytes) = match held.len() < most {
                    true => (Vec::new(), Vec::new()),
                    false => held.pop_front().map(|held| (held.numbers, held.bytes)).unwrap_or_default(),
                };
                numbers.clear();
                bytes.clear();
                held.push_back(Held { batch, block, numbers, bytes });
                held.len() - 1
            }
        };
        let Some(held) = held.get_mut(at) else { return Ok(None) };
        if held.numbers.contains(&number) {
            return Err(());
        }
        held.numbers.push(number);
        held.bytes.extend_from_slice(bytes);
        Ok(blocks.count(block, true, needed).then_some(block))
    }

    /// Whether a packet belongs to a block that needs no more packets.
    pub(super) fn is_spare(&self, blocks: &Blocks, shard: Shard) -> bool {
        let block = match shard {
            Shard::Data(packet) => self.layout.shard(packet).map(|(block, _)| block),
            Shard::Parity(number) => self.layout.parity_shard(number).map(|(block, _)| block),
        };
        block.is_some_and(|block| {
            let (data, parity) = blocks.received(block);
            data + parity >= self.layout.data(block).into()
        })
    }

    /// Gives the decoder the parity of a block; it is not kept any longer.
    fn hand_over(&self, batch: u32, block: u64, decoder: &mut Decoder) -> Result<u32, Error> {
        let mut all = self.held.lock();
        let Some(at) = all.iter().position(|held| (held.batch, held.block) == (batch, block)) else {
            return Ok(0);
        };
        let Some(held) = all.remove(at) else { return Ok(0) };
        drop(all);
        for (number, bytes) in held.numbers.iter().zip(held.bytes.chunks_exact(self.shard)) {
            decoder.parity(*number, bytes)?;
        }
        Ok(held.numbers.len() as u32)
    }
}

/// The thread that recovers blocks, until the receiver ends.
pub(super) fn work(hub: &Hub, jobs: &Receiver<Job>) {
    let mut decoder: Option<(u64, Decoder)> = None;
    let mut buffer = Vec::new();
    while !hub.stop.load(Ordering::Relaxed) {
        let Ok(job) = jobs.recv_timeout(PATIENCE) else { continue };
        let Some(fec) = &job.run.fec else { continue };
        if decoder.as_ref().is_none_or(|(run, _)| *run != job.run.id) {
            decoder = fec.decoder().ok().map(|made| (job.run.id, made));
        }
        let Some((_, decoder)) = &mut decoder else { continue };
        if let Err(error) = recover(hub, &job, fec, decoder, &mut buffer) {
            tracing::debug!(%error, batch = job.batch, block = job.block, "cannot recover a block from parity");
        }
        let _ = hub.kick.try_send(());
    }
}

impl Fec {
    fn decoder(&self) -> Result<Decoder, Error> {
        Decoder::new(self.layout.rate(), self.shard)
    }
}

fn recover(
    hub: &Hub,
    job: &Job,
    fec: &Fec,
    decoder: &mut Decoder,
    buffer: &mut Vec<u8>,
) -> Result<(), Error> {
    let (run, needed) = (&job.run, fec.layout.data(job.block));
    if !run.is_open(job.batch) {
        return Ok(());
    }
    decoder.begin(needed)?;
    let mut have = fec.hand_over(job.batch, job.block, decoder)?;
    for shard in 0..needed {
        let Some(packet) = fec.layout.packet(job.block, shard) else { continue };
        if gather(run, job.batch, packet, buffer) {
            decoder.data(shard, buffer)?;
            have += 1;
        }
    }
    if have < needed {
        return Ok(());
    }
    decoder.finish(|shard, values| {
        if let Some(packet) = fec.layout.packet(job.block, shard) {
            restore(hub, run, job.batch, packet, values);
        }
    })
}

/// Copies the values of a packet out of the volume, if they are there and are still of this step.
fn gather(run: &Run, batch: u32, packet: Packet, buffer: &mut Vec<u8>) -> bool {
    let index = packet.stream as usize;
    let (Some(slot), Some(ranks)) = (run.slot(index), run.ranks.get(index)) else { return false };
    let slot = slot.lock();
    let Some(part) = slot.parts.iter().find(|part| part.batch == batch) else { return false };
    let live = run.area.shared.volumes() == 1;
    if slot.run != run.id || !part.has(packet.number) || (live && slot.is_newer(batch, packet.number)) {
        return false;
    }
    let (rank, count) = run.values_of(index, packet.number);
    buffer.resize(count as usize * VALUE, 0);
    let (mut at, offset) = (0, ranks.slab().offset() as usize);
    ranks.runs(rank, count, |place, length| {
        if let Some(to) = buffer.get_mut(at..at + length * VALUE) {
            run.area.shared.read(part.volume, offset + place, to);
        }
        at += length * VALUE;
    });
    true
}

/// Puts recovered values into the volume, if their step is still the one there.
fn restore(hub: &Hub, run: &Run, batch: u32, packet: Packet, values: &[u8]) {
    let index = packet.stream as usize;
    let (Some(slot), Some(counts)) = (run.slot(index), hub.counts.get(index)) else { return };
    let mut slot = slot.lock();
    if slot.run != run.id || run.is_closed(batch) {
        return;
    }
    if slot.part(batch).is_none() {
        // Nothing was received of this stream at all.
        let Some(open) = run.oldest().filter(|open| open.batch == batch) else { return };
        if run.insert(&mut slot, &open, index).is_none() {
            return;
        }
    }
    let Some(part) = slot.part(batch) else { return };
    if part.claim(packet.number) {
        part.recovered += 1;
        counts.recovered.add(1);
        let (rank, count) = run.values_of(index, packet.number);
        let volume = part.volume;
        if !run.is_covered(&mut slot, index, batch, packet.number) {
            run.place(index, volume, rank, values.get(..count as usize * VALUE).unwrap_or(values));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Shape;
    use crate::parity::Rate;

    #[test]
    fn a_block_is_recovered_once_and_only_if_it_must() {
        let shape = Shape::new(4, 4, 4).unwrap();
        let layout = Layout::new(shape, 2, 0, 2, 4, Rate { data: 4, parity: 2 }).unwrap();
        let fec = Fec::new(layout, 16);
        let blocks = fec.blocks();
        let packet = |stream, number| Packet { stream, number };
        // Block 0 is packets 0 and 1 of both slabs; one of the four is lost.
        assert_eq!(fec.data(&blocks, packet(0, 0)), None);
        assert_eq!(fec.data(&blocks, packet(1, 0)), None);
        let spare = |number| fec.is_spare(&blocks, Shard::Parity(number));
        assert!(!spare(1));
        assert_eq!(fec.parity(&blocks, 0, 0, &[1; 16]), Ok(None));
        assert_eq!(fec.parity(&blocks, 0, 0, &[1; 16]), Err(()), "twice");
        assert_eq!(fec.data(&blocks, packet(0, 1)), Some(0));
        assert_eq!(fec.parity(&blocks, 0, 1, &[1; 16]), Ok(None), "once is enough");
        assert!(spare(1) && !spare(2) && !spare(u32::MAX >> 1));
        assert!(fec.is_spare(&blocks, Shard::Data(packet(1, 1))), "what was lost may yet come");
        assert!(!fec.is_spare(&blocks, Shard::Data(packet(0, 2))));
        // Of block 1 all data comes.
        for (stream, number) in [(0, 2), (1, 2), (0, 3), (1, 3)] {
            assert_eq!(fec.data(&blocks, packet(stream, number)), None);
        }
        assert_eq!(fec.parity(&blocks, 0, 2, &[1; 16]), Ok(None));
        assert_eq!(fec.held.lock().len(), 1, "what is whole keeps no parity");
        assert_eq!(fec.parity(&blocks, 0, u32::MAX >> 1, &[1; 16]), Ok(None), "there is no such block");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let shape = Shape::new(64, 64, 64).unwrap();
        let layout = Layout::new(shape, 1, 0, 1, 4, Rate { data: 4, parity: 2 }).unwrap();
        let fec = Fec::new(layout, 16);
        let blocks = fec.blocks();
        for number in 0..10_000 {
            fec.parity(&blocks, 0, number, &[0; 16]).unwrap();
        }
        assert!(fec.held.lock().len() <= 64);
    }
}
