//! Uses by running jobs: while one lasts, its cache is not evicted.
//!
//! A use is a file, made without waiting for the disk: it survives the end of this program, and after a power cut
//! the process is gone as well. Only a use until a given time is made durable.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::CacheId;
use crate::Error;
use crate::layout::Layout;
use crate::process::{Stat, boot};

/// A shell at a terminal holds a cache this long after the last command in its foreground, seconds.
const IDLE: u64 = 60;
/// ... and so long in all.
const TERMINAL: u64 = 86_400;

/// The reason why a cache is in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    /// A process runs.
    Process(Process),
    /// It is before this time, seconds since 1970.
    Until(u64),
}

/// A process that holds a cache. Programs before this one know only the first three fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it started, in ticks since the machine did: numbers are given again.
    pub start: u64,
    /// Which run of the machine.
    pub boot: String,
    /// Processes that it has forked and that are the same program (number and start): the use lasts as long as one of all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<(u32, u64)>,
    /// It is a shell at a terminal, which outlasts its commands: the use lasts while one runs in its foreground, and a little longer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub terminal: bool,
    /// Whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The job that it belongs to, as the user named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Since when, seconds since 1970; 0: not known.
    #[serde(default)]
    pub since: u64,
}

impl Use {
    /// The use by a process that runs now.
    #[must_use]
    pub fn process(pid: u32) -> Option<Self> {
        Process::running(pid).map(Use::Process)
    }

    /// Whether it is the same process.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Use::Process(a), Use::Process(b)) => (a.pid, a.start, &a.boot) == (b.pid, b.start, &b.boot),
            _ => false,
        }
    }

    /// Whether it lasts. `active`: when a shell's terminal was seen at work last.
    fn lasts(&self, active: u64, now: u64) -> bool {
        match self {
            Use::Process(process) => process.lasts(active, now),
            Use::Until(end) => now < *end,
        }
    }
}

impl Process {
    /// One that runs now.
    #[must_use]
    pub fn running(pid: u32) -> Option<Self> {
        Some(Self { pid, start: Stat::of(pid)?.start, boot: boot().into(), ..Self::default() })
    }

    fn lasts(&self, active: u64, now: u64) -> bool {
        if self.boot != boot() {
            return false;
        }
        if self.terminal {
            let in_time = self.since == 0 || now < self.since.saturating_add(TERMINAL);
            return in_time
                && self.shell().is_some_and(|shell| now < active.saturating_add(IDLE) || at_work(&shell));
        }
        let mut all = std::iter::once((self.pid, self.start)).chain(self.also.iter().copied());
        all.any(|(pid, start)| Stat::of(pid).is_some_and(|stat| stat.start == start))
    }

    fn shell(&self) -> Option<Stat> {
        Stat::of(self.pid).filter(|stat| stat.start == self.start)
    }
}

/// Whether a command runs in the foreground of a shell's terminal.
fn at_work(shell: &Stat) -> bool {
    u32::try_from(shell.foreground).is_ok_and(|group| group != 0 && group != shell.group)
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

/// A use, and when its shell's terminal was last active; `u64::MAX`: not checked yet.
#[derive(Debug)]
struct Held {
    what: Use,
    active: u64,
}

impl Held {
    fn lasts(&self, now: u64) -> bool {
        self.what.lasts(self.active, now)
    }

    fn look(&mut self, now: u64) {
        let Use::Process(Process { terminal: true, .. }) = &self.what else { return };
        let Use::Process(process) = &self.what else { return };
        if self.active == u64::MAX || process.shell().is_some_and(|shell| at_work(&shell)) {
            self.active = now;
        }
    }
}

/// All uses, by cache.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    all: BTreeMap<UseId, Held>,
    next: u64,
}

