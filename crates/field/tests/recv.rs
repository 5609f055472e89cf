//! The receiver in this process, and packets with parity from here: lost packets are recovered.
#![allow(clippy::unwrap_used)]

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use tidecast_field::control::{Accepted, Bye, Hello, Message};
use tidecast_field::geometry::{Order, Ranks, Shape};
use tidecast_field::key::{Secret, StreamKey, parity_place};
use tidecast_field::packet::{Packing, Quad, VALUE, parity_head, values_head};
use tidecast_field::parity::{Encoder, Layout, Packet, Rate};
use tidecast_field::recv::{Closed, Event, Missing, Options, Policy, Receiver, Total, Volumes};

const STREAMS: u32 = 4;
const VALUES: u32 = 64;
const RATE: Rate = Rate { data: 100, parity: 20 };

/// A sender of whole steps with parity.
struct Sender {
    sockets: Vec<UdpSocket>,
    keys: Vec<StreamKey>,
    ranks: Vec<Ranks>,
    layout: Layout,
    packing: Packing,
    encoder: Encoder,
    /// Decides which packets are lost.
    dice: u64,
}

fn volume(shape: Shape, batch: u32) -> Vec<f32> {
    (0..shape.values()).map(|i| (i * 7 + u64::from(batch) * 1_000_003) as f32).collect()
}

impl Sender {
    fn new(receiver: &Receiver, secret: &Secret, shape: Shape, packing: Packing) -> Self {
        let control = secret.control();
        let (session, encrypted) = (77, packing == Packing::Run);
        let mut sockets = Vec::new();
        for (stream, to) in (0..STREAMS).zip(receiver.addresses()) {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(to).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut hello = Hello {
                stream,
                streams: STREAMS,
                first: 0,
                here: STREAMS,
                packing,
                encrypted,
                order: Order::Morton,
                session,
                challenge: 0,
                shape,
                values: VALUES,
                first_step: 0,
                steps: 1000,
                batch: 0,
                parity: Some(RATE),
                rate: 1_000_000_000,
                name: "test".into(),
            };
            loop {
                socket.send(&Message::Hello(hello.clone()).write(Some(&control))).unwrap();
                let mut buffer = [0; 1000];
                let size = socket.recv(&mut buffer).unwrap();
                let Message::Report(report) = Message::read(&buffer[..size], Some(&control)).unwrap() else {
                    panic!()
                };
                if report.accepted == Accepted::Yes {
                    break;
                }
                hello.challenge = report.challenge;
            }
            sockets.push(socket);
        }
        let slab = |stream| shape.slab(stream, STREAMS).unwrap();
        Self {
            sockets,
            keys: (0..STREAMS).map(|stream| secret.stream(session, stream, encrypted)).collect(),
            ranks: (0..STREAMS).map(|stream| Ranks::new(slab(stream), Order::Morton)).collect(),
            layout: Layout::new(shape, STREAMS, 0, STREAMS, VALUES, RATE).unwrap(),
            packing,
            encoder: Encoder::new(RATE, VALUES as usize * VALUE).unwrap(),
            dice: 12345,
        }
    }

    fn values(&self, volume: &[f32], packet: Packet) -> Vec<u8> {
        let ranks = &self.ranks[packet.stream as usize];
        let mut values = Vec::new();
        ranks.runs(packet.number * VALUES, VALUES, |place, length| {
            let from = ranks.slab().offset() as usize + place;
            values.extend(volume[from..from + length].iter().flat_map(|value| value.to_le_bytes()));
        });
        values
    }

    fn datagram(&self, batch: u32, packet: Packet, values: &[u8]) -> Vec<u8> {
        let rank = packet.number * VALUES;
        match self.packing {
            Packing::Run => [&values_head(batch, rank)[..], values].concat(),
            Packing::Xyz => {
                let (values, _) = values.as_chunks::<VALUE>();
                let mut datagram = values_head(batch, values.len() as u32).to_vec();
                for (rank, value) in (rank..).zip(values) {
                    let (x, y, z) = self.ranks[packet.stream as usize].position(rank).unwrap();
                    let mut quad = [0; 16];
                    Quad { x, y, z, value: *value }.write(&mut quad);
                    datagram.extend(quad);
                }
                datagram
            }
        }
    }

    /// One packet in `one_in` is lost, data and parity alike (0: none).
    fn send(&mut self, stream: u32, batch: u32, place: u64, mut datagram: Vec<u8>, one_in: u64) {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if one_in > 0 && (self.dice >> 33).is_multiple_of(one_in) {
            return;
        }
        self.keys[stream as usize].seal(batch, place, 0, &mut datagram);
        self.sockets[stream as usize].send(&datagram).unwrap();
    }

