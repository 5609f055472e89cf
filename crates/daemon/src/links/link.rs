//! One control channel to another daemon: requests and answers both ways, over whichever end made the connection.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tidecast_admission::{DEADLINE, HandshakeAborted, MAX_READ};
use tidecast_control::Bounds;
use tidecast_identity::{Identity, NodeId};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::frame::{self, FrameError};
use super::rejections;
use crate::model::message::{Answer, Ask, Enrolled, Enrolment, Head, Hello};

/// An answer is waited for this long.
const ANSWER: Duration = Duration::from_secs(20);
/// Both ends send their hello within this time.
const HELLO: Duration = DEADLINE;
/// A channel on which nothing came for this long is closed; there are pings before.
const SILENT: Duration = Duration::from_secs(60);
const PING: Duration = Duration::from_secs(20);
/// A rejected peer must read the reason within this time.
const LAST_WORD: Duration = Duration::from_secs(2);
/// Bytes that are still read from a rejected peer: closing a connection with unread bytes would discard the
/// reason too.
const UNHEARD: u64 = 1 << 20;
/// The number of requests that are never answered.
const UNANSWERED: u64 = u64::MAX;
/// Frames that may wait to be sent.
const QUEUE: usize = 64;
/// Requests of the peer that are processed at once; no more are read until one is done.
const WORKING: usize = 16;
/// Requests that the peer may make at once, and in the long run per second.
const BURST: u32 = 400;
const PER_SECOND: u32 = 100;

/// The daemon at the other end.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Its key, proven by TLS.
    pub(crate) node: NodeId,
    /// The host or user that its card proves.
    pub(crate) identity: Identity,
    /// Its hello.
    pub(crate) hello: Hello,
    /// Where the connection came from or went to.
    pub(crate) addr: SocketAddr,
    /// It was called, and can be again. One that has called may be behind a NAT.
    pub(crate) called: bool,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("the connection to {0} has ended")]
    Ended(String),
    #[error("{}", rejections::rejected_peer(.name, .why))]
    Refused { name: String, why: String },
    #[error("{0} did not answer within 20 s")]
    Late(String),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Cut(#[from] HandshakeAborted),
    #[error("no hello message within {} s", HELLO.as_secs())]
    NoHello,
}

type Asked = Mutex<HashMap<u64, oneshot::Sender<(serde_json::Value, Bytes)>>>;

/// A channel that is up.
pub(crate) struct Link {
    pub(crate) peer: Peer,
    next: AtomicU64,
    asked: Asked,
    out: mpsc::Sender<(Head, Bytes)>,
    closing: Notify,
    /// The peer is no longer trusted.
    rejected_peer: AtomicBool,
    /// The peer rejected this daemon.
    refused: OnceLock<String>,
}

/// An answer that is being made.
pub(crate) type Serving<'a> = Pin<Box<dyn Future<Output = (Answer, Bytes)> + Send + 'a>>;

/// Answers requests of peers, and is notified about links; set in [`super::peers::Links`] by the builder of
/// the daemon.
pub(crate) trait Serve: Send + Sync + 'static {
    fn serve<'a>(self: Arc<Self>, peer: &'a Peer, ask: Ask, payload: Bytes) -> Serving<'a>;

    /// A channel is up.
    fn met(&self, _link: &Arc<Link>) {}

    /// A channel has ended.
    fn ended(&self, _node: NodeId) {}

    /// A node is not trusted, or no longer.
    fn distrusted(&self, _node: NodeId) {}

    /// A peer was rejected. Rate-limited, so that the audit log cannot be flooded.
    fn rejected_peer(&self, _who: &str, _why: &str) {}

    /// The other end turns this daemon away.
    fn refused(&self, _peer: &Peer, _why: &str) {}

    /// Answers a node that wants a certificate. The bytes are the payload.
    fn enrol(self: Arc<Self>, _node: NodeId, _addr: SocketAddr, _wish: Enrolment) -> Enrolling {
        let why = "this daemon keeps no certificate authority".to_owned();
        Box::pin(std::future::ready((Enrolled::Refused { why }, Bytes::new())))
    }
}

/// An answer to a node that wants a certificate.
pub(crate) type Enrolling = Pin<Box<dyn Future<Output = (Enrolled, Bytes)> + Send>>;

/// Sends the hello and receives the peer's first message.
pub(crate) async fn exchange_hello<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ours: &Hello,
) -> Result<T, LinkError> {
    let both = async {
        frame::write(stream, ours, &[]).await?;
        frame::read_within(stream, Bounds { message: MAX_READ, payload: 0 }).await
    };
    match timeout(HELLO, both).await.map_err(|_| LinkError::NoHello)?? {
        Some((hello, _)) => Ok(hello),
        None => Err(LinkError::NoHello),
    }
}

