//! Parity: packets from which lost ones are reckoned, in blocks that go across the slabs of a receiver.

use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

use crate::geometry::Shape;

/// The most bytes of one block's shards: it bounds the memory per block at either end.
const MAX_BLOCK: usize = 256 << 20;

/// Shards that are too many, too few, or not all of one length: a mistake of the caller, for rates from a hello are checked there.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("parity: {0}")]
pub struct Error(reed_solomon_simd::Error);

impl From<reed_solomon_simd::Error> for Error {
    fn from(error: reed_solomon_simd::Error) -> Self {
        Self(error)
    }
}

/// How much parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Data packets of a block.
    pub data: u32,
    /// Parity packets of a block.
    pub parity: u32,
}

impl Rate {
    /// Whether there can be such blocks of shards of this many bytes.
    pub fn is_possible(&self, bytes: usize) -> bool {
        let (data, parity) = (self.data as usize, self.parity as usize);
        let size = data.saturating_add(parity).saturating_mul(bytes);
        self.data > 0 && self.parity > 0 && size <= MAX_BLOCK && ReedSolomonEncoder::supports(data, parity)
    }
}

/// A data packet: of which stream of this receiver (from 0), and which of that slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Packet {
    /// Number of the stream among those of this receiver.
    pub stream: u32,
    /// Number of the packet within the slab.
    pub number: u32,
}

/// How the packets of one receiver's slabs are numbered across slabs, and which block each is of.
#[derive(Debug, Clone)]
pub struct Layout {
    /// Packets that every slab has.
    common: u32,
    /// Streams whose slab has more: all equally many, for slabs differ by one plane at most.
    longer: Vec<u32>,
    /// Packets of each slab.
    packets: Vec<u32>,
    total: u64,
    rate: Rate,
}

impl Layout {
    /// For the `here` streams from `first` on, of `streams`.
    ///
    /// # Errors
    /// See [`Shape::slab`].
    pub fn new(
        shape: Shape,
        streams: u32,
        first: u32,
        here: u32,
        values: u32,
        rate: Rate,
    ) -> Result<Self, crate::geometry::Error> {
        let packets = (first..first.saturating_add(here))
            .map(|stream| Ok(shape.slab(stream, streams)?.values().div_ceil(values.max(1))))
            .collect::<Result<Vec<u32>, crate::geometry::Error>>()?;
        let common = packets.iter().copied().min().unwrap_or_default();
        let longer =
            (0..here).zip(&packets).filter(|(_, n)| **n > common).map(|(stream, _)| stream).collect();
        let total = packets.iter().map(|n| u64::from(*n)).sum();
        Ok(Self { common, longer, packets, total, rate })
    }

    /// Packets of each slab.
    pub fn packets(&self) -> &[u32] {
        &self.packets
    }

    /// Data packets of a step.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Blocks of a step.
    pub fn blocks(&self) -> u64 {
        self.total.div_ceil(u64::from(self.rate.data))
    }

    /// Data packets of a block: fewer in the last one.
    pub fn data(&self, block: u64) -> u32 {
        let before = block.saturating_mul(self.rate.data.into());
        self.total.saturating_sub(before).min(self.rate.data.into()) as u32
    }

    /// How much parity there is.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Parity packets of a block.
    pub fn parity(&self) -> u32 {
        self.rate.parity
    }

    /// Block and shard of a data packet; `None` when there is no such packet.
    #[inline]
    pub fn shard(&self, packet: Packet) -> Option<(u64, u32)> {
        let index = self.index(packet)?;
        Some((index / u64::from(self.rate.data), (index % u64::from(self.rate.data)) as u32))
    }

    /// The data packet that is this shard of this block.
    pub fn packet(&self, block: u64, shard: u32) -> Option<Packet> {
        if shard >= self.data(block) {
            return None;
        }
        let index = block * u64::from(self.rate.data) + u64::from(shard);
        let streams = self.packets.len() as u64;
        let even = u64::from(self.common) * streams;
        if index < even {
            return Some(Packet { stream: (index % streams) as u32, number: (index / streams) as u32 });
        }
        let (beyond, longer) = (index - even, self.longer.len() as u64);
        let stream = *self.longer.get((beyond % longer) as usize)?;
        Some(Packet { stream, number: self.common + (beyond / longer) as u32 })
    }

    /// Block and number within it of a parity packet; `None` when there is no such packet.
    pub fn parity_shard(&self, number: u32) -> Option<(u64, u32)> {
        let block = u64::from(number / self.rate.parity);
        (block < self.blocks()).then_some((block, number % self.rate.parity))
    }

