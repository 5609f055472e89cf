//! Runs the engine on a thread of its own: inputs from connections and disk go in, actions go out. It never waits
//! for a disk or a socket; a connection that cannot keep up is closed.

mod address_book;
mod conn;
mod dispatch;
mod group_state;
mod id;
mod join_plan;
mod members;
mod plan;
mod progress;
mod stall;
mod want;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidecast_identity::NodeId;
use tidecast_metainfo::Manifest;
use tidecast_swarm::plan::Role;
use tidecast_swarm::{Action, Candidate, Engine, Event, PeerId, Protocol, Time};
use tokio::sync::{mpsc, oneshot, watch};

use crate::cpu::Stage;
use crate::dial::CONNECTING;
use crate::error::{ConnError, Fault};
use crate::input::{Input, NewPeer, OnVerified, Out};
use crate::member::{Complained, Group};
use crate::report::{Notice, PeerReport, Progress, Summary};
use crate::shared::Shared;
use crate::web_seed::{Seed, key_of};
use address_book::{AddressBook, Culprit};
use conn::Conn;
use group_state::GroupState;
use members::Members;
use stall::Stall;

/// Inputs taken in one go before actions are drained.
const BATCH: usize = 256;
/// How often a snapshot of progress is published.
const PROGRESS: Duration = Duration::from_millis(100);
/// Interval of introductions of peers to each other.
const INTRODUCE: Duration = Duration::from_secs(2);
/// A new peer is introduced after this time, together with those that follow it directly.
const NEWCOMER: Duration = Duration::from_millis(100);
/// How long a peer that stalled is left alone.
const SHUN: Duration = Duration::from_secs(60);
/// The same where it is the only peer.
const SHUN_ONLY: Duration = Duration::from_secs(5);

/// Reports of ended connections that are kept; later ones only count in the totals.
const MAX_REPORTS: usize = 4096;
/// Listening addresses that are passed on.
const MAX_MET: usize = 16_384;
/// Addresses of one peer that are noted beside the one that it is connected by.
const MAX_OTHERS: usize = 8;
/// Disconnected peers that may still be blamed for data that they sent.
const MAX_GONE: usize = 256;

/// Identity of a disconnected peer.
type Gone = (SocketAddr, Option<NodeId>, Option<Arc<Seed>>);

pub(crate) struct Driver {
    shared: Arc<Shared>,
    manifest: Arc<Manifest>,
    engine: Engine,
    /// Scratch, kept so that nothing is allocated per batch.
    actions: Vec<Action>,
    start: Instant,
    address_book: AddressBook,
    /// Our part in the plan, if there is one.
    role: Option<Arc<Role>>,
    members: Members,
    complaints: mpsc::Sender<Complained>,
    group_state: GroupState,
    /// Addresses that the user or a ticket has named.
    told: BTreeSet<SocketAddr>,
    /// Peers are not introduced to each other: a plan determines the connections.
    planned: bool,
    conns: BTreeMap<PeerId, Conn>,
    /// Listening addresses in the order in which they were met.
    met: Vec<SocketAddr>,
    ended: Vec<PeerReport>,
    /// Payload sent over all connections, closed ones included, bytes.
    sent: u64,
    /// Peers that left before the verdict on all that they sent.
    gone: BTreeMap<PeerId, Gone>,
    /// Pieces not wanted by the user are not fetched after a failed check either.
    wanted: Vec<bool>,
    /// Hears of each piece that is verified, where pieces are fetched on demand.
    verified: Option<OnVerified>,
    /// Pieces that may be on disk and have not been judged.
    unchecked: BTreeSet<u32>,
    /// The engine knows that all below it are.
    judged: u32,
    corrupt: u64,
    stopping: Option<oneshot::Sender<Summary>>,
    progress: watch::Sender<Progress>,
    notices: mpsc::Sender<Notice>,
    published: Instant,
    next_introduction: Instant,
    wanted_bytes: u64,
    verified_bytes: u64,
    stall: Stall,
}

