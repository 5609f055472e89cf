//! Fields: time steps of a 3-D volume, each over UDP at a set rate into the shared memory of another host, where programs see
//! them at once.
//!
//! | call | what it does |
//! |---|---|
//! | [`receive()`] | takes a field's streams into shared memory |
//! | [`send()`] | sends the steps of a [`Source`] to one receiver or several |
//! | [`synchronise`] | tells senders to go to the next step, by the clock |
//! | [`view()`] | serves a page that shows fields while they come |
//!
//! ```
//! use tidecast::field::{Policy, ReceiveOptions, SendOptions, Shape, open, receive, send};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // On the host that looks at it, with a key that it has made:
//! # let name = format!("doc-field-{}", std::process::id());
//! let policy = Policy { complete: true, ..Policy::steps() };
//! let listen = "127.0.0.1:0".parse()?;
//! let options = ReceiveOptions { listen, streams: 2, name, policy, steps: Some(3), ..Default::default() };
//! let secret = options.secret.clone();
//! let receiving = receive(options);
//! let to = vec![receiving.ready_blocking()?.address];
//!
//! // On the host that has it:
//! # let dir = tempfile::tempdir()?;
//! # let file = dir.path().join("field.raw").display().to_string();
//! std::fs::write(&file, vec![0; 3 * 4 * 8 * 8 * 8])?;
//! let source = open(&[file], Some(Shape::new(8, 8, 8)?), None)?;
//! let options = SendOptions { to, streams: 2, key: secret, rate: Some(100_000_000), ..Default::default() };
//! assert_eq!(send(source, options).wait_blocking()?.sent.steps, 3);
//! assert_eq!(receiving.wait_blocking()?.received.steps, 3);
//! # Ok(())
//! # }
//! ```

mod key;
mod receive;
mod send;
mod sync;
mod view;

pub use self::key::{Key, kept_key};
pub use self::receive::{Receiving, receive};
pub use self::send::{Sending, send};
pub use self::sync::{SyncOptions, Synchronising, synchronise};
pub use self::view::{Viewing, view};

pub use tidecast_field::geometry::{Order, Shape};
pub use tidecast_field::key::Secret;
pub use tidecast_field::packet::Packing;
pub use tidecast_field::recv::{Missing, Options as ReceiveOptions, Policy, Volumes};
pub use tidecast_field::send::source::{Source, SourceError, Step, Wait, open};
pub use tidecast_field::send::{NoAddress, Options as SendOptions, Pace, Steps, addresses, share};
pub use tidecast_viewer::{ListenAddress, Options as ViewOptions, Token};
