//! Uses by running jobs: while one lasts, its cache is not evicted.
//!
//! A use is a file, made without waiting for the disk: it survives the death of this program, and after a power cut the
//! process that it stands for is gone as well. Only a use until a time is made durable.

use std::collections::BTreeMap;
use std::fs;

use serde::{Deserialize, Serialize};

use crate::CacheId;
use crate::Error;
use crate::layout::Layout;

/// What keeps a cache in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    /// A process runs.
    Process {
        /// Its number.
        pid: u32,
        /// When it started, in ticks since the machine did: numbers are given again.
        start: u64,
        /// Which run of the machine.
        boot: String,
    },
    /// It is before this time, seconds since 1970.
    Until(u64),
}

impl Use {
    /// The use by a process that runs now.
    #[must_use]
    pub fn process(pid: u32) -> Option<Self> {
        Some(Use::Process { pid, start: start_of(pid)?, boot: boot() })
    }

    /// Whether it lasts.
    #[must_use]
    pub fn lasts(&self, now: u64) -> bool {
        match self {
            Use::Process { pid, start, boot: of } => start_of(*pid) == Some(*start) && *of == boot(),
            Use::Until(end) => now < *end,
        }
    }
}

/// When a process started; `None` if there is none, or only what its parent has not collected yet.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, brackets too; behind the last one the fields are numbered from 3.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.map(|s| s.trim().to_owned()).unwrap_or_default()
}

/// Number of a use; never given twice while it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UseId {
    /// The cache.
    pub cache: CacheId,
    /// Which use of it.
    pub number: u64,
}

impl UseId {
    fn file(self) -> String {
        format!("{}-{:x}", self.cache, self.number)
    }

    fn parse(name: &str) -> Option<Self> {
        let (cache, number) = name.split_once('-')?;
        Some(UseId { cache: cache.parse().ok()?, number: u64::from_str_radix(number, 16).ok()? })
    }
}

/// All uses, by cache.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    all: BTreeMap<UseId, Use>,
    next: u64,
}

impl Uses {
    /// What was in use when the last program ended, or was ended.
    pub(crate) fn load(layout: &Layout) -> Result<Self, Error> {
        let (mut all, dir) = (BTreeMap::new(), layout.uses());
        for name in layout.names(&dir)? {
            let path = dir.join(&name);
            let read = || serde_json::from_slice(&layout.read(&path).ok()?).ok();
            match name.to_str().and_then(UseId::parse).zip(read()) {
                Some((id, what)) => drop(all.insert(id, what)),
                // Cut short by a power cut: its process is gone as well.
                None => layout.remove_file(&path)?,
            }
        }
        let next = all.keys().map(|id: &UseId| id.number + 1).max().unwrap_or(0);
        Ok(Uses { all, next })
    }

    pub(crate) fn begin(&mut self, layout: &Layout, cache: CacheId, what: Use) -> Result<UseId, Error> {
        let id = UseId { cache, number: self.next };
        let path = layout.uses().join(id.file());
        match layout.write(&path, &serde_json::to_vec(&what)?) {
            // A full disk keeps no job from its data. A process is remembered only while this program runs, then.
            Err(e) if e.is_full() && matches!(what, Use::Process { .. }) => layout.remove_file(&path)?,
            other => other?,
        }
        if matches!(what, Use::Until(_)) {
            layout.sync(&path)?;
            layout.sync(&layout.uses())?;
        }
        self.next += 1;
        self.all.insert(id, what);
        Ok(id)
    }

    pub(crate) fn end(&mut self, layout: &Layout, id: UseId) -> Result<(), Error> {
        self.all.remove(&id);
        layout.remove_file(&layout.uses().join(id.file()))
    }

    /// Ends what is over.
    pub(crate) fn tidy(&mut self, layout: &Layout, now: u64) -> Result<(), Error> {
        let over: Vec<UseId> = self.all.iter().filter(|(_, u)| !u.lasts(now)).map(|(id, _)| *id).collect();
        over.into_iter().try_for_each(|id| self.end(layout, id))
    }

    /// Whether a cache is in use.
    pub(crate) fn any(&self, cache: CacheId, now: u64) -> bool {
        self.of(cache).any(|(_, u)| u.lasts(now))
    }

    /// Whether any cache is in use.
    pub(crate) fn any_at_all(&self, now: u64) -> bool {
        self.all.values().any(|u| u.lasts(now))
    }

    pub(crate) fn of(&self, cache: CacheId) -> impl Iterator<Item = (&UseId, &Use)> {
        let at = |number| UseId { cache, number };
        self.all.range(at(0)..=at(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_ends_with_its_process_though_the_number_is_given_again() {
        let me = Use::process(std::process::id()).unwrap();
        assert!(me.lasts(0));
        let Use::Process { pid, start, boot } = me else { panic!() };
        assert!(!Use::Process { pid, start: start + 1, boot: boot.clone() }.lasts(0));
        assert!(!Use::Process { pid, start, boot: "another".into() }.lasts(0));
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let job = Use::process(child.id()).unwrap();
        assert!(job.lasts(0));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!job.lasts(0));
    }

    #[test]
    fn uses_are_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open_root(dir.path().to_owned()).unwrap();
        layout.make().unwrap();
        let mut uses = Uses::default();
        let (a, b) = (CacheId(1), CacheId(2));
        let first = uses.begin(&layout, a, Use::Until(10)).unwrap();
        let second = uses.begin(&layout, a, Use::Until(20)).unwrap();
        assert_ne!(first, second);
        fs::write(layout.uses().join("0-0"), "{").unwrap();
        let mut uses = Uses::load(&layout).unwrap();
        assert!(uses.any(a, 15) && !uses.any(a, 20) && !uses.any(b, 0));
        uses.tidy(&layout, 15).unwrap();
        assert_eq!(uses.of(a).count(), 1);
        assert_eq!(layout.names(&layout.uses()).unwrap().len(), 1);
    }
}
