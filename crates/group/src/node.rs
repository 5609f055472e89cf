//! One host in the coordinator, and its timeouts.

use std::time::Duration;

use tidecast_identity::NodeId;
use tidecast_text::Size;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;

use crate::control::message::{Done, Hello, Progress, ToWorker};
use crate::control::server::ConnId;
use crate::hosts::Host;
use crate::launch::Job;
use crate::launch::run::OutputTail;
use crate::network::Place;
use crate::reach::Reached;

/// The maximum time until a worker reports.
pub(crate) const REPORT: Duration = Duration::from_secs(60);
/// An incomplete host without progress for this time fails.
pub(crate) const STALL: Duration = Duration::from_secs(60);
/// The maximum time to give all files their final names and times.
pub(crate) const PLACING: Duration = Duration::from_secs(900);
/// The maximum wait for late workers: this, or twice the time that the others took.
const LATECOMERS: Duration = Duration::from_secs(3);

/// The stage of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its launch is queued.
    Queued,
    /// Launched at this time.
    Launched(Instant),
    /// Its worker is connected; its addresses are being tried.
    Joined,
    /// It can be told to start.
    Ready,
    /// It was told to start.
    Running,
    /// It is complete, this time after the start.
    Done(Box<Done>, Duration),
    /// It has failed.
    Failed(String),
}

/// A host.
pub(crate) struct Node {
    pub(crate) host: Host,
    /// Its number in the group, from its start on; the origin is 0.
    pub(crate) number: Option<u32>,
    /// Its number as an additional source.
    pub(crate) source_member: Option<u32>,
    pub(crate) stage: Stage,
    /// The output of its launcher; shared by hosts with the same launcher.
    pub(crate) output: OutputTail,
    /// The program that launches it, and where, if that is another host.
    pub(crate) launched_by: String,
    /// The permit of its launch, held until its worker has connected.
    pub(crate) turn: Option<OwnedSemaphorePermit>,
    pub(crate) conn: Option<(ConnId, mpsc::Sender<ToWorker>)>,
    pub(crate) who: Option<(NodeId, Hello)>,
    pub(crate) reached: Vec<Reached>,
    pub(crate) progress: Progress,
    /// When it last made progress.
    pub(crate) moved: Instant,
    /// The host whose worker starts this one, by place, and the command.
    pub(crate) launcher: Option<(usize, Job)>,
    /// Its link was measured as slower than others.
    pub(crate) slow: bool,
    /// Its worker has started others, so it is kept even if its own part fails.
    pub(crate) launches: bool,
}

impl Node {
    pub(crate) fn new(host: Host, now: Instant) -> Self {
        Self {
            host,
            number: None,
            source_member: None,
            stage: Stage::Queued,
            output: OutputTail::default(),
            launched_by: String::new(),
            turn: None,
            conn: None,
            who: None,
            reached: Vec::new(),
            progress: Progress::default(),
            moved: now,
            launcher: None,
            slow: false,
            launches: false,
        }
    }

    /// Its addresses.
    pub(crate) fn place(&self) -> Place {
        let own = |(_, hello): &(NodeId, Hello)| hello.addresses.iter().cloned().map(Into::into).collect();
        Place { addresses: self.who.as_ref().map(own).unwrap_or_default(), reached: self.reached.clone() }
    }

    /// Whether it is neither done nor failed.
    pub(crate) fn open(&self) -> bool {
        !matches!(self.stage, Stage::Done(..) | Stage::Failed(_))
    }

    /// Whether it is still unknown if it will take part.
    pub(crate) fn awaited(&self) -> bool {
        matches!(self.stage, Stage::Queued | Stage::Launched(_) | Stage::Joined)
    }

    /// Whether it was told to start, or may be.
    pub(crate) fn takes_part(&self) -> bool {
        matches!(self.stage, Stage::Ready | Stage::Running | Stage::Done(..))
    }

    /// Sends a message to its worker; a worker that does not read its messages fails.
    pub(crate) fn send(&mut self, message: ToWorker) {
        if let Some((_, to)) = &self.conn
            && to.try_send(message).is_err()
        {
            self.fail("its worker does not read messages".into());
        }
    }

    /// Marks it as failed, unless it is done, and tells its worker.
    pub(crate) fn fail(&mut self, reason: String) {
        if !self.open() {
            return;
        }
        if let Some((_, to)) = &self.conn {
            let _ = to.try_send(ToWorker::Stop(reason.clone()));
        }
        if !self.launches {
            self.conn = None;
        }
        self.turn = None;
        self.stage = Stage::Failed(reason);
    }

