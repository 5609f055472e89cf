//! The membership of daemons: drives [`tidecast_members`] over the control channels. Its results are only
//! hints where to ask; answers are verified where they are used.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tidecast_hash::sha256;
use tidecast_identity::{NodeId, NodeKey};
use tidecast_members::{Change, Claim, Describe, Event, Key, Limits, Members, Record, Slot};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::clock::Clock;
use crate::links::peers::Links;
use crate::model::message::Ask;

/// Messages queued for the membership; further frames are dropped (gossip is repeated), further requests
/// wait.
const QUEUE: usize = 4096;
/// Members dialled at once to tell them something.
const MAX_CONNECTING: usize = 128;
/// Daemons whose addresses are kept, running or not.
const MAX_ADDRESSES: usize = 16_384;
/// Lifetime of the announcement that this host holds a cache, milliseconds; it is renewed at half time.
const LIFE: u64 = 30 * 60 * 1000;
/// A lookup answers within this time; its own bound is shorter.
const FOUND: Duration = Duration::from_secs(10);

/// Where the members are that are alive.
pub(crate) type Alive = BTreeMap<NodeId, Vec<SocketAddr>>;

/// Commands to the membership.
enum Command {
    /// A frame of a daemon that has shown a good card.
    Received(NodeId, Bytes),
    /// A daemon was reached: its members become known here.
    Met(NodeId, Vec<SocketAddr>),
    /// The last channel to it has ended.
    Lost(NodeId),
    Announce(Claim, u64),
    Withdraw(Slot),
    Carry(Record),
    Drop(Slot),
    Look(Key, oneshot::Sender<Vec<Record>>),
    Leave(oneshot::Sender<()>),
}

/// A handle to the membership.
pub(crate) struct Membership {
    me: NodeId,
    commands: mpsc::Sender<Command>,
    alive: Arc<RwLock<Alive>>,
    changes: watch::Receiver<u64>,
}

/// Runs the membership over the links.
pub(crate) struct Driver {
    members: Members<NodeKey>,
    queue: mpsc::Receiver<Command>,
    alive: Arc<RwLock<Alive>>,
    changes: watch::Sender<u64>,
    looks: BTreeMap<u64, oneshot::Sender<Vec<Record>>>,
    /// Where daemons were last, alive or not.
    addresses: Alive,
    connecting: Arc<Mutex<BTreeSet<NodeId>>>,
    clock: Clock,
}

impl Membership {
    /// A membership of one.
    pub(crate) fn new(key: &NodeKey, card: &str, addresses: Vec<SocketAddr>, clock: Clock) -> (Self, Driver) {
        let now = clock.millis();
        let describe = Describe { incarnation: now, card: sha256(card.as_bytes()), addresses };
        let members = Members::new(key.clone(), describe, Limits::default(), rand::random(), now);
        let (commands, queue) = mpsc::channel(QUEUE);
        let (tell, changes) = watch::channel(0);
        let alive: Arc<RwLock<Alive>> = Arc::default();
        let membership = Self { me: key.id(), commands, alive: Arc::clone(&alive), changes };
        let driver = Driver {
            members,
            queue,
            alive,
            changes: tell,
            looks: BTreeMap::new(),
            addresses: Alive::new(),
            connecting: Arc::default(),
            clock,
        };
        (membership, driver)
    }

    /// This daemon.
    pub(crate) fn me(&self) -> NodeId {
        self.me
    }

    /// The members that are alive, but this one.
    pub(crate) fn alive(&self) -> Alive {
        self.alive.read().clone()
    }

    /// Changes whenever a member joins or leaves.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// A frame has come.
    pub(crate) fn heard(&self, from: NodeId, frame: Bytes) {
        let _ = self.commands.try_send(Command::Received(from, frame));
    }

    /// A daemon is reached.
    pub(crate) fn met(&self, node: NodeId, addresses: Vec<SocketAddr>) {
        let _ = self.commands.try_send(Command::Met(node, addresses));
    }

    /// The last channel to a daemon has ended: it may be dead.
    pub(crate) fn lost(&self, node: NodeId) {
        let _ = self.commands.try_send(Command::Lost(node));
    }

    /// This host holds (`complete`) a cache from now on, or is getting it; see [`crate::model::signed_name::held`].
    pub(crate) async fn holds(&self, held: [u8; 32], complete: bool) {
        self.tell(Command::Announce(Claim::Holder { cache: held, complete }, LIFE)).await;
    }

    /// This host no longer holds it.
    pub(crate) async fn holds_not(&self, held: &[u8; 32]) {
        self.withdraw(Slot { key: Key::holders(held), signer: self.me, version: 0 }).await;
    }

    /// Announces the meaning of a name of this origin.
    pub(crate) async fn name(&self, claim: Claim) {
        self.tell(Command::Announce(claim, crate::directory::names::LIFE)).await;
    }

    /// Passes on a signed record: holders of a cache keep it when its origin has left.
    pub(crate) async fn carry(&self, record: Record) {
        self.tell(Command::Carry(record)).await;
    }

    /// Withdraws an announcement of this host.
    pub(crate) async fn withdraw(&self, slot: Slot) {
        self.tell(Command::Withdraw(slot)).await;
    }

    /// This host no longer renews it: it expires.
    pub(crate) async fn forget(&self, slot: Slot) {
        self.tell(Command::Drop(slot)).await;
    }

    /// Records about a name, newest version first.
    pub(crate) async fn named(&self, origin: &str, name: &str) -> Vec<Record> {
        let mut found = self.look(Key::name(origin, name)).await;
        found.sort_by_key(|record| std::cmp::Reverse((version(record), record.seq)));
        found
    }

