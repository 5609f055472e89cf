//! A session: a source's steps by all streams, until they are over, or it is stopped, or the datagrams must be smaller.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::auto::{Auto, Look};
use super::black_hole::{self, BlackHole};
use super::pace::Pacer;
use super::packetize::{PacketFormat, Packetizer};
use super::parity::ParityGroup;
use super::reports::Reports;
use super::socket::{SendSocket, Sent};
use super::source::Source;
use super::stage::{Plan, Stage};
use super::sync::SyncListener;
use super::{Error, Options, Progress, Receiver, ReceiverState};
use crate::control::{Bye, Hello, Message};
use crate::geometry::{Ranks, Shape, streams_of};
use crate::key::ControlKey;
use crate::packet::{PAPER_DATAGRAM, Packing};
use crate::parity::Rate;

/// Between two hellos.
const HELLO: Duration = Duration::from_millis(250);
/// A thread with nothing to send looks again after this.
const NOTHING: Duration = Duration::from_millis(20);
/// How long the last reports are waited for.
const LAST: Duration = Duration::from_secs(2);
/// Data packets of a block of parity, if a step has this many.
const BLOCK: u64 = 1000;
/// Steps are staged ahead by at most this much, unless told.
const AHEAD: u64 = 1 << 30;

/// How a session has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Done,
    /// From this batch on, datagrams must be smaller than this many bytes, as the system reported.
    TooLarge(u32, usize),
    /// From this batch on, they must be smaller: nothing arrives.
    BlackHole(u32, BlackHole),
}

/// A stream's socket, and its counters. The lock is held while sending, so that counts and datagrams keep one
/// order.
struct StreamSocket {
    out: SendSocket,
    count: Mutex<Count>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Count {
    packets: u64,
    bytes: u64,
}

pub(super) struct Session<'a> {
    options: &'a Options,
    id: u64,
    shape: Shape,
    name: String,
    plan: Plan,
    steps: u64,
    /// Bytes of a full data packet, and values in it.
    size: usize,
    values: u32,
    /// Of each receiver: its streams, and its parity.
    groups: Vec<(std::ops::Range<usize>, Option<Rate>)>,
    sockets: Vec<StreamSocket>,
    ranks: Vec<Arc<Ranks>>,
    stage: Stage,
    control: Option<ControlKey>,
    rate: AtomicU64,
    /// 0: no go yet; else the batch to send, and 1.
    go: AtomicU64,
    /// Packets may go.
    begun: AtomicBool,
    stop: AtomicBool,
    running: AtomicUsize,
    /// Slabs sent to their end.
    slabs: AtomicU64,
    /// The datagrams are too large.
    large: AtomicBool,
    /// They do not arrive.
    hole: Mutex<Option<BlackHole>>,
    error: Mutex<Option<Error>>,
}

