//! How fast the modelled network is: every node fetches blocks of 1 MiB from random peers, several at a time,
//! and announces each to its peers. `network_load [FORM] [BLOCKS] [AT ONCE] [TOLD]`

#![allow(clippy::unwrap_used, clippy::expect_used)]

use tidecast_sim::Time;
use tidecast_sim::network::{Delivery, Model, Network, Stream};
use tidecast_sim::rng::Rng;
use tidecast_sim::topology::{NodeId, Topology};

const NEIGHBOURS: usize = 15;
const BLOCK: u64 = 1 << 20;

#[derive(Clone, Copy)]
enum Message {
    Request,
    Block,
    Have,
}

struct Load {
    network: Network<Message>,
    rng: Rng,
    /// By stream: the reverse stream, and the node at its end.
    ends: Vec<(Stream, u32)>,
    /// By node.
    streams: Vec<Vec<Stream>>,
    left: Vec<u32>,
    told: usize,
    blocks: u64,
    posts: u64,
}

impl Load {
    fn new(topology: &Topology, blocks: u32, told: usize) -> Self {
        let mut load = Load {
            network: Network::new(topology, Model::default()),
            rng: Rng::new(1),
            ends: Vec::new(),
            streams: vec![Vec::new(); topology.len() as usize],
            left: vec![blocks; topology.len() as usize],
            told,
            blocks: 0,
            posts: 0,
        };
        for node in 0..topology.len() {
            for _ in 0..NEIGHBOURS {
                let other = load.rng.below(u64::from(topology.len())) as u32;
                if other != node {
                    load.connect(node, other);
                }
            }
        }
        load
    }

    fn connect(&mut self, a: u32, b: u32) {
        let there = self.network.open(Time(0), NodeId(a), NodeId(b));
        let back = self.network.open(Time(0), NodeId(b), NodeId(a));
        self.ends.extend([(back, b), (there, a)]);
        self.streams[a as usize].push(there);
        self.streams[b as usize].push(back);
    }

    fn request(&mut self, now: Time, node: u32) {
        let stream = self.rng.pick(&self.streams[node as usize]);
        self.post(now, stream, Message::Request);
    }

    fn post(&mut self, now: Time, stream: Stream, message: Message) {
        self.posts += 1;
        self.network.post(now, stream, 40, message);
    }

    fn arrived(&mut self, now: Time, stream: Stream, message: Message) {
        let (back, node) = self.ends[stream.0 as usize];
        match message {
            Message::Request => self.network.send(now, back, BLOCK, Message::Block),
            Message::Have => {}
            Message::Block => {
                self.blocks += 1;
                for i in 0..self.told.min(self.streams[node as usize].len()) {
                    self.post(now, self.streams[node as usize][i], Message::Have);
                }
                if let Some(left) = self.left[node as usize].checked_sub(1) {
                    self.left[node as usize] = left;
                    self.request(now, node);
                }
            }
        }
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let form = args.next().unwrap_or_else(|| "single:1000@1gbit".into());
    let mut number = |default: u32| args.next().map_or(default, |arg| arg.parse().expect("a number"));
    let (blocks, at_once, told) = (number(100), number(6), number(30) as usize);
    let topology = Topology::parse(&form).expect("a short form");
    let start = std::time::Instant::now();
    let mut load = Load::new(&topology, blocks, told);
    println!("{} streams opened in {:.2?}", load.ends.len(), start.elapsed());
    let start = std::time::Instant::now();
    let mut now = Time(0);
    for node in 0..topology.len() {
        for _ in 0..at_once {
            load.request(now, node);
        }
    }
    while let Some(next) = load.network.next() {
        now = next;
        while let Some(delivery) = load.network.pop(now) {
            if let Delivery::Arrived { stream, message } = delivery {
                load.arrived(now, stream, message);
            }
        }
    }
    let took = start.elapsed();
    let per = |n: u64| took.as_nanos() as f64 / n as f64 / 1000.0;
    println!(
        "{} blocks, {} posts, {:.3} s simulated in {:.2?}: {:.2} us a block, {:.3} us a message, {:.1} fills a block",
        load.blocks,
        load.posts,
        now.0 as f64 / 1e9,
        took,
        per(load.blocks),
        per(load.blocks + load.posts),
        load.network.fills() as f64 / load.blocks as f64,
    );
}
