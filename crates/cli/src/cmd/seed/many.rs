//! Several manifests in one process: one port, one pair of limits, one report. One that fails is told at once and in the exit
//! code; the others go on.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use serde_json::{Map, Value, json};
use tidecast_metainfo::Manifest;
use tidecast_net::{Port, Summary};
use tokio::task::JoinSet;

use super::super::swarm::{Choices, Running, totals};
use super::super::{Context, read_manifest, show};
use super::{Args, beside, find, heard, is_private, start, started};
use crate::failure::{Failure, Outcome};
use crate::names;
use crate::report::{Reporter, Snapshot, object};
use crate::stop::{Stop, block_on, hangups};
use crate::units::{Size, count};

/// How often all swarms are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// One that is served.
struct Served {
    from: PathBuf,
    running: Running,
    /// Why some of its data is not served any more.
    changed: Option<String>,
}

/// How one ended.
struct Ended {
    from: PathBuf,
    name: String,
    damaged: u64,
    changed: Option<String>,
    summary: Result<Summary>,
}

/// Those that are not served, and why.
#[derive(Default)]
struct Failed(Vec<(PathBuf, String)>);

impl Failed {
    fn add(&mut self, from: &Path, why: String, reporter: &Reporter) {
        reporter.warning(&format!("{} is not served: {why}", from.display()));
        self.0.push((from.to_owned(), why));
    }
}

pub(super) fn run(
    manifests: &[PathBuf],
    args: &Args,
    mut choices: Choices,
    context: &Context<'_>,
    reporter: &mut Reporter,
) -> Outcome {
    let mut failed = Failed::default();
    let read = read(manifests, &args.data, &mut failed, reporter);
    let terms = args.ticket.terms(read.iter().any(|(_, manifest, _)| is_private(manifest, &choices)))?;
    let state_dir = context.own_state_dir()?;
    block_on(context.threads(), async {
        let stop = Stop::listen()?;
        let _hangups = hangups()?;
        let (port, _accepting) = Port::open(&[choices.listen], choices.network.as_ref())?;
        choices.port = Some(port.clone());
        let mut served = Vec::new();
        for (from, manifest, path) in read {
            let begun = start(&manifest, &path, (args, terms), &choices, &state_dir, reporter);
            let (mut running, ticket) = match begun {
                Ok(begun) => begun,
                Err(failure) => {
                    failed.add(&from, format!("{:#}", failure.error), reporter);
                    continue;
                }
            };
            if let Some(ticket) = &ticket {
                reporter.result(&format!("{}: {ticket}", show::plain(&manifest.name())));
            }
            let mut fields = started(&manifest, port.addrs(), ticket);
            fields.insert("manifest".to_owned(), names::json(&from));
            reporter.started("seed", fields);
            find(&mut running, &choices, reporter).await?;
            served.push(Served { from, running, changed: None });
        }
        if served.is_empty() {
            return Err(outcome(Vec::new(), failed)
                .err()
                .unwrap_or_else(|| anyhow!("nothing to serve").into()));
        }
        let listen: Vec<String> = port.addrs().iter().map(ToString::to_string).collect();
        let number = count(served.len() as u64, "manifest");
        reporter.about(&object(json!({ "name": number })));
        reporter.note(&format!("seeding {number} at {}; Ctrl-C stops", listen.join(", ")));
        let mut ended = serve(&mut served, &stop, reporter).await;
        reporter.clear();
        let mut ending: JoinSet<Ended> = served.into_iter().map(end).collect();
        while let Some(one) = ending.join_next().await {
            ended.push(one.context("a thread of Tidecast failed")?);
        }
        for one in &ended {
            let takers = |s: &Summary| s.peers.iter().filter(|p| p.sent_bytes > 0).count() as u64;
            if let Ok(summary) = &one.summary {
                let (sent, peers) = (Size(summary.progress.sent_bytes), count(takers(summary), "peer"));
                reporter.note(&format!("{}: {sent} sent to {peers}", one.name));
            }
        }
        outcome(ended, failed)
    })
}

/// The manifests that can be read and whose data is there, each swarm once.
fn read(
    manifests: &[PathBuf],
    dirs: &[PathBuf],
    failed: &mut Failed,
    reporter: &Reporter,
) -> Vec<(PathBuf, Arc<Manifest>, PathBuf)> {
    let (mut read, mut first) = (Vec::new(), HashMap::new());
    for from in manifests {
        let found = read_manifest(from).map_err(Failure::from);
        let found = found.and_then(|manifest| Ok((beside(&manifest, dirs)?, manifest)));
        match found {
            Err(failure) => failed.add(from, format!("{:#}", failure.error), reporter),
            Ok((path, manifest)) => {
                let twin = manifest.swarm_hashes().into_iter().find_map(|hash| first.get(&hash));
                let twin: Option<&PathBuf> = twin;
                if let Some(twin) = twin {
                    let (from, twin) = (from.display(), twin.display());
                    reporter.warning(&format!("{from} is of the same swarm as {twin}, and is served by it"));
                    continue;
                }
                first.extend(manifest.swarm_hashes().into_iter().map(|hash| (hash, from.clone())));
                read.push((from.clone(), Arc::new(manifest), path));
            }
        }
    }
    read
}