    fn step(&mut self, volume: &[f32], batch: u32, one_in: u64) {
        for block in 0..self.layout.blocks() {
            let count = self.layout.data(block);
            self.encoder.begin(count).unwrap();
            for shard in 0..count {
                let packet = self.layout.packet(block, shard).unwrap();
                let values = self.values(volume, packet);
                self.encoder.add(&values).unwrap();
                let datagram = self.datagram(batch, packet, &values);
                self.send(packet.stream, batch, u64::from(packet.number * VALUES), datagram, one_in);
            }
            let mut parity = Vec::new();
            self.encoder.finish(|number, shard| parity.push((number, shard.to_vec()))).unwrap();
            for (number, shard) in parity {
                let number = block as u32 * RATE.parity + number;
                let stream = self.layout.parity_stream(number);
                let datagram = [&parity_head(batch, number)[..], &shard].concat();
                self.send(stream, batch, parity_place(number), datagram, one_in);
            }
            // No buffer is to overflow: the test chooses the lost packets.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn start(name: &str, secret: &Secret, volumes: Volumes) -> Receiver {
    Receiver::start(&Options {
        listen: "127.0.0.1:0".parse().unwrap(),
        streams: STREAMS,
        name: format!("test-{name}-{}", std::process::id()),
        secret: Some(secret.clone()),
        policy: Policy { volumes, missing: Missing::Nan, complete: false },
        ..Options::default()
    })
    .unwrap()
}

fn steps(receiver: &Receiver, count: usize) -> Vec<Closed> {
    let (mut steps, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(60));
    while steps.len() < count {
        match receiver.events().recv_deadline(deadline).unwrap() {
            Event::Step(closed) => steps.push(closed),
            Event::Session { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    steps
}

#[test]
fn parity_brings_back_what_is_lost() {
    for (volumes, packing) in
        [(Volumes::Steps, Packing::Run), (Volumes::Live, Packing::Run), (Volumes::Steps, Packing::Xyz)]
    {
        let secret = Secret::random();
        let shape = Shape::new(33, 20, 41).unwrap();
        let mut receiver = start(&format!("parity-{volumes:?}-{packing}"), &secret, volumes);
        let mut sender = Sender::new(&receiver, &secret, shape, packing);
        let mut recovered = 0;
        for batch in 0..10 {
            let values = volume(shape, batch);
            // 5% are lost, of 20% parity.
            sender.step(&values, batch, 20);
            let closed = steps(&receiver, 1).remove(0);
            assert_eq!((closed.batch, closed.missing), (batch, 0), "{closed:?}");
            recovered += closed.recovered;
            let shared = std::fs::read(format!(
                "/dev/shm/tidecast-field-test-parity-{volumes:?}-{packing}-{}",
                std::process::id()
            ))
            .unwrap();
            let word =
                |offset: usize| u64::from_le_bytes(shared[offset..offset + 8].try_into().unwrap()) as usize;
            let front = word(72) + word(88) * word(80);
            let here: Vec<f32> = shared[front..front + values.len() * 4]
                .as_chunks()
                .0
                .iter()
                .map(|value| f32::from_le_bytes(*value))
                .collect();
            assert!(here == values, "batch {batch}");
        }
        assert!(recovered > 20, "{recovered}");
        receiver.end();
        let totals = receiver.totals();
        assert_eq!(totals.iter().map(|total| total.recovered).sum::<u64>(), recovered);
        assert!(totals.iter().all(|total| total.rejected == 0 && total.complete == 10));
        assert!(totals.iter().map(|total| total.lost).sum::<u64>() >= recovered);
    }
}

#[test]
fn parity_that_is_not_needed_is_not_late() {
    let secret = Secret::random();
    let shape = Shape::new(33, 20, 41).unwrap();
    let mut receiver = start("spare", &secret, Volumes::Steps);
    let mut sender = Sender::new(&receiver, &secret, shape, Packing::Run);
    for batch in 0..5 {
        // The last block's parity comes when the step has closed.
        sender.step(&volume(shape, batch), batch, 0);
        assert_eq!(steps(&receiver, 1)[0].missing, 0);
    }
    let all = 5 * (sender.layout.total() + sender.layout.blocks() * u64::from(RATE.parity));
    let sum = |receiver: &Receiver, of: fn(&Total) -> u64| receiver.totals().iter().map(of).sum::<u64>();
    let until = Instant::now() + Duration::from_secs(60);
    while sum(&receiver, |total| total.packets) < all && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    receiver.end();
    assert_eq!((sum(&receiver, |total| total.packets), sum(&receiver, |total| total.stale)), (all, 0));
}

#[test]
fn what_parity_cannot_bring_back_is_missing() {
    let secret = Secret::random();
    let shape = Shape::new(33, 20, 41).unwrap();
    let mut receiver = start("toomuch", &secret, Volumes::Steps);
    let mut sender = Sender::new(&receiver, &secret, shape, Packing::Run);
    let values = volume(shape, 0);
    sender.step(&values, 0, 2);
    let control = secret.control();
    sender.sockets[0].send(&Message::Bye(Bye { session: 77, challenge: 0 }).write(Some(&control))).unwrap();
    let closed = steps(&receiver, 1).remove(0);
    assert_eq!(closed.expected, sender.layout.total());
    assert!(
        closed.missing > 0
            && closed.received < closed.expected
            && closed.recovered < closed.expected - closed.received
    );
    receiver.end();
}
