//! Web seeds (BEP 19): servers of HTTP that have the published files, beside the peers.
//!
//! To the engine a web seed is a peer ([`Protocol::Web`]): dialled when something is wanted, asked for runs of pieces,
//! blamed for what does not match, let go when nothing is wanted any more. Its *connection* is a task that takes the same
//! messages as the writer of a real one, and has [`LANES`] requests to the server in flight (`lane`). What is asked for and
//! not yet fetched is in `work`; how a URL is asked for a range, redirects included, in `source`.
//!
//! Promise: a server decides about nothing but its own data: what it sends is bounded, every wait ends, and each byte is
//! verified as those of any peer.

mod lane;
mod source;
mod work;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidecast_metainfo::Manifest;
use tidecast_swarm::{Block, Candidate, Event, PeerId, Protocol};
use tidecast_wire::Message;
use tidecast_wire::ext;
use tokio::sync::{mpsc, watch};

use crate::conn::establish::new_peer_id;
use crate::driver::progress::Notice;
use crate::driver::{Input, NewPeer, OUTBOX, Out};
use crate::error::ConnError;
use crate::moved::Moved;
use crate::session::BUFFER;
use crate::shared::Shared;
use lane::Lane;
use source::Source;
use work::Work;

/// Requests in flight at one web seed.
const LANES: usize = 3;
/// At the start peers are given so long to appear, so that nodes beside one web seed begin with different parts of it.
const START: Duration = Duration::from_millis(250);
/// Failures without a byte in between, after which it is tried ever more rarely, up to once an hour.
const TRIES: u32 = 8;
/// Files that a server lacks before it has given any; then its URL is taken for wrong.
const MISSES: usize = 16;
/// The longest pause that a server may ask for.
const PAUSE_MOST: Duration = Duration::from_secs(300);
/// Where a server ignores ranges, each file is fetched from its start, and what is not wanted is read and dropped: at most
/// as much as all the data has, and this.
const SPARE: u64 = 64 << 20;

/// Why a web seed gives nothing, or not all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebError {
    #[error("{url} is not there: HTTP status {status}")]
    Missing { file: u32, url: String, status: u16 },
    #[error(
        "{url}: the server ignores ranges (it answers 200), and has sent more than once what is here already"
    )]
    NoRanges { url: String },
    #[error("{url}: HTTP status {status}")]
    Busy { url: String, status: u16, after: Option<Duration> },
    #[error("{url}: {why}")]
    Wrong { url: String, why: String },
    #[error("{0}")]
    Web(#[from] tidecast_discovery::Error),
    #[error("it sent bytes that do not match their hashes")]
    Lied,
    #[error("none of the files asked of it is there: {0}")]
    Nothing(String),
    #[error("the swarm is stopping")]
    Stopping,
}

/// One web seed over the whole run.
pub(crate) struct Seed {
    /// As the manifest has it.
    pub(crate) url: String,
    manifest: Arc<Manifest>,
    received: AtomicU64,
    dropped_bytes: AtomicU64,
    /// It lied, or has nothing of what it should: nothing is asked of it any more.
    dropped: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Files that are not there.
    missing: BTreeSet<u32>,
    /// Ranges are ignored.
    from_start: bool,
    /// Failures since the last byte.
    fails: u32,
    tried: bool,
    not_before: Option<Instant>,
    why: Option<String>,
}

/// What one web seed has done, for reports.
#[derive(Clone, Debug)]
pub struct WebReport {
    /// Its URL, as the manifest has it.
    pub url: String,
    /// Payload bytes from it.
    pub received_bytes: u64,
    /// Why it gave nothing, or not all, the last time.
    pub error: Option<String>,
}

impl Seed {
    pub(crate) fn new(url: &str, manifest: &Arc<Manifest>) -> Self {
        Self {
            url: url.to_owned(),
            manifest: manifest.clone(),
            received: AtomicU64::new(0),
            dropped_bytes: AtomicU64::new(0),
            dropped: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// It lied: it is asked for nothing any more.
    pub(crate) fn drop_it(&self) {
        self.dropped.store(true, Ordering::Relaxed);
        self.state.lock().why = Some(WebError::Lied.to_string());
    }

    pub(crate) fn report(&self) -> WebReport {
        WebReport {
            url: self.url.clone(),
            received_bytes: self.received.load(Ordering::Relaxed),
            error: self.state.lock().why.clone(),
        }
    }

    fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Relaxed)
    }

