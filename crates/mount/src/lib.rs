//! A published tree as a read-only FUSE file system: there before it has arrived.

pub mod closure;
pub mod elf;
pub mod list;
pub mod record;
pub mod script;
pub mod search;
pub mod walk;
