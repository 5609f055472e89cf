//! The cache daemon: named data that stays where the jobs are.
//!
//! One daemon a host keeps caches in its [depot](tidecast_depot), hands them to local users over a unix
//! socket (the kernel identifies the caller), and connects to the daemons of other hosts over mutual TLS;
//! each of them decides for itself what it accepts and what it provides (HTCondor's CacheD, section III).
//!
//! Its parts, from top to bottom; each may use those below it:
//!
//! | part | what it does |
//! |---|---|
//! | `assembly` | builds the other parts, runs them, ends them |
//! | `http` | the API on the socket: one function a request |
//! | `serving` | answers other daemons |
//! | `local` | operations of this host's users and administrators |
//! | `transfer` | fetches caches: grant, admission, move, commit, repair; keeps replicas |
//! | `directory` | members, the caches that they hold, names, catalogues |
//! | [`site`] | the certificate authority of a site: keeping it, joining it, renewing by it |
//! | `links` | one control channel to each other daemon; trust |
//! | `storage`, `host` | the depot and the audit log; processes, other daemons of this machine, limits |
//! | [`client`] | client library of commands and of other daemons of this machine |
//! | `policy`, `model` | pure decisions; names, messages, records, errors |

mod assembly;
pub mod client;
mod clock;
mod config;
mod directory;
mod host;
mod http;
mod links;
mod local;
mod model;
mod policy;
mod serving;
pub mod site;
mod storage;
mod transfer;

/// Messages of the socket, for its clients.
pub mod api {
    pub use crate::model::types;
}

pub use assembly::Daemon;
pub use client::{materialize, plugin};
pub use config::{CatalogueAt, Config, Serves};
pub use directory::configured_peers::PORT;
pub use model::error::Error;
pub use model::name;
pub use policy::ads::check_requirements;
pub use tidecast_paths::acl;
pub use tidecast_socket as socket;

/// The name of the user of this process.
///
/// # Errors
/// The user database cannot be read.
pub fn user() -> std::io::Result<String> {
    let uid = nix::unistd::geteuid();
    let user = nix::unistd::User::from_uid(uid).map_err(std::io::Error::from)?;
    Ok(user.map_or_else(|| format!("uid{uid}"), |user| user.name))
}
