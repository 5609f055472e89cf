//! Web seeds (BEP 19): HTTP servers that have the published files, beside the peers.
//!
//! To the engine a web seed is a peer ([`Protocol::Web`]): dialled when something is wanted, asked for runs of
//! pieces, blamed for wrong data, disconnected when nothing is wanted any more. Its *connection* is a task that
//! takes the same messages as the writer of a real one, and has [`LANES`] requests to the server in flight
//! (`lane`). Requested blocks that are not fetched yet are in `work`; requests for ranges of a URL, redirects
//! included, in `source`.
//!
//! Promise: a server controls nothing but its own data: the data it sends is bounded, every wait ends, and each
//! byte is verified like a peer's.

mod lane;
mod source;
mod work;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tidecast_metainfo::Manifest;
use tidecast_swarm::{Block, Candidate, Event, PeerId, Protocol};
use tidecast_wire::Message;
use tidecast_wire::ext;
use tokio::sync::{mpsc, watch};

use crate::error::{ConnError, WebError};
use crate::handshake::new_peer_id;
use crate::input::{Input, NewPeer, OUTBOX, Out};
use crate::last_payload::LastPayload;
use crate::pool::BUFFER;
use crate::shared::Shared;
use crate::web_seed::{Seed, key_of};
use lane::{Lane, tell};
use source::Source;
use work::Work;

/// Requests in flight at one web seed.
const LANES: usize = 3;

/// Dials a web seed in the background; the driver gets the result.
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

/// Requests one byte: tests whether the server runs, has a file, and supports ranges.
async fn probe(source: &mut Source, seed: &Seed) -> Result<SocketAddr, WebError> {
    loop {
        let Some(file) = seed.first_file() else {
            return Err(seed.gives_nothing());
        };
        match source.probe(file).await {
            Err(error @ WebError::Missing { file, .. }) => seed.misses(file, &error)?,
            other => return other,
        }
    }
}

/// A connection to the server, to its end. The driver gets `Up`, then events, then `Down`.
async fn run(shared: Arc<Shared>, candidate: Candidate, seed: Arc<Seed>, first: Source, addr: SocketAddr) {
    let peer = PeerId(shared.next_peer.fetch_add(1, Ordering::Relaxed));
    let (outbox, queue) = mpsc::channel(OUTBOX);
    let last_payload = LastPayload::default();
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
        reads_hex: false,
        enrolled: false,
        web: Some(seed.clone()),
        greeting: None,
        outbox,
        // It ends when its queue does.
        cut: Arc::default(),
        last_payload: last_payload.clone(),
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
        let lane =
            Lane { shared, seed, work: work.clone(), peer, number, last_payload: last_payload.clone() };
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

/// Executes the orders to a connection: only requests matter to a server.
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
