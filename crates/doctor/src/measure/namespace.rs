//! A network namespace of our own: a thread that lives in it and does what it is given.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

use nix::sched::{CloneFlags, unshare};

type Work = Box<dyn FnOnce() + Send>;

/// A network namespace; it goes when this does and its devices and sockets are closed.
#[derive(Debug)]
pub(super) struct Namespace {
    work: Sender<Work>,
}

impl Namespace {
    /// Creates one.
    pub(super) fn new() -> io::Result<Self> {
        let (work, all) = channel::<Work>();
        let (said, outcome) = channel();
        std::thread::Builder::new().name("doctor-namespace".into()).spawn(move || live(&said, &all))?;
        outcome.recv().map_err(io::Error::other)??;
        Ok(Self { work })
    }

    /// What `work` gives, done in the namespace: sockets that it makes stay there.
    pub(super) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (said, outcome) = channel();
        let job: Work = Box::new(move || drop(said.send(work())));
        self.work.send(job).map_err(|_| io::Error::other("the thread of a network namespace has ended"))?;
        outcome.recv().map_err(io::Error::other)?
    }
}

fn live(said: &Sender<io::Result<()>>, all: &Receiver<Work>) {
    // Of this thread alone: the rest of the process stays where it is.
    let made = unshare(CloneFlags::CLONE_NEWNET).map_err(|e| io::Error::from_raw_os_error(e as i32));
    let is_made = made.is_ok();
    if said.send(made).is_err() || !is_made {
        return;
    }
    for work in all {
        work();
    }
}