    fn knows_no_ranges(&self) -> bool {
        self.state.lock().from_start
    }

    /// Whether the server can give all of a piece, as far as is known.
    fn has(&self, piece: u32) -> bool {
        let state = self.state.lock();
        if state.missing.is_empty() {
            return true;
        }
        let mut spans =
            self.manifest.spans(piece, 0, self.manifest.piece_len(piece)).filter(|span| !span.pad);
        spans.all(|span| !state.missing.contains(&span.file))
    }

    /// All pieces that it has.
    fn pieces(&self) -> Vec<Range<u32>> {
        let count = self.manifest.piece_count();
        let plain = self.state.lock().missing.is_empty();
        let mut ranges: Vec<Range<u32>> = Vec::new();
        if plain {
            ranges.extend((count > 0).then_some(0..count));
            return ranges;
        }
        for piece in (0..count).filter(|piece| self.has(*piece)) {
            match ranges.last_mut().filter(|last| last.end == piece) {
                Some(last) => last.end += 1,
                None => ranges.push(piece..piece + 1),
            }
        }
        ranges
    }

    /// A file is not there; an error if that makes all of the server doubtful.
    fn misses(&self, file: u32, error: &WebError) -> Result<(), WebError> {
        let mut state = self.state.lock();
        state.missing.insert(file);
        state.why = Some(error.to_string());
        if state.missing.len() >= MISSES && self.received.load(Ordering::Relaxed) == 0 {
            self.dropped.store(true, Ordering::Relaxed);
            return Err(WebError::Nothing(error.to_string()));
        }
        Ok(())
    }

    /// Bytes of a server that ignores ranges were read and dropped; false if that is too much.
    fn may_drop(&self, bytes: u64) -> bool {
        let all = self.dropped_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        all <= self.manifest.total_len().saturating_add(SPARE)
    }

    fn came(&self, bytes: u32) {
        self.received.fetch_add(u64::from(bytes), Ordering::Relaxed);
        self.state.lock().fails = 0;
    }

    /// Takes note of a failure; whether it has failed too often.
    fn failed(&self, error: &WebError) -> bool {
        let mut state = self.state.lock();
        state.fails = state.fails.saturating_add(1);
        state.why = Some(error.to_string());
        if let WebError::NoRanges { .. } = error {
            self.dropped.store(true, Ordering::Relaxed);
        }
        if let WebError::Busy { after: Some(after), .. } = error {
            state.not_before = Some(Instant::now() + (*after).min(PAUSE_MOST));
        }
        state.fails >= TRIES || self.is_dropped()
    }

    /// Waits until it may be asked.
    async fn ready(&self) {
        let until = {
            let mut state = self.state.lock();
            let start = (!std::mem::replace(&mut state.tried, true)).then(|| Instant::now() + START);
            state.not_before.max(start)
        };
        if let Some(until) = until {
            tokio::time::sleep_until(until.into()).await;
        }
    }

    /// The first file that it may have and that has bytes.
    fn first_file(&self) -> Option<u32> {
        let state = self.state.lock();
        let mut files = self.manifest.files().filter(|f| !f.is_empty() && f.same_as() == f.index());
        files.find(|f| !state.missing.contains(&f.index())).map(|f| f.index())
    }
}

/// Dials a web seed in the background; the driver hears how it went.
pub(crate) fn spawn(shared: &Arc<Shared>, candidate: Candidate, seed: Arc<Seed>) {
    let shared = shared.clone();
    shared.runtime.clone().spawn(async move {
        seed.ready().await;
        let mut lane = Source::new(shared.clone(), seed.clone());
        let tried = match seed.is_dropped() {
            true => None,
            false => Some(probe(&mut lane, &seed).await),
        };
        let inbox = shared.inbox.clone();
        let event = match tried {
            Some(Ok(addr)) => return run(shared, candidate, seed, lane, addr).await,
            Some(Err(error)) => {
                let often = seed.failed(&error);
                tell(&shared, &seed, &error).await;
                if often { Event::DialRefused { candidate } } else { Event::DialFailed { candidate } }
            }
            None => Event::DialRefused { candidate },
        };
        let _ = inbox.send(Input::Event(event)).await;
    });
}

