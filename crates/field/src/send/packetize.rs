//! One stream's packets: those of the current slab, in order, each block followed by its parity.

use std::sync::Arc;

use super::parity::{Due, Parity};
use super::stage::{Next, Stage, Staged};
use crate::geometry::Ranks;
use crate::key::{StreamKey, parity_place};
use crate::packet::{Packing, QUAD, Quad, VALUE, parity_head, values_head};

/// How packets of a stream are made.
#[derive(Debug)]
pub(super) struct PacketFormat {
    /// Its number, of all.
    pub(super) stream: usize,
    pub(super) ranks: Arc<Ranks>,
    pub(super) packing: Packing,
    /// Values in a packet.
    pub(super) values: u32,
    pub(super) key: Option<StreamKey>,
    pub(super) due: Vec<Due>,
}

/// Bytes and packets that were put together.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packetized {
    pub(super) bytes: usize,
    pub(super) packets: u64,
}

/// A stream and where it is.
#[derive(Debug)]
pub(super) struct Packetizer {
    form: PacketFormat,
    now: Option<Staged>,
    /// The next data packet, and how many there are.
    packet: u32,
    packets: u32,
    /// The next of the parity packets that are due.
    due: usize,
    /// The batch that it may take next.
    from: u32,
    /// Nothing will come.
    over: bool,
}

impl Packetizer {
    pub(super) fn new(form: PacketFormat, from: u32) -> Self {
        let packets = form.ranks.slab().values().div_ceil(form.values.max(1));
        Self { form, now: None, packet: 0, packets, due: 0, from, over: false }
    }

    pub(super) fn stream(&self) -> usize {
        self.form.stream
    }

    /// The first batch that this stream is not yet through with.
    pub(super) fn from(&self) -> u32 {
        self.from
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Whether there is something to send, of a batch in this range: an earlier one is given up, finished or not.
    pub(super) fn is_ready(&mut self, stage: &Stage, batches: std::ops::RangeInclusive<u32>) -> bool {
        if self.from < *batches.start() {
            self.from = *batches.start();
            self.now = None;
        }
        if self.now.is_none() && !self.over {
            match stage.next(self.form.stream, self.from, *batches.end()) {
                Next::Ready(staged) => {
                    (self.packet, self.due, self.from) = (0, 0, staged.batch);
                    self.now = Some(staged);
                }
                Next::Wait => {}
                Next::Over => self.over = true,
            }
        }
        self.now.is_some()
    }

    /// Appends datagrams one after the other, at most `most` bytes but at least one, of `size` each but the
    /// last; true when the slab is done.
    pub(super) fn fill(&mut self, most: usize, size: usize, into: &mut Vec<u8>) -> (Packetized, bool) {
        let (mut made, mut done) = (Packetized::default(), false);
        into.clear();
        let Some(staged) = &self.now else { return (made, true) };
        while !done
            && (into.is_empty() || into.len() + size <= most)
            && into.len().is_multiple_of(size.max(1))
        {
            let due = self.form.due.get(self.due).filter(|due| due.behind < self.packet);
            match (due, &staged.parity) {
                (Some(due), Some(parity)) => {
                    self.form.parity(staged.batch, due.number, parity, into);
                    self.due += 1;
                }
                _ => {
                    self.form.values(staged, self.packet, into);
                    self.packet += 1;
                }
            }
            made.packets += 1;
            done = self.packet == self.packets && self.due == self.form.due.len();
        }
        made.bytes = into.len();
        if done {
            self.from = staged.batch.saturating_add(1);
            self.now = None;
        }
        (made, done)
    }
}

impl PacketFormat {
    fn values(&self, staged: &Staged, packet: u32, into: &mut Vec<u8>) {
        let (begin, rank) = (into.len(), packet * self.values);
        let count = self.values.min(self.ranks.slab().values() - rank);
        match self.packing {
            Packing::Run => {
                into.extend(values_head(staged.batch, rank));
                self.ranks.runs(rank, count, |place, length| {
                    into.extend_from_slice(&staged.values[place * VALUE..(place + length) * VALUE]);
                });
            }
            Packing::Xyz => {
                into.extend(values_head(staged.batch, count));
                let (nx, ny, _) = self.ranks.slab().shape().sides();
                self.ranks.runs(rank, count, |place, length| {
                    let (mut x, mut y, mut z) = self.ranks.slab().position(place as u32);
                    for value in staged.values[place * VALUE..(place + length) * VALUE].as_chunks().0 {
                        let mut quad = [0; QUAD];
                        Quad { x, y, z, value: *value }.write(&mut quad);
                        into.extend_from_slice(&quad);
                        // A run may go on in the next row and plane.
                        x += 1;
                        (x, y) = if x == nx { (0, y + 1) } else { (x, y) };
                        (y, z) = if y == ny { (0, z + 1) } else { (y, z) };
                    }
                });
            }
        }
        self.seal(staged.batch, u64::from(rank), begin, into);
    }

