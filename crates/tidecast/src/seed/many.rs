//! Several manifests in one process: one port, one pair of limits, one report. A failed one is reported at
//! once and at the end; the others continue.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidecast_event::seed::{Many, ManyDone, NotServed, OneDone, Started};
use tidecast_event::{
    Context as _, Error, Fault as _, OneSwarm, PartialResult, Phase, Progress, Stage, Traffic,
};
use tidecast_metainfo::Manifest;
use tidecast_net::{Port, Summary};
use tidecast_node::{MessageSender, Running, SwarmSettings, access, plain, totals};
use tidecast_text::count;
use tokio::task::JoinSet;

use super::{SeedOptions, begin, find, heard, is_private};
use crate::operation::{Operation, Work, start};
use crate::{begun, state};

/// How often all swarms are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// The operation of [`seed_many`].
pub type SeedMany = Operation<Started, ManyDone>;
type Doing = Work<Started, ManyDone>;

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
    summary: Result<Summary, Error>,
}

/// Those that are not served, and why.
#[derive(Default)]
struct Failed(Vec<NotServed>);

impl Failed {
    fn add(&mut self, from: &Path, error: &Error, messages: &MessageSender<'_>) {
        let why = error.in_full();
        messages.warning(format!("{} is not served: {why}", from.display()));
        self.0.push(NotServed { manifest: from.to_owned(), message: why });
    }
}

/// Serves the data of several manifest files, on one port, until stopped.
///
/// The data of each lies in the first of `dirs` that has its name. There is an event `started` for each. A
/// manifest that cannot be served is reported by a warning, and the others continue; the result is then an
/// error that has the list.
pub fn seed_many<P: AsRef<Path>>(manifests: &[P], dirs: &[P], options: SeedOptions) -> SeedMany {
    let owned = |paths: &[P]| paths.iter().map(|path| path.as_ref().to_owned()).collect::<Vec<_>>();
    let (manifests, dirs) = (owned(manifests), owned(dirs));
    start(options.threads.unwrap_or(0), async move |work| run(&manifests, &dirs, &options, work).await)
}

/// Where the data of a manifest lies: in the first of the directories that has its name.
///
/// # Errors
/// None has it.
pub fn data_below(manifest: &Manifest, dirs: &[PathBuf]) -> Result<PathBuf, Error> {
    let name = Path::new(OsStr::from_bytes(manifest.name_bytes()));
    let mut found = dirs.iter().map(|dir| dir.join(name)).filter(|path| path.symlink_metadata().is_ok());
    let is_name = matches!(name.components().collect::<Vec<_>>().as_slice(), [Component::Normal(_)]);
    found.next().filter(|_| is_name).with_context(|| {
        let dirs = dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", ");
        let name = plain(&manifest.name());
        format!("no {name} in {dirs}; the data of a manifest must be below --data under its name")
    })
}

async fn run(
    manifests: &[PathBuf],
    dirs: &[PathBuf],
    options: &SeedOptions,
    work: &Doing,
) -> Result<ManyDone, Error> {
    let mut settings = SwarmSettings::new(&options.swarm)?;
    let (mut failed, messages) = (Failed::default(), MessageSender::new(work));
    let read = read(manifests, dirs, &mut failed, work).await?;
    let terms = options.ticket.terms(read.iter().any(|(_, manifest, _)| is_private(manifest, &settings)))?;
    let state_dir = state::own(options.state_dir.as_deref())?;
    let (port, _accepting) = Port::open(&[settings.listen], settings.network.as_ref()).fault()?;
    settings.port = Some(port.clone());
    let mut served = Vec::new();
    for (from, manifest, path) in read {
        let (mut running, ticket) = match begin(&manifest, &path, terms, &settings, &state_dir) {
            Ok(begun) => begun,
            Err(error) => {
                failed.add(&from, &error, &messages);
                continue;
            }
        };
        let open = access::is_open(&manifest, settings.plain);
        let mut started = begun("seed", &running, ticket, open);
        (started.listen, started.manifest) = (port.addrs().to_vec(), Some(from.clone()));
        work.started(started);
        find(&mut running, &settings, &messages).await?;
        served.push(Served { from, running, changed: None });
    }
    if served.is_empty() {
        return outcome(Vec::new(), failed, work).and_then(|_| Err(Error::fault("nothing to serve")));
    }
    let name = count(served.len() as u64, "manifest");
    messages.phase(Phase::Serving { name, listen: port.addrs().to_vec() });
    let mut ended = serve(&mut served, work, &messages).await;
    let mut ending: JoinSet<Ended> = served.into_iter().map(end).collect();
    while let Some(one) = ending.join_next().await {
        ended.push(one.context("a thread of Tidecast failed")?);
    }
    outcome(ended, failed, work)
}

