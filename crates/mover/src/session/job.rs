//! One copy by one pair of ends, and the state that observers of it read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::Mutex;

use super::connect_options::ConnectOptions;
use super::location::Location;
use crate::batches::Batches;
use crate::sink::{InOrder, Memory};
use crate::spec::{ReceiveSpec, SendSpec};
use crate::transfer::{Monitor, Options, Progress};

/// How often the progress is looked at.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// The job.
#[derive(Clone)]
pub(super) struct Job {
    pub(super) send: SendSpec,
    pub(super) receive: ReceiveSpec,
    pub(super) options: Options,
    pub(super) reach: Arc<ConnectOptions>,
    pub(super) from: Location,
    pub(super) to: Location,
    /// If it is one of several.
    pub(super) share: Option<Share>,
    /// If it goes to a program.
    pub(super) memory: Option<Held>,
    /// If it is one file for a pipe or a device.
    pub(super) stream: Option<Arc<InOrder>>,
}

/// The part of one pair of hosts in a copy by several.
#[derive(Clone)]
pub(super) struct Share {
    pub(super) board: Arc<Batches>,
    pub(super) pair: usize,
    /// By which the receiver knows it again.
    pub(super) identity: String,
}

/// The destination of a copy into memory.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) memory: Arc<Memory>,
    pub(super) monitor: Arc<Monitor>,
}

/// The observer of a copy, which may stop it.
#[derive(Debug, Default)]
pub(super) struct Watch {
    stopped: AtomicBool,
    now: Mutex<Vec<Arc<Monitor>>>,
    /// Whether several are shown as one.
    several: bool,
}

impl Watch {
    pub(super) fn new(several: bool) -> Self {
        Self { several, ..Self::default() }
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, SeqCst);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(SeqCst)
    }

    /// The running part.
    pub(super) fn look_at(&self, monitors: Vec<Arc<Monitor>>) {
        *self.now.lock() = monitors;
    }

    /// How far that is.
    pub(super) fn progress(&self) -> Progress {
        let now = self.now.lock();
        if let (false, Some(monitor)) = (self.several, now.first()) {
            return monitor.progress();
        }
        let mut all = Progress::default();
        for progress in now.iter().map(|monitor| monitor.progress()) {
            all.bytes += progress.bytes;
            all.walked.bytes += progress.walked.bytes;
        }
        all
    }
}

impl Job {
    /// Whether files go from this host to another.
    pub(super) fn sends(&self) -> bool {
        self.from.is_here() && !self.to.is_here()
    }
}