impl Link {
    /// The channel, and the future that runs it to its end.
    pub(crate) fn new(
        peer: Peer,
        stream: impl AsyncRead + AsyncWrite + Send + 'static,
        serve: Arc<dyn Serve>,
    ) -> (Arc<Link>, impl Future<Output = ()> + Send) {
        let (out, queue) = mpsc::channel(QUEUE);
        let link = Arc::new(Link {
            peer,
            next: AtomicU64::new(0),
            asked: Asked::default(),
            out,
            closing: Notify::new(),
            rejected_peer: AtomicBool::new(false),
            refused: OnceLock::new(),
        });
        let run = run(link.clone(), stream, queue, serve);
        (link, run)
    }

    /// Asks, and waits for the answer.
    pub(crate) async fn ask(&self, ask: &Ask, payload: Bytes) -> Result<(Answer, Bytes), LinkError> {
        let name = || self.peer.hello.name.clone();
        let ended = || match self.refused.get() {
            Some(why) => LinkError::Refused { name: name(), why: why.clone() },
            None => LinkError::Ended(name()),
        };
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let ask = serde_json::to_value(ask).map_err(|e| FrameError::Malformed(e.to_string()))?;
        let (answer, answered) = oneshot::channel();
        self.asked.lock().insert(id, answer);
        let conversation = async {
            self.out.send((Head::Ask { id, ask }, payload)).await.map_err(|_| ended())?;
            let (answer, payload) = answered.await.map_err(|_| ended())?;
            // An answer of a kind that only a newer daemon knows counts as not understood.
            Ok((serde_json::from_value(answer).unwrap_or(Answer::NotUnderstood), payload))
        };
        let answered = timeout(ANSWER, conversation).await.unwrap_or_else(|_| Err(LinkError::Late(name())));
        self.asked.lock().remove(&id);
        answered
    }

    /// Sends a request that needs no answer. It is dropped when the queue is full.
    pub(crate) fn tell(&self, ask: &Ask, payload: Bytes) {
        if let Ok(ask) = serde_json::to_value(ask) {
            let _ = self.out.try_send((Head::Ask { id: UNANSWERED, ask }, payload));
        }
    }

    /// Ends it.
    pub(crate) fn close(&self) {
        self.closing.notify_one();
    }

    /// Ends the channel, and sends the peer the reason.
    pub(crate) fn turn_away(&self, why: &str) {
        self.rejected_peer.store(true, Ordering::Relaxed);
        let _ = self.out.try_send((Head::Refused { why: why.into() }, Bytes::new()));
        self.close();
    }

    /// Whether it is still up.
    pub(crate) fn is_up(&self) -> bool {
        !self.out.is_closed() && !self.rejected_peer.load(Ordering::Relaxed)
    }
}

async fn run(
    link: Arc<Link>,
    stream: impl AsyncRead + AsyncWrite + Send,
    mut queue: mpsc::Receiver<(Head, Bytes)>,
    serve: Arc<dyn Serve>,
) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let reading = hear(&link, &mut reader, serve);
    let writing = async {
        let mut ping = tokio::time::interval(PING);
        loop {
            let (head, payload) = tokio::select! {
                Some(next) = queue.recv() => next,
                _ = ping.tick() => (pinging(), Bytes::new()),
            };
            frame::write(&mut writer, &head, &payload).await?;
            if matches!(head, Head::Refused { .. }) {
                return Ok(());
            }
        }
    };
    let (mut writing, mut said) = (Box::pin(writing), false);
    let ended: Result<(), FrameError> = tokio::select! {
        ended = reading => ended,
        ended = &mut writing => {
            said = true;
            ended
        }
        () = link.closing.notified() => Ok(()),
    };
    if let Err(error) = ended {
        tracing::debug!(peer = link.peer.hello.name, %error, "control channel ended");
    }
    // Its requests are no longer answered, but the reason is still sent.
    if link.rejected_peer.load(Ordering::Relaxed) {
        if !said {
            let _ = timeout(LAST_WORD, &mut writing).await;
        }
        drop(writing);
        part(&mut reader, &mut writer).await;
    } else {
        drop(writing);
    }
    queue.close();
    // Requests that wait for an answer fail.
    link.asked.lock().clear();
}