/// Start parameters of the driver.
pub(crate) struct Start {
    pub(crate) engine: Engine,
    pub(crate) wanted: Vec<bool>,
    pub(crate) verified: Option<OnVerified>,
    pub(crate) unchecked: BTreeSet<u32>,
    pub(crate) verified_bytes: u64,
    pub(crate) progress: watch::Sender<Progress>,
    pub(crate) notices: mpsc::Sender<Notice>,
    pub(crate) complaints: mpsc::Sender<Complained>,
    pub(crate) group: Group,
    /// A plan determines the connections.
    pub(crate) planned: bool,
}

impl Driver {
    pub(crate) fn new(shared: Arc<Shared>, start: Start) -> Driver {
        let now = Instant::now();
        let manifest = shared.manifest.clone();
        let piece_len = |p: usize| u64::from(manifest.piece_len(p as u32));
        let wanted_bytes =
            start.wanted.iter().enumerate().filter(|(_, w)| **w).map(|(p, _)| piece_len(p)).sum();
        Driver {
            manifest,
            engine: start.engine,
            actions: Vec::with_capacity(BATCH),
            start: shared.start,
            address_book: AddressBook::default(),
            role: None,
            members: Members::default(),
            complaints: start.complaints,
            group_state: GroupState::new(start.group),
            told: BTreeSet::new(),
            planned: start.planned,
            conns: BTreeMap::new(),
            met: Vec::new(),
            ended: Vec::new(),
            sent: 0,
            gone: BTreeMap::new(),
            wanted: start.wanted,
            verified: start.verified,
            unchecked: start.unchecked,
            judged: u32::MAX,
            corrupt: 0,
            stopping: None,
            progress: start.progress,
            notices: start.notices,
            published: now,
            next_introduction: now + INTRODUCE,
            wanted_bytes,
            verified_bytes: start.verified_bytes,
            stall: Stall::default(),
            shared,
        }
    }

    /// Runs until stopped, or until all senders of inputs are gone.
    pub(crate) async fn run(mut self, mut inbox: mpsc::Receiver<Input>) {
        let mut batch = Vec::with_capacity(BATCH);
        self.judge_found();
        self.drain();
        self.publish();
        while self.stopping.is_none() {
            let wake = self.next_wake();
            tokio::select! {
                biased;
                n = inbox.recv_many(&mut batch, BATCH) => if n == 0 { break },
                () = tokio::time::sleep_until(wake.into()) => self.engine_event(Event::Tick),
            }
            for input in batch.drain(..) {
                self.take(input);
            }
            self.judge_found();
            self.drain();
            self.regular();
        }
        self.stop();
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn next_wake(&self) -> Instant {
        let regular = (self.published + PROGRESS).min(self.next_introduction);
        let regular = self.group_state.wakeup(self.start).map_or(regular, |at| at.min(regular));
        let engine = self.engine.wakeup().map(|t| self.start + Duration::from_nanos(t.0));
        engine.map_or(regular, |t| t.min(regular))
    }

    fn engine_event(&mut self, event: Event) {
        let now = self.now();
        let Driver { engine, shared, .. } = self;
        shared.cpu.measure(Stage::Engine, || engine.handle(now, event));
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Event(event) => self.counted(event),
            Input::Settled(stored, verdict) => {
                self.counted(stored);
                self.counted(verdict);
            }
            Input::Up(new) => self.up(*new),
            Input::Hello { peer, client, port, upload_only } => {
                self.hello(peer, client, port);
                if upload_only {
                    self.engine_event(Event::UploadOnly { peer });
                }
            }
            Input::Down { peer, why } => {
                if let Some((addr, node)) = self.conns.get(&peer).map(|c| (c.addr, c.node)) {
                    self.judge(addr, node, why.as_ref());
                }
                self.down(peer, why.map(|e| e.to_string()).as_deref());
            }
            Input::DialFailed { candidate, last } => {
                let refused = last.as_ref().is_some_and(|(_, why)| why.is_refusal());
                if let Some((addr, why)) = last {
                    tracing::debug!(%addr, %why, "dial failed");
                    self.judge(
                        addr,
                        None,
                        Some(&why).filter(|w| !matches!(w, ConnError::Late { what: CONNECTING, .. })),
                    );
                }
                self.engine_event(match refused {
                    true => Event::DialRefused { candidate },
                    false => Event::DialFailed { candidate },
                });
            }
            Input::Call { addresses } => {
                let known = addresses.iter().find_map(|a| self.address_book.find(*a));
                if let Some(candidate) = self.address_book.enter(&addresses).or(known) {
                    self.engine_event(Event::Retry { candidate });
                }
            }
            Input::Found { addresses, told } => {
                if told {
                    self.told.extend(addresses.iter().copied());
                }
                if let Some(candidate) = self.address_book.enter(&addresses) {
                    self.engine_event(Event::Candidate { candidate, told });
                }
            }
            Input::WebSeed(seed) => {
                if let Some(candidate) = self.address_book.enter_web(seed) {
                    self.engine_event(Event::Candidate { candidate, told: true });
                }
            }
            Input::Follow { node } => self.group_state.follow(node),
            Input::PlanMessage { peer, bytes } => self.plan_message(peer, &bytes),
            Input::Plan { role, members } => self.plan(role, members),
            Input::Want { pieces, urgency } => self.want(pieces, urgency),
            Input::Checked { piece, read } => self.checked(piece, read),
            Input::Roots => self.pass_on_roots(),
            Input::StoreFailed(error) => {
                tracing::error!(%error, "the store failed");
                self.notify(Notice::Store { error: Arc::new(error) });
            }
            Input::Notice(Notice::Unreachable { addr, why, .. }) => {
                self.notify(Notice::Unreachable { addr, why, told: self.told.contains(&addr) });
            }
            Input::Notice(notice) => self.notify(notice),
            Input::Recheck => self.recheck(),
            Input::Report(reply) => {
                // The requester may have ended.
                let _ = reply.send(self.reports());
            }
            Input::Stop(reply) => self.stopping = Some(reply),
        }
    }