impl<'a> Session<'a> {
    pub(super) fn open(
        options: &'a Options,
        source: &dyn Source,
        begin: u32,
        most: usize,
    ) -> Result<Self, Error> {
        let (shape, streams) = (source.shape(), options.streams);
        let slabs = (0..streams).map(|s| shape.slab(s, streams)).collect::<Result<Vec<_>, _>>()?;
        let ranks: Vec<_> = slabs.iter().map(|slab| Arc::new(Ranks::new(*slab, options.order))).collect();
        let sockets = connect(&options.to, streams)?;
        let room = sockets.iter().map(|socket| socket.out.room()).min().unwrap_or(0).min(most);
        // The paper's packets are of a round length.
        let room = if options.packing == Packing::Xyz { room.min(PAPER_DATAGRAM) } else { room };
        let sealed = options.key.is_some();
        let values = options.packing.capacity(room, sealed);
        if values == 0 {
            return Err(Error::PathMtu(room));
        }
        let mut groups = Vec::new();
        for receiver in 0..options.to.len() as u32 {
            let (first, here) = streams_of(receiver, options.to.len() as u32, streams);
            let range = first as usize..(first + here) as usize;
            let packets =
                slabs[range.clone()].iter().map(|slab| u64::from(slab.values().div_ceil(values))).sum();
            let rate = block(packets, options.parity).filter(|rate| rate.is_possible(values as usize * 4));
            if rate.is_none() && options.parity > 0.0 {
                return Err(Error::Parity);
            }
            groups.push((range, rate));
        }
        let whole = groups
            .iter()
            .map(|(range, rate)| match rate {
                Some(rate) => ParityGroup::with_parity(range.clone(), shape, &ranks, values, *rate),
                None => Ok(ParityGroup::plain(range.clone())),
            })
            .collect::<Result<Vec<_>, _>>()?;
        let memory = options.memory.unwrap_or(AHEAD);
        let all = source.steps().map_or(u64::MAX, |all| all.saturating_sub(options.first));
        let count = options.count.map(|count| count.min(all)).or((all != u64::MAX).then_some(all));
        let (rate, control) = (options.rate.unwrap_or_else(|| Auto::new(0.0).rate()), &options.key);
        Ok(Self {
            options,
            id: rand::random(),
            shape,
            name: source.name().to_owned(),
            plan: Plan { first: options.first, count, again: options.again, begin },
            steps: count.unwrap_or(u64::MAX).max(1),
            size: options.packing.datagram(values, sealed),
            values,
            groups,
            stage: Stage::new(slabs, whole, memory, begin),
            control: control.as_ref().map(crate::key::Secret::control),
            rate: rate.into(),
            go: 0.into(),
            begun: false.into(),
            stop: false.into(),
            running: 0.into(),
            slabs: 0.into(),
            large: false.into(),
            hole: Mutex::default(),
            error: Mutex::default(),
            sockets,
            ranks,
        })
    }