/// Tells a peer that has sent only its hello that it was rejected.
pub(crate) async fn refuse(stream: impl AsyncRead + AsyncWrite, why: String) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let head = Head::Refused { why };
    let told = frame::write(&mut writer, &head, &[]);
    if matches!(timeout(LAST_WORD, told).await, Ok(Ok(()))) {
        part(&mut reader, &mut writer).await;
    }
}

/// Sends a node the answer of the certificate authority.
pub(crate) async fn answer_enrolment(stream: impl AsyncRead + AsyncWrite, answer: &Enrolled, crl: &[u8]) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    if frame::write(&mut writer, answer, crl).await.is_ok() {
        part(&mut reader, &mut writer).await;
    }
}

/// Ends a connection so that the last message is received.
async fn part(reader: &mut (impl AsyncRead + Unpin), writer: &mut (impl AsyncWrite + Unpin)) {
    let heard = async {
        writer.shutdown().await?;
        tokio::io::copy(&mut reader.take(UNHEARD), &mut tokio::io::sink()).await
    };
    let _ = timeout(LAST_WORD, heard).await;
}

fn pinging() -> Head {
    Head::Ask { id: UNANSWERED, ask: serde_json::json!("ping") }
}

async fn hear(
    link: &Arc<Link>,
    reader: &mut (impl AsyncRead + Unpin),
    serve: Arc<dyn Serve>,
) -> Result<(), FrameError> {
    let room = Arc::new(Semaphore::new(WORKING));
    let mut allowance = Allowance::new();
    loop {
        let read = timeout(SILENT, frame::read(reader)).await.map_err(|_| FrameError::Late)?;
        let Some((head, payload)): Option<(serde_json::Value, _)> = read? else { return Ok(()) };
        match serde_json::from_value(head) {
            // Neither: a newer daemon's message that needs no answer.
            Err(_) => allowance.take().await,
            Ok(Head::Refused { why }) => {
                let why = rejections::plain(&why);
                serve.refused(&link.peer, &why);
                let _ = link.refused.set(why);
                return Ok(());
            }
            Ok(Head::Answer { id, answer }) => {
                if let Some(waiting) = link.asked.lock().remove(&id) {
                    let _ = waiting.send((answer, payload));
                }
            }
            Ok(Head::Ask { id, ask }) => {
                allowance.take().await;
                let Ok(permit) = room.clone().acquire_owned().await else { return Ok(()) };
                let (link, serve) = (link.clone(), serve.clone());
                tokio::spawn(async move {
                    let (answer, payload) = match serde_json::from_value(ask) {
                        Ok(ask) => serve.serve(&link.peer, ask, payload).await,
                        Err(_) => (Answer::NotUnderstood, Bytes::new()),
                    };
                    if id != UNANSWERED {
                        let answer = serde_json::to_value(answer).unwrap_or_default();
                        let _ = link.out.send((Head::Answer { id, answer }, payload)).await;
                    }
                    drop(permit);
                });
            }
        }
    }
}

/// A token bucket: a peer that asks more often is read more slowly.
struct Allowance {
    left: f64,
    at: Instant,
}

impl Allowance {
    fn new() -> Self {
        Self { left: f64::from(BURST), at: Instant::now() }
    }

