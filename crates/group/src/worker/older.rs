//! What older versions on this host have of the data, as the origin says that knows it.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::sync::Arc;

use tidecast_metainfo::Manifest;
use tidecast_net::{Compare, Compared, Security, compare};
use tidecast_store::Base;

/// Opens those that are there, and compares them. The rest of a piece of which they have something is not asked for: it
/// comes as the plan has it, to many at once.
pub(super) async fn compared(
    bases: Vec<Vec<u8>>,
    manifest: &Arc<Manifest>,
    origin: Vec<SocketAddr>,
    security: Security,
) -> Compared {
    let open = |path: Vec<u8>| Base::open(Path::new(&OsString::from_vec(path))).ok();
    let what = Compare {
        manifest: manifest.clone(),
        files: (0..manifest.file_count()).collect(),
        security: Arc::new(security),
        sources: Vec::new(),
        fill: false,
        throttle: None,
    };
    compare(what, bases.into_iter().filter_map(open).collect(), async { origin }).await
}
