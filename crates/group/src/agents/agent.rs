//! The agent's end.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidecast_event::bcast::Unreached;
use tidecast_identity::{NodeKey, Tls};
use tidecast_net::{LocalAddress, local_addresses, order_for_dialling};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::{AgentTicket, Down, Hello, Up, channel as agent_channel};
use crate::broadcast::{hostname, machine};
use crate::channel::{self, Called, ChannelError};
use crate::error::{Error, system};

/// Orders and reports that may wait.
const QUEUE: usize = 256;
/// Attempts to connect if the coordinator closes the connection, and the pause after the first; it doubles.
const CALLS: usize = 6;
const AGAIN: Duration = Duration::from_millis(200);
/// The maximum time to deliver the last reports.
const GOODBYE: Duration = Duration::from_secs(5);

/// The connection of an agent to its coordinator.
pub struct Attendance<O, R> {
    /// The coordinator's orders; ends when the coordinator is gone or needs this agent no more.
    pub orders: mpsc::Receiver<O>,
    /// Sends reports.
    pub reports: Reports<R>,
    /// This host's addresses.
    pub local: Vec<LocalAddress>,
    carrying: JoinHandle<()>,
}

impl<O, R> Attendance<O, R> {
    /// Delivers the last reports and closes the connection.
    pub async fn leave(self) {
        drop((self.reports, self.orders));
        let _ = timeout(GOODBYE, self.carrying).await;
    }
}

/// Sends reports to the coordinator.
pub struct Reports<R>(mpsc::Sender<(Up<R>, Bytes)>);

impl<R> Clone for Reports<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R> Reports<R> {
    /// Sends one; false if the coordinator is gone.
    pub async fn send(&self, report: R) -> bool {
        self.0.send((Up::Report(report), Bytes::new())).await.is_ok()
    }
}

/// Connects to the coordinator. `host`: its name of this host, if the launcher gave it.
///
/// # Errors
/// The coordinator cannot be reached or authenticated.
pub async fn attend<O, R>(ticket: &AgentTicket, host: Option<String>) -> Result<Attendance<O, R>, Error>
where
    O: DeserializeOwned + Serialize + Send + Sync + 'static,
    R: DeserializeOwned + Serialize + Send + Sync + 'static,
{
    let key = NodeKey::generate()?;
    let local = local_addresses().map_err(system("list this host's networks"))?;
    let hello = Hello {
        host,
        scheduled: std::env::var("SLURMD_NODENAME").ok().filter(|name| !name.is_empty()),
        hostname: hostname(),
        machine: machine(),
        addresses: local.iter().cloned().map(Into::into).collect(),
    };
    let unreached = |error: ChannelError| {
        let coordinator_addresses = ticket.0.addresses.clone();
        Error::Unreached(Unreached { coordinator_addresses, coordinator_error: error.to_string() })
    };
    let mut stream = call(ticket, &local, &key).await.map_err(unreached)?;
    channel::write(&mut stream, &Up::<R>::Hello(hello), &[]).await.map_err(unreached)?;
    let (give, orders) = mpsc::channel(QUEUE);
    let (reports, queue) = mpsc::channel::<(Up<R>, Bytes)>(QUEUE);
    let carrying = tokio::spawn(async move {
        let hear = |message: Down<O>, _| {
            let give = &give;
            async move {
                match message {
                    Down::Alive => true,
                    Down::Order(order) => give.send(order).await.is_ok(),
                    Down::Stop(why) => {
                        tracing::info!(why, "the coordinator does not need this agent");
                        false
                    }
                }
            }
        };
        if let Err(error) = channel::carry(stream, hear, queue, Some(Up::<R>::Alive)).await {
            tracing::info!(%error, "lost the connection to the coordinator");
        }
    });
    Ok(Attendance { orders, reports: Reports(reports), local, carrying })
}

/// Connects, and retries if the coordinator closes the connection: with many agents from one address it closes the
/// oldest unauthenticated connections.
async fn call(ticket: &AgentTicket, local: &[LocalAddress], key: &NodeKey) -> Result<Called, ChannelError> {
    let mut addresses = ticket.0.addresses.clone();
    order_for_dialling(&mut addresses, local);
    let config = Tls::new(key).and_then(|tls| tls.client_of(ticket.0.coordinator()));
    let config = config.map_err(|e| ChannelError::Io(std::io::Error::other(e)))?;
    let (channel, mut pause) = (agent_channel(&ticket.0.token), AGAIN);
    for _ in 1..CALLS {
        match channel.connect(addresses.clone(), key.id(), &config).await {
            Ok(stream) => return Ok(stream),
            Err((_, error)) if !error.is_broken() => return Err(error),
            Err(_) => sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await,
        }
        pause *= 2;
    }
    channel.connect(addresses, key.id(), &config).await.map_err(|(_, error)| error)
}
