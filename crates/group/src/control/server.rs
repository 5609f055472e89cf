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
pub(crate) enum Heard {
    /// A worker has connected.
    Joined { conn: ConnId, node: NodeId, hello: Hello, to: mpsc::Sender<ToWorker> },
    /// A message from a worker.
    Message { conn: ConnId, message: ToCoordinator },
    /// A worker has disconnected.
    Lost { conn: ConnId, why: String },
}

/// Accepts connections until the task is ended.
pub(crate) async fn run(listener: TcpListener, tls: Tls, token: Token, to: mpsc::Sender<Heard>) {
    let serve = move |conn, stream, node, first| serve(conn, stream, node, first, to.clone());
    super::channel(&token).answer(listener, tls, serve).await;
}

/// Carries messages both ways until the connection ends.
async fn serve(
    conn: ConnId,
    stream: channel::Accepted,
    node: NodeId,
    first: ToCoordinator,
    to: mpsc::Sender<Heard>,
) {
    let ToCoordinator::Hello(hello) = first else { return };
    let (sender, queue) = mpsc::channel::<ToWorker>(QUEUE);
    if to.send(Heard::Joined { conn, node, hello, to: sender }).await.is_err() {
        return;
    }
    let hear = {
        let to = &to;
        move |message, _| async move { to.send(Heard::Message { conn, message }).await.is_ok() }
    };
    // The queue ends when the coordinator drops this worker. The coordinator itself sends a message once a second.
    let ended = channel::carry(stream, hear, queue, None::<ToWorker>).await;
    let why =
        ended.err().map_or_else(|| "the coordinator closed the connection".to_owned(), |e| e.to_string());
    let _ = to.send(Heard::Lost { conn, why }).await;
}
