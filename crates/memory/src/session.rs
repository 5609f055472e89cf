//! A rank's end of its connection to the hub.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tidecast_group::channel::{self, Called, Channel, ChannelError};
use tidecast_identity::{NodeKey, Tls};
use tidecast_net::{local_addresses, order_for_dialling};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::error::Error;
use crate::message::{Down, Hello, Up};
use crate::shared::Shared;

/// First bytes in both directions.
const MAGIC: [u8; 16] = *b"tidecast ranks\r\n";
/// The first delay before all addresses are retried; it doubles each time. A hub with many new connections from one address
/// closes the oldest unauthenticated ones first, so an attempt may fail.
const RETRY_DELAY: Duration = Duration::from_millis(100);
/// The maximum delay between retries.
const MAX_RETRY_DELAY: Duration = Duration::from_millis(1600);
/// Messages that may wait for the hub, or for this rank.
const QUEUE: usize = 1024;
/// The maximum wait for the last message to be sent.
const LAST: Duration = Duration::from_secs(2);

/// The control channel of a group, authenticated by its secret.
pub(crate) fn channel(secret: &[u8]) -> Channel {
    Channel::new(MAGIC, secret)
}

/// A connection to the hub.
pub(crate) struct Session {
    /// Messages to the hub.
    pub(crate) up: mpsc::Sender<(Up, Bytes)>,
    down: mpsc::Receiver<(Down, Bytes)>,
    /// The last call that has ended for all ranks; its sender is dropped when the connection ends.
    pub(crate) over: watch::Receiver<Option<u64>>,
    /// Why the connection ended.
    lost: Arc<Mutex<Option<String>>>,
    transport: JoinHandle<()>,
}

impl Session {
    /// Connects to the hub before `until`, and joins the group.
    pub(crate) async fn join(
        at: &[String],
        hello: Hello,
        secret: &[u8],
        shared: Arc<Shared>,
        until: Instant,
    ) -> Result<Self, Error> {
        let mut stream = find(at, secret, until).await?;
        let rank = hello.rank;
        let sent = channel::write(&mut stream, &Up::Hello(hello), &[]).await;
        sent.map_err(|e| Error::Join(format!("lost the connection to rank 0: {e}")))?;
        let (up, queue) = mpsc::channel(QUEUE);
        let (sender, down) = mpsc::channel(QUEUE);
        let (ended, over) = watch::channel(None);
        let lost = Arc::new(Mutex::new(None));
        let incoming = Incoming { to: sender, ended, shared: shared.clone(), lost: lost.clone() };
        let transport = tokio::spawn(carry(stream, queue, incoming));
        let mut session = Self { up, down, over, lost, transport };
        let admitted = timeout_at(until, session.await_admission(&shared)).await;
        admitted.unwrap_or_else(|_| {
            Err(Error::Join(format!("rank 0 did not accept rank {rank} within the timeout")))
        })?;
        Ok(session)
    }

    async fn await_admission(&mut self, shared: &Shared) -> Result<(), Error> {
        loop {
            match self.down.recv().await {
                Some((Down::Anchors(anchors), _)) => {
                    let shares =
                        anchors.iter().find(|(_, dir)| shared.reaches(dir)).map(|(number, _)| *number);
                    self.send(Up::Shares(shares)).await?;
                }
                Some((Down::Admitted, _)) => return Ok(()),
                Some(_) => {}
                None => return Err(Error::Join(self.reason())),
            }
        }
    }

    fn reason(&self) -> String {
        self.lost.lock().clone().unwrap_or_else(|| "lost the connection to rank 0".into())
    }

    /// Sends a message to the hub.
    pub(crate) async fn send(&self, up: Up) -> Result<(), Error> {
        self.send_with_payload(up, Bytes::new()).await
    }

    pub(crate) async fn send_with_payload(&self, up: Up, payload: Bytes) -> Result<(), Error> {
        self.up.send((up, payload)).await.map_err(|_| Error::Lost(self.reason()))
    }

