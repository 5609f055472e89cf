//! One connection: established by handshakes, then a reading and a writing task until either ends.

mod link;
mod reader;
mod side;
mod writer;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tidecast_swarm::{Candidate, PeerId};
use tokio::sync::{Notify, mpsc};

use crate::error::ConnError;
use crate::handshake::Established;
use crate::input::{Input, NewPeer, OUTBOX};
use crate::shared::Shared;
use link::Link;

/// Runs an established connection to its end. The driver gets `Up`, then events, then `Down`.
pub(crate) async fn run(
    shared: Arc<Shared>,
    established: Established,
    addr: SocketAddr,
    candidate: Option<Candidate>,
) {
    let peer = PeerId(shared.next_peer.fetch_add(1, Ordering::Relaxed));
    let (outbox, queue) = mpsc::channel(OUTBOX);
    let cut = Arc::new(Notify::new());
    let Established { input, writer, protocol, greeting, .. } = established;
    let last_payload = writer.last_payload().clone();
    let new = NewPeer {
        peer,
        addr,
        listens: established.port.map(|port| SocketAddr::new(addr.ip(), port)),
        node: established.node,
        client: established.client,
        protocol,
        candidate,
        remote_id: established.remote_id,
        outgoing: established.outgoing,
        takes_offers: established.takes_offers,
        gathers: established.gathers,
        reads_hex: established.reads_hex,
        enrolled: established.enrolled,
        web: None,
        greeting,
        outbox: outbox.clone(),
        cut: cut.clone(),
        last_payload: last_payload.clone(),
    };
    let inbox = shared.inbox.clone();
    if inbox.send(Input::Up(Box::new(new))).await.is_err() {
        return;
    }
    let ids = Arc::new(Mutex::new(input.codec.peer_ids()));
    let link = Link { shared, peer, outbox, ids, roots_heard: Arc::default(), last_payload };
    let writing = writer::run(link.clone(), writer, queue, protocol);
    let reading = reader::run(link, input, protocol);
    let ended: Result<(), ConnError> = tokio::select! {
        r = reading => r,
        w = writing => w,
        () = cut.notified() => Ok(()),
    };
    let _ = inbox.send(Input::Down { peer, why: ended.err() }).await;
}
