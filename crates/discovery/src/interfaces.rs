//! The network interfaces of this host that can be discovered over.
