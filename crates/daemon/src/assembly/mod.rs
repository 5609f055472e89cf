//! Builds the parts of a daemon in order, connects them, runs them, and ends them. Only this module knows all
//! of them.

mod parts;
mod run;
#[cfg(test)]
mod tests;
mod upkeep;

pub use parts::Daemon;