    fn counted(&mut self, event: Event) {
        self.count(&event);
        let verified = match event {
            Event::PieceVerified { piece } => Some(piece),
            _ => None,
        };
        self.engine_event(event);
        if let (Some(piece), Some(tell)) = (verified, &self.verified) {
            tell(piece);
        }
    }

    /// Keeps the books of bytes per peer that people read; the engine keeps its own for decisions.
    fn count(&mut self, event: &Event) {
        match event {
            Event::Received { peer, block } => {
                if let Some(conn) = self.conns.get_mut(peer) {
                    conn.received += u64::from(block.len);
                }
            }
            Event::Sent { peer, block } => {
                if let Some(conn) = self.conns.get_mut(peer) {
                    conn.sent += u64::from(block.len);
                    self.sent += u64::from(block.len);
                }
            }
            Event::BlockBad { peer, block } => {
                self.corrupt += u64::from(block.len);
                if let Some((addr, node, web)) = self.gone.remove(peer) {
                    if let Some(seed) = web {
                        return self.condemn_web(&seed);
                    }
                    self.condemn(addr, node, None, "it sent bytes that do not match their hashes".to_owned());
                }
            }
            Event::HasNot { peer, piece } if self.is_wanted(*piece) && !self.engine.have(*piece) => {
                let Some(conn) = self.conns.get_mut(peer) else { return };
                let addr = conn.addr;
                if conn.web.is_none() && !std::mem::replace(&mut conn.withdrew, true) {
                    self.notify(Notice::Withdrew { addr });
                }
            }
            Event::PieceLost { piece } if self.is_wanted(*piece) && self.engine.have(*piece) => {
                self.verified_bytes -= u64::from(self.manifest.piece_len(*piece));
            }
            Event::PieceVerified { piece } if self.is_wanted(*piece) && !self.engine.have(*piece) => {
                self.verified_bytes += u64::from(self.manifest.piece_len(*piece));
            }
            _ => {}
        }
    }

