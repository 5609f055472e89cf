//! The callee of probes: it answers agents of this run only, within limits of time, bytes and memory.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use tidecast_admission::{Gate, accept};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{timeout, timeout_at};

use super::message::Report;
use super::wire::{DATAGRAM, Datagram, Key, Kind, NONCE, Purpose, REQUEST, Request, TAG};

/// The longest transfer that a request can ask for, and the most bytes.
pub(super) const MOST_TIME: Duration = Duration::from_secs(5);
pub(super) const MOST_BYTES: u64 = 4 << 30;
/// The longest probe.
const PROBE_TIME: Duration = Duration::from_secs(30);
/// Transfers that are served at the same time; each holds a buffer of [`STEP`] bytes and a thread.
const TRANSFERS: usize = 32;
pub(super) const STEP: usize = 128 << 10;
/// A read that waits so long is tried again, so that the limit of time holds.
const PAUSE: Duration = Duration::from_millis(100);
/// The share of the time before the rate counts, so that the start of a connection does not.
const WARM: f64 = 0.3;
/// The wait for the first byte of a transfer.
const FIRST: Duration = Duration::from_secs(3);
/// Tasks whose datagrams are counted, and answers to datagrams of one task at most.
const TASKS: usize = 8192;
const ANSWERS: u32 = 2000;
/// The longest datagram.
const LONGEST: usize = 64 << 10;

/// Commands of a caller on a connection of [`Purpose::Probe`].
pub(super) const PING: u8 = b'P';
pub(super) const COUNT: u8 = b'C';

/// The datagrams of one task.
#[derive(Default)]
struct Count {
    seen: BTreeSet<u32>,
    largest: u32,
    answers: u32,
}

/// Serves probes of one run.
pub(super) struct Server {
    pub(super) key: Key,
    pub(super) me: u32,
    counts: Mutex<BTreeMap<(u32, u32), Count>>,
    turns: Arc<Semaphore>,
    reports: mpsc::Sender<Report>,
}

impl Server {
    pub(super) fn new(key: Key, me: u32, reports: mpsc::Sender<Report>) -> Self {
        Self { key, me, counts: Mutex::default(), turns: Arc::new(Semaphore::new(TRANSFERS)), reports }
    }

    /// Accepts connections until the task is ended.
    pub(super) async fn accept(self: Arc<Self>, listener: TcpListener) {
        let gate = Gate::default();
        let mut serving = JoinSet::new();
        loop {
            let (stream, from, mut admitted) = accept(&listener, &gate).await;
            let server = self.clone();
            serving.spawn(async move {
                let _ = stream.set_nodelay(true);
                match admitted.run(server.admit(stream)).await {
                    Ok(Ok((stream, request))) => {
                        admitted.prove();
                        if let Err(error) = server.serve(stream, request).await {
                            tracing::debug!(%from, %error, "a probe ended");
                        }
                    }
                    Ok(Err(error)) => tracing::debug!(%from, %error, "rejected a connection"),
                    Err(error) => tracing::debug!(%from, %error, "rejected a connection"),
                }
            });
            while serving.try_join_next().is_some() {}
        }
    }

    /// Both sides prove that they are of this run. A caller that cannot gets [`NONCE`] bytes and no more.
    async fn admit(&self, mut stream: TcpStream) -> io::Result<(TcpStream, Request)> {
        let nonce: [u8; NONCE] = rand::random();
        stream.write_all(&nonce).await?;
        let (mut head, mut tag) = ([0; REQUEST], [0; TAG]);
        stream.read_exact(&mut head).await?;
        stream.read_exact(&mut tag).await?;
        let request =
            Request::decode(&head).filter(|r| r.to == self.me && self.key.is_caller(r, &nonce, &tag));
        let request = request.ok_or(io::ErrorKind::PermissionDenied)?;
        stream.write_all(&self.key.of_callee(&request, &nonce)).await?;
        Ok((stream, request))
    }

    async fn serve(&self, stream: TcpStream, request: Request) -> io::Result<()> {
        match request.purpose {
            Purpose::Probe => timeout(PROBE_TIME, self.probe(stream, request)).await?,
            Purpose::Send => self.receive(stream, request).await,
            Purpose::Meet => {
                let end = tokio::time::Instant::now() + bounded(request.millis);
                let bytes = exchange(stream, end).await;
                let rate = per_second(bytes, bounded(request.millis));
                let _ = self.reports.send(Report::Met { task: request.task, rate }).await;
                Ok(())
            }
        }
    }

