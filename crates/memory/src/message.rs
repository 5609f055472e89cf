//! What a rank and the hub say to each other. Some messages carry a payload, raw bytes beside them.

use serde::{Deserialize, Serialize};

/// Rank to hub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Up {
    /// First of all.
    Hello(Hello),
    /// Which of the offered anchors lies in memory that this rank reaches.
    Shares(Option<u32>),
    /// It has called; the root's payload is the whole buffer if it is small.
    Enter(Enter),
    /// A writer: so many bytes of the buffer have been put into shared memory.
    Ready { call: u64, bytes: u64 },
    /// A reader: so many have been taken from there.
    Taken { call: u64, bytes: u64 },
    /// The root: how the leaders of other hosts find its broadcast.
    Ticket { call: u64, ticket: String },
    /// It has returned, with an error or without.
    Done { call: u64, error: Option<String> },
    /// Still here.
    Alive,
    /// It leaves.
    Bye,
}

/// Who a rank is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    /// Kernel, file system and user of its shared memory: where they differ, nothing is shared.
    pub(crate) place: String,
    /// Where shared memory is there, and the name of its own directory in it.
    pub(crate) base: String,
    pub(crate) dir: String,
}

/// A rank calls for the broadcast number `call`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Enter {
    pub(crate) call: u64,
    pub(crate) root: u32,
    /// How long the others are waited for, milliseconds.
    pub(crate) patience: u64,
    pub(crate) what: What,
}

/// With what it calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    /// The root: so many bytes, which come along as the payload if `along`.
    Offer { len: u64, along: bool },
    /// Room for so many bytes.
    Want { len: u64 },
    /// Its buffer will not do; it takes no part in this one.
    Unfit(String),
}

/// Hub to rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Down {
    /// Which of these directories are there? By number and name.
    Anchors(Vec<(u32, String)>),
    /// It belongs to the group.
    Seated,
    /// Everybody has called: this is your part.
    Go { call: u64, part: Part },
    /// See [`Up::Ready`].
    Ready { call: u64, bytes: u64 },
    /// The root may put so many bytes into the ring.
    Room { call: u64, bytes: u64 },
    /// See [`Up::Ticket`].
    Ticket { call: u64, ticket: String },
    /// All who can have it. These ranks do not.
    End { call: u64, missed: Vec<u32> },
    /// This call fails for this rank; the next may not.
    Failed { call: u64, why: String },
    /// It is no longer of the group.
    Lost(String),
    /// Still here.
    Alive,
}

/// A rank's part in a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Part {
    /// The payload is all of it.
    Along,
    /// It has the data: put it into shared memory, a ring of `capacity` bytes, and broadcast it to these leaders, each
    /// known by the path of its directory.
    Source { leaders: Vec<String>, capacity: u64 },
    /// The one of its host that receives.
    Leader,
    /// Takes it from shared memory: from the directory of that name.
    Reader { dir: String, capacity: u64 },
}
