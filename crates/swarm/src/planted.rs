//! Bugs planted on purpose, one of each kind, to test the tester: the simulator must find every one
//! (`crates/sim/tests/planted.rs`).
//!
//! They can be planted where debug assertions are on, so that one build serves all tests. In a release
//! build `planted` is `false`, and nothing of a bug is left in the machine code.

/// A planted bug, described by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(debug_assertions), allow(unreachable_pub, reason = "only the simulator uses bugs"))]
pub enum Bug {
    /// A piece that fails its check counts as verified.
    AcceptBadPiece,
    /// Requests to a departed or late peer are never sent to another.
    ForgetRequest,
    /// A reject is ignored.
    IgnoreReject,
    /// Blocks handed to a broken connection are counted as in flight for ever.
    LeakQueue,
    /// A failed address is dialled again at once.
    EndlessRetry,
    /// Of several senders of a bad piece, the first is banned.
    BanWrongPeer,
    /// A piece is served whether or not it is verified.
    ServeUnverified,
    /// A verified piece is thrown away when a sender of it is found guilty.
    LoseVerified,
    /// A choice among equals follows the order of a hash table.
    HashOrder,
    /// A share is summed in floats, in the order of a hash table.
    FloatSum,
}

#[cfg(debug_assertions)]
mod on {
    use std::cell::Cell;
    use std::collections::HashSet;

    use super::Bug;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    impl Bug {
        /// Every bug.
        pub const ALL: [Bug; 10] = [
            Bug::AcceptBadPiece,
            Bug::ForgetRequest,
            Bug::IgnoreReject,
            Bug::LeakQueue,
            Bug::EndlessRetry,
            Bug::BanWrongPeer,
            Bug::ServeUnverified,
            Bug::LoseVerified,
            Bug::HashOrder,
            Bug::FloatSum,
        ];

        /// All engines of this thread have this bug from now on; `None`: they are sound again.
        pub fn plant(bug: Option<Bug>) {
            PLANTED.set(bug);
        }
    }

    /// Whether this thread's engines have the bug.
    pub(crate) fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// `Bug::HashOrder`: a number below `bound` (0 when that is 0), another in each run.
    pub(crate) fn any_below(bound: u32) -> u32 {
        (0..bound.min(64)).collect::<HashSet<_>>().into_iter().next().unwrap_or(0)
    }

    /// `Bug::FloatSum`: about `n`, another in some runs: the order of a sum decides its last bit.
    pub(crate) fn about(n: u64) -> u64 {
        let parts: HashSet<u64> = (1..=10).collect();
        parts.into_iter().map(|part| n as f64 * (part as f64 / 55.0)).sum::<f64>() as u64
    }
}

#[cfg(not(debug_assertions))]
mod on {
    use super::Bug;

    /// No program has a bug on purpose.
    pub(crate) const fn planted(_: Bug) -> bool {
        false
    }

    pub(crate) const fn any_below(_: u32) -> u32 {
        0
    }

    pub(crate) const fn about(n: u64) -> u64 {
        n
    }
}

pub(crate) use on::{about, any_below, planted};