    /// Sends; `stay` is asked often, `tell` told four times a second.
    pub(super) fn run(
        &self,
        source: &mut dyn Source,
        sync: Option<&mut SyncListener>,
        stay: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&Progress),
    ) -> Result<(End, Progress), Error> {
        let patient = !(source.is_live() || self.options.again);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = cores.min(self.sockets.len());
        self.running.store(threads, Ordering::Relaxed);
        let mut packetizers: Vec<Vec<Packetizer>> = (0..threads).map(|_| Vec::new()).collect();
        for (n, packetizer) in self.packetizers()?.into_iter().enumerate() {
            packetizers[n % threads].push(packetizer);
        }
        let last = std::thread::scope(|scope| {
            scope.spawn(|| self.stage.run(source, self.plan, cores.min(4)));
            for (n, packetizers) in packetizers.into_iter().enumerate() {
                scope.spawn(move || {
                    self.pin(n);
                    self.pump(packetizers);
                    self.running.fetch_sub(1, Ordering::Relaxed);
                });
            }
            self.direct(patient, sync, stay, tell)
        });
        if let Some(error) = self.error.lock().take() {
            return Err(error);
        }
        if let Some(error) = self.stage.error() {
            return Err(error.into());
        }
        let end = match (self.large.load(Ordering::Relaxed), last.black_hole) {
            (true, _) => End::TooLarge(self.stage.batch(), self.size),
            (false, Some(hole)) => {
                End::BlackHole(if hole.never { self.plan.begin } else { self.stage.batch() }, hole)
            }
            (false, None) => End::Done,
        };
        Ok((end, last))
    }

    fn packetizers(&self) -> Result<Vec<Packetizer>, Error> {
        let mut packetizers = Vec::new();
        for (range, rate) in &self.groups {
            let group = match rate {
                Some(rate) => {
                    ParityGroup::with_parity(range.clone(), self.shape, &self.ranks, self.values, *rate)?
                }
                None => ParityGroup::plain(range.clone()),
            };
            for stream in range.clone() {
                let form = PacketFormat {
                    stream,
                    ranks: Arc::clone(&self.ranks[stream]),
                    packing: self.options.packing,
                    values: self.values,
                    key: self
                        .options
                        .key
                        .as_ref()
                        .map(|secret| secret.stream(self.id, stream as u32, self.encrypts())),
                    due: group.due((stream - range.start) as u32),
                };
                packetizers.push(Packetizer::new(form, self.plan.begin));
            }
        }
        Ok(packetizers)
    }

    fn pin(&self, thread: usize) {
        if let Some(cpu) = self.options.cpus.get(thread % self.options.cpus.len().max(1)) {
            let mut set = CpuSet::new();
            set.set(*cpu);
            // It was asked for cores that are there; where it is not allowed it works all the same.
            let _ = sched_setaffinity(None, &set);
        }
    }

    /// One thread: its streams take turns, a burst each, at their share of the rate.
    fn pump(&self, mut packetizers: Vec<Packetizer>) {
        let began = Instant::now();
        let mut pacer = Pacer::new(1, Duration::ZERO);
        let most = packetizers
            .iter()
            .map(|packetizer| self.sockets[packetizer.stream()].out.segment(self.size))
            .min()
            .unwrap_or(0);
        let (mut buffer, mut turn) = (Vec::with_capacity(most), 0);
        while !self.stop.load(Ordering::Relaxed) && !packetizers.iter().all(Packetizer::is_over) {
            let (now, rate) = (began.elapsed(), self.rate.load(Ordering::Relaxed));
            pacer
                .set_rate((u128::from(rate) * packetizers.len() as u128 / self.sockets.len() as u128) as u64);
            if let Some(wait) = pacer.wait(now) {
                std::thread::sleep(wait.min(NOTHING));
                continue;
            }
            let count = packetizers.len();
            let ready = self.batches().and_then(|batches| {
                (0..count)
                    .map(|n| (turn + n) % count)
                    .find(|n| packetizers[*n].is_ready(&self.stage, batches.clone()))
            });
            let Some(n) = ready else {
                // Time spent on streams of other threads is made up for.
                let waits = packetizers.iter().all(|packetizer| packetizer.from() > self.stage.batch());
                self.stage.wait(NOTHING);
                if !waits {
                    pacer.idle(began.elapsed());
                }
                continue;
            };
            turn = n + 1;
            let burst = pacer.burst(self.size, most);
            let bytes = self.burst(&mut packetizers[n], burst, &mut buffer);
            pacer.sent(bytes, began.elapsed());
        }
    }

    /// Which batches may be sent now.
    fn batches(&self) -> Option<std::ops::RangeInclusive<u32>> {
        if !self.begun.load(Ordering::Relaxed) {
            return None;
        }
        if self.options.sync.is_none() {
            return Some(0..=u32::MAX);
        }
        let go = u32::try_from(self.go.load(Ordering::Relaxed).checked_sub(1)?).ok()?;
        Some(go..=go)
    }

    /// Sends this much of a stream; answers the bytes.
    fn burst(&self, packetizer: &mut Packetizer, most: usize, buffer: &mut Vec<u8>) -> usize {
        let (made, done) = packetizer.fill(most, self.size, buffer);
        let socket = &self.sockets[packetizer.stream()];
        let mut count = socket.count.lock();
        match socket.out.send(buffer, self.size) {
            Ok(Sent::Gone | Sent::Lost) => {}
            Ok(Sent::TooLarge) => self.large.store(true, Ordering::Relaxed),
            Err(error) => {
                self.error.lock().get_or_insert(Error::Socket { to: socket.out.to(), error });
            }
        }
        count.packets += made.packets;
        count.bytes += made.bytes as u64;
        drop(count);
        if self.large.load(Ordering::Relaxed) || self.error.lock().is_some() {
            self.stop.store(true, Ordering::Relaxed);
        }
        if done {
            self.slabs.fetch_add(1, Ordering::Relaxed);
            self.stage.done(packetizer.stream(), packetizer.from());
        }
        made.bytes
    }

    /// Hellos, reports, goes and the rate, until the streams are over; then the last reports, and goodbye.
    fn direct(
        &self,
        patient: bool,
        mut sync: Option<&mut SyncListener>,
        stay: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&Progress),
    ) -> Progress {
        let began = Instant::now();
        let mut clock =
            Clock { hello: began, began: None, auto: Auto::new(self.options.parity), last: (began, 0, 0, 0) };
        let mut reports: Vec<_> = self.ranks.iter().map(|ranks| self.new_reports(ranks)).collect();
        while stay() && self.running.load(Ordering::Relaxed) > 0 && !self.stop.load(Ordering::Relaxed) {
            let all = reports.iter().all(Reports::is_accepted);
            if clock.began.is_none() && (!patient || all || began.elapsed() > self.options.wait) {
                clock.began = Some(Instant::now());
                self.begun.store(true, Ordering::Relaxed);
            }
            if Instant::now() >= clock.hello {
                clock.hello = Instant::now() + HELLO;
                (0..self.sockets.len()).for_each(|n| self.hello(n, &mut reports[n]));
                self.adapt(&mut clock, &reports);
                tell(&self.progress(&clock, &reports));
            }
            self.listen(sync.as_deref(), clock.hello, &mut reports);
            self.check_black_hole(&reports, black_hole::drops_size);
            if let Some(batch) = sync.as_mut().and_then(|sync| sync.newest_batch()) {
                self.go.store(u64::from(batch) + 1, Ordering::Relaxed);
                self.stage.skip_to(batch);
            }
        }
        let seconds = clock.seconds();
        self.stop.store(true, Ordering::Relaxed);
        self.stage.stop();
        // They look up every 20 ms, and a call has a second.
        let until = Instant::now() + LAST;
        while self.running.load(Ordering::Relaxed) > 0 && Instant::now() < until {
            std::thread::sleep(NOTHING / 10);
        }
        self.await_last_reports(&mut reports);
        // A stopped stream need not have arrived.
        if stay() {
            self.check_black_hole(&reports, black_hole::dropped_size);
        }
        Progress { seconds, ..self.progress(&clock, &reports) }
    }

    fn new_reports(&self, ranks: &Ranks) -> Reports {
        let values = ranks.slab().values();
        let last = match values % self.values {
            rest if rest > 0 && values > self.values => rest,
            _ => self.values,
        };
        Reports::new(self.size, self.options.packing.datagram(last, self.control.is_some()))
    }

    /// Ends the session if a receiver's path swallows its datagrams for their size.
    fn check_black_hole(&self, reports: &[Reports], swallows: fn(&[Reports]) -> bool) {
        let Some((range, _)) = self.groups.iter().find(|(range, _)| swallows(&reports[range.clone()])) else {
            return;
        };
        let never = reports.iter().all(|reports| reports.full_received() == 0);
        let hole = BlackHole { to: self.sockets[range.start].out.to(), size: self.size, never };
        // Where some arrived and there is nothing smaller, it is loss.
        if hole.smaller().is_some() || never {
            *self.hole.lock() = Some(hole);
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    /// The last reports, and goodbye.
    fn await_last_reports(&self, reports: &mut [Reports]) {
        let until = Instant::now() + LAST;
        let before: Vec<_> = reports.iter().map(|reports| reports.reports).collect();
        let waits = |reports: &Reports, before: u64| reports.is_accepted() && reports.reports == before;
        let any = |reports: &[Reports]| {
            reports.iter().zip(&before).any(|(reports, before)| waits(reports, *before))
        };
        while any(reports) && Instant::now() < until {
            // Again and again, for hellos and reports are lost too.
            for (n, reports) in
                reports.iter_mut().enumerate().filter(|(n, reports)| waits(reports, before[*n]))
            {
                self.hello(n, reports);
            }
            let hello = until.min(Instant::now() + HELLO);
            while any(reports) && Instant::now() < hello {
                self.listen(None, hello, reports);
            }
        }
        reports
            .iter_mut()
            .zip(&before)
            .filter(|(reports, before)| waits(reports, **before))
            .for_each(|(reports, _)| reports.reset());
        for (socket, reports) in self.sockets.iter().zip(&*reports) {
            let bye = Message::Bye(Bye { session: self.id, challenge: reports.challenge })
                .write(self.control.as_ref());
            // Twice, because one may be lost; a receiver that gets neither notices the silence.
            let _ = (socket.out.send(&bye, bye.len()), socket.out.send(&bye, bye.len()));
        }
    }

    /// Packets of the paper's form stay readable, also with a key.
    fn encrypts(&self) -> bool {
        self.options.key.is_some() && self.options.packing == Packing::Run
    }

    fn hello(&self, stream: usize, reports: &mut Reports) {
        let Some((range, parity)) = self.groups.iter().find(|(range, _)| range.contains(&stream)) else {
            return;
        };
        let hello = Hello {
            stream: stream as u32,
            streams: self.sockets.len() as u32,
            first: range.start as u32,
            here: range.len() as u32,
            packing: self.options.packing,
            encrypted: self.encrypts(),
            order: self.options.order,
            session: self.id,
            challenge: reports.challenge,
            shape: self.shape,
            values: self.values,
            first_step: self.plan.first,
            steps: self.steps,
            batch: self.stage.batch(),
            parity: *parity,
            rate: self.rate.load(Ordering::Relaxed),
            name: self.name.clone(),
        };
        let socket = &self.sockets[stream];
        let hello = Message::Hello(hello).write(self.control.as_ref());
        let count = socket.count.lock();
        reports.ask(count.packets);
        // One that is lost is followed by others.
        let _ = socket.out.send(&hello, hello.len());
    }

    /// Receives datagrams, until `until` at most.
    fn listen(&self, sync: Option<&SyncListener>, until: Instant, reports: &mut [Reports]) {
        let wait = until.saturating_duration_since(Instant::now()).min(NOTHING);
        let mut fds: Vec<_> =
            self.sockets.iter().map(|socket| socket.out.poll()).chain(sync.map(SyncListener::poll)).collect();
        let wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as i64 };
        if !matches!(rustix::event::poll(&mut fds, Some(&wait)), Ok(1..)) {
            return;
        }
        let mut bytes = [0; 2048];
        for (n, reports) in reports.iter_mut().enumerate() {
            let mut answer = false;
            // A flood on one socket must not delay the others.
            for _ in 0..16 {
                let Some(bytes) = self.sockets[n].out.receive(&mut bytes) else { break };
                if let Ok(Message::Report(report)) = Message::read(bytes, self.control.as_ref())
                    && report.session == self.id
                {
                    answer |= reports.on_report(&report);
                }
            }
            if answer {
                self.hello(n, reports);
            }
        }
    }

    fn adapt(&self, clock: &mut Clock, reports: &[Reports]) {
        let (at, bytes, sent, lost) = clock.last;
        let now = (
            Instant::now(),
            self.bytes(),
            reports.iter().map(Reports::sent).sum(),
            reports.iter().map(|h| h.lost).sum(),
        );
        let seconds = (now.0 - at).as_secs_f64();
        clock.last = now;
        if self.options.rate.is_some() || clock.began.is_none() || seconds < HELLO.as_secs_f64() / 2.0 {
            return;
        }
        if reports.iter().any(Reports::is_accepted) {
            let rate = (now.1 - bytes) as f64 * 8.0 / seconds;
            let look = Look { sent: now.2.saturating_sub(sent), lost: now.3.saturating_sub(lost), rate };
            self.rate.store(clock.auto.look(&look), Ordering::Relaxed);
        }
    }

    fn bytes(&self) -> u64 {
        self.sockets.iter().map(|socket| socket.count.lock().bytes).sum()
    }

    fn progress(&self, clock: &Clock, reports: &[Reports]) -> Progress {
        let batch = self.stage.batch();
        Progress {
            step: self.plan.first + u64::from(batch) % self.steps,
            batch,
            steps: self.slabs.load(Ordering::Relaxed) / self.sockets.len() as u64,
            total: self.plan.count.filter(|_| !self.plan.again),
            bytes: self.bytes(),
            packets: self.sockets.iter().map(|socket| socket.count.lock().packets).sum(),
            seconds: clock.seconds(),
            rate: self.rate.load(Ordering::Relaxed),
            streams: self.sockets.len(),
            accepted: reports.iter().filter(|reports| reports.is_accepted()).count(),
            refused: reports
                .iter()
                .filter(|reports| reports.accepted == Some(crate::control::Accepted::Refused))
                .count(),
            received: reports.iter().map(|reports| reports.received).sum(),
            lost: reports.iter().map(|reports| reports.lost).sum(),
            datagram: self.size,
            black_hole: *self.hole.lock(),
            receivers: self.receivers(batch, reports),
        }
    }

    fn receivers(&self, batch: u32, reports: &[Reports]) -> Vec<Receiver> {
        let receiver = |(range, _): &(std::ops::Range<usize>, _)| {
            let fates = || reports[range.clone()].iter().map(|reports| reports.state(batch));
            let fate = fates().max().unwrap_or(ReceiverState::NoAnswer);
            Receiver {
                at: self.sockets[range.start].out.to(),
                fate,
                streams: fates().filter(|f| *f == fate).count(),
            }
        };
        self.groups.iter().map(receiver).collect()
    }
}