async fn tell(shared: &Shared, seed: &Seed, error: &WebError) {
    tracing::debug!(url = seed.url, %error, "web seed");
    if !matches!(error, WebError::Stopping) {
        let notice = Notice::WebSeed { url: seed.url.clone(), why: error.to_string() };
        let _ = shared.inbox.send(Input::Notice(notice)).await;
    }
}

/// Asks for one byte: is the server there, has it a file, does it know ranges?
async fn probe(source: &mut Source, seed: &Seed) -> Result<SocketAddr, WebError> {
    loop {
        let Some(file) = seed.first_file() else {
            seed.dropped.store(true, Ordering::Relaxed);
            return Err(WebError::Nothing(seed.state.lock().why.clone().unwrap_or_default()));
        };
        match source.probe(file).await {
            Err(error @ WebError::Missing { file, .. }) => seed.misses(file, &error)?,
            other => return other,
        }
    }
}

/// A connection to the server, to its end. The driver hears `Up`, then events, then `Down`.
async fn run(shared: Arc<Shared>, candidate: Candidate, seed: Arc<Seed>, first: Source, addr: SocketAddr) {
    let peer = PeerId(shared.next_peer.fetch_add(1, Ordering::Relaxed));
    let (outbox, queue) = mpsc::channel(OUTBOX);
    let moved = Moved::default();
    let key = if shared.divides { key_of(&shared.peer_id) } else { 0 };
    let new = NewPeer {
        peer,
        addr,
        listens: None,
        node: None,
        client: "web seed".into(),
        protocol: Protocol::Web { max_block: BUFFER as u32, in_order: seed.knows_no_ranges(), key },
        candidate: Some(candidate),
        remote_id: new_peer_id(),
        outgoing: true,
        takes_offers: false,
        gathers: false,
        enrolled: false,
        web: Some(seed.clone()),
        greeting: None,
        outbox,
        moved: moved.clone(),
    };
    let inbox = shared.inbox.clone();
    let pieces = seed.pieces();
    for input in [Input::Up(Box::new(new)), Input::Event(Event::HasExactly { peer, pieces })] {
        if inbox.send(input).await.is_err() {
            return;
        }
    }
    let work = Arc::new(Mutex::new(Work::new(LANES)));
    let (told, news) = watch::channel(());
    let lane = |number: usize, source: Source| {
        let (shared, seed) = (shared.clone(), seed.clone());
        let lane = Lane { shared, seed, work: work.clone(), peer, number, moved: moved.clone() };
        lane.run(source, news.clone())
    };
    let other = || Source::new(shared.clone(), seed.clone());
    let lanes = async { tokio::try_join!(lane(0, first), lane(1, other()), lane(2, other())).map(|_| ()) };
    let ended = tokio::select! {
        () = listen(&shared.manifest, &seed, &work, queue, &told) => Ok(()),
        ended = lanes => ended,
    };
    if let Err(error) = &ended {
        seed.failed(error);
        tell(&shared, &seed, error).await;
    }
    let _ = inbox.send(Input::Down { peer, why: ended.err().map(ConnError::Web) }).await;
}

/// Does what a connection is told: only requests mean anything to a server.
async fn listen(
    manifest: &Manifest,
    seed: &Seed,
    work: &Mutex<Work>,
    mut queue: mpsc::Receiver<Out>,
    told: &watch::Sender<()>,
) {
    while let Some(out) = queue.recv().await {
        let Out::Message(Message::Tidecast(message)) = out else {
            match out {
                Out::Close => return,
                _ => continue,
            }
        };
        match message {
            ext::Message::RequestPieces(range) => {
                let mut work = work.lock();
                for piece in range.pieces().filter(|piece| seed.has(*piece)) {
                    work.push(Block { piece, begin: 0, len: manifest.piece_len(piece) });
                }
            }
            ext::Message::RequestBlock(r) if seed.has(r.piece) => {
                work.lock().push(Block { piece: r.piece, begin: r.begin, len: r.len });
            }
            ext::Message::CancelBlock(r) => {
                work.lock().cancel(Block { piece: r.piece, begin: r.begin, len: r.len });
            }
            _ => continue,
        }
        told.send_replace(());
    }
}

/// The number by which a node of this peer id is known where web seeds are shared; both ends of a connection see the same.
pub(crate) fn key_of(peer_id: &[u8; 20]) -> u64 {
    let tail = peer_id.last_chunk::<8>().copied().unwrap_or_default();
    u64::from_be_bytes(tail).max(1)
}
