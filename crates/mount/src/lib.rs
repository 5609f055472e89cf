//! A published tree as a read-only FUSE file system: there before it has arrived.
