//! `cache ls` and `cache show`.

use std::time::Duration;

use serde_json::Map;
use tidecast::event::cache::{CacheInfo, Listed, ReceivedBytes};
use tidecast::{CacheName, Caches};
use tidecast_text::{Size, Span, aligned, count};

use super::failed::failed;
use crate::failure::Outcome;
use crate::report::{Reporter, fields_of};

/// List the caches of this host that you may read
#[derive(clap::Args, Debug)]
pub(super) struct LsArgs {
    /// Only versions of this cache: [ORIGIN/]NAME[@VERSION]
    name: Option<CacheName>,
}

/// Show one cache, with its ClassAd
#[derive(clap::Args, Debug)]
pub(super) struct ShowArgs {
    /// [ORIGIN/]NAME[@VERSION]
    name: CacheName,
}

pub(super) async fn ls(args: &LsArgs, caches: &Caches, reporter: &Reporter) -> Outcome {
    let all = caches.list(args.name.as_ref()).await.map_err(failed)?;
    // For ten thousand caches either form takes longer than the daemon's answer, so only one is made.
    if reporter.is_json() {
        return Ok(fields_of(&Listed { caches: all }));
    }
    let mut rows = vec![["CACHE", "STATE", "SIZE", "OWNER", "LEASE"].map(str::to_owned)];
    rows.extend(all.into_iter().map(|info| {
        let (lease, size) = (lease(&info), Size(info.bytes).to_string());
        [info.name, info.state, size, info.owner, lease]
    }));
    aligned(&rows, usize::MAX).iter().for_each(|line| reporter.result(line));
    Ok(Map::new())
}

pub(super) async fn show(args: &ShowArgs, caches: &Caches, reporter: &Reporter) -> Outcome {
    let info = caches.show(&args.name).await.map_err(failed)?;
    let methods: Vec<String> = info.methods.iter().map(ToString::to_string).collect();
    let line = |what: &str, value: String| reporter.result(&format!("{what:<9} {value}"));
    line("cache", info.name.clone());
    line("state", info.state.clone());
    line("owner", format!("{}, mode {:o}{}", info.owner, info.mode, group(&info)));
    line("size", format!("{} in {}", Size(info.bytes), count(info.files, "file")));
    line("lease", lease(&info));
    line("methods", methods.join(", "));
    line("in use", format!("by {}", count(info.users.into(), "job")));
    for used in info.uses.iter().flatten() {
        line("", used.with_times(crate::cmd::now()));
    }
    if info.came != ReceivedBytes::default() {
        line("received", info.came.in_words());
    }
    if let Some(path) = &info.path {
        line("path", path.display().to_string());
    }
    if let Some(ad) = &info.ad {
        line("ad", ad.clone());
    }
    Ok(fields_of(&info))
}

fn group(info: &CacheInfo) -> String {
    info.group.as_ref().map_or(String::new(), |group| format!(", group {group}"))
}

/// Says that the daemon keeps a cache for less time than was asked for.
pub(super) fn warn_of_shorter_lease(info: &CacheInfo, asked: Span, reporter: &Reporter) {
    // The daemon's clock counts, and its answer took some time.
    let spare = 60;
    if !info.pinned && info.lease.saturating_add(spare) < crate::cmd::now().saturating_add(asked.0.as_secs())
    {
        let left = left(info);
        reporter.warning(&format!(
            "the lease is {left} instead of {asked}: this daemon gives no longer ones (lease_cap)"
        ));
    }
}

/// The time until its lease expires.
pub(super) fn left(info: &CacheInfo) -> Span {
    Span(Duration::from_secs(info.lease.saturating_sub(crate::cmd::now())))
}

fn lease(info: &CacheInfo) -> String {
    match left(info) {
        _ if info.pinned => "pinned".into(),
        Span(Duration::ZERO) => "expired".into(),
        left => left.to_string(),
    }
}
