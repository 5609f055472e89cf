//! The hub at rank 0, to which every rank connects. One task passes messages to the [`HubState`] and delivers its answers.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use tidecast_group::channel::{self, ChannelError, FLUSH_TIMEOUT};
use tidecast_identity::{NodeKey, Tls};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};

use crate::error::{Error, system};
use crate::hub_state::HubState;
use crate::message::{Down, Hello, Up};
use crate::session;

/// Messages that may wait for the hub.
const HUB_QUEUE: usize = 4096;
/// Messages that may wait for one rank; a rank that does not read them is removed.
const QUEUE: usize = 1024;
/// How often timeouts are checked.
const TICK: Duration = Duration::from_millis(50);
/// The maximum wait for open calls, when the hub ends.
const LINGER: Duration = Duration::from_secs(120);

/// Input of the hub. A connection has a number, because a rank may connect more than once.
enum Input {
    Joined { conn: u64, hello: Hello, to: mpsc::Sender<(Down, Bytes)> },
    Message { conn: u64, up: Up, payload: Bytes },
    Disconnected { conn: u64, why: String },
}

/// A running hub.
pub(crate) struct Hub {
    /// The port on which it listens.
    pub(crate) port: u16,
    ending: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Hub {
    /// Begins to accept connections. Call it within a runtime.
    pub(crate) fn start(listener: std::net::TcpListener, size: u32, secret: &[u8]) -> Result<Self, Error> {
        let port = listener.local_addr().map_err(system("listen"))?.port();
        let listener = TcpListener::from_std(listener).map_err(system("listen"))?;
        let tls = |e: tidecast_identity::Error| Error::Join(e.to_string());
        let key = NodeKey::generate().map_err(tls)?;
        let tls = Tls::new(&key).map_err(tls)?;
        let (sender, inputs) = mpsc::channel(HUB_QUEUE);
        let channel = session::channel(secret);
        let (ending, ended) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut tasks = JoinSet::new();
            let serve = move |conn, stream, _, first| carry(conn, stream, first, sender.clone());
            tasks.spawn(channel.answer(listener, tls, serve));
            run(size, inputs, ended).await;
        });
        Ok(Self { port, ending, task })
    }

    /// Ends the hub when no call is open, or after [`LINGER`].
    pub(crate) async fn end(self) {
        let _ = self.ending.send(());
        let mut task = self.task;
        if timeout(LINGER + FLUSH_TIMEOUT, &mut task).await.is_err() {
            task.abort();
        }
    }
}

/// Carries messages both ways until the connection ends or the hub closes it.
async fn carry(conn: u64, stream: channel::Accepted, first: Up, to: mpsc::Sender<Input>) {
    let Up::Hello(hello) = first else { return };
    let (sender, queue) = mpsc::channel::<(Down, Bytes)>(QUEUE);
    if to.send(Input::Joined { conn, hello, to: sender }).await.is_err() {
        return;
    }
    let handle = {
        let to = &to;
        move |up, payload| async move { to.send(Input::Message { conn, up, payload }).await.is_ok() }
    };
    let why = match channel::carry(stream, handle, queue, Some(Down::Alive)).await {
        Ok(()) => "the hub closed its connection".into(),
        Err(ChannelError::Closed) => "its process has ended".into(),
        Err(error) => error.to_string(),
    };
    let _ = to.send(Input::Disconnected { conn, why }).await;
}

/// The connections, by number and by rank.
#[derive(Default)]
struct Connections {
    ranks: HashMap<u64, u32>,
    to: HashMap<u32, (u64, mpsc::Sender<(Down, Bytes)>)>,
}

/// Runs until it is told to end and no call is open.
async fn run(size: u32, mut inputs: mpsc::Receiver<Input>, mut ending: oneshot::Receiver<()>) {
    let (mut hub_state, mut connections) = (HubState::new(size), Connections::default());
    let (began, mut tick, mut until) = (Instant::now(), interval(TICK), None);
    loop {
        tokio::select! {
            input = inputs.recv() => match input {
                Some(input) => connections.handle(input, &mut hub_state, began.elapsed()),
                None => break,
            },
            _ = tick.tick() => hub_state.tick(began.elapsed()),
            _ = &mut ending, if until.is_none() => until = Some(Instant::now() + LINGER),
        }
        connections.deliver(&mut hub_state, began.elapsed());
        if until.is_some_and(|until| hub_state.idle() || Instant::now() > until) {
            break;
        }
    }
    // Queued messages are still sent: connections end when their queues are empty.
    connections.to.clear();
    let ended = async {
        while !connections.ranks.is_empty() {
            match inputs.recv().await {
                Some(Input::Disconnected { conn, .. }) => drop(connections.ranks.remove(&conn)),
                Some(_) => {}
                None => return,
            }
        }
    };
    let _ = timeout(FLUSH_TIMEOUT, ended).await;
}

impl Connections {
    fn handle(&mut self, input: Input, hub_state: &mut HubState, now: Duration) {
        match input {
            Input::Joined { conn, hello, to } => {
                let rank = hello.rank;
                match hub_state.joined(hello) {
                    Ok(()) => {
                        self.ranks.insert(conn, rank);
                        self.to.insert(rank, (conn, to));
                    }
                    Err(why) => {
                        let _ = to.try_send((Down::Lost(why), Bytes::new()));
                    }
                }
            }
            Input::Message { conn, up, payload } => {
                if let Some(rank) = self.ranks.get(&conn) {
                    hub_state.handle(*rank, up, payload, now);
                }
            }
            Input::Disconnected { conn, why } => {
                if let Some(rank) = self.ranks.remove(&conn) {
                    self.to.remove(&rank);
                    hub_state.lost(rank, &why, now);
                }
            }
        }
    }

    /// Delivers messages; those for disconnected ranks are dropped.
    fn deliver(&mut self, hub_state: &mut HubState, now: Duration) {
        loop {
            let outgoing = hub_state.take();
            if outgoing.is_empty() {
                return;
            }
            for (rank, down, payload) in outgoing {
                let last = matches!(down, Down::Lost(_));
                let Some((_, to)) = self.to.get(&rank) else { continue };
                let sent = to.try_send((down, payload)).is_ok();
                if last {
                    self.to.remove(&rank);
                } else if !sent {
                    hub_state.lost(rank, "it does not read its messages", now);
                }
            }
        }
    }
}
