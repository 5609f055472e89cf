//! Local discovery (BEP 14): nodes on one network find each other by multicast, without a server.
//!
//! A swarm is announced at once when it is added, again after a minute in case that was lost, then every five
//! minutes; never twice within a minute. Packets of our own (by cookie) and about other swarms are dropped. Packets
//! do not pass routers (hop limit 1, the system's default). The interfaces are listed once, at the start.

mod group;
mod packet;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rand::RngExt;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info};

use self::group::Group;
use crate::discovered::canonical;
use crate::interfaces::{self, Interface};
use crate::{DiscoveredPeers, Error, InfoHash, Source, usable};

/// The port of BEP 14.
pub const PORT: u16 = 6771;

/// Least time between two announces of a swarm.
const LEAST: Duration = Duration::from_secs(60);
/// Time between announces when nothing happens.
const INTERVAL: Duration = Duration::from_secs(300);
/// Most swarms announced.
const MAX_SWARMS: usize = 1000;

/// Where local discovery takes place.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names of the interfaces to use; empty: all that are up and can do multicast.
    pub interfaces: Vec<String>,
    /// UDP port of the group; [`PORT`] unless clusters or tests are to be kept apart.
    pub port: u16,
}

impl Default for Options {
    fn default() -> Self {
        Self { interfaces: Vec::new(), port: PORT }
    }
}

/// Running local discovery. Dropping it ends it.
pub struct Lsd {
    commands: mpsc::UnboundedSender<Command>,
    task: JoinHandle<()>,
}

enum Command {
    Add(InfoHash, u16),
    Remove(InfoHash),
}

impl Lsd {
    /// Starts listening. Peers of swarms that were [added](Self::add) go into `found`, and are dropped while it is full.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`Error::Socket`] when no wanted interface supports multicast in either family; the
    /// caller may well continue without.
    pub fn start(options: &Options, found: mpsc::Sender<DiscoveredPeers>) -> Result<Self, Error> {
        let fail = |source| Error::Socket { what: "local discovery (multicast)".into(), source };
        let wanted = |i: &Interface| {
            if options.interfaces.is_empty() { i.multicast } else { options.interfaces.contains(&i.name) }
        };
        let mut chosen = interfaces::list().map_err(fail)?;
        chosen.retain(wanted);
        let (v4, v6) = (Group::v4(options.port, &chosen), Group::v6(options.port, &chosen));
        let (v4, v6) = match (v4, v6) {
            (Err(error), Err(_)) => return Err(fail(error)),
            (v4, v6) => (quietly(v4), quietly(v6)),
        };
        // The caller adds and removes swarms as the user does; hostile input does not come this way.
        let (commands, orders) = mpsc::unbounded_channel();
        let run = Run {
            port: options.port,
            v4,
            v6,
            cookie: format!("{:016x}", rand::random::<u64>()),
            swarms: HashMap::new(),
            found,
        };
        Ok(Self { commands, task: tokio::spawn(run.run(orders)) })
    }

    /// Announces that we are in `hash` and listen on `port`, from now on.
    pub fn add(&self, hash: InfoHash, port: u16) {
        let _ = self.commands.send(Command::Add(hash, port));
    }

    /// Stops announcing `hash`.
    pub fn remove(&self, hash: InfoHash) {
        let _ = self.commands.send(Command::Remove(hash));
    }
}

impl Drop for Lsd {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn quietly(group: io::Result<Group>) -> Option<Group> {
    group.inspect_err(|error| debug!(%error, "local discovery uses one address family only")).ok()
}

struct Run {
    port: u16,
    v4: Option<Group>,
    v6: Option<Group>,
    cookie: String,
    swarms: HashMap<InfoHash, Swarm>,
    found: mpsc::Sender<DiscoveredPeers>,
}

struct Swarm {
    /// Where we accept peers; `None` once it was removed, kept only for its rate limit.
    port: Option<u16>,
    due: Instant,
    /// When it was last announced, and how often it was.
    last: Option<Instant>,
    times: u32,
}

impl Run {
    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Command>) {
        let (mut buf4, mut buf6) = ([0; packet::MAX_PACKET], [0; packet::MAX_PACKET]);
        loop {
            let next = self.swarms.values().map(|s| s.due).min();
            let next = next.unwrap_or_else(|| Instant::now() + INTERVAL);
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Command::Add(hash, port)) => self.add(hash, port),
                    Some(Command::Remove(hash)) => {
                        if let Some(swarm) = self.swarms.get_mut(&hash) {
                            swarm.port = None;
                        }
                    }
                    None => return,
                },
                got = receive(self.v4.as_ref(), &mut buf4) => self.heard(got, &buf4),
                got = receive(self.v6.as_ref(), &mut buf6) => self.heard(got, &buf6),
                () = sleep_until(next) => self.announce_due(),
            }
        }
    }

    fn add(&mut self, hash: InfoHash, port: u16) {
        if self.swarms.len() >= MAX_SWARMS && !self.swarms.contains_key(&hash) {
            info!("too many swarms for local discovery; one is not announced");
            return;
        }
        let now = Instant::now();
        let fresh = Swarm { port: None, due: now, last: None, times: 0 };
        let swarm = self.swarms.entry(hash).or_insert(fresh);
        swarm.port = Some(port);
        swarm.times = 0;
        swarm.due = swarm.last.map_or(now, |last| now.max(last + LEAST));
    }

    /// Announces all that is due, as many swarms a packet as fit.
    fn announce_due(&mut self) {
        let now = Instant::now();
        let mut by_port: HashMap<u16, Vec<InfoHash>> = HashMap::new();
        self.swarms.retain(|hash, swarm| {
            if swarm.due > now {
                return true;
            }
            let Some(port) = swarm.port else { return false };
            by_port.entry(port).or_default().push(*hash);
            let wait = if swarm.times == 0 { LEAST } else { INTERVAL };
            swarm.times += 1;
            swarm.last = Some(now);
            swarm.due = now + wait.mul_f64(rand::rng().random_range(1.0..1.1));
            true
        });
        for (port, hashes) in by_port {
            for some in hashes.chunks(packet::MAX_HASHES) {
                for group in [&self.v4, &self.v6].into_iter().flatten() {
                    let packet = packet::write(&group.host, port, some, &self.cookie);
                    group.send(packet.as_bytes(), self.port);
                }
            }
        }
    }

    fn heard(&self, got: io::Result<(usize, SocketAddr)>, buf: &[u8]) {
        let Ok((len, from)) = got else { return };
        let Some(search) = packet::read(buf.get(..len).unwrap_or_default()) else { return };
        if search.cookie.as_ref() == Some(&self.cookie) {
            return;
        }
        let mut peer = canonical(from);
        peer.set_port(search.port);
        if !usable(&peer) {
            return;
        }
        for hash in search.hashes {
            if self.swarms.get(&hash).is_some_and(|swarm| swarm.port.is_some()) {
                let found = DiscoveredPeers { hash, source: Source::Local, peers: vec![peer] };
                if self.found.try_send(found).is_err() {
                    debug!("dropped peers of local discovery: the queue is full");
                }
            }
        }
    }
}

/// The next packet of a group; never, without a group.
async fn receive(group: Option<&Group>, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    let Some(group) = group else { return std::future::pending().await };
    let got = group.socket.recv_from(buf).await;
    if got.is_err() {
        // Should it fail for ever, it must not spin.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    got
}
