//! The receiving end: one thread a stream, which writes values directly to shared memory.
//!
//! ```text
//!  sockets ─▶ streams: verify, place ──▶ volumes ◀─ readers
//!                │  ▲ parity                ▲
//!                ▼  │                       │ fill, front
//!              decoder                   closer ─▶ events
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `stream.rs`, `socket.rs` | a thread and its socket |
//! | `hub.rs` | which session counts |
//! | `run.rs`, `slot.rs` | the steps under way of that session, and of each slab |
//! | `close.rs` | what happens to a step that is over |
//! | `fec.rs` | parity |
//! | `record.rs` | steps on disk |
//! | `supervise.rs` | all of it, from start to end |

mod close;
mod counts;
mod fec;
mod hub;
mod record;
mod run;
mod slot;
mod socket;
mod stream;
mod supervise;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver as Queue, bounded};

pub use supervise::supervise;
pub use tidecast_event::field::receive::{Closed, Loss, Received, Total};

use self::hub::Hub;
use self::socket::ReceiveSocket;
use self::stream::Stream;
use crate::geometry::Shape;
use crate::key::Secret;

/// Events that wait for a listener.
const EVENTS: usize = 4096;
/// How often the system may choose a first port.
const CHOICES: usize = 200;
/// How often steps are looked at, at least.
const LOOK: Duration = Duration::from_millis(10);

/// Errors of starting and running a receiver.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A port is taken, or none.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Where.
        address: String,
        /// The system's error.
        error: io::Error,
    },
    /// The system's choices of a first port have had no free ones behind them.
    #[error(
        "cannot find {streams} consecutive free UDP ports on {address}; name the first port, or use fewer --streams"
    )]
    ConsecutivePorts {
        /// Where.
        address: std::net::IpAddr,
        /// How many.
        streams: u32,
    },
    /// No place for a recording.
    #[error("cannot record into {}: {error}", dir.display())]
    Record {
        /// Where.
        dir: PathBuf,
        /// The obstacle.
        error: io::Error,
    },
    /// Not all that came could be recorded.
    #[error("{why}")]
    Unrecorded {
        /// The obstacle.
        why: String,
        /// The steps received.
        received: Box<Received>,
    },
    /// A volume that is always changing has no whole steps.
    #[error("{0} needs --volume steps: a live volume has no complete steps")]
    Live(&'static str),
    /// Threads.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The shared memory.
    #[error(transparent)]
    Shared(#[from] crate::shm::Error),
    /// A shape that cannot be, or cannot be cut so.
    #[error(transparent)]
    Geometry(#[from] crate::geometry::Error),
}

/// The volume that readers see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Volumes {
    /// One volume, always changing.
    Live,
    /// A step when it has closed.
    Steps,
}

impl Volumes {
    fn count(self) -> usize {
        match self {
            Self::Live => 1,
            Self::Steps => 3,
        }
    }
}

/// The replacement of missing values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Those of the step before.
    Keep,
    /// NaN.
    Nan,
}

/// How steps are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The volume that readers see.
    pub volumes: Volumes,
    /// The replacement of missing values.
    pub missing: Missing,
    /// Only steps of which nothing is missing; with [`Volumes::Steps`].
    pub complete: bool,
}

impl Policy {
    /// Readers see whole steps, those of the step before where values have not come.
    #[must_use]
    pub fn steps() -> Self {
        Self { volumes: Volumes::Steps, missing: Missing::Keep, complete: false }
    }

    /// The requested kind of volume: as `volumes` says, else a live volume, or steps where these are to be
    /// complete or recorded.
    ///
    /// # Errors
    /// [`Error::Live`].
    pub fn new(
        volumes: Option<Volumes>,
        missing: Missing,
        complete: bool,
        record: bool,
    ) -> Result<Self, Error> {
        let needs = if complete { Some("--complete") } else { record.then_some("--record") };
        match (volumes, needs) {
            (Some(Volumes::Live), Some(what)) => Err(Error::Live(what)),
            (volumes, needs) => {
                let volumes = volumes.unwrap_or(if needs.is_some() { Volumes::Steps } else { Volumes::Live });
                Ok(Self { volumes, missing, complete })
            }
        }
    }
}

