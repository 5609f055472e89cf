//! The coordinator's end of the control channel.

use std::net::SocketAddr;
use std::sync::Arc;

use tidecast_identity::{NodeId, Tls, peer_node_id};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::message::{Hello, ToCoordinator, ToWorker};
use super::ticket::Token;
use super::{ControlError, HANDSHAKE, SILENCE, frame};

/// Connections that may be shaking hands at once; the rest wait in the kernel.
const HANDSHAKES: usize = 256;
/// Messages that may wait for one worker; one that does not read them is let go.
const QUEUE: usize = 256;

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
    let Ok(config) = tls.server() else { return tracing::error!("no TLS") };
    let acceptor = TlsAcceptor::from(config);
    let (room, token) = (Arc::new(Semaphore::new(HANDSHAKES)), Arc::new(token));
    for conn in 0.. {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a worker's connection");
                sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let (acceptor, token, to) = (acceptor.clone(), token.clone(), to.clone());
        tokio::spawn(async move {
            let welcomed = timeout(HANDSHAKE, welcome(stream, &acceptor, &token)).await;
            drop(permit);
            match welcomed.unwrap_or(Err(ControlError::Late(HANDSHAKE))) {
                Ok((stream, node, hello)) => serve(conn, stream, node, hello, to).await,
                Err(error) => refuse(from, &error),
            }
        });
    }
}

fn refuse(from: SocketAddr, error: &ControlError) {
    tracing::warn!(%from, %error, "a control connection is refused");
}

async fn welcome(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
    token: &Token,
) -> Result<(TlsStream<TcpStream>, NodeId, Hello), ControlError> {
    stream.set_nodelay(true)?;
    let mut stream = acceptor.accept(stream).await?;
    let node = peer_node_id(stream.get_ref().1.peer_certificates()).map_err(|_| ControlError::Stranger)?;
    frame::greet(&mut stream).await?;
    let mut shown = [0; Token::LEN];
    stream.read_exact(&mut shown).await?;
    if !token.is(&shown) {
        return Err(ControlError::Token);
    }
    match frame::read(&mut stream).await? {
        ToCoordinator::Hello(hello) => Ok((stream, node, hello)),
        _ => Err(ControlError::Garbage),
    }
}

/// Carries messages both ways until the connection ends.
async fn serve(
    conn: ConnId,
    stream: TlsStream<TcpStream>,
    node: NodeId,
    hello: Hello,
    to: mpsc::Sender<Heard>,
) {
    let (sender, mut queue) = mpsc::channel::<ToWorker>(QUEUE);
    if to.send(Heard::Joined { conn, node, hello, to: sender }).await.is_err() {
        return;
    }
    let (mut reader, mut writer) = tokio::io::split(stream);
    let hear = async {
        loop {
            let read = timeout(SILENCE, frame::read(&mut reader)).await;
            let message = read.unwrap_or(Err(ControlError::Silent))?;
            if to.send(Heard::Message { conn, message }).await.is_err() {
                return Ok(());
            }
        }
    };
    let say = async {
        // Ends when the coordinator drops this worker.
        while let Some(message) = queue.recv().await {
            let said = timeout(SILENCE, frame::write(&mut writer, &message)).await;
            said.unwrap_or(Err(ControlError::Late(SILENCE)))?;
        }
        // The worker reads to here and closes.
        timeout(HANDSHAKE, writer.shutdown()).await.unwrap_or(Ok(()))?;
        Ok(())
    };
    let mut hear = std::pin::pin!(hear);
    let ended: Result<(), ControlError> = tokio::select! {
        ended = &mut hear => ended,
        // Closing while the worker still speaks would reset the connection, and cut off our last words.
        said = say => match said {
            Ok(()) => timeout(HANDSHAKE, hear).await.unwrap_or(Ok(())),
            Err(error) => Err(error),
        },
    };
    let why = ended.err().map_or_else(|| "let go".to_owned(), |e| e.to_string());
    let _ = to.send(Heard::Lost { conn, why }).await;
}