/// Serves until told to stop, or until nothing is left to serve. Those that ended before.
async fn serve(served: &mut Vec<Served>, stop: &Stop, reporter: &mut Reporter) -> Vec<Ended> {
    let mut ended = Vec::new();
    while !served.is_empty() {
        tokio::select! {
            () = stop.wait() => break,
            () = tokio::time::sleep(LOOK) => {}
        }
        let mut all = Snapshot { stage: "seed", peers: Some(0), ..Snapshot::default() };
        for mut one in std::mem::take(served) {
            let mut gone = false;
            while let Some(notice) = one.running.notice_now() {
                gone |= heard(&mut one.running, notice, &mut one.changed, reporter).await;
            }
            one.running.tell_troubles(reporter);
            if let Some(now) = one.running.look("seed") {
                add(&mut all, &now);
            }
            if gone {
                let from = one.from.display();
                reporter
                    .warning(&format!("{from} is served no more: none of its data is as it was published"));
                ended.push(end(one).await);
            } else {
                served.push(one);
            }
        }
        reporter.publish_swarms(|| served.iter().filter_map(row).collect());
        reporter.progress(&all);
    }
    ended
}

/// What `tidecast status` shows of one.
fn row(one: &Served) -> Option<Value> {
    let now = one.running.look("seed")?;
    Some(json!({
        "manifest": names::json(&one.from), "name": show::plain(&one.running.manifest.name()), "stage": now.stage,
        "bytes": now.bytes, "total": now.total, "peers": now.peers, "received": now.received, "sent": now.sent,
    }))
}

fn add(all: &mut Snapshot, one: &Snapshot) {
    if one.stage == "check" {
        all.stage = one.stage;
    }
    all.bytes += one.bytes;
    all.total += one.total;
    all.pieces += one.pieces;
    all.pieces_total += one.pieces_total;
    all.peers = all.peers.zip(one.peers).map(|(a, b)| a + b);
    all.received += one.received;
    all.sent += one.sent;
    all.connected.extend(one.connected.iter().cloned());
}

async fn end(served: Served) -> Ended {
    let Served { from, running, changed } = served;
    let (damaged, name) = (running.damaged(), show::plain(&running.manifest.name()));
    Ended { from, name, damaged, changed, summary: running.stop().await }
}

/// What was done for each, and the sum; a failure if there was any.
fn outcome(ended: Vec<Ended>, Failed(mut failed): Failed) -> Outcome {
    let (mut swarms, mut damaged) = (Vec::new(), 0);
    let mut sums: Map<String, Value> = Map::new();
    for Ended { from, name, damaged: of_it, changed, summary } in ended {
        damaged += of_it;
        let mut fields = match &summary {
            Ok(summary) => totals(summary),
            Err(_) => Map::new(),
        };
        for key in ["bytes", "total", "pieces", "pieces_total", "received", "sent", "duplicate", "corrupt"] {
            let sum =
                [sums.get(key), fields.get(key)].into_iter().flatten().filter_map(Value::as_u64).sum::<u64>();
            sums.insert(key.to_owned(), sum.into());
        }
        if let Some(cpu) = fields.remove("cpu_seconds") {
            // The process's: the same for all.
            sums.insert("cpu_seconds".to_owned(), cpu);
        }
        fields
            .extend(object(json!({ "manifest": names::json(&from), "name": name, "damaged_pieces": of_it })));
        swarms.push(Value::Object(fields));
        let why = summary.err().map(|error| format!("{error:#}")).or(changed);
        failed.extend(why.map(|why| (from, why)));
    }
    let list = |(from, why): &(PathBuf, String)| json!({ "manifest": names::json(from), "message": why });
    sums.insert("damaged_pieces".to_owned(), damaged.into());
    sums.insert("swarms".to_owned(), swarms.into());
    sums.insert("failed".to_owned(), failed.iter().map(list).collect());
    let Some((from, why)) = failed.first() else { return Ok(sums) };
    let others = match failed.len() - 1 {
        0 => String::new(),
        n => format!(" ({} more failed)", count(n as u64, "manifest")),
    };
    Err(Failure::from(anyhow!("{} was not served in full: {why}{others}", from.display())).with(sums))
}