/// The state of the directing thread.
struct Clock {
    /// When the next hellos go.
    hello: Instant,
    /// Since when packets may go.
    began: Option<Instant>,
    auto: Auto,
    /// Bytes, packets and losses at the last look.
    last: (Instant, u64, u64, u64),
}

impl Clock {
    fn seconds(&self) -> f64 {
        self.began.map_or(0.0, |began| began.elapsed().as_secs_f64())
    }
}

/// A socket a stream: each receiver's streams have adjacent ports.
fn connect(to: &[SocketAddr], streams: u32) -> Result<Vec<StreamSocket>, Error> {
    let (mut sockets, mut ends) = (Vec::new(), HashSet::new());
    for (receiver, first) in to.iter().enumerate() {
        let (_, here) = streams_of(receiver as u32, to.len() as u32, streams);
        for stream in 0..here {
            let port = u32::from(first.port()) + stream;
            let port = u16::try_from(port).map_err(|_| Error::Ports(*first, here))?;
            let to = SocketAddr::new(first.ip(), port);
            if !ends.insert(to) {
                return Err(Error::Overlap(to));
            }
            let out = SendSocket::connect(to).map_err(|error| Error::Socket { to, error })?;
            sockets.push(StreamSocket { out, count: Mutex::default() });
        }
    }
    Ok(sockets)
}

/// Blocks of a step of this many packets: of at least [`BLOCK`] if it has this many, all of about the same size.
fn block(packets: u64, share: f64) -> Option<Rate> {
    let blocks = (packets / BLOCK).max(1);
    let data = u32::try_from(packets.div_ceil(blocks)).ok()?;
    let parity = (f64::from(data) * share).ceil() as u32;
    (parity > 0).then_some(Rate { data, parity })
}

/// The listener for messages of a controller.
pub(super) fn sync_listener(options: &Options) -> io::Result<Option<SyncListener>> {
    let key = || options.key.as_ref().map(crate::key::Secret::control);
    options.sync.map(|at| SyncListener::bind(at, key())).transpose()
}
