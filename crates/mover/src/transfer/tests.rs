//! Both ends in one process, over real connections, with fronts of numbers instead of files.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::Mutex;
use tidecast_identity::{NodeKey, Tls};

use super::*;
use crate::Error;
use crate::block::Block;
use crate::job::{Sink, Source, Walked, Want, Wanted, Written};

/// Sends this many blocks; the first ask for two more each.
struct Numbers {
    blocks: u64,
    asks: u64,
    filled: AtomicUsize,
}

#[derive(Clone, Debug, PartialEq)]
enum Job {
    Block(u64),
    Ask(u64),
}

impl Source for Numbers {
    type Job = Job;

    fn walk(&self, fresh: bool, emit: &mut dyn FnMut(Job) -> bool) -> Result<(), Error> {
        assert!(!fresh || self.asks == 0);
        let asks = (0..self.asks).map(Job::Ask);
        asks.chain((0..self.blocks).map(Job::Block)).all(emit);
        Ok(())
    }

    fn asks(&self, job: &Job) -> bool {
        matches!(job, Job::Ask(_))
    }

    fn fill(&self, job: &Job, block: &mut Block) -> Result<Option<Job>, Error> {
        self.filled.fetch_add(1, SeqCst);
        let (word, n) = match job {
            Job::Ask(n) => (b"ask ", *n),
            Job::Block(n) => (b"data", *n),
        };
        block.table.extend_from_slice(word);
        block.table.extend_from_slice(&n.to_le_bytes());
        block.len = 100_000;
        block.room()[..100_000].fill(n as u8);
        Ok(None)
    }

    fn wanted(&self, _: &Job, want: &Want) -> Vec<Job> {
        want.files.iter().map(|w| Job::Block(w.file)).collect()
    }

    fn walked(&self) -> Walked {
        Walked { entries: self.blocks, complete: true, ..Walked::default() }
    }
}

#[derive(Default)]
struct Seen {
    blocks: Mutex<BTreeMap<u64, u64>>,
    fresh: bool,
    fails_at: Option<u64>,
    slow: Duration,
}

impl Sink for Seen {
    fn fresh(&self) -> bool {
        self.fresh
    }

    fn write(&self, _: usize, block: &Block) -> Result<Option<Want>, Error> {
        std::thread::sleep(self.slow);
        let (word, n) = block.table.split_at(4);
        let n = u64::from_le_bytes(n.try_into().unwrap());
        assert_eq!(block.len, 100_000);
        assert!(block.payload().iter().all(|b| *b == n as u8));
        if Some(n) == self.fails_at {
            return Err(Error::Usage("the disk is full".into()));
        }
        if word == b"ask " {
            let wanted = |file| Wanted { file, ..Wanted::default() };
            return Ok(Some(Want { files: vec![wanted(1000 + 2 * n), wanted(1001 + 2 * n)] }));
        }
        *self.blocks.lock().entry(n).or_default() += 1;
        Ok(None)
    }

    fn finish(&self, walked: &Walked) -> Result<Written, Error> {
        assert!(walked.complete);
        Ok(self.written())
    }

    fn written(&self) -> Written {
        Written { entries: self.blocks.lock().len() as u64, ..Written::default() }
    }
}

fn guards(tls: bool) -> [(Guard, Option<tidecast_identity::NodeId>); 2] {
    [(); 2].map(|()| {
        if !tls {
            return (Guard::Plain, None);
        }
        let tls = Tls::new(&NodeKey::generate().unwrap()).unwrap();
        let id = tls.id();
        (Guard::Tls(Arc::new(tls)), Some(id))
    })
}

struct Ran {
    sent: Result<Outcome, Error>,
    received: Result<Outcome, Error>,
}

/// `pull`: the receiver dials. `meddle` is called with the dialing link each time that more has been acknowledged.
fn run(source: &Numbers, sink: &Seen, tls: bool, pull: bool, meddle: impl Fn(&Link)) -> Ran {
    let [(here, here_id), (there, there_id)] = guards(tls);
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), there, None).unwrap();
    let session = SessionId::random();
    let accepts = listener.expect(session, here_id).unwrap();
    let node = there_id.map(|id| NodeName(id.to_string()));
    let target =
        Target { addresses: vec![listener.address()], node, session, spread: false, congestion: None };
    let dials = Link::dial(target, here, 2);
    let (to, from) = if pull { (&accepts, &dials) } else { (&dials, &accepts) };
    let options = Options { timeout: Duration::from_secs(20), ..Options::default() };
    let (ours, theirs) = (Monitor::default(), Monitor::default());
    std::thread::scope(|s| {
        let received = s.spawn(|| receive(sink, from, &options, &theirs));
        let sent = s.spawn(|| send(source, to, &options, &ours));
        let mut acknowledged = 0;
        while !sent.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
            let now = ours.progress().bytes;
            if std::mem::replace(&mut acknowledged, now) != now {
                meddle(&dials);
            }
        }
        Ran { sent: sent.join().unwrap(), received: received.join().unwrap() }
    })
}

fn numbers(blocks: u64, asks: u64) -> Numbers {
    Numbers { blocks, asks, filled: AtomicUsize::new(0) }
}

#[test]
fn all_blocks_arrive_once_either_way_with_tls_and_without() {
    for (tls, pull) in [(true, false), (true, true), (false, false), (false, true)] {
        let (source, sink) = (numbers(200, 0), Seen { fresh: true, ..Seen::default() });
        let ran = run(&source, &sink, tls, pull, |_| ());
        assert_eq!(ran.sent.unwrap().written.entries, 200);
        assert_eq!(ran.received.unwrap().walked.entries, 200);
        assert!(sink.blocks.lock().values().all(|n| *n == 1));
        assert_eq!(source.filled.load(SeqCst), 200);
    }
}

#[test]
fn what_is_asked_is_answered_and_what_is_wanted_follows() {
    let (source, sink) = (numbers(10, 200), Seen::default());
    let ran = run(&source, &sink, true, false, |_| ());
    assert_eq!(ran.sent.unwrap().written.entries, 10 + 400);
}

#[test]
fn connections_that_break_lose_nothing() {
    for pull in [false, true] {
        let sink = Seen { slow: Duration::from_millis(1), ..Seen::default() };
        let source = numbers(300, 100);
        let ran = run(&source, &sink, true, pull, Link::cut);
        assert_eq!(ran.sent.unwrap().written.entries, 500);
        ran.received.unwrap();
        assert!(sink.blocks.lock().values().all(|n| *n >= 1));
    }
}

#[test]
fn a_sink_that_fails_ends_both_ends_with_its_reason() {
    let (source, sink) = (numbers(100, 0), Seen { fails_at: Some(50), fresh: true, ..Seen::default() });
    let ran = run(&source, &sink, true, false, |_| ());
    assert!(ran.sent.unwrap_err().to_string().contains("disk is full"));
    assert!(ran.received.is_err());
}

#[test]
fn nothing_to_send_is_done_at_once() {
    let ran = run(&numbers(0, 0), &Seen::default(), true, false, |_| ());
    assert_eq!(ran.sent.unwrap().written.entries, 0);
    ran.received.unwrap();
}