    /// The stream of this receiver by which a parity packet goes.
    pub fn parity_stream(&self, number: u32) -> u32 {
        number % self.packets.len().max(1) as u32
    }

    fn index(&self, packet: Packet) -> Option<u64> {
        if packet.number >= *self.packets.get(packet.stream as usize)? {
            return None;
        }
        let streams = self.packets.len() as u64;
        if packet.number < self.common {
            return Some(u64::from(packet.number) * streams + u64::from(packet.stream));
        }
        let place = self.longer.binary_search(&packet.stream).ok()? as u64;
        let beyond = u64::from(packet.number - self.common) * self.longer.len() as u64;
        Some(u64::from(self.common) * streams + beyond + place)
    }
}

/// Makes parity. Its work space is used again for every block.
pub struct Encoder {
    inner: ReedSolomonEncoder,
    rate: Rate,
    padded: Vec<u8>,
}

impl Encoder {
    /// For shards of this many bytes: those of a full packet's values.
    ///
    /// # Errors
    /// When the rate is not possible.
    pub fn new(rate: Rate, bytes: usize) -> Result<Self, Error> {
        let inner = ReedSolomonEncoder::new(rate.data as usize, rate.parity as usize, bytes)?;
        Ok(Self { inner, rate, padded: vec![0; bytes] })
    }

    /// Begins a block of `data` packets (see [`Layout::data`]); packets added before are dropped.
    ///
    /// # Errors
    /// There are more than the rate allows, or none.
    pub fn begin(&mut self, data: u32) -> Result<(), Error> {
        Ok(self.inner.reset(data as usize, self.rate.parity as usize, self.padded.len())?)
    }

    /// The next packet's values.
    ///
    /// # Errors
    /// When there are too many packets or values.
    pub fn add(&mut self, values: &[u8]) -> Result<(), Error> {
        Ok(self.inner.add_original_shard(pad(values, &mut self.padded))?)
    }

    /// Gives `each` the number and the bytes of all parity of the block.
    ///
    /// # Errors
    /// When packets are missing.
    pub fn finish(&mut self, mut each: impl FnMut(u32, &[u8])) -> Result<(), Error> {
        let result = self.inner.encode()?;
        result.recovery_iter().zip(0..).for_each(|(shard, number)| each(number, shard));
        Ok(())
    }
}

/// Recovers packets. Its work space is used again for every block.
pub struct Decoder {
    inner: ReedSolomonDecoder,
    rate: Rate,
    padded: Vec<u8>,
}

impl Decoder {
    /// For shards of this many bytes: those of a full packet's values.
    ///
    /// # Errors
    /// When the rate is not possible.
    pub fn new(rate: Rate, bytes: usize) -> Result<Self, Error> {
        let inner = ReedSolomonDecoder::new(rate.data as usize, rate.parity as usize, bytes)?;
        Ok(Self { inner, rate, padded: vec![0; bytes] })
    }

    /// Begins a block of `data` packets (see [`Layout::data`]); packets added before are dropped.
    ///
    /// # Errors
    /// There are more than the rate allows, or none.
    pub fn begin(&mut self, data: u32) -> Result<(), Error> {
        Ok(self.inner.reset(data as usize, self.rate.parity as usize, self.padded.len())?)
    }

    /// The values of a received packet.
    ///
    /// # Errors
    /// When there is no such shard, or it was given before.
    pub fn data(&mut self, shard: u32, values: &[u8]) -> Result<(), Error> {
        Ok(self.inner.add_original_shard(shard as usize, pad(values, &mut self.padded))?)
    }

    /// A received parity packet.
    ///
    /// # Errors
    /// When there is no such shard, or it was given before.
    pub fn parity(&mut self, number: u32, bytes: &[u8]) -> Result<(), Error> {
        Ok(self.inner.add_recovery_shard(number as usize, bytes)?)
    }

    /// Gives `each` the shard and the values of all that were missing (zero-padded as they were).
    ///
    /// # Errors
    /// Too few were received.
    pub fn finish(&mut self, mut each: impl FnMut(u32, &[u8])) -> Result<(), Error> {
        let result = self.inner.decode()?;
        result.restored_original_iter().for_each(|(shard, values)| each(shard as u32, values));
        Ok(())
    }
}