    async fn take(&mut self) {
        let now = Instant::now();
        let earned = (now - self.at).as_secs_f64() * f64::from(PER_SECOND);
        (self.left, self.at) = ((self.left + earned).min(f64::from(BURST)) - 1.0, now);
        if self.left < 0.0 {
            tokio::time::sleep(Duration::from_secs_f64(-self.left / f64::from(PER_SECOND))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    struct Echo;

    impl Serve for Echo {
        fn serve<'a>(self: Arc<Self>, peer: &'a Peer, ask: Ask, payload: Bytes) -> Serving<'a> {
            Box::pin(async move {
                match ask {
                    Ask::Ad => (Answer::Ok, payload),
                    Ask::Ping => (Answer::Rejected { why: peer.hello.name.clone() }, Bytes::new()),
                    _ => std::future::pending().await,
                }
            })
        }
    }

    /// A request that gets no answer.
    fn silence() -> Ask {
        Ask::Offer { name: String::new(), owner: String::new(), ad: String::new() }
    }

    fn peer(name: &str) -> Peer {
        let hello = Hello {
            name: name.into(),
            card: String::new(),
            addresses: vec![],
            machine: "m".into(),
            started: 0,
            user: None,
            clock: 0,
        };
        let addr = "127.0.0.1:1".parse().unwrap();
        Peer { node: NodeId([1; 32]), identity: Identity::Host(name.into()), hello, addr, called: true }
    }

    #[tokio::test]
    async fn both_ends_ask_and_an_end_is_heard_by_who_waits() {
        let (a, b) = tokio::io::duplex(1 << 16);
        let (left, run_left) = Link::new(peer("right"), a, Arc::new(Echo));
        let (right, run_right) = Link::new(peer("left"), b, Arc::new(Echo));
        let (left_task, right_task) = (tokio::spawn(run_left), tokio::spawn(run_right));
        let payload = Bytes::from(vec![7; 200_000]);
        let asked = (left.ask(&Ask::Ad, payload.clone()), right.ask(&Ask::Ping, Bytes::new()));
        let (to_right, to_left) = tokio::join!(asked.0, asked.1);
        assert_eq!(to_right.unwrap(), (Answer::Ok, payload));
        // The left end serves its peer, which it knows as "right".
        assert_eq!(to_left.unwrap().0, Answer::Rejected { why: "right".into() });

        let waiting = tokio::spawn({
            let left = left.clone();
            async move { left.ask(&silence(), Bytes::new()).await }
        });
        tokio::task::yield_now().await;
        right_task.abort();
        assert!(matches!(waiting.await.unwrap(), Err(LinkError::Ended(_))));
        left_task.await.unwrap();
        assert!(!left.is_up());
    }

    #[tokio::test]
    async fn what_a_newer_daemon_says_breaks_nothing() {
        let (a, mut b) = tokio::io::duplex(1 << 16);
        let (link, run) = Link::new(peer("x"), a, Arc::new(Echo));
        tokio::spawn(run);
        frame::write(&mut b, &serde_json::json!({"sing": {"song": [1, 2]}}), b"la").await.unwrap();
        frame::write(&mut b, &serde_json::json!({"ask": {"id": 4, "ask": "ad", "loud": true}}), &[])
            .await
            .unwrap();
        let ask = Head::Ask { id: 5, ask: serde_json::json!({"dance": {"partner": 1}}) };
        frame::write(&mut b, &ask, &[]).await.unwrap();
        loop {
            let (head, _) = frame::read(&mut b).await.unwrap().unwrap();
            match head {
                Head::Answer { id: 4, answer } => assert_eq!(answer, "ok"),
                Head::Answer { id, answer } => {
                    assert_eq!((id, answer), (5, serde_json::json!("not_understood")));
                    break;
                }
                Head::Ask { .. } | Head::Refused { .. } => {}
            }
        }
        let asking = tokio::spawn(async move { link.ask(&Ask::Ad, Bytes::new()).await });
        loop {
            let (head, _) = frame::read(&mut b).await.unwrap().unwrap();
            if let Head::Ask { id, ask } = head
                && ask == "ad"
            {
                let answer =
                    serde_json::json!({"answer": {"id": id, "answer": {"perhaps": {"on": "monday"}}}});
                frame::write(&mut b, &answer, &[]).await.unwrap();
                break;
            }
        }
        assert_eq!(asking.await.unwrap().unwrap().0, Answer::NotUnderstood);
    }

    #[tokio::test]
    async fn one_who_is_turned_away_hears_why_also_when_he_has_asked() {
        let (a, b) = tokio::io::duplex(1 << 16);
        let (left, run_left) = Link::new(peer("right"), a, Arc::new(Echo));
        let (right, run_right) = Link::new(peer("left"), b, Arc::new(Echo));
        tokio::spawn(run_left);
        tokio::spawn(run_right);
        let waiting = tokio::spawn({
            let left = left.clone();
            async move { left.ask(&silence(), Bytes::new()).await }
        });
        tokio::task::yield_now().await;
        right.turn_away("it was revoked");
        assert!(!right.is_up());
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "right rejected this daemon: it was revoked");
        assert!(matches!(left.ask(&Ask::Ping, Bytes::new()).await, Err(LinkError::Refused { .. })));

        let (a, b) = tokio::io::duplex(1 << 16);
        let (link, run) = Link::new(peer("x"), a, Arc::new(Echo));
        tokio::spawn(refuse(b, "no card".into()));
        run.await;
        assert!(matches!(link.ask(&Ask::Ping, Bytes::new()).await, Err(LinkError::Refused { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_too_much_is_read_slowly() {
        let mut allowance = Allowance::new();
        let start = Instant::now();
        for _ in 0..BURST + 10 * PER_SECOND {
            allowance.take().await;
        }
        let took = start.elapsed().as_secs_f64();
        assert!((9.9..10.2).contains(&took), "{took}");
    }
}
