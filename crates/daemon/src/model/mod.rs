//! Types for the wire and the store: names, requests and answers, the daemon's attributes of a cache, errors.
//! No decisions and no I/O.

pub(crate) mod api_error;
pub(crate) mod attributes;
pub(crate) mod error;
pub(crate) mod files;
pub(crate) mod message;
pub mod name;
pub(crate) mod signed_name;
pub mod types;