    /// Applies a progress report of its worker.
    pub(crate) fn advance(&mut self, progress: Progress, now: Instant) {
        let state = |p: &Progress| (p.verified, p.wanted, p.checked, p.sent, p.received, p.waiting);
        if state(&progress) != state(&self.progress) {
            self.moved = now;
        }
        self.progress = progress;
    }

    /// Why it fails now by a timeout, if it does. `others`: when any host last made progress.
    pub(crate) fn overdue(&self, now: Instant, others: Instant) -> Option<String> {
        let said = match self.output.text() {
            said if said.is_empty() => String::new(),
            said => format!(": {said}"),
        };
        match self.stage {
            Stage::Launched(at) if now - at > REPORT => {
                let by = if self.launched_by.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", self.launched_by)
                };
                Some(format!("its worker, launched{by}, did not report within {} s{said}", REPORT.as_secs()))
            }
            Stage::Running => {
                let p = &self.progress;
                let (limit, since) = if p.waiting {
                    (STALL, others)
                } else if p.wanted > 0 && p.verified >= p.wanted {
                    (PLACING, self.moved)
                } else {
                    (STALL, self.moved)
                };
                (now - since > limit).then(|| {
                    format!(
                        "no data moved for {} s; it has {} of {}",
                        limit.as_secs(),
                        Size(p.verified),
                        Size(p.wanted)
                    )
                })
            }
            _ => None,
        }
    }
}

/// Whether the group may start: all workers are ready, or the wait for the others is over. `first`: the first launch,
/// `last`: when the last worker connected.
pub(crate) fn gathered(nodes: &[Node], first: Instant, last: Option<Instant>, now: Instant) -> bool {
    let ready = nodes.iter().any(|n| n.stage == Stage::Ready);
    let awaited = nodes.iter().any(Node::awaited);
    let patience = last.map(|last| LATECOMERS.max((last - first) * 2));
    let late = matches!((last, patience), (Some(last), Some(patience)) if now - last > patience);
    ready && (!awaited || late)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(stage: Stage, now: Instant) -> Node {
        let host = Host::named("a");
        Node { stage, ..Node::new(host, now) }
    }

    fn seconds(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[tokio::test]
    async fn the_group_starts_without_those_who_are_late() {
        let t = Instant::now();
        let all = |stages: [Stage; 2]| stages.map(|s| node(s, t));
        let launched = || Stage::Launched(t);
        assert!(!gathered(&all([launched(), launched()]), t, None, t + seconds(50)), "nobody is there");
        assert!(gathered(&all([Stage::Ready, Stage::Ready]), t, Some(t), t));
        assert!(gathered(&all([Stage::Ready, Stage::Failed("x".into())]), t, Some(t), t));
        let one = all([Stage::Ready, launched()]);
        assert!(!gathered(&one, t, Some(t + seconds(1)), t + seconds(3)));
        assert!(gathered(&one, t, Some(t + seconds(1)), t + seconds(5)));
        assert!(!gathered(&one, t, Some(t + seconds(10)), t + seconds(25)), "all are slow here");
    }

    #[tokio::test]
    async fn what_does_not_move_is_given_up() {
        let t = Instant::now();
        let later = |s| t + seconds(s);
        assert!(node(Stage::Launched(t), t).overdue(later(59), t).is_none());
        assert!(node(Stage::Launched(t), t).overdue(later(61), t).is_some());
        let mut running = node(Stage::Running, t);
        let at = |verified, wanted| Progress { verified, wanted, ..Progress::default() };
        running.advance(at(1, 9), later(30));
        assert!(running.overdue(later(80), t).is_none());
        running.advance(Progress { checked: 5, ..at(1, 9) }, later(35));
        assert!(running.overdue(later(94), t).is_none(), "it reads what it has");
        running.advance(Progress { checked: 5, ..at(1, 9) }, later(80));
        assert!(running.overdue(later(96), t).is_some_and(|why| why.contains("1 B of 9 B")));
        running.advance(at(9, 9), later(90));
        assert!(running.overdue(later(200), t).is_none(), "it is giving names");
        running.advance(Progress { waiting: true, ..at(0, 9) }, later(100));
        assert!(running.overdue(later(300), later(290)).is_none(), "it waits for another that moves");
        assert!(running.overdue(later(400), later(290)).is_some());
    }

    #[tokio::test]
    async fn a_failure_is_told_once_and_done_stays_done() {
        let t = Instant::now();
        let mut failed = node(Stage::Running, t);
        let (to, mut heard) = mpsc::channel(4);
        failed.conn = Some((1, to));
        failed.fail("first".into());
        failed.fail("second".into());
        assert_eq!(failed.stage, Stage::Failed("first".into()));
        assert_eq!(heard.recv().await, Some(ToWorker::Stop("first".into())));
        assert_eq!(heard.recv().await, None, "its connection is let go");
    }
}
