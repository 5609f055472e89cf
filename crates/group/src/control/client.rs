//! The worker's end of the control channel.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tidecast_identity::{NodeKey, Tls};
use tidecast_net::{LocalAddress, order_for_dialling};
use tokio::io::{ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::message::{Hello, ToCoordinator, ToWorker};
use super::ticket::GroupTicket;
use crate::channel::{self, Called, ChannelError};

/// Messages of the coordinator that may wait for this worker.
const QUEUE: usize = 64;
/// Attempts to connect if the coordinator closes the connection, and the pause after the first; it doubles.
const CONNECT_ATTEMPTS: usize = 6;
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// A connection to the coordinator.
pub(crate) struct Client {
    /// Its messages; ends with the connection.
    pub(crate) received: mpsc::Receiver<ToWorker>,
    writer: WriteHalf<Called>,
}

impl Client {
    /// Connects to the coordinator at one of its addresses, and introduces this worker.
    pub(crate) async fn connect(
        ticket: &GroupTicket,
        key: &NodeKey,
        local: &[LocalAddress],
        hello: Hello,
    ) -> Result<Self, ChannelError> {
        let mut addresses = ticket.addresses.clone();
        order_for_dialling(&mut addresses, local);
        let config = Tls::new(key).and_then(|tls| tls.client_of(ticket.coordinator()));
        let config = config.map_err(|e| ChannelError::Io(std::io::Error::other(e)))?;
        let mut stream = call(ticket, &addresses, key, &config).await?;
        channel::write(&mut stream, &ToCoordinator::Hello(hello), &[]).await?;
        let (reader, writer) = tokio::io::split(stream);
        let (sender, received) = mpsc::channel(QUEUE);
        tokio::spawn(listen(reader, sender));
        Ok(Self { received, writer })
    }

    /// Sends a message to the coordinator.
    pub(crate) async fn send(&mut self, message: &ToCoordinator) -> Result<(), ChannelError> {
        channel::write(&mut self.writer, message, &[]).await
    }
}

/// Connects to the coordinator, and retries if it closes the connection: with many workers from one address it closes the
/// oldest unauthenticated connections.
async fn call(
    ticket: &GroupTicket,
    addresses: &[SocketAddr],
    key: &NodeKey,
    config: &Arc<ClientConfig>,
) -> Result<Called, ChannelError> {
    let (channel, mut pause) = (super::channel(&ticket.token), RETRY_DELAY);
    for _ in 1..CONNECT_ATTEMPTS {
        match channel.connect(addresses.to_vec(), key.id(), config).await {
            Ok(stream) => return Ok(stream),
            Err((_, error)) if !error.is_broken() => return Err(error),
            Err(_) => sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await,
        }
        pause *= 2;
    }
    channel.connect(addresses.to_vec(), key.id(), config).await.map_err(|(_, error)| error)
}

/// Reads until the connection ends or falls silent.
async fn listen(mut from: ReadHalf<Called>, to: mpsc::Sender<ToWorker>) {
    loop {
        match channel::read(&mut from).await {
            Ok((message, _)) => {
                if to.send(message).await.is_err() {
                    return;
                }
            }
            Err(error) => return tracing::info!(%error, "lost the connection to the coordinator"),
        }
    }
}
