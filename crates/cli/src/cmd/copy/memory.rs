//! `--to-memory`: the receiving end is another program, which is told of files by lines on standard output and gives them back by lines
//! on standard input.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use rand::Rng as _;
use serde_json::{Map, Value, json};
use tidecast_mover::back::Monitor;
use tidecast_mover::entry::{Entry, Kind};
use tidecast_mover::sink::{Arrived, Memory};

use super::session::{self, Ended, Job, LOOK};
use super::tell;
use crate::cmd::Context;
use crate::failure::{Code, Failure};
use crate::report::{Reporter, object};
use crate::stop::{Stop, block_on};
use crate::units::Size;

/// Where shared memory is.
const SHM: &str = "/dev/shm";
const PREFIX: &str = "tidecast-copy-";
/// Its holder lives while it is locked.
const LOCK: &str = "lock";
/// The most that is taken unless the user says how much, and the share of what is free.
const BUDGET: u64 = 1 << 30;
const SHARE: u64 = 4;
/// Events that wait for the consumer to read them.
const WAITING: usize = 1024;

/// How much memory may be taken: `auto` or a size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget(Option<Size>);

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" { Ok(Self(None)) } else { text.parse().map(|size| Self(Some(size))) }
    }
}

impl Budget {
    fn bytes(self) -> anyhow::Result<u64> {
        if let Some(size) = self.0 {
            return Ok(size.0);
        }
        let room = rustix::fs::statvfs(SHM).with_context(|| format!("cannot look at {SHM}"))?;
        Ok(BUDGET.min(room.f_bavail * room.f_frsize / SHARE))
    }
}

/// The destination of such a copy.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) memory: Arc<Memory>,
    pub(super) monitor: Arc<Monitor>,
}

/// Copies, tells the consumer, and waits until it has given all back.
pub(super) fn run(
    mut job: Job<'_>,
    budget: Budget,
    blocks: bool,
    context: &Context<'_>,
    reporter: &mut Reporter,
) -> crate::failure::Outcome {
    let budget = budget.bytes()?;
    let dir = Dir::new(Path::new(SHM))?;
    let consumer = Arc::new(Consumer::default());
    let (say, heard) = sync_channel(WAITING);
    let memory = {
        let (consumer, say) = (consumer.clone(), say.clone());
        Memory::new(&dir.path, budget, blocks, move |arrived| consumer.tell(&say, Said::Arrived(arrived)))?
    };
    let shared = Shared { memory: Arc::new(memory), monitor: consumer.monitor.clone() };
    job.memory = Some(shared.clone());
    let start = json!({ "from": job.from.to_string(), "memory": dir.path, "budget": budget });
    reporter.started("copy", object(start));
    let (printer, place) = (consumer.clone(), dir.path.clone());
    std::thread::spawn(move || printer.print(&heard, &place));
    let (reader, memory) = (consumer.clone(), shared.memory.clone());
    std::thread::spawn(move || reader.listen(&memory));
    let ended = session::copy(&job, None, context, reporter);
    let gone = |failure: Failure| match consumer.why.get() {
        Some(why) if failure.code == Code::Cut => Failure::from(anyhow!("{why}: the rest was not copied")),
        _ => failure,
    };
    let Ended::Whole(outcome) = ended.map_err(gone)? else { return Err(Failure::cut("cut off")) };
    let (written, failed) = (&outcome.written, outcome.walked.failed + outcome.written.failed);
    let copied =
        json!({ "event": "copied", "files": written.files, "bytes": written.bytes, "failed": failed });
    consumer.tell(&say, Said::Line(copied));
    block_on(context.threads(), async {
        let stop = Stop::listen()?;
        while !(shared.memory.is_empty() || consumer.has_gone() || stop.is_asked()) {
            tokio::time::sleep(LOOK / 10).await;
        }
        Ok(())
    })?;
    tell::tell(&outcome, false, tell::Shown::default(), None, reporter)
}

/// What is said to the consumer.
enum Said {
    Arrived(Arrived),
    Line(Value),
}

/// The program that takes the files.
#[derive(Default)]
struct Consumer {
    monitor: Arc<Monitor>,
    /// Why there is nobody any more.
    why: OnceLock<&'static str>,
    quiet: AtomicBool,
}

