//! The mounts that a server has: they come, are taken over from an earlier server, and go.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidecast_event::mount::{Peer, Status};
use tidecast_event::{Context as _, Error, round};
use tidecast_net::{Demand, PeerReport, Progress};
use tokio::sync::{mpsc, watch};

use super::thread::spawn;
use crate::created_dirs::{Found, Held};
use crate::messages::{Answer, Ask, Keep};
use crate::mountpoint::{mounted_at, unmount};
use crate::packets::Packets;
use crate::passthrough::{Before, opens};
use crate::service::Service;
use crate::session::resends;

/// A process that connects to the server sends its request within this time.
const PATIENCE: Duration = Duration::from_secs(30);
/// Where no connection can be accepted, the next try.
const PAUSE: Duration = Duration::from_millis(500);
/// Peers named in a status.
const PEERS: usize = 200;

/// Events that end a server, or may end it.
pub(super) enum Event {
    /// This mount was removed.
    Gone(u32),
    /// A process that was to bring a mount has brought it, or will not.
    Left,
    /// It was asked to end.
    Stop,
    /// It was asked to end in favour of a new one.
    Restart,
    /// Another mount was given this ticket.
    Ticket(String),
}

/// A mount that is served here.
struct Mounted {
    at: PathBuf,
    /// Its directory, if that may be one that is removed.
    held: Option<Held>,
}

impl Mounted {
    fn new(at: PathBuf, hold: bool) -> Self {
        // Where this process sees a mount of its own, looking at it would wait for itself.
        let hold = hold && mounted_at(&at).is_none();
        let held = match hold.then(|| Held::find(&at)) {
            Some(Ok(Found::Held(held) | Found::Stays(Some(held)))) => Some(held),
            _ => None,
        };
        Self { at, held }
    }
}

#[derive(Default)]
struct Table {
    next: u32,
    devices: BTreeMap<u32, Mounted>,
    /// How many are about to bring one.
    expected: usize,
    /// This process ends: it takes no further mounts.
    closed: bool,
}

/// A process that is about to bring a mount, for which the server stays.
struct Guest<'a>(&'a Mounts);

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.0.table.lock().expected -= 1;
        let _ = self.0.events.blocking_send(Event::Left);
    }
}

/// The mounts that this process serves, and the processes that ask about them.
pub(super) struct Mounts {
    pub(super) service: Arc<Service>,
    keeper: Arc<Packets>,
    demand: Demand,
    progress: watch::Receiver<Progress>,
    /// Addresses that the ticket or the user named: the origin's.
    told: Vec<SocketAddr>,
    began: Instant,
    table: Mutex<Table>,
    events: mpsc::Sender<Event>,
}

impl Mounts {
    pub(super) fn new(
        service: Arc<Service>,
        keeper: Packets,
        (demand, progress): (Demand, watch::Receiver<Progress>),
        told: Vec<SocketAddr>,
        events: mpsc::Sender<Event>,
    ) -> Arc<Self> {
        let (keeper, began, table) = (Arc::new(keeper), Instant::now(), Mutex::default());
        Arc::new(Self { service, keeper, demand, progress, told, began, table, events })
    }

    /// Continues the mounts that the keeper holds; whether it holds another ticket, too.
    pub(super) fn take_over(self: Arc<Self>) -> Result<bool, Error> {
        let mut has_ticket = false;
        let mut backings = BTreeMap::<u32, Vec<(u64, u32)>>::new();
        let mut opens = BTreeMap::<u32, OwnedFd>::new();
        loop {
            let (message, fd) =
                self.keeper.receive::<Keep>(Some(PATIENCE)).context("the keeper process has ended")?;
            match (message, fd) {
                (Keep::Device { number, at, hold }, Some(device)) => {
                    let mounted = Mounted::new(at, hold);
                    let mut table = self.table.lock();
                    table.next = table.next.max(number + 1);
                    table.devices.insert(number, mounted);
                    drop(table);
                    let before = Before { backings: backings.remove(&number).unwrap_or_default() };
                    let opens =
                        opens.remove(&number).context("no list of open files from the keeper process")?;
                    self.clone().serve(number, device, Some(before), opens)?;
                }
                (Keep::Opens { number }, Some(fd)) => drop(opens.insert(number, fd)),
                (Keep::Backing { number, ino, id }, _) => backings.entry(number).or_default().push((ino, id)),
                (Keep::Ticket(_), _) => has_ticket = true,
                (Keep::Begin, _) => return Ok(has_ticket),
                _ => return Err(Error::fault("unexpected message from the keeper process")),
            }
        }
    }

    /// Serves a mount; `before`: as another process has left it, if one has.
    fn serve(
        self: Arc<Self>,
        number: u32,
        device: OwnedFd,
        before: Option<Before>,
        opens: OwnedFd,
    ) -> Result<(), Error> {
        spawn(&format!("mount-{number}"), move || {
            let keeper = self.keeper.clone();
            let tell = move |ino, id| {
                let _ = keeper.send(&Keep::Backing { number, ino, id }, None);
            };
            if let Err(error) = self.service.serve(device, before, opens, Box::new(tell)) {
                tracing::error!(%error, "a mount ended with an error");
            }
            let _ = self.events.blocking_send(Event::Gone(number));
        })?;
        Ok(())
    }

    /// A mount was removed; returns whether it was the last.
    pub(super) fn gone(&self, number: u32) -> bool {
        let _ = self.keeper.send(&Keep::Gone { number }, None);
        let mounted = self.table.lock().devices.remove(&number);
        if let Some(held) = mounted.and_then(|mounted| mounted.held) {
            held.release().tidy();
        }
        self.close(true)
    }

