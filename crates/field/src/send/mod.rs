//! The sending half.

pub mod pace;
pub mod parity;
pub mod source;
pub mod stage;