    fn up(&mut self, new: NewPeer) {
        if let Err(why) = self.admit(&new) {
            tracing::debug!(addr = %new.addr, why, "rejected a connection");
            let _ = new.outbox.try_send(Out::Close);
            if let Some(candidate) = new.candidate {
                self.met_already(candidate, new.remote_id);
            }
            return;
        }
        if new.enrolled {
            self.engine_event(Event::Admitted);
        }
        let NewPeer { peer, addr, listens, protocol, .. } = new;
        tracing::debug!(%addr, client = new.client, ?protocol, "peer up");
        self.meet(listens);
        let conn = Conn {
            addr,
            listens,
            node: new.node,
            client: new.client,
            protocol,
            remote_id: new.remote_id,
            outgoing: new.outgoing,
            takes_offers: new.takes_offers,
            gathers: new.gathers,
            reads_hex: new.reads_hex,
            web: new.web,
            member: None,
            greeting: new.greeting,
            outbox: new.outbox,
            cut: new.cut,
            last_payload: new.last_payload,
            received: 0,
            sent: 0,
            introduced: 0,
            others: Vec::new(),
            withdrew: false,
        };
        let candidate = new.candidate.or_else(|| self.candidate_of(&conn));
        let key = matches!(protocol, Protocol::Tidecast { .. }).then(|| key_of(&conn.remote_id));
        self.conns.insert(peer, conn);
        self.engine_event(Event::PeerUp { peer, protocol, candidate });
        if let Some(key) = key.filter(|_| self.address_book.has_web()) {
            self.engine_event(Event::Key { peer, key });
        }
        self.introduce_member(peer);
        self.join_maker(peer);
    }

