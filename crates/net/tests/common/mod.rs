//! Shared by the tests of whole nodes.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, unreachable_pub)]

pub mod fake;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidecast_metainfo::{Manifest, Version};
use tidecast_net::{Security, Summary, Swarm, SwarmOptions};
use tidecast_publish::{Format, HashOptions, Progress, ScanOptions, hash, scan};

pub fn log() {
    let filter = tracing_subscriber::EnvFilter::from_env("TIDECAST_LOG");
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
}

pub fn publish(path: &Path, version: Version) -> Arc<Manifest> {
    publish_with(path, version, None)
}

pub fn publish_with(path: &Path, version: Version, piece_length: Option<u32>) -> Arc<Manifest> {
    let tree = scan(path, &ScanOptions::default(), &Progress::default()).unwrap();
    let options = HashOptions { format: Format::Exactly(version), piece_length, ..HashOptions::default() };
    Arc::new(hash(&tree, &options, &Progress::default(), |_| {}).unwrap().manifest)
}

/// A node that fetches, and listens on a port of its own.
pub fn options(opened: tidecast_store::Opened, security: Security) -> SwarmOptions {
    SwarmOptions {
        opened,
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        listeners: vec![],
        shared_port: None,
        port: None,
        network: None,
        security,
        policy: Default::default(),
        seed_only: false,
        on_demand: None,
        group: Default::default(),
        planned: false,
        roots: None,
        web_seeds: false,
        throttle: None,
    }
}

pub async fn finish(swarm: Swarm) -> Summary {
    soon(swarm.complete()).await.unwrap();
    let store = swarm.store().clone();
    tokio::task::spawn_blocking(move || store.finish()).await.unwrap().unwrap();
    swarm.stop().await.unwrap()
}

/// Long enough for any machine; only a hang takes it.
pub async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), work).await.expect("it hangs")
}

pub fn assert_same(a: &Path, b: &Path) {
    let diff = std::process::Command::new("diff").arg("-r").arg(a).arg(b).output().unwrap();
    assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
}
