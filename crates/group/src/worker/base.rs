//! Finds data of older versions on this host, by comparison with the origin's fingerprints.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::sync::Arc;

use tidecast_metainfo::Manifest;
use tidecast_net::{Compare, Compared, Security, compare};
use tidecast_store::Base;

/// Opens the older versions that exist, and compares them. The missing part of a piece is not requested: the plan delivers
/// it to many hosts together.
pub(super) async fn compare_bases(
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