/// The values, with zeros behind them up to a shard's length.
fn pad<'a>(values: &'a [u8], padded: &'a mut [u8]) -> &'a [u8] {
    match padded.split_at_mut_checked(values.len()) {
        Some((head, tail)) if !tail.is_empty() => {
            head.copy_from_slice(values);
            tail.fill(0);
            padded
        }
        _ => values,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn packets_are_numbered_across_slabs() {
        // 5 planes of 4 values in 2 slabs: 8 and 12 values, in packets of 3: 3 and 4 packets.
        let shape = Shape::new(2, 2, 5).unwrap();
        let layout = Layout::new(shape, 2, 0, 2, 3, Rate { data: 4, parity: 2 }).unwrap();
        assert_eq!((layout.packets(), layout.total(), layout.blocks()), (&[3, 4][..], 7, 2));
        assert_eq!((layout.data(0), layout.data(1), layout.data(2)), (4, 3, 0));
        let order: Vec<_> =
            (0..2).flat_map(|block| (0..layout.data(block)).map(move |shard| (block, shard))).collect();
        let packets: Vec<_> =
            order.iter().map(|(b, s)| layout.packet(*b, *s).map(|p| (p.stream, p.number)).unwrap()).collect();
        assert_eq!(packets, [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2), (1, 3)]);
        assert_eq!(layout.shard(Packet { stream: 0, number: 3 }), None);
        assert_eq!(layout.parity_shard(3), Some((1, 1)));
        assert_eq!(layout.parity_shard(4), None);
    }

    #[test]
    fn impossible_rates() {
        for (data, parity) in [(0, 1), (1, 0), (u32::MAX, 1), (60_000, 10_000), (u32::MAX, u32::MAX)] {
            assert!(!Rate { data, parity }.is_possible(64), "{data} {parity}");
        }
        assert!(Rate { data: 1000, parity: 100 }.is_possible(16_376 * 4));
        assert!(!Rate { data: 10_000, parity: 100 }.is_possible(16_376 * 4), "too much memory");
    }

    proptest! {
        #[test]
        fn shards_and_packets_go_back(
            streams in 1u32..12, planes in 0u32..30, first in 0u32..12, here in 1u32..12, values in 1u32..9, data in 1u32..20,
        ) {
            let (nz, first) = (streams + planes, first % streams);
            let here = here.min(streams - first);
            let shape = Shape::new(3, 3, nz).unwrap();
            let layout = Layout::new(shape, streams, first, here, values, Rate { data, parity: 1 }).unwrap();
            let mut last = None;
            for number in 0..*layout.packets().iter().max().unwrap() {
                for stream in 0..here {
                    let packet = Packet { stream, number };
                    let Some((block, shard)) = layout.shard(packet) else {
                        prop_assert!(number >= layout.packets()[stream as usize]);
                        continue;
                    };
                    prop_assert_eq!(layout.packet(block, shard), Some(packet));
                    let index = block * u64::from(data) + u64::from(shard);
                    prop_assert_eq!(index, last.map_or(0, |last: u64| last + 1));
                    last = Some(index);
                }
            }
            prop_assert_eq!(last.unwrap() + 1, layout.total());
        }

        #[test]
        fn what_is_lost_comes_back(data in 1u32..40, parity in 1u32..10, short in 1u32..40, lost in any::<u64>(), values in 1usize..9) {
            let rate = Rate { data, parity };
            let (short, bytes) = (short.min(data), values * 4);
            let mut encoder = Encoder::new(rate, bytes).unwrap();
            let mut decoder = Decoder::new(rate, bytes).unwrap();
            // A whole block, then a short one whose last packet is short too: the work space serves again.
            for count in [data, short] {
                let packets: Vec<Vec<u8>> = (0..count)
                    .map(|i| vec![i as u8 + 1; if i + 1 == count { 4 } else { bytes }])
                    .collect();
                encoder.begin(count).unwrap();
                packets.iter().for_each(|packet| encoder.add(packet).unwrap());
                let mut recovery = Vec::new();
                encoder.finish(|_, shard| recovery.push(shard.to_vec())).unwrap();
                prop_assert_eq!(recovery.len(), parity as usize);
                decoder.begin(count).unwrap();
                let mut missing = 0;
                for (i, packet) in (0..).zip(&packets) {
                    if lost >> (i % 64) & 1 == 1 && missing < parity {
                        missing += 1;
                    } else {
                        decoder.data(i, packet).unwrap();
                    }
                }
                for number in (0..parity).rev().take(missing as usize) {
                    decoder.parity(number, &recovery[number as usize]).unwrap();
                }
                let mut found = 0;
                decoder.finish(|shard, values| {
                    let packet = &packets[shard as usize];
                    assert_eq!(&values[..packet.len()], &packet[..]);
                    assert!(values[packet.len()..].iter().all(|byte| *byte == 0));
                    found += 1;
                }).unwrap();
                prop_assert_eq!(found, missing);
            }
        }
    }
}
