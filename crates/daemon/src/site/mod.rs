//! The certificate authority of a site: the daemon that keeps it answers, a host joins it once, and every daemon renews
//! its own certificate by it.

mod error;
mod files;
mod join;
mod registrar;
mod renewal;

pub use error::SiteError;
pub use files::SiteDir;
pub use join::{Invite, Joined, found, invite, join};
pub(crate) use registrar::Registrar;
pub(crate) use renewal::Renewal;
