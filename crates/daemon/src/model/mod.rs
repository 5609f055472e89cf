//! What travels and what is kept: names, requests and answers, the daemon's attributes of a cache, errors. Types and what they say of
//! themselves; no decisions and no I/O.

pub(crate) mod api_error;
pub(crate) mod attributes;
pub(crate) mod error;
pub(crate) mod files;
pub(crate) mod message;
pub mod name;
pub(crate) mod signed_name;
pub mod types;
