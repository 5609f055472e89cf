//! The interface of the two fronts (files, or their substitutes) to the streams between them.

use serde::{Deserialize, Serialize};
pub use tidecast_event::copy::{Change, Problem};

use crate::block::Block;
use crate::error::Error;

/// Where blocks come from. Its methods are called by several threads at once.
pub trait Source: Sync {
    /// The description of one block, enough to make it again: names and places, no payload.
    type Job: Send + Sync;

    /// Goes through all that is to be sent, once, on one thread, and gives jobs to `emit` as it goes. `emit` waits while there is much to do
    /// and answers false when nothing more is wanted. `fresh`: the receiver has nothing, so nothing need be asked.
    ///
    /// # Errors
    /// Only errors that end the copy. An unreadable name is a problem in [`Walked`], and the walk continues.
    fn walk(&self, fresh: bool, emit: &mut dyn FnMut(Self::Job) -> bool) -> Result<(), Error>;

    /// The walk waits while this many jobs are not done; one that asks counts for several, as its answer may be that all is wanted.
    fn most_open(&self) -> u64 {
        u64::MAX
    }

    /// Whether the block of a job asks: it is then answered by a [`Want`], and the jobs that [`Source::wanted`] makes of that follow.
    fn asks(&self, job: &Self::Job) -> bool;

    /// Fills `block` (table and payload) for a job; the rest that did not fit is returned as another job. A
    /// block without parts is not sent.
    ///
    /// # Errors
    /// Only errors that end the copy, as [`Source::walk`].
    fn fill(&self, job: &Self::Job, block: &mut Block) -> Result<Option<Self::Job>, Error>;

    /// The jobs for the data that the receiver wants of the files that it was asked about.
    fn wanted(&self, job: &Self::Job, want: &Want) -> Vec<Self::Job>;

    /// The receiver has finished, with this: the last thing that is done here. `alive` is called now and then.
    fn finished(&self, _written: &Written, _alive: &dyn Fn()) {}

    /// The results so far.
    fn walked(&self) -> Walked;

    /// The number of senders that share the rate limit now.
    fn sharers(&self) -> u64 {
        1
    }
}

/// The data that a receiver lacks of the files that it was asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Want {
    /// Numbers of files, and of each the parts that are there already.
    pub files: Vec<Wanted>,
}

/// A file that a receiver lacks, in whole or in part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Its number.
    pub file: u64,
    /// Parts that an interrupted copy has left, by their numbers (offset / block). Whether they are the source's is still to be
    /// asked ([`crate::part::Data::Same`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub have: Vec<u64>,
    /// The same of all parts below this number: a file that is here has something in their place.
    #[serde(default)]
    pub prove: u64,
    /// Parts below this number are not wanted.
    #[serde(default)]
    pub skip: u64,
}

/// The results of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walked {
    /// Names of every kind.
    pub entries: u64,
    /// Regular files among them.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Of these, bytes that need not be sent: holes, and data that the receiver has.
    pub spared: u64,
    /// Files that another sender of several had brought before it broke, and their bytes.
    pub redone: u64,
    /// See `redone`.
    pub redone_bytes: u64,
    /// Whether that is all of it.
    pub complete: bool,
    /// Directories of which only the name was sent, as paths in the copy: their contents at the receiver
    /// stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apart: Vec<Vec<u8>>,
    /// The first problems.
    pub problems: Vec<Problem>,
    /// How many more there were.
    pub more_problems: u64,
    /// How many of all problems mean that something is missing.
    pub failed: u64,
}

/// Where blocks go. Its methods are called by several threads at once.
pub trait Sink: Sync {
    /// Whether there is nothing yet, so that nothing need be asked.
    fn fresh(&self) -> bool;

    /// Checks a block and writes it; `writer` is the number of the calling thread. The answer is given to the sender if the block asks.
    /// When it returns, the block will not be needed again, also after the process is killed.
    ///
    /// # Errors
    /// Errors that end the copy: a full disk, a damaged block. Problems of one name are kept for
    /// [`Sink::finish`].
    fn write(&self, writer: usize, block: &Block) -> Result<Option<Want>, Error>;

    /// Everything has been written: attributes of directories, hard links, deletion, durability.
    ///
    /// # Errors
    /// As [`Sink::write`]. The problems of single names are in the answer.
    fn finish(&self, walked: &Walked) -> Result<Written, Error>;

    /// The results so far, without the problems.
    fn written(&self) -> Written;

    /// The copy is over, successfully or not: [`Sink::write`] is not to wait for anything any more.
    fn stop(&self) {}
}

/// The results of a sink.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Names of every kind that were made or changed.
    pub entries: u64,
    /// Files completed.
    pub files: u64,
    /// Their bytes, as far as written by this run.
    pub bytes: u64,
    /// Files that were there already.
    pub kept: u64,
    /// Bytes of unfinished files that an earlier run had left.
    pub resumed: u64,
    /// Names deleted.
    pub deleted: u64,
    /// The first problems.
    pub problems: Vec<Problem>,
    /// How many more there were.
    pub more_problems: u64,
    /// How many of all problems mean that something is missing.
    pub failed: u64,
    /// How many of all problems mean that an attribute is missing.
    #[serde(default)]
    pub lost: u64,
    /// With [`crate::spec::ReceiveSpec::prove`]: numbers of files that are here under their names, on the disk if that was asked for;
    /// the first of each stretch, and how many it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proved: Vec<(u64, u64)>,
    /// The changes of a dry run, or those reported of a copy; the first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub planned: Vec<Change>,
    /// The number of further changes.
    #[serde(default)]
    pub more_planned: u64,
}