impl Uses {
    /// Uses of the previous run.
    pub(crate) fn load(layout: &Layout) -> Result<Self, Error> {
        let (mut all, dir) = (BTreeMap::new(), layout.uses());
        for name in layout.names(&dir)? {
            let path = dir.join(&name);
            let read = match layout.read(&path) {
                // While the disk fails the uses are unknown: used caches might be evicted.
                Err(error) if error.is_of_host() => return Err(error),
                read => read.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()),
            };
            match name.to_str().and_then(UseId::parse).zip(read) {
                Some((id, what)) => drop(all.insert(id, Held { what, active: u64::MAX })),
                // Truncated by a power cut: its process is gone as well.
                None => layout.remove_file(&path)?,
            }
        }
        let next = all.keys().map(|id: &UseId| id.number + 1).max().unwrap_or(0);
        Ok(Uses { all, next })
    }

    pub(crate) fn begin(
        &mut self,
        layout: &Layout,
        cache: CacheId,
        what: Use,
        now: u64,
    ) -> Result<UseId, Error> {
        let id = UseId { cache, number: self.next };
        let path = layout.uses().join(id.file());
        match layout.write(&path, &serde_json::to_vec(&what)?) {
            // A full disk keeps no job from its data. A process is remembered only while this program runs, then.
            Err(e) if e.is_full() && matches!(what, Use::Process(_)) => layout.remove_file(&path)?,
            other => other?,
        }
        let mut ended = Vec::new();
        if let Use::Until(end) = what {
            layout.sync(&path)?;
            layout.sync(&layout.uses())?;
            // One use until the latest time is enough: repeated requests add nothing.
            let earlier = |held: &Held| matches!(held.what, Use::Until(other) if other <= end);
            ended.extend(self.of(cache).filter(|(_, held)| earlier(held)).map(|(id, _)| *id));
        }
        self.next += 1;
        self.all.insert(id, Held { what, active: now });
        ended.into_iter().try_for_each(|id| self.end(layout, id))?;
        Ok(id)
    }

    pub(crate) fn end(&mut self, layout: &Layout, id: UseId) -> Result<(), Error> {
        self.all.remove(&id);
        layout.remove_file(&layout.uses().join(id.file()))
    }

    /// Ends expired uses, and checks which terminals are active.
    pub(crate) fn tidy(&mut self, layout: &Layout, now: u64) -> Result<(), Error> {
        self.all.values_mut().for_each(|held| held.look(now));
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

    /// Whether any cache is in use by something else than a shell at its terminal.
    pub(crate) fn any_job(&self, now: u64) -> bool {
        let is_shell = |held: &Held| matches!(held.what, Use::Process(Process { terminal: true, .. }));
        self.all.values().any(|held| !is_shell(held) && held.lasts(now))
    }

    /// The uses of a cache that last.
    pub(crate) fn lasting(&self, cache: CacheId, now: u64) -> Vec<(UseId, Use)> {
        let lasting = self.of(cache).filter(|(_, held)| held.lasts(now));
        lasting.map(|(id, held)| (*id, held.what.clone())).collect()
    }

    /// All uses that last.
    pub(crate) fn all_lasting(&self, now: u64) -> Vec<(UseId, Use)> {
        let lasting = self.all.iter().filter(|(_, held)| held.lasts(now));
        lasting.map(|(id, held)| (*id, held.what.clone())).collect()
    }

    fn of(&self, cache: CacheId) -> impl Iterator<Item = (&UseId, &Held)> {
        let at = |number| UseId { cache, number };
        self.all.range(at(0)..=at(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a use that was not checked yet lasts.
    fn lasts(process: &Process) -> bool {
        Use::Process(process.clone()).lasts(0, 0)
    }

    #[test]
    fn a_use_ends_with_its_process_though_the_number_is_given_again() {
        let me = Process::running(std::process::id()).unwrap();
        assert!(lasts(&me));
        let other = Process { start: me.start + 1, ..me.clone() };
        assert!(!lasts(&other));
        assert!(!lasts(&Process { boot: "another".into(), ..me.clone() }));
        assert!(lasts(&Process { also: vec![(me.pid, me.start)], ..other.clone() }), "its fork runs on");
        assert!(!lasts(&Process { also: vec![(me.pid, me.start + 1)], ..other }));
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let job = Process::running(child.id()).unwrap();
        assert!(lasts(&job));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!lasts(&job));
    }

    #[test]
    fn a_shell_at_a_terminal_holds_nothing_for_long() {
        let me = Process::running(std::process::id()).unwrap();
        let shell = Use::Process(Process { terminal: true, since: 100, ..me });
        // Without a terminal nothing is in its foreground.
        assert!(shell.lasts(100, 100 + IDLE - 1) && !shell.lasts(100, 100 + IDLE));
        assert!(!shell.lasts(100 + TERMINAL, 100 + TERMINAL));
        let at = |foreground| Stat { group: 7, foreground, ..Stat::default() };
        assert_eq!([-1, 0, 7, 8].map(|foreground| at_work(&at(foreground))), [false, false, false, true]);
    }

    #[test]
    fn what_older_programs_wrote_and_read_is_understood() {
        let old = r#"{"process":{"pid":7,"start":9,"boot":"b"}}"#;
        let process = Process { pid: 7, start: 9, boot: "b".into(), ..Process::default() };
        assert_eq!(serde_json::from_str::<Use>(old).unwrap(), Use::Process(process.clone()));
        let new =
            serde_json::to_value(Use::Process(Process { user: Some("alice".into()), ..process })).unwrap();
        assert_eq!((&new["process"]["pid"], &new["process"]["boot"]), (&7.into(), &"b".into()));
        assert_eq!(serde_json::to_string(&Use::Until(5)).unwrap(), r#"{"until":5}"#);
    }

    #[test]
    fn uses_are_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open_root(dir.path().to_owned()).unwrap();
        layout.make().unwrap();
        let mut uses = Uses::default();
        let (a, b) = (CacheId(1), CacheId(2));
        let first = uses.begin(&layout, a, Use::Until(20), 0).unwrap();
        let second = uses.begin(&layout, a, Use::Until(10), 0).unwrap();
        assert_ne!(first, second);
        std::fs::write(layout.uses().join("0-0"), "{").unwrap();
        let mut uses = Uses::load(&layout).unwrap();
        assert!(uses.any(a, 15) && !uses.any(a, 20) && !uses.any(b, 0));
        assert!(uses.any_job(15) && uses.lasting(a, 15).len() == 1 && uses.all_lasting(5).len() == 2);
        uses.tidy(&layout, 15).unwrap();
        assert_eq!(uses.of(a).count(), 1);
        // A later time replaces the earlier one.
        uses.begin(&layout, a, Use::Until(30), 15).unwrap();
        assert_eq!(layout.names(&layout.uses()).unwrap().len(), 1);
    }
}
