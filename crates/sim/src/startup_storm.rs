//! File servers when a job starts: every node looks up and reads the same files at the same moment.
//!
//! Each client works as a dynamic loader does: it asks about names, one at a time, then reads the file, then
//! the next one. The name server answers one operation after the other; data comes over the modelled network
//! from the server that has the file, out of its memory. Left out are disks, the servers' own locks and
//! retries, and the bytes of requests. So this is the best case of such a server.

use tidecast_swarm::Time;

use crate::network::{Delivery, Model, Stream};
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::stage::{Stage, Step};
use crate::topology::{Node, NodeId, Topology};

/// Steps in which a client works: more files are looked up and read several at a time.
const STEPS: u32 = 128;
/// Bytes of a request for a name and its answer together (NFSv3 LOOKUP with attributes, over TCP).
const ASKED: u64 = 400;

/// A file server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Operations on names per second.
    pub names: u64,
    /// Servers of data in addition to the origin's node, on its switch; 0: the origin's node serves them too.
    pub objects: u32,
    /// Bits per second of each of those; 0: the rate of the origin's node.
    pub rate: u64,
    /// Clients keep names and attributes, so that each name is asked for once.
    pub cached: bool,
}

impl Server {
    /// One NFS server on node 0, for names and data, over node 0's link. Its 20,000 operations a second are
    /// an assumption: a Linux server that answers from memory.
    pub const NFS: Server = Server { names: 20_000, objects: 0, rate: 0, cached: true };
    /// Lustre: a metadata server on node 0, 8 object servers, a file on one of them (stripe count 1, the
    /// default). Its 100,000 operations a second are an assumption between measurements: `stat` alone
    /// (mdtest, Dell 2015 to 2017, Lustre 2.5 and 2.7) goes from 2,000 with one client to 400,000 and more
    /// with 240, `open` costs more, and 30,000 a second from one job's imports overloaded a server
    /// (SYMFLUENCE issue 21).
    pub const LUSTRE: Server = Server { names: 100_000, objects: 8, rate: 0, cached: true };

    /// All names.
    pub const NAMES: [&'static str; 4] = ["nfs", "nfs-uncached", "lustre", "lustre-uncached"];

    /// The server of that name on the command line.
    #[must_use]
    pub fn parse(name: &str) -> Option<Server> {
        match name {
            "nfs" => Some(Server::NFS),
            "nfs-uncached" => Some(Server { cached: false, ..Server::NFS }),
            "lustre" => Some(Server::LUSTRE),
            "lustre-uncached" => Some(Server { cached: false, ..Server::LUSTRE }),
            _ => None,
        }
    }
}

/// The files that each client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Files, of equal size.
    pub files: u32,
    /// Operations on names in all where clients keep none.
    pub operations: u64,
    /// The same where they keep them.
    pub cached: u64,
    /// Bytes in all.
    pub size: u64,
}

impl Load {
    /// A Python program that imports 122 shared libraries, counted at the kernel's file-system
    /// interface: 953 GETATTR and 530 LOOKUP without caching, 127 LOOKUP and 124 OPEN with; 546 reads of
    /// at most 128 KiB.
    pub const PYTHON: Load =
        Load { files: 122, operations: 953 + 530, cached: 127 + 124, size: 546 * (128 << 10) };

    /// Libraries of `size` bytes in all, each as long as those of the Pynamic benchmark as BitLib ran it
    /// (495 of them, 1.4 GB), with as many operations each as Python's.
    #[must_use]
    pub fn libraries(size: u64) -> Load {
        let files = (size / (1_400_000_000 / 495)).clamp(1, 1 << 24);
        let (python, of) = (Load::PYTHON, u64::from(Load::PYTHON.files));
        let per_file = |operations: u64| files * operations / of;
        Load {
            files: files as u32,
            operations: per_file(python.operations),
            cached: per_file(python.cached),
            size,
        }
    }
}

/// All nodes but the first start at once; the first is the server.
#[derive(Clone, Debug)]
pub struct Storm<'a> {
    /// The cluster.
    pub topology: &'a Topology,
    /// The network's behaviour.
    pub model: Model,
    /// The server.
    pub server: Server,
    /// The work of each client.
    pub load: Load,
    /// The run ends here, finished or not.
    pub until: Time,
}

