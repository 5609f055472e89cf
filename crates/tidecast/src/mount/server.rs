//! The process that serves a tree to mounts.

use tidecast_event::mount::Serving;
use tidecast_mount::Packets;
use tidecast_mount::server::{End, ServerContext, serve};
use tidecast_node::Source;

use super::options::MountOptions;
use crate::operation::{Operation, start};
use crate::state;

/// The operation of [`serve_mount`].
pub type ServeMount = Operation<Serving, End>;

/// Serves a tree to all its mounts on this host, until none is left, as the program `tidecast` does if its
/// environment gives it the role of the [server](tidecast_mount::Role::Server). `keeper` is its standard
/// input.
pub fn serve_mount(source: Source, keeper: Packets, options: MountOptions) -> ServeMount {
    start(options.threads.unwrap_or(0), async move |work| {
        let state_dir = state::own(options.state_dir.as_deref())?;
        let context = ServerContext {
            tell: work,
            started: &|serving| work.started(serving),
            progress: &|now| work.progress(now),
            stop: &work.stop,
        };
        serve(source, &options.serve, &state_dir, keeper, context).await
    })
}
