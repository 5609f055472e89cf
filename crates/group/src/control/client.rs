//! The worker's end of the control channel.

use tidecast_identity::{NodeKey, Tls};
use tidecast_net::{LocalAddress, order_for_dialling};
use tokio::io::{ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsStream;

use super::message::{Hello, ToCoordinator, ToWorker};
use super::ticket::GroupTicket;
use crate::channel::{self, ChannelError};

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
    ) -> Result<Self, ChannelError> {
        let mut addresses = ticket.addresses.clone();
        order_for_dialling(&mut addresses, local);
        let config = Tls::new(key).and_then(|tls| tls.client_of(ticket.coordinator()));
        let config = config.map_err(|e| ChannelError::Io(std::io::Error::other(e)))?;
        let found = super::channel(&ticket.token).find(addresses, key.id(), &config).await;
        let mut stream = found.map_err(|(_, error)| error)?;
        channel::write(&mut stream, &ToCoordinator::Hello(hello), &[]).await?;
        let (reader, writer) = tokio::io::split(stream);
        let (sender, heard) = mpsc::channel(QUEUE);
        tokio::spawn(listen(reader, sender));
        Ok(Self { heard, writer })
    }

    /// Says something to the coordinator.
    pub(crate) async fn say(&mut self, message: &ToCoordinator) -> Result<(), ChannelError> {
        channel::write(&mut self.writer, message, &[]).await
    }
}

/// Reads until the connection ends or falls silent.
async fn listen(mut from: ReadHalf<TlsStream<TcpStream>>, to: mpsc::Sender<ToWorker>) {
    loop {
        match channel::read(&mut from).await {
            Ok((message, _)) => {
                if to.send(message).await.is_err() {
                    return;
                }
            }
            Err(error) => return tracing::info!(%error, "the coordinator is lost"),
        }
    }
}
