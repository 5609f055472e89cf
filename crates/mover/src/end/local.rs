//! The ends of this process.

use std::path::Path;
use std::sync::Arc;

use crate::batches::{Claimed, Claims};
use crate::error::Error;
use crate::job::Sink;
use crate::sink::{self, Directory, InOrder, Memory, WINDOW};
use crate::source::{Null, Tree};
use crate::spec::{Accept, Offer, ReceiveSpec, SendSpec};
use crate::transfer::{Link, Monitor, Options, Outcome, receive, send};

/// An end that sends.
#[derive(Debug)]
pub struct Sending {
    source: SourceKind,
    offer: Offer,
}

#[derive(Debug)]
enum SourceKind {
    Tree(Box<Tree>),
    Null(Null),
}

impl Sending {
    /// Finds the sources; of a server, below its root.
    ///
    /// # Errors
    /// No source exists, or one would be written over itself.
    pub fn new(spec: &SendSpec, root: Option<&Path>) -> Result<Self, Error> {
        if let Some((bytes, file)) = spec.null {
            let offer = Offer { identity: "noise".into(), ..Offer::default() };
            return Ok(Self { source: SourceKind::Null(Null::new(bytes, file)), offer });
        }
        let tree = Tree::new(spec, root)?;
        Ok(Self { offer: tree.offer().clone(), source: SourceKind::Tree(Box::new(tree)) })
    }

    /// The sender's offer, which the receiver needs.
    #[must_use]
    pub fn offer(&self) -> &Offer {
        &self.offer
    }

    /// If it is one of several that send the same ([`SendSpec::share`]): how it asks for a batch, which it names after how many
    /// it knows to be taken.
    pub fn share(&self, ask: impl Fn(u64, usize) -> Option<Claimed> + Send + Sync + 'static) {
        if let SourceKind::Tree(tree) = &self.source {
            tree.share(|| Claims::new(Box::new(ask)));
        }
    }

    /// Sends it.
    ///
    /// # Errors
    /// As [`send`].
    pub fn run(&self, link: &Link, options: &Options, monitor: &Monitor) -> Result<Outcome, Error> {
        match &self.source {
            SourceKind::Tree(tree) => send(tree.as_ref(), link, options, monitor),
            SourceKind::Null(null) => send(null, link, options, monitor),
        }
    }
}

/// An end that receives.
#[derive(Debug)]
pub struct Receiving {
    sink: SinkKind,
}

#[derive(Debug)]
enum SinkKind {
    Directory(Box<Directory>),
    Memory(Arc<Memory>),
    InOrder(Arc<InOrder>),
    Null(sink::Null),
}

impl From<Arc<Memory>> for Receiving {
    fn from(memory: Arc<Memory>) -> Self {
        Self { sink: SinkKind::Memory(memory) }
    }
}

impl From<Arc<InOrder>> for Receiving {
    fn from(stream: Arc<InOrder>) -> Self {
        Self { sink: SinkKind::InOrder(stream) }
    }
}

impl Receiving {
    /// Opens the destination; of a server, below its root.
    ///
    /// # Errors
    /// When it cannot be had.
    pub fn new(spec: &ReceiveSpec, root: Option<&Path>) -> Result<Self, Error> {
        Self::accepting(spec, root, Accept::All)
    }

    /// The same for a sender from which not everything is taken.
    ///
    /// # Errors
    /// As [`Receiving::new`].
    pub fn accepting(spec: &ReceiveSpec, root: Option<&Path>, accept: Accept) -> Result<Self, Error> {
        let sink = if spec.null {
            SinkKind::Null(sink::Null::default())
        } else {
            SinkKind::Directory(Box::new(Directory::open_for(spec, root, accept)?))
        };
        Ok(Self { sink })
    }

    /// Whether there is nothing yet, so that nothing need be asked.
    #[must_use]
    pub fn fresh(&self) -> bool {
        match &self.sink {
            SinkKind::Directory(directory) => directory.fresh(),
            SinkKind::Memory(memory) => memory.fresh(),
            SinkKind::InOrder(stream) => stream.fresh(),
            SinkKind::Null(null) => null.fresh(),
        }
    }

    /// Receives into it.
    ///
    /// # Errors
    /// As [`receive`].
    pub fn run(&self, link: &Link, options: &Options, monitor: &Monitor) -> Result<Outcome, Error> {
        match &self.sink {
            SinkKind::Directory(directory) => receive(directory.as_ref(), link, options, monitor),
            SinkKind::Memory(memory) => receive(memory.as_ref(), link, options, monitor),
            SinkKind::InOrder(stream) => {
                // A writer and a buffer for each block that may wait; blocks that arrive twice, because a
                // stream broke, have a buffer for a moment.
                let options = Options { fronts: Some(WINDOW), pool: Some(2 * WINDOW), ..options.clone() };
                receive(stream.as_ref(), link, &options, monitor)
            }
            SinkKind::Null(null) => receive(null, link, options, monitor),
        }
    }
}