/// Runs it. The outcome lists the clients; with object servers, their ports follow the clients'.
#[must_use]
pub fn run(storm: &Storm<'_>, progress: &Progress) -> Outcome {
    let (server, load) = (storm.server, storm.load);
    let mut topology = storm.topology.clone();
    let origin = topology.nodes[0];
    let rate = if server.rate > 0 { server.rate } else { origin.rate };
    topology.nodes.extend(std::iter::repeat_n(Node { rate, ..origin }, server.objects as usize));

    let count = storm.topology.nodes.len() - 1;
    let mut stage = Stage::new(&topology, storm.model, storm.until, progress);
    stage.of = count as u64;
    let mut away = |client: u32| stage.net.rtt(NodeId(client + 1), NodeId(0)) / 2;
    let clients = (0..count as u32).map(|c| Client { step: 0, left: 0, away: away(c) }).collect();
    let mut run = Run {
        storm,
        stage,
        steps: load.files.clamp(1, STEPS),
        operations: if server.cached { load.cached } else { load.operations },
        streams: vec![vec![None; server.objects.max(1) as usize]; count],
        clients,
        finished: vec![None; count],
        free: Time(0),
        sent: 0,
    };
    run.all();
    run.finish()
}

/// The events of a client beside received data.
enum ClientEvent {
    /// Its question has arrived at the server of names.
    Asked(u32),
    /// The answer is back.
    Answered(u32),
    /// Its request for data has arrived.
    Wanted(u32),
}

struct Client {
    step: u32,
    /// Operations left in this step.
    left: u64,
    /// One way to the server of names, nanoseconds.
    away: u64,
}

struct Run<'a> {
    storm: &'a Storm<'a>,
    stage: Stage<'a, u32, ClientEvent>,
    steps: u32,
    operations: u64,
    /// By client and server of data.
    streams: Vec<Vec<Option<Stream>>>,
    clients: Vec<Client>,
    finished: Vec<Option<Time>>,
    /// When the server of names has answered all it was asked.
    free: Time,
    sent: u64,
}

impl Run<'_> {
    fn all(&mut self) {
        for client in 0..self.clients.len() as u32 {
            self.begin(client);
        }
        while let Some(step) = self.stage.next() {
            match step {
                Step::Net(Delivery::Arrived { message: client, .. }) => {
                    self.clients[client as usize].step += 1;
                    self.begin(client);
                }
                Step::Net(Delivery::Sent { .. }) => {}
                Step::Beside(ClientEvent::Asked(client)) => self.answer(client),
                Step::Beside(ClientEvent::Answered(client)) => self.ask(client),
                Step::Beside(ClientEvent::Wanted(client)) => self.serve(client),
            }
        }
    }

    /// Starts a client's next step, or ends its work.
    fn begin(&mut self, client: u32) {
        let c = &mut self.clients[client as usize];
        self.stage.note(u64::from(client));
        if c.step == self.steps {
            self.finished[client as usize] = Some(self.stage.now);
            self.stage.done += 1;
            return;
        }
        let upto = |step: u32| self.operations * u64::from(step) / u64::from(self.steps);
        c.left = upto(c.step + 1) - upto(c.step);
        self.ask(client);
    }

    /// Asks about a name or, when all of this step are known, for the data.
    fn ask(&mut self, client: u32) {
        let c = &mut self.clients[client as usize];
        let thing = if c.left > 0 { ClientEvent::Asked(client) } else { ClientEvent::Wanted(client) };
        c.left = c.left.saturating_sub(1);
        self.stage.queue.push(Time(self.stage.now.0 + c.away), thing);
    }

    /// The name server handles it when it has answered all requests before.
    fn answer(&mut self, client: u32) {
        let takes = 1_000_000_000 / self.storm.server.names.max(1);
        self.free = Time(self.free.max(self.stage.now).0 + takes);
        let back = Time(self.free.0 + self.clients[client as usize].away);
        self.stage.queue.push(back, ClientEvent::Answered(client));
    }

    /// Sends a step's data; steps, as files, go round the servers of data.
    fn serve(&mut self, client: u32) {
        let (size, step) = (self.storm.load.size, self.clients[client as usize].step);
        let upto = |step: u32| (u128::from(size) * u128::from(step) / u128::from(self.steps)) as u64;
        let bytes = upto(step + 1) - upto(step);
        self.sent += bytes;
        let (which, server) = match self.storm.server.objects {
            0 => (0, 0),
            n => (step % n, self.storm.topology.len() + step % n),
        };
        let (net, now) = (&mut self.stage.net, self.stage.now);
        let stream = *self.streams[client as usize][which as usize]
            .get_or_insert_with(|| net.open(now, NodeId(server), NodeId(client + 1)));
        net.send(now, stream, bytes.max(1), client);
    }

    fn finish(self) -> Outcome {
        Outcome {
            control: self.operations * ASKED * self.finished.len() as u64,
            finished: self.finished,
            size: self.storm.load.size,
            origin_sent: self.sent,
            ..self.stage.finish()
        }
    }
}