/// The options of a receiver. By default it listens on port 7500 and those after it, with a key of its own.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the first stream arrives; the others use the ports after it. With port 0 the system chooses the
    /// first.
    pub listen: SocketAddr,
    /// How many streams there are at most.
    pub streams: u32,
    /// The name of the shared memory.
    pub name: String,
    /// The secret that senders must know; `None`: any sender is accepted.
    pub secret: Option<Secret>,
    /// The file of the secret, if it is in one: the suggested command for senders names it.
    pub key_file: Option<PathBuf>,
    /// How steps are shown.
    pub policy: Policy,
    /// Records every step that readers see into this directory; with [`Volumes::Steps`].
    pub record: Option<PathBuf>,
    /// Receives the paper's packets from a sender without hellos: the shape of its volume.
    pub foreign: Option<Shape>,
    /// Ends after this many steps; of [`supervise`].
    pub steps: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: (std::net::Ipv6Addr::UNSPECIFIED, 7500).into(),
            streams: 32,
            name: "field".into(),
            secret: Some(Secret::random()),
            key_file: None,
            policy: Policy { volumes: Volumes::Live, missing: Missing::Keep, complete: false },
            record: None,
            foreign: None,
            steps: None,
        }
    }
}

/// An event for listeners.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// Another session counts from now on.
    Session {
        /// Name of the field.
        title: String,
        /// Its shape.
        shape: Shape,
        /// Streams in all.
        streams: u32,
        /// The first one that comes here.
        first: u32,
        /// How many come here.
        here: u32,
        /// Bits a second, as announced by the sender; 0: not announced.
        rate: u64,
        /// The shared memory.
        file: PathBuf,
    },
    /// A step is over.
    Step(Closed),
    /// Something the user should know.
    Note(String),
}

/// How far the newest step is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    /// Its number.
    pub step: u64,
    /// Parts of it that are there, of `units`.
    pub filled: u64,
    /// Parts that it has.
    pub units: u64,
    /// Bytes received so far, of all steps.
    pub bytes: u64,
}

/// A receiver at work. It ends when it is dropped.
pub struct Receiver {
    hub: Arc<Hub>,
    events: Queue<Event>,
    threads: Vec<JoinHandle<()>>,
    addresses: Vec<SocketAddr>,
}

impl Receiver {
    /// Opens the sockets and starts the threads.
    ///
    /// # Errors
    /// When a port is taken, or another receiver has the name, or nothing can be recorded.
    pub fn start(options: &Options) -> Result<Self, Error> {
        let name = crate::shm::Name::take(&options.name)?;
        let prepared =
            |dir: &PathBuf| record::prepare(dir).map_err(|error| Error::Record { dir: dir.clone(), error });
        let recording = options.record.as_ref().map(prepared).transpose()?;
        let inlets = listen(options.listen, options.streams)?;
        let addresses = inlets.iter().filter_map(|inlet| inlet.address().ok()).collect();
        let (told, events) = bounded(EVENTS);
        let (kick, kicked) = bounded(1);
        let (jobs, blocks) = bounded(fec::WAITING);
        let (recorder, taken) = record::channel();
        let recorder = recording.is_some().then_some(recorder);
        let backlogs = inlets.iter().map(ReceiveSocket::backlog).collect();
        let hub = Arc::new(Hub::new(options, (name, backlogs), told, kick, jobs, recorder));
        hub.begin_foreign()?;
        let mut receiver = Self { hub: hub.clone(), events, threads: Vec::new(), addresses };
        for (index, inlet) in inlets.into_iter().enumerate() {
            let hub = hub.clone();
            receiver.thread(&format!("stream {index}"), move || {
                if let Err(error) = Stream::new(hub.clone(), index).work(inlet) {
                    hub.report(Event::Note(format!("stream {index} stopped: its socket failed: {error}")));
                }
            })?;
        }
        let closer = hub.clone();
        receiver.thread("closer", move || {
            while !closer.stop.load(Ordering::Relaxed) {
                let _ = kicked.recv_timeout(LOOK);
                if let Some(run) = closer.run() {
                    run.close_due(&closer, false);
                    run.note_silence(&closer);
                }
            }
        })?;
        if let Some(dir) = recording {
            let hub = hub.clone();
            receiver.thread("recorder", move || record::work(&hub, &dir, &taken))?;
        }
        receiver.thread("decoder", move || fec::work(&hub, &blocks))?;
        Ok(receiver)
    }