    /// The members that hold a cache, and whether they hold all of it, by their own announcements.
    pub(crate) async fn holders(&self, held: &[u8; 32]) -> Vec<(NodeId, bool)> {
        let found = self.look(Key::holders(held)).await;
        let alive = self.alive.read();
        let said = found.iter().filter_map(|record| match record.claim {
            Claim::Holder { complete, .. } => Some((record.signer, complete)),
            Claim::Name { .. } => None,
        });
        said.filter(|(node, _)| *node == self.me || alive.contains_key(node)).collect()
    }

    /// Tells the other members that this one leaves.
    pub(crate) async fn leave(&self) {
        let (tell, left) = oneshot::channel();
        self.tell(Command::Leave(tell)).await;
        let _ = timeout(FOUND, left).await;
    }

    async fn look(&self, key: Key) -> Vec<Record> {
        let (tell, found) = oneshot::channel();
        self.tell(Command::Look(key, tell)).await;
        timeout(FOUND, found).await.ok().and_then(Result::ok).unwrap_or_default()
    }

    async fn tell(&self, command: Command) {
        let _ = self.commands.send(command).await;
    }
}

fn version(record: &Record) -> u32 {
    match &record.claim {
        Claim::Name { version, .. } => *version,
        Claim::Holder { .. } => 0,
    }
}

impl Driver {
    /// Until the task is ended.
    pub(crate) async fn run(mut self, links: Arc<Links>) {
        loop {
            let wait = self.members.next_tick().saturating_sub(self.clock.millis());
            // The clock by which it was reckoned may be set back.
            let tick = Instant::now() + Duration::from_millis(wait.min(1_000));
            let mut left = None;
            tokio::select! {
                command = self.queue.recv() => match command {
                    Some(Command::Leave(tell)) => {
                        self.members.leave(self.clock.millis());
                        left = Some(tell);
                    }
                    Some(command) => self.apply(command),
                    None => return,
                },
                () = sleep_until(tick) => self.members.tick(self.clock.millis()),
            }
            self.react(&links);
            self.send(&links);
            if let Some(tell) = left {
                let _ = tell.send(());
            }
        }
    }

    fn apply(&mut self, command: Command) {
        let now = self.clock.millis();
        match command {
            Command::Received(from, frame) => self.members.receive(from, &frame, now),
            Command::Met(node, addresses) => {
                self.place(node, addresses);
                if self.members.member(node).is_none() {
                    self.members.join(node, now);
                }
            }
            Command::Lost(node) => self.members.lost(node, now),
            Command::Announce(claim, life) => {
                if self.members.announce(claim, life, now).is_none() {
                    tracing::warn!("a cache name is too long to be announced to other daemons");
                }
            }
            Command::Withdraw(slot) => self.members.withdraw(&slot, now),
            Command::Carry(record) => drop(self.members.carry(record, now)),
            Command::Drop(slot) => self.members.drop_record(&slot),
            Command::Look(key, tell) => {
                let id = self.members.lookup(key, now);
                self.looks.insert(id, tell);
            }
            Command::Leave(_) => {}
        }
    }

    fn place(&mut self, node: NodeId, addresses: Vec<SocketAddr>) {
        if self.addresses.len() >= MAX_ADDRESSES {
            let members = &self.members;
            self.addresses.retain(|node, _| members.member(*node).is_some());
        }
        if !addresses.is_empty() {
            self.addresses.insert(node, addresses);
        }
    }

    fn react(&mut self, links: &Links) {
        let mut changed = false;
        for event in self.members.take_events() {
            match event {
                Event::Member(change) => {
                    tracing::debug!(?change, "membership changed");
                    changed = true;
                    match change {
                        Change::Up(peer) | Change::Renamed(peer) => {
                            self.place(peer.node(), peer.addresses().to_vec());
                        }
                        // Requests that wait for its answer go to another member.
                        Change::Down(node) => links.part(node),
                        Change::Rejoined(_) => {}
                    }
                }
                Event::Found(found) => {
                    if let Some(tell) = self.looks.remove(&found.id) {
                        let _ = tell.send(found.records);
                    }
                }
                Event::Misbehaved(node) => tracing::warn!(%node, "a member sent an invalid message"),
            }
        }
        if changed {
            let me = self.members.me().node();
            let alive = self.members.alive().filter(|peer| peer.node() != me);
            *self.alive.write() = alive.map(|peer| (peer.node(), peer.addresses().to_vec())).collect();
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Frames go over channels that are up, or are made for it; one that cannot be sent is dropped.
    fn send(&mut self, links: &Arc<Links>) {
        for (node, frame) in self.members.take_messages() {
            let frame = Bytes::from(frame);
            if let Some(link) = links.to(node) {
                link.tell(&Ask::Membership, frame);
                continue;
            }
            let Some(addresses) = self.addresses.get(&node).cloned() else { continue };
            let mut in_flight = self.connecting.lock();
            if in_flight.len() >= MAX_CONNECTING || !in_flight.insert(node) {
                continue;
            }
            let (links, connecting) = (links.clone(), self.connecting.clone());
            tokio::spawn(async move {
                match links.reach(node, &addresses).await {
                    Ok(link) => link.tell(&Ask::Membership, frame),
                    Err(error) => tracing::debug!(%node, %error, "cannot reach a member"),
                }
                connecting.lock().remove(&node);
            });
        }
    }
}
