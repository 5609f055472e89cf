//! The hub at rank 0, to which every rank connects. One task passes messages to the [`Council`] and delivers its answers.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use tidecast_group::channel::{self, ChannelError, LAST};
use tidecast_identity::{NodeKey, Tls};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};

use crate::council::Council;
use crate::error::{Error, system};
use crate::message::{Down, Hello, Up};
use crate::session;

/// Messages that may wait for the hub.
const INBOX: usize = 4096;
/// Messages that may wait for one rank; a rank that does not read them is removed.
const QUEUE: usize = 1024;
/// How often timeouts are checked.
const TICK: Duration = Duration::from_millis(50);
/// The maximum wait for open calls, when the hub ends.
const LINGER: Duration = Duration::from_secs(120);

/// Input of the hub. A connection has a number, because a rank may connect more than once.
enum Input {
    Joined { conn: u64, hello: Hello, to: mpsc::Sender<(Down, Bytes)> },
    Said { conn: u64, up: Up, payload: Bytes },
    Gone { conn: u64, why: String },
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
        let (sender, inputs) = mpsc::channel(INBOX);
        let channel = session::channel(secret);
        let (ending, ended) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut tasks = JoinSet::new();
            let serve = move |conn, stream, _, first| carry(conn, stream, first, sender.clone());
            tasks.spawn(channel.answer(listener, tls, serve));
            preside(size, inputs, ended).await;
        });
        Ok(Self { port, ending, task })
    }

    /// Ends the hub when no call is open, or after [`LINGER`].
    pub(crate) async fn end(self) {
        let _ = self.ending.send(());
        let mut task = self.task;
        if timeout(LINGER + LAST, &mut task).await.is_err() {
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
    let hear = {
        let to = &to;
        move |up, payload| async move { to.send(Input::Said { conn, up, payload }).await.is_ok() }
    };
    let why = match channel::carry(stream, hear, queue, Some(Down::Alive)).await {
        Ok(()) => "the hub closed its connection".into(),
        Err(ChannelError::Closed) => "its process has ended".into(),
        Err(error) => error.to_string(),
    };
    let _ = to.send(Input::Gone { conn, why }).await;
}

/// The connections, by number and by rank.
#[derive(Default)]
struct Lines {
    ranks: HashMap<u64, u32>,
    to: HashMap<u32, (u64, mpsc::Sender<(Down, Bytes)>)>,
}

/// Runs until it is told to end and no call is open.
async fn preside(size: u32, mut inputs: mpsc::Receiver<Input>, mut ending: oneshot::Receiver<()>) {
    let (mut council, mut lines) = (Council::new(size), Lines::default());
    let (began, mut tick, mut until) = (Instant::now(), interval(TICK), None);
    loop {
        tokio::select! {
            input = inputs.recv() => match input {
                Some(input) => lines.hear(input, &mut council, began.elapsed()),
                None => break,
            },
            _ = tick.tick() => council.tick(began.elapsed()),
            _ = &mut ending, if until.is_none() => until = Some(Instant::now() + LINGER),
        }
        lines.deliver(&mut council, began.elapsed());
        if until.is_some_and(|until| council.idle() || Instant::now() > until) {
            break;
        }
    }
    // Queued messages are still sent: connections end when their queues are empty.
    lines.to.clear();
    let ended = async {
        while !lines.ranks.is_empty() {
            match inputs.recv().await {
                Some(Input::Gone { conn, .. }) => drop(lines.ranks.remove(&conn)),
                Some(_) => {}
                None => return,
            }
        }
    };
    let _ = timeout(LAST, ended).await;
}

impl Lines {
    fn hear(&mut self, input: Input, council: &mut Council, now: Duration) {
        match input {
            Input::Joined { conn, hello, to } => {
                let rank = hello.rank;
                match council.joined(hello) {
                    Ok(()) => {
                        self.ranks.insert(conn, rank);
                        self.to.insert(rank, (conn, to));
                    }
                    Err(why) => {
                        let _ = to.try_send((Down::Lost(why), Bytes::new()));
                    }
                }
            }
            Input::Said { conn, up, payload } => {
                if let Some(rank) = self.ranks.get(&conn) {
                    council.heard(*rank, up, payload, now);
                }
            }
            Input::Gone { conn, why } => {
                if let Some(rank) = self.ranks.remove(&conn) {
                    self.to.remove(&rank);
                    council.lost(rank, &why, now);
                }
            }
        }
    }

    /// Delivers messages; those for disconnected ranks are dropped.
    fn deliver(&mut self, council: &mut Council, now: Duration) {
        loop {
            let letters = council.take();
            if letters.is_empty() {
                return;
            }
            for (rank, down, payload) in letters {
                let last = matches!(down, Down::Lost(_));
                let Some((_, to)) = self.to.get(&rank) else { continue };
                let sent = to.try_send((down, payload)).is_ok();
                if last {
                    self.to.remove(&rank);
                } else if !sent {
                    council.lost(rank, "it does not read its messages", now);
                }
            }
        }
    }
}
