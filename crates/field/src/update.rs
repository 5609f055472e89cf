//! Events of an end of a field while it runs.

/// One update: `S` once, when the work begins, then news `N`.
#[derive(Debug, Clone)]
pub enum Update<S, N> {
    /// The work has begun.
    Started(S),
    /// A problem after which the work continues.
    Warning(String),
    /// How it goes.
    News(N),
}
