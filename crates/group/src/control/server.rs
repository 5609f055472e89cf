//! The coordinator's end of the control channel.

use std::time::Duration;

use tidecast_identity::{NodeId, Tls};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsStream;

use super::message::{Hello, ToCoordinator, ToWorker};
use super::ticket::Token;
use crate::channel::{self, ChannelError};

/// Messages that may wait for one worker; one that does not read them is let go.
const QUEUE: usize = 256;
/// The last words have so long to be read.
const LAST: Duration = Duration::from_secs(10);

/// A worker's connection, by number.
pub(crate) type ConnId = u64;

/// What the server hears.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A worker has come.
    Joined { conn: ConnId, node: NodeId, hello: Hello, to: mpsc::Sender<ToWorker> },
    /// It says something.
    Message { conn: ConnId, message: ToCoordinator },
    /// It is gone.
    Lost { conn: ConnId, why: String },
}

/// Takes connections until the task is ended.
pub(crate) async fn run(listener: TcpListener, tls: Tls, token: Token, to: mpsc::Sender<Heard>) {
    let serve = move |conn, stream, node, first| serve(conn, stream, node, first, to.clone());
    super::channel(&token).answer(listener, tls, serve).await;
}

/// Carries messages both ways until the connection ends.
async fn serve(
    conn: ConnId,
    stream: TlsStream<TcpStream>,
    node: NodeId,
    first: ToCoordinator,
    to: mpsc::Sender<Heard>,
) {
    let ToCoordinator::Hello(hello) = first else { return };
    let (sender, mut queue) = mpsc::channel::<ToWorker>(QUEUE);
    if to.send(Heard::Joined { conn, node, hello, to: sender }).await.is_err() {
        return;
    }
    let (mut reader, mut writer) = tokio::io::split(stream);
    let hear = async {
        loop {
            let (message, _) = channel::read(&mut reader).await?;
            if to.send(Heard::Message { conn, message }).await.is_err() {
                return Ok(());
            }
        }
    };
    let say = async {
        // Ends when the coordinator drops this worker.
        while let Some(message) = queue.recv().await {
            channel::write(&mut writer, &message, &[]).await?;
        }
        // The worker reads to here and closes.
        timeout(LAST, writer.shutdown()).await.unwrap_or(Ok(()))?;
        Ok(())
    };
    let mut hear = std::pin::pin!(hear);
    let ended: Result<(), ChannelError> = tokio::select! {
        ended = &mut hear => ended,
        // Closing while the worker still speaks would reset the connection, and cut off our last words.
        said = say => match said {
            Ok(()) => timeout(LAST, hear).await.unwrap_or(Ok(())),
            // What it said before it left counts, though it takes nothing any more.
            Err(error) => timeout(LAST, hear).await.unwrap_or(Ok(())).and(Err(error)),
        },
    };
    let why = ended.err().map_or_else(|| "let go".to_owned(), |e| e.to_string());
    let _ = to.send(Heard::Lost { conn, why }).await;
}
