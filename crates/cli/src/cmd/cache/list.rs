//! `cache ls` and `cache show`.

use std::time::Duration;

use serde_json::{Map, json};
use tidecast::event::cache::{CacheInfo, CacheUse, Came};
use tidecast::{CacheName, Caches};
use tidecast_text::{Size, Span, count};

use super::words::{failed, how_it_came};
use crate::failure::Outcome;
use crate::report::{Reporter, object};

/// List the caches of this host that you may read
#[derive(clap::Args, Debug)]
pub(super) struct LsArgs {
    /// Only these: [ORIGIN/]NAME[@VERSION]
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
    // Of ten thousand caches either form takes longer than the daemon's answer: only one is made.
    if reporter.is_json() {
        return Ok(object(json!({ "caches": all })));
    }
    let rows: Vec<[String; 5]> = all
        .iter()
        .map(|info| {
            [
                info.name.clone(),
                info.state.clone(),
                Size(info.bytes).to_string(),
                info.owner.clone(),
                lease(info),
            ]
        })
        .collect();
    let lines = table(["CACHE", "STATE", "SIZE", "OWNER", "LEASE"].map(str::to_owned), &rows);
    lines.iter().for_each(|line| reporter.result(line));
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
    line("travels", methods.join(", "));
    line("in use", format!("by {}", count(info.users.into(), "job")));
    for used in info.uses.iter().flatten() {
        line("", used_by(used));
    }
    if info.came != Came::default() {
        line("came", how_it_came(&info.came));
    }
    if let Some(path) = &info.path {
        line("path", path.display().to_string());
    }
    if let Some(ad) = &info.ad {
        line("ad", ad.clone());
    }
    Ok(object(json!(info)))
}

/// Who uses a cache, and since or until when.
pub(crate) fn used_by(used: &CacheUse) -> String {
    let now = crate::cmd::now();
    let span = |seconds: u64| Span(Duration::from_secs(seconds));
    let since = used.since.map(|since| format!(" for {}", span(now.saturating_sub(since))));
    let until = used.until.map(|until| format!(", {} more at most", span(until.saturating_sub(now))));
    let when = since.or(until).unwrap_or_default();
    format!("{}{when}", used.in_words())
}

fn group(info: &CacheInfo) -> String {
    info.group.as_ref().map_or(String::new(), |group| format!(", group {group}"))
}

/// How long its lease lasts.
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

/// Lines of columns, as wide as need be.
fn table<const N: usize>(head: [String; N], rows: &[[String; N]]) -> Vec<String> {
    let all: Vec<&[String; N]> = std::iter::once(&head).chain(rows).collect();
    let widths: Vec<usize> =
        (0..N).map(|i| all.iter().map(|row| row[i].chars().count()).max().unwrap_or(0)).collect();
    let line = |row: &&[String; N]| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    all.iter().map(line).collect()
}
