//! What users and administrators of this host do with caches.

mod amend;
pub(crate) mod caches;
mod site;
pub(crate) mod upload;
pub(crate) mod uses;