    /// The hub's next message about this call; messages about earlier calls are dropped.
    ///
    /// # Errors
    /// The call failed for this rank, or the connection to the hub is lost. A live hub sends a message once a second.
    pub(crate) async fn next(&mut self, number: u64) -> Result<(Down, Bytes), Error> {
        loop {
            let Some((down, payload)) = self.down.recv().await else {
                return Err(Error::Lost(self.reason()));
            };
            match down {
                Down::Failed { call, why } if call == number => return Err(Error::Failed(why)),
                Down::Go { call, .. }
                | Down::Ready { call, .. }
                | Down::Room { call, .. }
                | Down::Ticket { call, .. }
                | Down::End { call, .. }
                    if call == number =>
                {
                    return Ok((down, payload));
                }
                _ => {}
            }
        }
    }

    /// Leaves the group.
    pub(crate) async fn leave(self) {
        let Self { up, transport, .. } = self;
        let _ = timeout(LAST, up.send((Up::Bye, Bytes::new()))).await;
        drop(up);
        let _ = timeout(LAST, transport).await;
    }
}

/// Tries all addresses until the hub answers at one of them.
async fn find(at: &[String], secret: &[u8], until: Instant) -> Result<Called, Error> {
    let tls = NodeKey::generate().and_then(|key| Tls::new(&key)).map_err(|e| Error::Join(e.to_string()))?;
    let (channel, config, mut last) = (channel(secret), tls.client(), format!("no address in {at:?}"));
    let mut again = RETRY_DELAY;
    loop {
        let finding = channel.connect(addresses(at).await, tls.id(), &config);
        match timeout_at(until, finding).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err((address, error))) => {
                last = address.map_or(last, |address| format!("{address}: {error}"));
                if error.is_final() || Instant::now() + RETRY_DELAY >= until {
                    return Err(Error::Join(format!("rank 0 is not found at {last}")));
                }
            }
            Err(_) => return Err(Error::Join(format!("rank 0 is not found at {last}"))),
        }
        // A random delay, so that not all ranks connect at the same moment.
        sleep(again.mul_f64(rand::random_range(0.5..1.0))).await;
        again = (again * 2).min(MAX_RETRY_DELAY);
    }
}

async fn addresses(at: &[String]) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    for text in at {
        if let Ok(some) = tokio::net::lookup_host(text.as_str()).await {
            found.extend(some);
        }
    }
    order_for_dialling(&mut found, &local_addresses().unwrap_or_default());
    found
}

/// The receivers of the hub's messages.
struct Incoming {
    to: mpsc::Sender<(Down, Bytes)>,
    ended: watch::Sender<Option<u64>>,
    shared: Arc<Shared>,
    lost: Arc<Mutex<Option<String>>>,
}

impl Incoming {
    /// False if the connection is no longer needed.
    async fn handle(&self, down: Down, payload: Bytes) -> bool {
        match down {
            Down::Alive => return true,
            Down::Lost(why) => {
                *self.lost.lock() = Some(why);
                return false;
            }
            Down::End { call, .. } => {
                self.ended.send_replace(Some(call));
                let file = self.shared.file(call);
                // Freeing gigabytes of memory takes time.
                tokio::task::spawn_blocking(move || std::fs::remove_file(file));
            }
            _ => {}
        }
        self.to.send((down, payload)).await.is_ok()
    }
}

/// Carries messages both ways, with keep-alives when idle, until the hub is lost or this rank leaves.
async fn carry(stream: Called, queue: mpsc::Receiver<(Up, Bytes)>, incoming: Incoming) {
    let handle = |down, payload| incoming.handle(down, payload);
    let why = match channel::carry(stream, handle, queue, Some(Up::Alive)).await {
        Ok(()) => return,
        Err(ChannelError::Closed) => "rank 0 has ended".to_owned(),
        Err(error) => format!("lost the connection to rank 0: {error}"),
    };
    incoming.lost.lock().get_or_insert(why);
}
