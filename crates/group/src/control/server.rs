//! The coordinator's end of the control channel.

use tidecast_identity::{NodeId, Tls};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::message::{Hello, ToCoordinator, ToWorker};
use super::ticket::Token;
use crate::channel;

/// Messages that may wait for one worker; a worker that does not read them is disconnected.
const QUEUE: usize = 256;

/// A worker's connection, by number.
pub(crate) type ConnId = u64;

/// Input of the server.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A worker has connected.
    Joined { conn: ConnId, node: NodeId, hello: Hello, to: mpsc::Sender<ToWorker> },
    /// A message from a worker.
    Message { conn: ConnId, message: ToCoordinator },
    /// A worker has disconnected.
    Lost { conn: ConnId, why: String },
}

/// Accepts connections until the task is ended.
pub(crate) async fn run(listener: TcpListener, tls: Tls, token: Token, to: mpsc::Sender<Incoming>) {
    let serve = move |conn, stream, node, first| serve(conn, stream, node, first, to.clone());
    super::channel(&token).answer(listener, tls, serve).await;
}

/// Carries messages both ways until the connection ends.
async fn serve(
    conn: ConnId,
    stream: channel::Accepted,
    node: NodeId,
    first: ToCoordinator,
    to: mpsc::Sender<Incoming>,
) {
    let ToCoordinator::Hello(hello) = first else { return };
    let (sender, queue) = mpsc::channel::<ToWorker>(QUEUE);
    if to.send(Incoming::Joined { conn, node, hello, to: sender }).await.is_err() {
        return;
    }
    let handle = {
        let to = &to;
        move |message, _| async move { to.send(Incoming::Message { conn, message }).await.is_ok() }
    };
    // The queue ends when the coordinator drops this worker. The coordinator itself sends a message once a second.
    let ended = channel::carry(stream, handle, queue, None::<ToWorker>).await;
    let why =
        ended.err().map_or_else(|| "the coordinator closed the connection".to_owned(), |e| e.to_string());
    let _ = to.send(Incoming::Lost { conn, why }).await;
}