    async fn probe(&self, mut stream: TcpStream, request: Request) -> io::Result<()> {
        loop {
            match stream.read_u8().await {
                Ok(PING) => {
                    let came = now();
                    stream.write_all(&[came.to_be_bytes(), now().to_be_bytes()].concat()).await?;
                }
                Ok(COUNT) => {
                    let (seen, largest) = {
                        let counts = self.counts.lock();
                        let count = counts.get(&(request.from, request.task));
                        count.map_or((0, 0), |c| (u32::try_from(c.seen.len()).unwrap_or(0), c.largest))
                    };
                    stream.write_all(&[seen.to_be_bytes(), largest.to_be_bytes()].concat()).await?;
                }
                Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    async fn receive(&self, stream: TcpStream, request: Request) -> io::Result<()> {
        let Ok(turn) = self.turns.clone().try_acquire_owned() else {
            return Err(io::ErrorKind::ResourceBusy.into());
        };
        let stream = stream.into_std()?;
        let receiving = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            receive(stream, &request)
        });
        receiving.await.map_err(io::Error::other)?
    }

    /// Counts and answers datagrams until the task is ended. An answer is never longer than the datagram, and each task
    /// gets [`ANSWERS`] at most.
    pub(super) async fn answer(self: Arc<Self>, socket: UdpSocket) {
        let mut buffer = vec![0; LONGEST];
        loop {
            let Ok((length, from)) = socket.recv_from(&mut buffer).await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let bytes = buffer.get(..length).unwrap_or_default();
            let Some(datagram) = Datagram::decode(bytes, &self.key) else { continue };
            if datagram.kind == Kind::Answer || datagram.to != self.me || !self.note(&datagram, length) {
                continue;
            }
            let answer = Datagram { kind: Kind::Answer, from: self.me, to: datagram.from, ..datagram };
            let length = if datagram.kind == Kind::Loss { length } else { DATAGRAM };
            let _ = socket.try_send_to(&answer.encode(length, &self.key), from);
        }
    }

    /// Counts a datagram; false if it is not answered.
    fn note(&self, datagram: &Datagram, length: usize) -> bool {
        let mut counts = self.counts.lock();
        let key = (datagram.from, datagram.task);
        if counts.len() >= TASKS && !counts.contains_key(&key) {
            return false;
        }
        let count = counts.entry(key).or_default();
        count.answers += 1;
        if count.answers > ANSWERS {
            return false;
        }
        match datagram.kind {
            Kind::Loss => {
                count.seen.insert(datagram.number);
            }
            _ => count.largest = count.largest.max(u32::try_from(length).unwrap_or(0)),
        }
        true
    }
}

/// The bytes of a stream in the part of the time that counts, that part, all bytes, and the CPU time of the thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) bytes: u64,
    pub(super) nanos: u64,
    pub(super) all: u64,
    pub(super) cpu: u64,
}

impl Counted {
    pub(super) const LENGTH: usize = 32;

    fn encode(self) -> Vec<u8> {
        [self.bytes, self.nanos, self.all, self.cpu].map(u64::to_be_bytes).concat()
    }

    pub(super) fn decode(bytes: &[u8; Self::LENGTH]) -> Self {
        let mut words =
            bytes.chunks_exact(8).map(|word| u64::from_be_bytes(word.try_into().unwrap_or_default()));
        let mut next = || words.next().unwrap_or(0);
        Self { bytes: next(), nanos: next(), all: next(), cpu: next() }
    }
}

/// Reads until the time is over or the bytes have come, and answers with what came.
fn receive(mut stream: std::net::TcpStream, request: &Request) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PAUSE))?;
    stream.set_write_timeout(Some(FIRST))?;
    let (time, most) = (bounded(request.millis), request.bytes.min(MOST_BYTES));
    let mut buffer = vec![0; STEP];
    let opened = Instant::now();
    let cpu = thread_cpu();
    let mut first: Option<Instant> = None;
    let mut warm: Option<(Instant, u64)> = None;
    let (mut all, mut last) = (0, opened);
    while first.map_or_else(|| opened.elapsed() < FIRST, |at| at.elapsed() < time) && all < most {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => {
                last = Instant::now();
                let began = *first.get_or_insert(last);
                all += read as u64;
                if warm.is_none() && last - began >= time.mul_f64(WARM) {
                    warm = Some((last, all));
                }
            }
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
    }
    let end = if all >= most { last } else { Instant::now() };
    let (from, before) = warm.or(first.map(|at| (at, 0))).unwrap_or((opened, 0));
    let nanos = u64::try_from((end - from).as_nanos()).unwrap_or(u64::MAX).max(1);
    let counted = Counted { bytes: all - before, nanos, all, cpu: thread_cpu() - cpu };
    stream.write_all(&counted.encode())?;
    // Closing before the caller has read the answer could lose it.
    let until = Instant::now() + FIRST;
    while Instant::now() < until {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if is_pause(&error) => {}
            Err(_) => break,
        }
    }
    Ok(())
}

/// Sends and receives until `end`; the bytes received.
pub(super) async fn exchange(mut stream: TcpStream, end: tokio::time::Instant) -> u64 {
    // Unsent data in the socket is discarded.
    let _ = stream.set_zero_linger();
    let (mut from, mut to) = stream.split();
    let (data, mut sink) = (vec![0x5a; STEP], vec![0; STEP]);
    let mut came = 0;
    let send = async { while to.write_all(&data).await.is_ok() {} };
    let take = async {
        while let Ok(read @ 1..) = from.read(&mut sink).await {
            came += read as u64;
        }
    };
    let _ = timeout_at(end, async { tokio::join!(send, take) }).await;
    came
}

/// Whether a blocking call only ran into its timeout.
pub(super) fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

pub(super) fn bounded(millis: u32) -> Duration {
    Duration::from_millis(millis.into()).clamp(Duration::from_millis(1), MOST_TIME)
}

/// Bits per second.
pub(super) fn per_second(bytes: u64, time: Duration) -> u64 {
    let nanos = time.as_nanos().max(1);
    u64::try_from(u128::from(bytes) * 8_000_000_000 / nanos).unwrap_or(u64::MAX)
}

/// The CPU time of this thread, nanoseconds.
pub(super) fn thread_cpu() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) =
        (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    seconds * 1_000_000_000 + nanos
}

/// The wall clock, nanoseconds since 1970.
pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(0)
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