    fn parity(&self, batch: u32, number: u32, parity: &Parity, into: &mut Vec<u8>) {
        let begin = into.len();
        into.extend(parity_head(batch, number));
        into.extend_from_slice(parity.shard(number).unwrap_or_default());
        self.seal(batch, parity_place(number), begin, into);
    }

    fn seal(&self, batch: u32, place: u64, begin: usize, into: &mut Vec<u8>) {
        if let Some(key) = &self.key {
            key.seal(batch, place, begin, into);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::parity::ParityGroup;
    use super::super::stage::Plan;
    use super::*;
    use crate::geometry::{Order, Shape};
    use crate::key::Secret;
    use crate::key::TAG;
    use crate::packet::{Datagram, quads};
    use crate::parity::Rate;

    /// A step whose values are their places.
    struct Places(Shape);

    impl super::super::source::Source for Places {
        fn shape(&self) -> Shape {
            self.0
        }
        fn name(&self) -> &str {
            "places"
        }
        fn steps(&self) -> Option<u64> {
            Some(1)
        }
        fn open(
            &mut self,
            step: u64,
            _: &super::super::source::Wait<'_>,
        ) -> Result<Option<Arc<dyn super::super::source::Step>>, super::super::source::SourceError> {
            Ok((step == 0).then(|| Arc::new(Places(self.0)) as _))
        }
    }

    impl super::super::source::Step for Places {
        fn number(&self) -> u64 {
            0
        }
        fn read(
            &self,
            planes: std::ops::Range<usize>,
            into: &mut [u8],
        ) -> Result<(), super::super::source::SourceError> {
            let first = planes.start as u32 * self.0.plane() as u32;
            into.as_chunks_mut().0.iter_mut().zip(first..).for_each(|(to, n)| *to = n.to_le_bytes());
            Ok(())
        }
    }

    /// All datagrams of one slab.
    fn datagrams(
        shape: Shape,
        stream: usize,
        packing: Packing,
        order: Order,
        values: u32,
        parity: Option<Rate>,
        key: Option<StreamKey>,
    ) -> Vec<Vec<u8>> {
        let ranks: Vec<_> = (0..2).map(|s| Arc::new(Ranks::new(shape.slab(s, 2).unwrap(), order))).collect();
        let group = || match parity {
            Some(rate) => ParityGroup::with_parity(0..2, shape, &ranks, values, rate).unwrap(),
            None => ParityGroup::plain(0..2),
        };
        let size = packing.datagram(values, key.is_some());
        let stage = Stage::new(ranks.iter().map(|ranks| *ranks.slab()).collect(), vec![group()], 0, 0);
        stage.run(&mut Places(shape), Plan { first: 0, count: None, again: false, begin: 0 }, 1);
        let due = group().due(stream as u32);
        let mut packetizer = Packetizer::new(
            PacketFormat { stream, ranks: Arc::clone(&ranks[stream]), packing, values, key, due },
            0,
        );
        assert!(packetizer.is_ready(&stage, 0..=u32::MAX));
        let (mut all, mut into) = (Vec::new(), Vec::new());
        loop {
            let (made, done) = packetizer.fill(3 * size, size, &mut into);
            assert_eq!(made.bytes, into.len());
            all.extend(into.chunks(size).map(<[u8]>::to_vec));
            if done {
                assert!(!packetizer.is_ready(&stage, 0..=u32::MAX) && packetizer.is_over());
                return all;
            }
        }
    }

    #[test]
    fn the_papers_packet_byte_by_byte() {
        let shape: Shape = "64,4,8".parse().unwrap();
        let all = datagrams(shape, 1, Packing::Xyz, Order::Zslab, 560, None, None);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].len(), 8968);
        let mut expected = [0u32.to_le_bytes(), 560u32.to_le_bytes()].concat();
        for n in 1024..1024 + 560u32 {
            for word in [n % 64, n / 64 % 4, n / 256, n] {
                expected.extend(word.to_le_bytes());
            }
        }
        assert!(all[0] == expected);
        assert_eq!(all[1].len(), 8 + (1024 - 560) * 16);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_value_goes_once_and_every_parity(
            nx in 1u32..20, ny in 1u32..20, nz in 2u32..20, morton: bool, run: bool, sealed: bool, encrypted: bool,
            values in 1u32..50, stream in 0usize..2, blocks in 0u32..20,
        ) {
            let shape = Shape::new(nx, ny, nz).unwrap();
            let order = if morton { Order::Morton } else { Order::Zslab };
            let packing = if run { Packing::Run } else { Packing::Xyz };
            let parity = (blocks > 0).then_some(Rate { data: blocks, parity: 2 });
            let secret: Secret = "a".repeat(52).parse().unwrap();
            let encrypted = encrypted && run;
            let key = || sealed.then(|| secret.stream(7, stream as u32, encrypted));
            let ranks = Ranks::new(shape.slab(stream as u32, 2).unwrap(), order);
            let (mut seen, mut numbers) = (Vec::new(), Vec::new());
            for mut datagram in datagrams(shape, stream, packing, order, values, parity, key()) {
                let readable = datagram.len() - if sealed { TAG } else { 0 };
                let place = match Datagram::read(&datagram[..readable]).unwrap() {
                    Datagram::Parity { number, .. } => parity_place(number),
                    Datagram::Values { word, .. } if run => word.into(),
                    Datagram::Values { word, body, .. } => {
                        let first = quads(word, body).unwrap().next().unwrap();
                        ranks.rank(first.x, first.y, first.z).unwrap().into()
                    }
                    other => panic!("{other:?}"),
                };
                let body = match key() {
                    Some(key) => key.open(0, place, &mut datagram).unwrap(),
                    None => &datagram,
                };
                match Datagram::read(body).unwrap() {
                    Datagram::Values { batch: 0, word, body } if run => {
                        for (n, value) in body.as_chunks::<4>().0.iter().enumerate() {
                            let (x, y, z) = ranks.position(word + n as u32).unwrap();
                            prop_assert_eq!(u32::from_le_bytes(*value), (z * ny + y) * nx + x);
                            seen.push(u32::from_le_bytes(*value));
                        }
                    }
                    Datagram::Values { batch: 0, word, body } => {
                        for quad in quads(word, body).unwrap() {
                            prop_assert_eq!(u32::from_le_bytes(quad.value), (quad.z * ny + quad.y) * nx + quad.x);
                            seen.push(u32::from_le_bytes(quad.value));
                        }
                    }
                    Datagram::Parity { batch: 0, number, body } => {
                        prop_assert_eq!(body.len(), values as usize * 4);
                        numbers.push(number);
                    }
                    other => panic!("{other:?}"),
                }
            }
            seen.sort_unstable();
            let first = ranks.slab().offset() as u32;
            prop_assert_eq!(seen, (first..first + ranks.slab().values()).collect::<Vec<_>>());
            prop_assert!(numbers.is_sorted() && numbers.iter().all(|n| n % 2 == stream as u32));
        }
    }
}
