//! The worker's end of the control channel.

use std::net::SocketAddr;

use tidecast_identity::{NodeKey, Tls, placeholder_name};
use tidecast_net::{LocalAddress, order_for_dialling};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Duration, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::message::{Hello, ToCoordinator, ToWorker};
use super::ticket::GroupTicket;
use super::{ControlError, HANDSHAKE, SILENCE, frame};

/// The next address is tried beside the last one after this.
const STAGGER: Duration = Duration::from_millis(250);
/// Messages of the coordinator that wait for this worker.
const QUEUE: usize = 64;

/// A connection to the coordinator.
pub(crate) struct Client {
    /// What it says; ends with the connection.
    pub(crate) heard: mpsc::Receiver<ToWorker>,
    writer: WriteHalf<TlsStream<TcpStream>>,
}

impl Client {
    /// Finds the coordinator at any of its addresses, and introduces this worker.
    pub(crate) async fn connect(
        ticket: &GroupTicket,
        key: &NodeKey,
        local: &[LocalAddress],
        hello: Hello,
    ) -> Result<Self, ControlError> {
        let mut addresses = ticket.addresses.clone();
        order_for_dialling(&mut addresses, local);
        let mut trying = JoinSet::new();
        for (turn, address) in (0u32..).zip(addresses) {
            let (ticket, key) = (ticket.clone(), key.clone());
            trying.spawn(async move {
                sleep(STAGGER * turn).await;
                let dialled = timeout(HANDSHAKE, dial(address, &ticket, &key)).await;
                dialled.unwrap_or(Err(ControlError::Late(HANDSHAKE))).map_err(|e| (address, e))
            });
        }
        let mut last = ControlError::Closed;
        while let Some(tried) = trying.join_next().await {
            match tried {
                Ok(Ok(mut stream)) => {
                    frame::write(&mut stream, &ToCoordinator::Hello(hello)).await?;
                    return Ok(Self::over(stream));
                }
                Ok(Err((address, error))) => {
                    tracing::info!(%address, %error, "no coordinator there");
                    last = error;
                }
                Err(_) => {}
            }
        }
        Err(last)
    }

    fn over(stream: TlsStream<TcpStream>) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        let (sender, heard) = mpsc::channel(QUEUE);
        tokio::spawn(listen(reader, sender));
        Self { heard, writer }
    }

    /// Says something to the coordinator.
    pub(crate) async fn say(&mut self, message: &ToCoordinator) -> Result<(), ControlError> {
        let said = timeout(SILENCE, frame::write(&mut self.writer, message)).await;
        said.unwrap_or(Err(ControlError::Late(SILENCE)))
    }
}

async fn dial(
    address: SocketAddr,
    ticket: &GroupTicket,
    key: &NodeKey,
) -> Result<TlsStream<TcpStream>, ControlError> {
    let other = |e: tidecast_identity::Error| ControlError::Io(std::io::Error::other(e));
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let config = Tls::new(key).and_then(|tls| tls.client(Some(ticket.coordinator()))).map_err(other)?;
    let mut stream = TlsConnector::from(config).connect(placeholder_name(), stream).await?;
    frame::greet(&mut stream).await?;
    stream.write_all(ticket.token.bytes()).await?;
    Ok(stream)
}

/// Reads until the connection ends or falls silent.
async fn listen(mut from: ReadHalf<TlsStream<TcpStream>>, to: mpsc::Sender<ToWorker>) {
    loop {
        match timeout(SILENCE, frame::read(&mut from)).await {
            Ok(Ok(message)) => {
                if to.send(message).await.is_err() {
                    return;
                }
            }
            Ok(Err(error)) => return tracing::info!(%error, "the coordinator is lost"),
            Err(_) => return tracing::info!("the coordinator is silent"),
        }
    }
}
