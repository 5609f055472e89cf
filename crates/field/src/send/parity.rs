//! Parity of the slabs that go to one receiver, made when all of them are there.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::stage::Values;
use crate::geometry::{Ranks, Shape};
use crate::packet::VALUE;
use crate::parity::{Encoder, Layout, Packet, Rate};

/// Adjacent streams of one receiver.
pub struct ParityGroup {
    streams: Range<usize>,
    coder: Option<Coder>,
}

struct Coder {
    layout: Layout,
    rate: Rate,
    ranks: Vec<Arc<Ranks>>,
    /// Values in a packet.
    values: u32,
    /// Kept, for its work space. None while it is in use: then another is made.
    encoder: Mutex<Option<Encoder>>,
}

/// The parity of one step.
#[derive(Debug)]
pub struct Parity {
    /// One after the other.
    shards: Vec<u8>,
    bytes: usize,
}

impl Parity {
    /// The shard of this number within the step.
    #[must_use]
    pub fn shard(&self, number: u32) -> Option<&[u8]> {
        let begin = number as usize * self.bytes;
        self.shards.get(begin..begin + self.bytes)
    }
}

/// Which parity packets a stream sends behind which of its data packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// After the data packet of this number.
    pub behind: u32,
    /// The parity packet of this number within the step.
    pub number: u32,
}

impl ParityGroup {
    /// Streams without parity.
    #[must_use]
    pub fn plain(streams: Range<usize>) -> Self {
        Self { streams, coder: None }
    }

    /// Streams of `ranks` with parity at this rate; `values` in a packet.
    ///
    /// # Errors
    /// When the slabs cannot be.
    pub fn with_parity(
        streams: Range<usize>,
        shape: Shape,
        ranks: &[Arc<Ranks>],
        values: u32,
        rate: Rate,
    ) -> Result<Self, crate::geometry::Error> {
        let (first, here) = (streams.start as u32, streams.len() as u32);
        let layout = Layout::new(shape, ranks.len() as u32, first, here, values, rate)?;
        let ranks = ranks.get(streams.clone()).unwrap_or_default().to_vec();
        let coder = Coder { layout, rate, ranks, values, encoder: Mutex::new(None) };
        Ok(Self { streams, coder: Some(coder) })
    }

    /// Which streams they are, of all.
    #[must_use]
    pub fn streams(&self) -> Range<usize> {
        self.streams.clone()
    }

    /// Whether there is parity to wait for.
    #[must_use]
    pub fn has_parity(&self) -> bool {
        self.coder.is_some()
    }

    /// The parity packets of stream `stream` (of this group, from 0), in order: each follows its block, as soon as this stream is through it.
    #[must_use]
    pub fn due(&self, stream: u32) -> Vec<Due> {
        let Some(coder) = &self.coder else { return Vec::new() };
        let layout = &coder.layout;
        let last = layout.packets().get(stream as usize).map_or(0, |packets| packets.saturating_sub(1));
        let all = layout.blocks() as u32 * layout.parity();
        let mine = (0..all).filter(|number| layout.parity_stream(*number) == stream);
        mine.filter_map(|number| {
            let (block, _) = layout.parity_shard(number)?;
            let end = layout.packet(block, layout.data(block).checked_sub(1)?)?;
            Some(Due { behind: end.number.min(last), number })
        })
        .collect()
    }

    /// Makes the parity of these slabs; none if parity is off.
    #[must_use]
    pub fn encode(&self, slabs: &[Arc<Values>]) -> Option<Parity> {
        let coder = self.coder.as_ref()?;
        let bytes = coder.values as usize * VALUE;
        let kept = coder.encoder.lock().take();
        let mut encoder = kept.or_else(|| Encoder::new(coder.rate, bytes).ok())?;
        let blocks = coder.layout.blocks();
        let parity = coder.layout.parity() as usize * bytes;
        let mut shards = vec![0; blocks as usize * parity];
        let mut packet = Vec::with_capacity(bytes);
        for (block, shards) in (0..blocks).zip(shards.chunks_exact_mut(parity)) {
            encoder.begin(coder.layout.data(block)).ok()?;
            for shard in 0..coder.layout.data(block) {
                let Packet { stream, number } = coder.layout.packet(block, shard)?;
                let (ranks, slab) = (coder.ranks.get(stream as usize)?, slabs.get(stream as usize)?);
                gather(ranks, slab, number * coder.values, coder.values, &mut packet);
                encoder.add(&packet).ok()?;
            }
            let give = |number: u32, shard: &[u8]| {
                if let Some(place) = shards.chunks_exact_mut(bytes).nth(number as usize) {
                    place.copy_from_slice(shard);
                }
            };
            encoder.finish(give).ok()?;
        }
        *coder.encoder.lock() = Some(encoder);
        Some(Parity { shards, bytes })
    }
}

/// The values of `count` ranks from `rank` on, in order.
pub(super) fn gather(ranks: &Ranks, slab: &[u8], rank: u32, count: u32, into: &mut Vec<u8>) {
    into.clear();
    ranks.runs(rank, count, |place, length| {
        into.extend_from_slice(&slab[place * VALUE..(place + length) * VALUE]);
    });
}