    fn thread(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let thread = Builder::new().name(name.to_owned()).spawn(work).map_err(Error::Thread)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Events as they happen; a slow listener misses some of them.
    pub fn events(&self) -> &Queue<Event> {
        &self.events
    }

    /// Where each stream comes in.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// How far the newest step is; `None` before a session.
    pub fn progress(&self) -> Option<Progress> {
        self.hub.progress()
    }

    /// The counters of each stream so far.
    pub fn totals(&self) -> Vec<Total> {
        self.hub.counts.iter().map(counts::Counts::total).collect()
    }

    /// Steps recorded so far, and those that were not because later ones came before they were copied.
    pub fn recorded(&self) -> (u64, u64) {
        (self.hub.recorded.get(), self.hub.skipped.get())
    }

    /// Why the recording is not all that it should be; known when the receiver has ended.
    pub fn unrecorded(&self) -> Option<String> {
        self.hub.unrecorded.lock().clone()
    }

    /// Ends it: open steps are given up, readers are notified, and the shared memory's name is removed.
    /// Pending events can still be taken.
    pub fn end(&mut self) {
        self.hub.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic of a thread was printed already.
            let _ = thread.join();
        }
        self.hub.end();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.end();
    }
}

/// A socket for each stream, at adjacent ports: senders count from the first.
fn listen(first: SocketAddr, streams: u32) -> Result<Vec<ReceiveSocket>, Error> {
    if first.port() > 0 {
        return bind_consecutive(first, streams).map_err(|(address, error)| Error::Listen { address, error });
    }
    let failed = |(address, error)| Error::Listen { address, error };
    // The system chooses the first; the ports after it may be taken, or beyond the last.
    for _ in 0..CHOICES {
        let inlet = ReceiveSocket::bind(first).map_err(|error| failed((first.to_string(), error)))?;
        let chosen = inlet.address().map_err(|error| failed((first.to_string(), error)))?;
        drop(inlet);
        match bind_consecutive(chosen, streams) {
            Err((_, error))
                if matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::InvalidInput) => {}
            done => return done.map_err(failed),
        }
    }
    Err(Error::ConsecutivePorts { address: first.ip(), streams })
}

fn bind_consecutive(first: SocketAddr, streams: u32) -> Result<Vec<ReceiveSocket>, (String, io::Error)> {
    let last = u32::from(first.port()) + streams.saturating_sub(1);
    if u16::try_from(last).is_err() {
        let error = io::Error::new(io::ErrorKind::InvalidInput, "ports end at 65535");
        return Err((format!("{first} and the {} ports after it", streams - 1), error));
    }
    (first.port()..=last as u16)
        .map(|port| {
            let address = SocketAddr::new(first.ip(), port);
            ReceiveSocket::bind(address).map_err(|error| (address.to_string(), error))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_the_system_chooses_are_neighbours() {
        for ip in ["127.0.0.1", "[::1]"] {
            let inlets = listen(format!("{ip}:0").parse().unwrap(), 40).unwrap();
            let ports: Vec<u16> = inlets.iter().map(|inlet| inlet.address().unwrap().port()).collect();
            assert!(ports[0] > 0 && ports.windows(2).all(|pair| pair[1] == pair[0] + 1), "{ports:?}");
        }
    }

    #[test]
    fn a_port_that_is_taken_is_named() {
        let inlet = ReceiveSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let taken = inlet.address().unwrap();
        let first = SocketAddr::new(taken.ip(), taken.port() - 1);
        let error = listen(first, 3).err().unwrap().to_string();
        assert!(error.contains(&taken.to_string()), "{error}");
        let error = listen("127.0.0.1:65530".parse().unwrap(), 8).err().unwrap().to_string();
        assert!(error.contains("65535"), "{error}");
    }
}
