//! The cache daemon: named data that stays where the jobs are.
//!
//! One daemon a host keeps caches in its [depot](tidecast_depot), hands them to local users over a unix socket (the kernel
//! says who asks), and speaks with the daemons of other hosts over mutual TLS, each of which decides for itself what it
//! takes and what it gives (HTCondor's CacheD, section III).
//!
//! ```text
//!   users ──▶ api (HTTP, JSON) ──▶ daemon ──▶ depot (objects, leases, eviction)
//!                                    │  ▲
//!              fetch (a cache comes) ┘  └ serve (other daemons ask)
//!                    │                        ▲
//!                    ├──▶ peer (control channels, cards) ──┘
//!                    ├──▶ circle (members: who is there, who holds what)
//!                    └──▶ swarms (net, all behind one door)
//! ```

mod addresses;
mod ads;
mod anew;
pub mod api;
mod attributes;
mod audit;
mod caller;
mod card;
mod catalogue;
mod circle;
pub mod client;
mod config;
mod daemon;
mod delta;
mod descriptors;
mod error;
mod fetch;
mod grant;
mod holder;
mod home;
mod inherit;
mod local;
pub mod materialize;
pub mod name;
mod named;
mod neighbour;
mod newest;
mod parent;
mod peer;
mod repair;
mod replicas;
mod said;
mod seeds;
mod serve;
mod service;
mod site;
mod sources;
mod stamp;
mod swarms;
mod transfer;
mod trust;
mod uses;

pub use ads::check_requirements;
pub use catalogue::CatalogueAt;
pub use config::{Config, Serves};
pub use daemon::Daemon;
pub use error::Error;
pub use sources::PORT;
pub use tidecast_depot::acl;
pub use tidecast_socket as socket;

use std::time::{SystemTime, UNIX_EPOCH};

/// The name of the user who runs this.
///
/// # Errors
/// The user database cannot be read.
pub fn user() -> std::io::Result<String> {
    let uid = nix::unistd::geteuid();
    let user = nix::unistd::User::from_uid(uid).map_err(std::io::Error::from)?;
    Ok(user.map_or_else(|| format!("uid{uid}"), |user| user.name))
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
