//! Builds the parts of a daemon in order, hands each what it needs, runs them, and ends them. Nothing else knows all of them.

mod parts;
mod run;
#[cfg(test)]
mod tests;
mod upkeep;

pub use parts::Daemon;
