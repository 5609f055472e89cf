//! Operations of users and administrators of this host on caches.

pub(crate) mod admin;
pub(crate) mod caches;
pub(crate) mod copies;
pub(crate) mod get;
pub(crate) mod records;
pub(crate) mod site;
pub(crate) mod update_attributes;
pub(crate) mod upload;
pub(crate) mod uses;
