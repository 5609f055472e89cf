//! Other daemons: one control channel to each, by which both ends ask, and whom this daemon trusts.

pub(crate) mod addresses;
pub(crate) mod certificate;
pub(crate) mod frame;
pub(crate) mod link;
pub(crate) mod peers;
pub(crate) mod refusals;
pub(crate) mod trust;
pub(crate) mod wire;
