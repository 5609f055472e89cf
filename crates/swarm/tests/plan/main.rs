//! The plan's promises, on known clusters and on random ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod clusters;
mod discover;
mod measure;
mod planner;
mod random;
mod topology;