    /// Refuses the banned, ourselves, and one of two connections between the same pair: both ends
    /// keep the one that the smaller id dialled.
    fn admit(&mut self, new: &NewPeer) -> Result<(), &'static str> {
        if new.web.is_some() {
            return Ok(());
        }
        if self.address_book.is_banned(&Culprit::new(new.node, new.addr)) {
            return Err("it is banned");
        }
        let own = self.shared.peer_id;
        if new.remote_id == own {
            return Err("it is this node");
        }
        let twin = self.conns.iter().find(|(_, c)| c.remote_id == new.remote_id);
        let Some((&twin, conn)) = twin else { return Ok(()) };
        let ours_stays = own < new.remote_id;
        if conn.outgoing == new.outgoing || new.outgoing != ours_stays {
            return Err("it is already connected");
        }
        self.close(twin);
        self.down(twin, Some("replaced by another connection to it"));
        Ok(())
    }

    /// An address leads to a node that is connected by another address, or to this node: it is used when that other
    /// connection has ended.
    pub(super) fn met_already(&mut self, candidate: Candidate, remote_id: [u8; 20]) {
        let met = self.conns.values_mut().find(|c| c.remote_id == remote_id);
        if let Some(conn) = met.filter(|c| c.others.len() < MAX_OTHERS && !c.others.contains(&candidate)) {
            conn.others.push(candidate);
        }
        self.engine_event(Event::DialRefused { candidate });
    }

    fn hello(&mut self, peer: PeerId, client: Option<String>, port: Option<u16>) {
        let Some(conn) = self.conns.get_mut(&peer) else { return };
        if let Some(client) = client {
            conn.client = client;
        }
        conn.listens = port.map(|port| SocketAddr::new(conn.addr.ip(), port)).or(conn.listens);
        let listens = conn.listens;
        self.meet(listens);
    }

    /// Remembers where a peer listens, to tell the others.
    fn meet(&mut self, listens: Option<SocketAddr>) {
        if let Some(listens) = listens
            && !self.planned
            && self.met.len() < MAX_MET
            && !self.met.contains(&listens)
        {
            self.met.push(listens);
            self.next_introduction = self.next_introduction.min(Instant::now() + NEWCOMER);
        }
    }

    /// A connection that ended by the peer's fault: it is named, and kept out.
    fn judge(&mut self, addr: SocketAddr, node: Option<NodeId>, why: Option<&ConnError>) {
        let Some((why, fault)) = why.and_then(|e| Some((e, e.fault()?))) else { return };
        let (until, text) = match fault {
            Fault::ProtocolViolation => (None, why.to_string()),
            Fault::Stalled => {
                // Without another peer it is more likely a fault of the link.
                let others = self.conns.values().any(|conn| conn.addr != addr);
                let shun = if others { SHUN } else { SHUN_ONLY };
                (Some(Instant::now() + shun), format!("{why}; for {} s", shun.as_secs()))
            }
        };
        self.condemn(addr, node, until, text);
    }

    fn condemn(&mut self, addr: SocketAddr, node: Option<NodeId>, until: Option<Instant>, why: String) {
        tracing::warn!(%addr, why, "peer banned");
        self.address_book.ban(Culprit::new(node, addr), until);
        self.notify(Notice::Banned { addr, node, why });
    }

    fn down(&mut self, peer: PeerId, why: Option<&str>) {
        let Some(conn) = self.conns.remove(&peer) else { return };
        tracing::debug!(addr = %conn.addr, why, "peer down");
        if conn.received > 0 {
            self.gone.insert(peer, (conn.addr, conn.node, conn.web.clone()));
            if self.gone.len() > MAX_GONE {
                self.gone.pop_first();
            }
        }
        let counts = conn.web.is_none() && (conn.received > 0 || conn.sent > 0);
        if counts && self.ended.len() < MAX_REPORTS {
            self.ended.push(conn.report());
        }
        let finished = self.engine.has_all(peer);
        self.engine_event(Event::PeerDown { peer });
        if !self.engine.is_complete() {
            conn.others.iter().for_each(|&candidate| self.engine_event(Event::Retry { candidate }));
        }
        self.peer_left(peer, finished);
    }

    /// In a plan parents offer their pieces: they are told which pieces not to send yet, as these may be on disk.
    fn judge_found(&mut self) {
        let below = self.unchecked.first().copied().unwrap_or(u32::MAX);
        if below != self.judged && self.planned && !self.shared.seed_only {
            self.judged = below;
            self.engine_event(Event::Judged { below });
        }
    }

    fn notify(&mut self, notice: Notice) {
        if self.notices.try_send(notice).is_err() {
            tracing::debug!("dropped a notice: its queue is full");
        }
    }

    /// Disconnects members whose right has ended.
    fn recheck(&mut self) {
        let out: Vec<PeerId> = self
            .conns
            .iter()
            .filter(|(_, c)| !self.shared.security.still_admits(c.node))
            .map(|(p, _)| *p)
            .collect();
        for peer in out {
            self.close(peer);
        }
        self.pass_on_revocations();
    }

    fn close(&mut self, peer: PeerId) {
        if let Some(conn) = self.conns.get(&peer)
            && conn.outbox.try_send(Out::Close).is_err()
        {
            self.cut(peer);
        }
    }

    /// Ends a connection that is stuck: its peer is to see that, and to connect again.
    fn cut(&mut self, peer: PeerId) {
        if let Some(conn) = self.conns.get(&peer) {
            conn.cut.notify_one();
        }
        self.down(peer, Some("its send queue is full"));
    }

    /// Every wanted piece is verified, none is left that may turn out to be wanted, and a draft is sealed.
    fn is_complete(&self) -> bool {
        let sealed = self.shared.roots.as_ref().is_none_or(|roots| roots.seal().is_some());
        self.unchecked.is_empty() && sealed && self.engine.is_complete()
    }

    /// Periodic work, not caused by an input.
    fn regular(&mut self) {
        let now = Instant::now();
        if now >= self.published + PROGRESS || self.is_complete() != self.progress.borrow().complete {
            self.publish();
        }
        self.publish_epoch();
        if now >= self.next_introduction {
            self.next_introduction = now + INTRODUCE;
            self.introduce();
        }
    }
}