/// The manifests that can be read and whose data is there, each swarm once.
async fn read(
    manifests: &[PathBuf],
    dirs: &[PathBuf],
    failed: &mut Failed,
    work: &Doing,
) -> Result<Vec<(PathBuf, Arc<Manifest>, PathBuf)>, Error> {
    let (mut read, mut first, messages) = (Vec::new(), HashMap::new(), MessageSender::new(work));
    for from in manifests {
        let found = work.manifest(from).await;
        let found = found.and_then(|manifest| Ok((data_below(&manifest, dirs)?, manifest)));
        match found {
            Err(error) if work.stop.is_asked() => return Err(error),
            Err(error) => failed.add(from, &error, &messages),
            Ok((path, manifest)) => {
                let twin = manifest.swarm_hashes().into_iter().find_map(|hash| first.get(&hash));
                let twin: Option<&PathBuf> = twin;
                if let Some(twin) = twin {
                    let (from, twin) = (from.display(), twin.display());
                    messages.warning(format!("{from} has the same swarm as {twin} and is served by it"));
                    continue;
                }
                first.extend(manifest.swarm_hashes().into_iter().map(|hash| (hash, from.clone())));
                read.push((from.clone(), Arc::new(manifest), path));
            }
        }
    }
    Ok(read)
}

/// Serves until stopped, or until nothing is left to serve. Returns the manifests that ended before.
async fn serve(served: &mut Vec<Served>, work: &Doing, messages: &MessageSender<'_>) -> Vec<Ended> {
    let mut ended = Vec::new();
    while !served.is_empty() {
        tokio::select! {
            () = work.stop.wait() => break,
            () = tokio::time::sleep(LOOK) => {}
        }
        let mut all =
            Progress { stage: Stage::Seed, traffic: Some(Traffic::default()), ..Progress::default() };
        for mut one in std::mem::take(served) {
            let mut gone = false;
            while let Some(notice) = one.running.notice_now() {
                gone |= heard(&mut one.running, notice, &mut one.changed, messages).await;
            }
            one.running.report_finder_errors(messages);
            if let Some(now) = one.running.look(Stage::Seed) {
                add(&mut all, &one, now);
            }
            if gone {
                let from = one.from.display();
                messages.warning(format!("{from} is no longer served: none of its data is as published"));
                ended.push(end(one).await);
            } else {
                served.push(one);
            }
        }
        work.progress(all);
    }
    ended
}

/// Adds the state of one to the state of all.
fn add(all: &mut Progress, one: &Served, now: Progress) {
    if now.stage == Stage::Check {
        all.stage = now.stage;
    }
    all.bytes += now.bytes;
    all.total += now.total;
    all.pieces += now.pieces;
    all.pieces_total += now.pieces_total;
    let of = now.traffic.unwrap_or_default();
    all.swarms.push(OneSwarm {
        manifest: one.from.clone(),
        name: plain(&one.running.manifest.name()),
        stage: now.stage,
        bytes: now.bytes,
        total: now.total,
        peers: of.peers,
        received: of.received,
        sent: of.sent,
    });
    if let Some(sum) = &mut all.traffic {
        sum.peers += of.peers;
        sum.received += of.received;
        sum.sent += of.sent;
        sum.connected.extend(of.connected);
    }
}

async fn end(served: Served) -> Ended {
    let Served { from, running, changed } = served;
    let (damaged, name) = (running.damaged(), plain(&running.manifest.name()));
    Ended { from, name, damaged, changed, summary: running.stop().await }
}

/// The result of each, and the sum; an error if any failed.
fn outcome(ended: Vec<Ended>, Failed(mut failed): Failed, work: &Doing) -> Result<ManyDone, Error> {
    let mut all = Many::default();
    for Ended { from, name, damaged, changed, summary } in ended {
        all.damaged_pieces += damaged;
        let mut totals = summary.as_ref().ok().map(totals);
        if let Some(of) = &mut totals {
            all.bytes += of.bytes;
            all.total += of.total;
            all.pieces += u64::from(of.pieces);
            all.pieces_total += u64::from(of.pieces_total);
            all.received += of.received;
            all.sent += of.sent;
            all.duplicate += of.duplicate;
            all.corrupt += of.corrupt;
            // The process's: the same for all.
            all.cpu_seconds = of.cpu_seconds.take().or(all.cpu_seconds);
        }
        all.swarms.push(OneDone { totals, manifest: from.clone(), name, damaged_pieces: damaged });
        let why = summary.err().map(|error| error.in_full()).or(changed);
        failed.extend(why.map(|message| NotServed { manifest: from, message }));
    }
    all.failed.clone_from(&failed);
    let done = ManyDone { seconds: work.seconds(), all };
    let Some(NotServed { manifest, message }) = failed.first() else { return Ok(done) };
    let others = match failed.len() - 1 {
        0 => String::new(),
        n => format!(" ({} more failed)", count(n as u64, "manifest")),
    };
    let text = format!("{} was not served in full: {message}{others}", manifest.display());
    Err(Error::fault(text).with(PartialResult::SeedMany(Box::new(done))))
}
