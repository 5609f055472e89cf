//! The engine of a swarm: decides what to request, what to serve, what to announce, whom to trust.
//!
//! Pure: it holds no socket, file, clock, thread or unseeded randomness, and no payload. Events and
//! the time go in, actions come out:
//!
//! ```text
//! engine.handle(now, event);
//! while let Some(action) = engine.poll() { /* do it */ }
//! sleep_until(engine.wakeup());
//! ```

mod api;

pub use api::*;