    /// Stops taking mounts; `idle`: only if there is no mount and none is about to arrive. Returns whether it
    /// has stopped.
    pub(super) fn close(&self, idle: bool) -> bool {
        let mut table = self.table.lock();
        table.closed |= !idle || (table.devices.is_empty() && table.expected == 0);
        table.closed
    }

    /// Stays for a mount that is to come, unless this process ends.
    fn expect(&self) -> Option<Guest<'_>> {
        let mut table = self.table.lock();
        table.expected += usize::from(!table.closed);
        (!table.closed).then_some(Guest(self))
    }

    /// Gives the keeper this ticket; whether it has it.
    pub(super) fn keep_ticket(&self, ticket: String) -> bool {
        self.keeper.send(&Keep::Ticket(ticket), None).is_ok()
    }

    /// If data is missing that no peer brings, stops in favour of a server with the other ticket; whether it has. Before that no
    /// process is about to bring a mount; and where the kernel does not ask the next server for it, none waits for data.
    pub(super) fn exchange(&self) -> bool {
        let now = self.progress.borrow().clone();
        if now.peers > 0 || now.verified_pieces == now.pieces || !resends() && self.service.is_awaited() {
            return false;
        }
        let mut table = self.table.lock();
        let may = table.expected == 0 && self.keeper.send(&Keep::Exchange, None).is_ok();
        table.closed |= may;
        may
    }

    pub(super) fn unmount_all(&self) {
        let all: Vec<PathBuf> = self.table.lock().devices.values().map(|m| m.at.clone()).collect();
        for at in all {
            if let Err(error) = unmount(&at, true) {
                tracing::error!(%error, "cannot unmount a mount that is no longer served");
            }
        }
    }

    pub(super) fn listen(self: Arc<Self>, listener: &Packets) {
        let own = rustix::process::geteuid().as_raw();
        loop {
            let Ok((asking, user)) = listener.accept() else {
                // Out of descriptors or the like: it may pass.
                std::thread::sleep(PAUSE);
                continue;
            };
            if user != own && user != 0 {
                continue;
            }
            let mounts = self.clone();
            let _ = spawn("asked", move || mounts.talk(&asking));
        }
    }

    fn talk(self: Arc<Self>, asking: &Packets) {
        let Ok((mut ask, mut device)) = asking.receive::<Ask>(Some(PATIENCE)) else { return };
        let guest = if matches!(ask, Ask::Expect) { self.expect() } else { None };
        if guest.is_some() {
            let _ = asking.send(&Answer::Done, None);
            let Ok(next) = asking.receive::<Ask>(Some(PATIENCE)) else { return };
            (ask, device) = next;
        }
        let (answer, event) = match (ask, device) {
            (Ask::Expect, _) => (Answer::Ending, None),
            (Ask::Status, _) => (Answer::Status(Box::new(self.status())), None),
            (Ask::Serve { at, hold }, Some(device)) => match self.clone().add(at, hold, device) {
                Ok(()) => (Answer::Done, None),
                Err(error) => (Answer::Failed(error.to_string()), None),
            },
            (Ask::Serve { .. }, None) => (Answer::Failed("the request has no FUSE device".to_owned()), None),
            (Ask::Stop, _) => (Answer::Done, Some(Event::Stop)),
            (Ask::Restart, _) => (Answer::Done, Some(Event::Restart)),
            (Ask::Ticket(ticket), _) => (Answer::Done, Some(Event::Ticket(ticket))),
        };
        let _ = asking.send(&answer, None);
        if let Some(event) = event {
            let _ = self.events.blocking_send(event);
        }
    }

    /// Serves one more mount, and has the keeper keep it.
    fn add(self: Arc<Self>, at: PathBuf, hold: bool, device: OwnedFd) -> Result<(), Error> {
        let opens = opens().context("cannot record open files")?;
        let mounted = Mounted::new(at.clone(), hold);
        let number = {
            let mut table = self.table.lock();
            if table.closed {
                return Err(Error::fault("the server of this tree is ending"));
            }
            table.next += 1;
            let number = table.next;
            table.devices.insert(number, mounted);
            number
        };
        let kept = self.keeper.send(&Keep::Device { number, at, hold }, Some(device.as_fd()));
        if kept.and_then(|()| self.keeper.send(&Keep::Opens { number }, Some(opens.as_fd()))).is_err() {
            tracing::warn!("the keeper process has ended: mounts end with this process");
        }
        self.serve(number, device, None, opens)
    }

    fn status(&self) -> Status {
        let peers = self.demand.peers().unwrap_or_default();
        let is_origin = |peer: &PeerReport| self.told.contains(&peer.addr);
        let from = |origin: bool| -> u64 {
            peers.iter().filter(|peer| is_origin(peer) == origin).map(|peer| peer.received_bytes).sum()
        };
        let of_peer = |peer: &PeerReport| Peer {
            addr: peer.addr,
            origin: is_origin(peer),
            client: peer.client.clone(),
            received: peer.received_bytes,
            sent: peer.sent_bytes,
        };
        let now = self.progress.borrow().clone();
        Status {
            from_origin: from(true),
            from_peers: from(false),
            sent: now.sent_bytes,
            duplicate: now.duplicate_bytes,
            corrupt: now.corrupt_bytes,
            connections: now.peers,
            served_seconds: round(self.began.elapsed().as_secs_f64()),
            pid: std::process::id(),
            mounted: self.table.lock().devices.values().map(|m| m.at.clone()).collect(),
            peers: peers.iter().take(PEERS).map(of_peer).collect(),
            has_origin: !self.told.is_empty(),
            heard: self.service.heard(),
            ..self.service.status()
        }
    }
}
