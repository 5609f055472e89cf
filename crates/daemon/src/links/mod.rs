//! Other daemons: one control channel to each, over which both ends send requests; and which of them this
//! daemon trusts.

pub(crate) mod addresses;
pub(crate) mod certificate;
pub(crate) mod frame;
pub(crate) mod link;
pub(crate) mod peers;
pub(crate) mod rejections;
pub(crate) mod trust;
pub(crate) mod wire;
