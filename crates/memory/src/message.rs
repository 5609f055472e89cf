//! Messages between a rank and the hub. Some have a payload of raw bytes.

use serde::{Deserialize, Serialize};

/// Rank to hub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Up {
    /// The first message.
    Hello(Hello),
    /// The offered anchor that this rank shares memory with, if any.
    Shares(Option<u32>),
    /// The rank has called; the root's payload is the whole buffer if it is small.
    Enter(Enter),
    /// A writer: this many bytes of the buffer are in shared memory.
    Ready { call: u64, bytes: u64 },
    /// A reader: this many bytes were read from shared memory.
    Taken { call: u64, bytes: u64 },
    /// The root: the ticket of its broadcast for the leaders of other hosts.
    Ticket { call: u64, ticket: String },
    /// The rank has finished, with or without an error.
    Done { call: u64, error: Option<String> },
    /// Keep-alive.
    Alive,
    /// The rank leaves the group.
    Bye,
}

/// The identity of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    /// Kernel, file system and user of its shared memory: where they differ, nothing is shared.
    pub(crate) place: String,
    /// The directory of shared memory on its host, and the name of its own directory in it.
    pub(crate) base: String,
    pub(crate) dir: String,
}

/// A rank calls for the broadcast number `call`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Enter {
    pub(crate) call: u64,
    pub(crate) root: u32,
    /// How long to wait for the other ranks, milliseconds.
    pub(crate) patience: u64,
    pub(crate) role: Role,
}

/// The role of a rank in a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    /// The root: a buffer of `len` bytes, which is the payload if `inline`.
    Offer { len: u64, inline: bool },
    /// A receiver: a buffer of `len` bytes.
    Want { len: u64 },
    /// The rank cannot join this call, for this reason.
    Unfit(String),
}

/// Hub to rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Down {
    /// Asks which of these directories the rank sees, by number and name.
    Anchors(Vec<(u32, String)>),
    /// The rank is a member of the group.
    Admitted,
    /// All ranks have called: the part of this rank.
    Go { call: u64, part: Part },
    /// See [`Up::Ready`].
    Ready { call: u64, bytes: u64 },
    /// The root may write up to this byte into the ring.
    Room { call: u64, bytes: u64 },
    /// See [`Up::Ticket`].
    Ticket { call: u64, ticket: String },
    /// The call is over; these ranks do not have the data.
    End { call: u64, missed: Vec<u32> },
    /// This call failed for this rank; the next may succeed.
    Failed { call: u64, why: String },
    /// The rank was removed from the group.
    Lost(String),
    /// Keep-alive.
    Alive,
}

/// A rank's part in a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Part {
    /// The payload is the whole buffer.
    Inline,
    /// The root: write the data to shared memory, a ring of `capacity` bytes, and broadcast it to these leaders, each
    /// identified by the path of its directory.
    Source { leaders: Vec<String>, capacity: u64 },
    /// The rank that receives for its host.
    Leader,
    /// Read the data from shared memory, from the directory of this name.
    Reader { dir: String, capacity: u64 },
}