impl Consumer {
    /// Says it, when the consumer has read enough of what was said before; nothing when the copy ends.
    fn tell(&self, say: &SyncSender<Said>, mut what: Said) {
        while !self.monitor.is_cancelled() && !self.quiet.load(SeqCst) {
            match say.try_send(what) {
                Err(TrySendError::Full(back)) => what = back,
                Ok(()) | Err(TrySendError::Disconnected(_)) => return,
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn print(&self, heard: &Receiver<Said>, place: &Path) {
        for said in heard {
            let line = match said {
                Said::Arrived(arrived) => event(&arrived, place),
                Said::Line(line) => line,
            };
            let mut out = io::stdout().lock();
            if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
                return self.went("the consumer has closed standard output");
            }
        }
    }

    /// What it gives back: `release NUMBER`, or with blocks `release NUMBER OFFSET`.
    fn listen(&self, memory: &Memory) {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            let numbers: Option<Vec<u64>> = line
                .strip_prefix("release ")
                .and_then(|rest| rest.split(' ').map(|n| n.parse().ok()).collect());
            let released = match numbers.as_deref() {
                Some([number]) => memory.release(*number, None),
                Some([number, offset]) => memory.release(*number, Some(*offset)),
                _ => Ok(false),
            };
            match released {
                Ok(true) => {}
                Ok(false) => tracing::warn!("standard input: {line:?} names nothing that is held"),
                Err(e) => tracing::warn!("{e}"),
            }
        }
        self.went("the consumer has closed standard input");
    }

    fn went(&self, why: &'static str) {
        let _ = self.why.set(why);
        self.quiet.store(true, SeqCst);
        self.monitor.cancel();
    }

    fn has_gone(&self) -> bool {
        self.why.get().is_some()
    }
}

fn event(arrived: &Arrived, place: &Path) -> Value {
    let at = |number: u64| place.join(number.to_string());
    let (name, entry, more) = match arrived {
        Arrived::Block { number, entry, offset, len } => {
            ("block", entry, json!({ "number": number, "at": at(*number), "offset": offset, "bytes": len }))
        }
        Arrived::File { number, entry } => {
            ("file", entry, json!({ "number": number, "at": at(*number), "bytes": entry.len() }))
        }
        Arrived::Other(entry) => match &entry.kind {
            Kind::Symlink { target } => ("symlink", entry, text("target", target)),
            Kind::HardLink { to } => ("link", entry, text("to", to)),
            Kind::Dir => ("directory", entry, Value::Null),
            Kind::Fifo | Kind::Socket | Kind::Device { .. } | Kind::File { .. } => {
                ("special", entry, Value::Null)
            }
        },
    };
    let mut fields = Map::new();
    fields.insert("event".into(), name.into());
    fields.extend(object(text("path", &entry.path)));
    if let Value::Object(more) = more {
        fields.extend(more);
    }
    if name != "block" {
        fields.extend(object(attributes(entry)));
    }
    Value::Object(fields)
}

fn attributes(entry: &Entry) -> Value {
    let mtime = entry.attributes.mtime;
    json!({ "mode": entry.attributes.mode, "mtime": mtime.seconds as f64 + f64::from(mtime.nanos) * 1e-9 })
}

/// A name; one that is not UTF-8 is there in hexadecimal digits too.
fn text(key: &str, name: &[u8]) -> Value {
    match std::str::from_utf8(name) {
        Ok(name) => json!({ key: name }),
        Err(_) => json!({ key: String::from_utf8_lossy(name), format!("{key}_hex"): hex(name) }),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A directory in shared memory, for as long as this lives.
struct Dir {
    path: PathBuf,
    _lock: File,
}

impl Dir {
    fn new(base: &Path) -> anyhow::Result<Self> {
        clear(base);
        // Another program that is starting may take a directory without a lock for one that was left.
        for _ in 0..16 {
            let path = base.join(format!("{PREFIX}{:016x}", rand::rng().next_u64()));
            let shown = || format!("cannot make {}", path.display());
            DirBuilder::new().mode(0o700).create(&path).with_context(shown)?;
            let lock = OpenOptions::new().write(true).create_new(true).open(path.join(LOCK));
            let lock = match lock {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                other => other.with_context(shown)?,
            };
            lock.try_lock().with_context(shown)?;
            if path.join(LOCK).exists() {
                return Ok(Self { path, _lock: lock });
            }
        }
        Err(anyhow!("cannot make a directory in {}: it is removed at once, again and again", base.display()))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.path) {
            tracing::warn!("cannot remove {}: {e}", self.path.display());
        }
    }
}

/// Removes what copies of this user have left that were killed.
fn clear(base: &Path) {
    let me = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let mine = entry.file_name().as_bytes().starts_with(PREFIX.as_bytes())
            && entry.metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == me);
        if !mine {
            continue;
        }
        let path = entry.path();
        match File::open(path.join(LOCK)) {
            Ok(lock) => match lock.try_lock() {
                Ok(()) => drop(fs::remove_dir_all(&path)),
                Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
            },
            // Only if it is empty.
            Err(_) => drop(fs::remove_dir(&path)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_the_dead_are_removed_and_those_of_the_living_are_not() {
        let base = tempfile::tempdir().unwrap();
        let living = Dir::new(base.path()).unwrap();
        let dead = base.path().join(format!("{PREFIX}dead"));
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join(LOCK), "").unwrap();
        fs::write(dead.join("7"), "x").unwrap();
        let other = base.path().join("other");
        fs::create_dir(&other).unwrap();
        let next = Dir::new(base.path()).unwrap();
        assert!(living.path.exists() && next.path.exists() && other.exists() && !dead.exists());
        let path = living.path.clone();
        drop(living);
        assert!(!path.exists());
    }

    #[test]
    fn names_that_are_no_text_are_told_too() {
        assert_eq!(text("path", b"a b"), json!({ "path": "a b" }));
        assert_eq!(text("path", b"a\xff"), json!({ "path": "a\u{fffd}", "path_hex": "61ff" }));
    }
}
