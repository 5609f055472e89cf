//! The commands, one a file.

pub(crate) mod admin;
pub(crate) mod bcast;
pub(crate) mod ca;
pub(crate) mod cache;
pub(crate) mod classad;
pub(crate) mod completions;
pub(crate) mod copy;
pub(crate) mod copy_server;
pub(crate) mod daemon;
pub(crate) mod describe;
pub(crate) mod doctor;
pub(crate) mod field;
pub(crate) mod get;
pub(crate) mod man;
pub(crate) mod mount;
pub(crate) mod plugin;
pub(crate) mod publish;
pub(crate) mod revoke;
pub(crate) mod run;
pub(crate) mod run_operation;
pub(crate) mod seed;
pub(crate) mod share;
pub(crate) mod show;
pub(crate) mod sim;
pub(crate) mod swarm;
pub(crate) mod tracker;
pub(crate) mod verify;
pub(crate) mod worker;

pub(crate) use tidecast_node::{RECORDS, now, read_manifest};

pub(crate) use crate::context::Context;
