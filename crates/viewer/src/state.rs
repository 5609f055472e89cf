//! The metadata of a field: the JSON of the API, for the page and for other viewers.

use serde::{Deserialize, Serialize};
use tidecast_event::field::receive::Total;

/// A field, as it is now. Times are nanoseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    /// Of the shared memory, or the record.
    pub name: String,
    /// The field.
    pub title: String,
    /// x, y, z.
    pub shape: [u64; 3],
    /// The step in front.
    pub step: u64,
    /// Steps closed so far.
    pub closed: u64,
    /// Whether a receiver has it open.
    pub receiving: bool,
    /// Whether the volume is one that is always changing.
    pub live: bool,
    /// Bits a second, as announced by the sender.
    pub rate: u64,
    /// When a packet last came.
    pub last: u64,
    /// When it was made.
    pub made: u64,
    /// By stream.
    pub slabs: Vec<Slab>,
    /// The last steps that have closed.
    pub history: Vec<Closed>,
    /// Of a record: its steps.
    pub steps: Option<Vec<u64>>,
    /// Of a record: the least and the greatest value of all its steps, if that is known.
    pub range: Option<(f64, f64)>,
    /// Why there is nothing to see.
    pub error: Option<String>,
}

/// A slab, and the stream that carries it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Slab {
    /// First plane, and the one after the last.
    pub z: [u64; 2],
    /// Step under way.
    pub step: u64,
    /// Packets of it.
    pub expected: u64,
    /// Those that came.
    pub received: u64,
    /// Those that parity has brought back.
    pub recovered_of_step: u64,
    /// Total counters of its stream.
    #[serde(flatten)]
    pub total: Total,
    /// When a packet last came.
    pub last: u64,
    /// Number of the stream.
    pub stream: u64,
    /// Whether it sends.
    pub open: bool,
}

/// A step that is over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Closed {
    /// Its number.
    pub step: u64,
    /// When it closed.
    pub when: u64,
    /// Packets that it has.
    pub expected: u64,
    /// Those that came.
    pub received: u64,
    /// Those that parity has brought back.
    pub recovered: u64,
    /// Values missing.
    pub missing: u64,
    /// Bytes received.
    pub bytes: u64,
}

impl State {
    /// One volume of which slabs lie at several receivers: the newest step, all slabs.
    pub(crate) fn join(name: &str, parts: Vec<Self>) -> Self {
        let mut parts = parts.into_iter();
        let mut all = parts.next().unwrap_or_default();
        all.name = name.into();
        for part in parts {
            all.step = all.step.max(part.step);
            all.closed = all.closed.min(part.closed);
            all.receiving |= part.receiving;
            all.rate += part.rate;
            all.last = all.last.max(part.last);
            all.slabs.extend(part.slabs);
            all.error = all.error.or(part.error);
            for entry in part.history {
                match all.history.iter_mut().rev().find(|mine| mine.step == entry.step) {
                    Some(mine) => {
                        mine.expected += entry.expected;
                        mine.received += entry.received;
                        mine.recovered += entry.recovered;
                        mine.missing += entry.missing;
                        mine.bytes += entry.bytes;
                        mine.when = mine.when.max(entry.when);
                    }
                    None => all.history.push(entry),
                }
            }
        }
        all.history.sort_by_key(|entry| entry.when);
        all
    }
}
