//! The two ends of a copy wherever they run: in this process, on a host where ssh has started them, in a server.
//!
//! The host that runs the command asks each remote end over a *channel* (the pipes of ssh, or a connection to
//! a server), in this order:
//!
//! ```text
//! asks     Request: the job, the peer                  is answered  Ready (or Refused): what it offers, where it listens
//! asks     Go: where to dial, if it is to dial         is answered  Progress ..., then Done or Failed
//! ```

mod channel;
mod home;
mod local;
mod remote;
mod serve;

pub use channel::{Breaker, Channel};
pub use local::{Receiving, Sending};
pub use remote::{ConnectMode, Progressed, Remote, Request, Role, VERSION, answer};
pub use serve::{Secrets, Server, ServerKey, ServerOptions, ask_server, read_opening};
