//! What is kept on this host: the audit log.

pub(crate) mod audit;
