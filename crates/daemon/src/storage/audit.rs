//! The audit log: one JSON object a line, written before the response is sent. Two files: when the first is
//! full, it replaces the second. Of requests that change nothing each user has a share of it ([`super::audit_share`]).

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::audit_share::Shares;
use crate::model::types::Event;

/// A file is full at this many bytes.
const FULL: u64 = 64 << 20;
/// Bytes of a line besides its texts, about.
const LINE: u64 = 80;
/// Events returned at most.
const TOLD: usize = 10_000;

/// The log.
pub(crate) struct Audit {
    path: PathBuf,
    file: Mutex<(File, u64)>,
    shares: Mutex<Shares>,
}

impl Audit {
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let path = dir.join("audit.log");
        let file = open(&path)?;
        let len = file.metadata()?.len();
        Ok(Self { path, file: Mutex::new((file, len)), shares: Mutex::default() })
    }

    /// Logs each action: the user, the cache, the result.
    pub(crate) fn note(&self, who: &str, what: &str, cache: &str, outcome: &str) {
        let [who, what, cache, outcome] = [who, what, cache, outcome].map(str::to_owned);
        self.add(&Event { at: crate::clock::now(), who, what, cache, outcome });
    }

    /// The same for what any user can cause at any rate: a request that was refused, or that only reads.
    pub(crate) fn note_shared(&self, who: &str, what: &str, cache: &str, outcome: &str) {
        let bytes = LINE + (who.len() + what.len() + cache.len() + outcome.len()) as u64;
        // Not in the statement below, which would keep the lock for the writing.
        let taken = self.shares.lock().take(who, bytes, crate::clock::now());
        match taken {
            None => return,
            Some(0) => {}
            Some(skipped) => self.note(who, "request", "", &format!("{skipped} more were not logged")),
        }
        self.note(who, what, cache, outcome);
    }

    /// Writes an event. A failure is logged: an operator must still be able to remove caches when the disk is
    /// full.
    fn add(&self, event: &Event) {
        if let Err(error) = self.write(event) {
            tracing::error!(%error, path = %self.path.display(), ?event, "cannot write the audit log");
        }
    }

    fn write(&self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        let mut file = self.file.lock();
        if file.1 + line.len() as u64 > FULL {
            std::fs::rename(&self.path, self.older())?;
            *file = (open(&self.path)?, 0);
        }
        // One write: lines of two threads, or of a crash, do not mix.
        file.0.write_all(&line)?;
        file.1 += line.len() as u64;
        Ok(())
    }

    fn older(&self) -> PathBuf {
        self.path.with_extension("log.1")
    }

    /// The latest events of which `about` is true, oldest first. Reads up to 128 MiB.
    pub(crate) fn read(&self, about: impl Fn(&Event) -> bool) -> io::Result<Vec<Event>> {
        let mut found = std::collections::VecDeque::new();
        for path in [self.older(), self.path.clone()] {
            let file = match File::open(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            };
            for line in BufReader::new(file).split(b'\n') {
                // A line truncated by a power failure is skipped.
                let Ok(event) = serde_json::from_slice::<Event>(&line?) else { continue };
                if about(&event) {
                    if found.len() == TOLD {
                        found.pop_front();
                    }
                    found.push_back(event);
                }
            }
        }
        Ok(found.into())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn event(at: u64, cache: &str) -> Event {
        let [who, what, outcome] = ["alice", "get", "ok"].map(str::to_owned);
        Event { at, who, what, cache: cache.into(), outcome }
    }

    #[test]
    fn events_are_found_again_also_after_a_torn_line_and_a_full_file() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::open(dir.path()).unwrap();
        audit.add(&event(1, "a"));
        audit.add(&event(2, "b"));
        std::fs::write(dir.path().join("audit.log.1"), b"{\"at\": 7, \"who").unwrap();
        audit.file.lock().1 = FULL - 1;
        audit.add(&event(3, "a"));
        let audit = Audit::open(dir.path()).unwrap();
        let found = audit.read(|event| event.cache == "a").unwrap();
        assert_eq!(found, [event(1, "a"), event(3, "a")]);
    }
}
