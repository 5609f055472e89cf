//! The simulator: runs the unmodified engine for thousands of nodes on a modelled network, with every
//! fault that a cluster has, and runs other ways to broadcast on the same network to compare.
//!
//! One seed gives one run, bit for bit, on any machine: integer nanoseconds and bytes per second,
//! ordered maps, one generator. Floats appear in reports only, where nothing decides.

// Sets of pieces are lists of ranges here, and often one range.
#![allow(clippy::single_range_in_vec_init)]

pub mod baselines;
pub mod bound;
pub mod check;
mod event_queue;
pub mod fault;
pub mod job;
mod links;
pub mod network;
pub mod outcome;
pub mod plan;
pub mod planned;
pub mod plot;
pub mod progress;
pub mod report;
pub mod rng;
pub mod scenario;
pub mod set;
pub mod soak;
mod stage;
pub mod startup_storm;
pub mod table;
pub mod topology;
pub mod trace;
pub mod world;

pub use tidecast_swarm::Time;
