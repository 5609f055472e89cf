//! State shared by the threads of a receiver: the current run, the rule for starting another, counters,
//! events for listeners.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_channel::Sender;
use parking_lot::Mutex;
use tidecast_event::field::receive::Closed;

use super::counts::{Count, Counts};
use super::fec::Job;
use super::record::{ClosedStep, Recorder};
use super::run::{Run, Terms};
use super::slot::{Area, Part};
use super::socket::Backlog;
use super::{Event, Options, Policy, Progress};
use crate::control::Hello;
use crate::key::{ControlKey, Secret};
use crate::layout::{head, slab};
use crate::shm::{Name, Shared, now};

/// Sessions that were replaced, and may not come back.
const REMEMBERED: usize = 256;
/// If no sender has sent anything for this long, another may take over a plain stream.
const QUIET: u64 = 2_000_000_000;

/// Refusals that are reported within [`WHILE`] (ns), and remembered so as not to be reported again: a flood
/// of packets does not flood the log.
const TOLD: usize = 4;
const WHILE: u64 = 10_000_000_000;

/// The result of a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HelloResult {
    /// Its session is the present one.
    Present,
    /// From now on it is.
    New,
    /// It must return the challenge first.
    Unproven,
    /// It cannot be.
    Refused,
}

#[derive(Default)]
struct Current {
    run: Option<Arc<Run>>,
    runs: u64,
    /// Sessions that others have replaced.
    former: VecDeque<u64>,
    refusals: Refusals,
}

/// The reported refusals: each is reported once.
#[derive(Default)]
struct Refusals {
    told: VecDeque<String>,
    /// Since when they are counted, and how many were told since then.
    since: u64,
    count: usize,
    /// How many were kept back.
    untold: u64,
}

impl Refusals {
    /// The text to report of this one, if any.
    fn tell(&mut self, refusal: String, now: u64) -> Option<String> {
        if self.told.contains(&refusal) {
            return None;
        }
        if now.saturating_sub(self.since) > WHILE {
            (self.since, self.count) = (now, 0);
        }
        if self.count == TOLD {
            self.untold += 1;
            return None;
        }
        self.count += 1;
        self.told.truncate(TOLD - 1);
        self.told.push_front(refusal.clone());
        Some(match std::mem::take(&mut self.untold) {
            0 => refusal,
            untold => format!("{refusal}; {untold} earlier refusals were not reported"),
        })
    }
}

/// See the head of this file.
pub(super) struct Hub {
    pub(super) secret: Option<Secret>,
    pub(super) control: Option<ControlKey>,
    name: Name,
    policy: Policy,
    foreign: Option<crate::geometry::Shape>,
    current: Mutex<Current>,
    /// Rises with every run.
    pub(super) version: AtomicU64,
    pub(super) counts: Vec<Counts>,
    /// Of each stream.
    pub(super) backlogs: Vec<Backlog>,
    events: Sender<Event>,
    pub(super) unheard: Count,
    pub(super) kick: Sender<()>,
    pub(super) jobs: Sender<Job>,
    recorder: Option<Recorder>,
    pub(super) recorded: Count,
    pub(super) skipped: Count,
    /// Why the recording is not all that it should be.
    pub(super) unrecorded: Mutex<Option<String>>,
    pub(super) stop: AtomicBool,
}

impl Hub {
    pub(super) fn new(
        options: &Options,
        (name, backlogs): (Name, Vec<Backlog>),
        events: Sender<Event>,
        kick: Sender<()>,
        jobs: Sender<Job>,
        recorder: Option<Recorder>,
    ) -> Self {
        Self {
            secret: options.secret.clone(),
            control: options.secret.as_ref().map(Secret::control),
            name,
            policy: options.policy,
            foreign: options.foreign,
            current: Mutex::default(),
            version: AtomicU64::new(0),
            counts: (0..options.streams).map(|_| Counts::default()).collect(),
            backlogs,
            events,
            unheard: Count::default(),
            kick,
            jobs,
            recorder,
            recorded: Count::default(),
            skipped: Count::default(),
            unrecorded: Mutex::default(),
            stop: AtomicBool::new(false),
        }
    }

    /// The present run.
    pub(super) fn run(&self) -> Option<Arc<Run>> {
        self.current.lock().run.clone()
    }

    pub(super) fn is_foreign(&self) -> bool {
        self.foreign.is_some()
    }

    /// Sends an event to the listeners; a slow listener misses it, and never delays a stream.
    pub(super) fn report(&self, event: Event) {
        if self.events.try_send(event).is_err() {
            self.unheard.add(1);
        }
    }

    /// Has a step recorded, if the recorder is not too far behind.
    pub(super) fn record(&self, run: &Run, closed: &Closed, (volume, sequence): (usize, u64)) {
        let Some(recorder) = &self.recorder else { return };
        let slabs = run.ranks.iter().map(crate::geometry::Ranks::slab);
        let planes = slabs.fold((u32::MAX, 0), |(a, b), slab| (a.min(slab.begin), b.max(slab.end)));
        let take = ClosedStep {
            area: run.area.clone(),
            closed: closed.clone(),
            volume,
            sequence,
            shape: run.terms.shape,
            planes,
            title: run.title.clone(),
        };
        if !recorder.add(take) {
            self.skipped.add(1);
        }
    }

    /// Handles a hello on stream `index` of this receiver; `proven`: it has returned the challenge, or none
    /// is required.
    pub(super) fn hello(&self, hello: &Hello, index: usize, proven: bool) -> HelloResult {
        let mut current = self.current.lock();
        let terms = Terms::of(hello);
        if hello.stream as usize != hello.first as usize + index || hello.here as usize > self.counts.len() {
            // Without the stream's number: it is reported once for all streams.
            let refusal = format!(
                "refused {:?}: the sender uses {} streams and this receiver has {} (--streams), or the streams arrive at the wrong ports",
                hello.name,
                hello.here,
                self.counts.len()
            );
            return self.refuse(&mut current, refusal);
        }
        if let Some(run) = current.run.as_ref().filter(|run| run.session == hello.session) {
            if run.terms != terms {
                return HelloResult::Refused;
            }
            run.area.shared.set(head::RATE, hello.rate);
            return HelloResult::Present;
        }
        if current.former.contains(&hello.session) {
            return HelloResult::Refused;
        }
        if !proven {
            return HelloResult::Unproven;
        }
        // Without tags any host can send a hello: a sender with a running session is not replaced.
        let quiet = self.counts.iter().all(|counts| now().saturating_sub(counts.last.get()) > QUIET);
        let ended = current.run.as_ref().is_none_or(|run| run.farewell.load(Ordering::Relaxed) > 0);
        if self.control.is_none() && !quiet && !ended {
            return HelloResult::Refused;
        }
        match self.install(&mut current, terms, hello.session, hello.rate, &hello.name) {
            Ok(()) => HelloResult::New,
            Err(error) => self.refuse(&mut current, format!("refused {:?}: {error}", hello.name)),
        }
    }

    fn refuse(&self, current: &mut Current, complaint: String) -> HelloResult {
        if let Some(note) = current.refusals.tell(complaint, now()) {
            self.report(Event::Note(note));
        }
        HelloResult::Refused
    }

    /// Begins to receive the packets of a sender without hellos.
    pub(super) fn begin_foreign(&self) -> Result<(), super::Error> {
        let Some(shape) = self.foreign else { return Ok(()) };
        let terms = Terms::foreign(shape, self.counts.len() as u32);
        self.install(&mut self.current.lock(), terms, 0, 0, "")
    }

    /// A sender without hello that begins again with low batches, after a pause, is a new one.
    pub(super) fn begin_again(&self, run: &Run) {
        let mut current = self.current.lock();
        let present = current.run.as_ref().is_some_and(|present| present.id == run.id);
        // Its packets that came just now were all too old, so the last one that counted is that of a step.
        let quiet = run.quiet_since().is_some_and(|since| now().saturating_sub(since) > QUIET);
        if present && quiet {
            let done = self.install(&mut current, run.terms.clone(), 0, 0, "");
            if let Err(error) = done {
                self.report(Event::Note(error.to_string()));
            }
        }
    }

    fn install(
        &self,
        current: &mut Current,
        terms: Terms,
        session: u64,
        rate: u64,
        title: &str,
    ) -> Result<(), super::Error> {
        let slabs = terms.slabs()?;
        let mut kept = None;
        if let Some(old) = current.run.take() {
            old.retire(self);
            if old.session != session {
                current.former.truncate(REMEMBERED - 1);
                current.former.push_front(old.session);
            }
            if old.terms.shape == terms.shape && old.terms.slabs()? == slabs {
                kept = Some(old.area.clone());
            } else {
                old.area.shared.retire(true);
            }
        }
        let area = match kept {
            Some(area) => area,
            None => {
                let shared =
                    Shared::create(&self.name, terms.shape, &slabs, self.policy.volumes.count(), title)?;
                Arc::new(Area::new(shared, slabs.len()))
            }
        };
        area.shared.set_title(title);
        area.shared.set(head::RATE, rate);
        let file = area.shared.path().to_owned();
        current.runs += 1;
        let run = Run::new(current.runs, session, terms.clone(), (rate, title), area, self.policy)?;
        current.run = Some(Arc::new(run));
        current.refusals.told.clear();
        self.version.fetch_add(1, Ordering::Release);
        self.report(Event::Session {
            title: title.to_owned(),
            shape: terms.shape,
            streams: terms.streams,
            first: terms.first,
            here: terms.here,
            rate,
            file,
        });
        Ok(())
    }

    /// Writes the counters of one stream into its slab's header. `closed`: a step that is no longer open.
    pub(super) fn publish(&self, run: &Run, index: usize, closed: Option<&Part>) {
        let (Some(counts), Some(slot)) = (self.counts.get(index), run.slot(index)) else { return };
        let slot = slot.lock();
        if slot.run != run.id {
            return;
        }
        let newest = slot.parts.iter().max_by_key(|part| part.batch);
        let shared = &run.area.shared;
        let set = |offset, value| shared.set_slab(index, offset, value);
        if let Some(part) = newest.or(closed) {
            set(slab::BATCH, part.batch.into());
            set(slab::STEP, part.step);
            set(slab::EXPECTED, run.expected(index));
            set(slab::RECEIVED, part.received);
            set(slab::RECOVERED_NOW, part.recovered);
        }
        drop(slot);
        let total = counts.total();
        let totals = [
            total.packets,
            total.bytes,
            total.lost,
            total.recovered,
            total.duplicate,
            total.stale,
            total.rejected,
            total.reordered,
            total.complete,
            total.incomplete,
            counts.last.get(),
        ];
        totals.iter().enumerate().for_each(|(i, value)| set(slab::PACKETS + 8 * i, *value));
        set(slab::IS_OPEN, run.is_alive(counts.last.get()).into());
        if closed.is_none() {
            shared.set(head::LAST, counts.last.get());
        }
    }

    /// How far the newest step is.
    pub(super) fn progress(&self) -> Option<Progress> {
        let run = self.run()?;
        let mut progress =
            Progress { bytes: self.counts.iter().map(|c| c.bytes.get()).sum(), ..Progress::default() };
        for index in 0..run.ranks.len() {
            let Some(slot) = run.slot(index).map(Mutex::lock) else { continue };
            progress.units += u64::from(run.units.get(index).copied().unwrap_or_default());
            if let Some(part) = slot.parts.iter().max_by_key(|part| part.batch) {
                progress.filled += u64::from(part.filled);
                progress.step = progress.step.max(part.step);
            }
        }
        Some(progress)
    }

    /// Ends: there is no current run any longer, and the shared memory is removed. Open steps do not count as
    /// lost: the receiver ends, not the sender.
    pub(super) fn end(&self) {
        if let Some(run) = self.current.lock().run.take() {
            run.close_due(self, false);
            (0..run.ranks.len()).for_each(|index| run.area.shared.set_slab(index, slab::IS_OPEN, 0));
            run.area.shared.retire(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_is_told_in_a_few_lines() {
        let mut refusals = Refusals::default();
        let second = 1_000_000_000;
        let mut tell = |text: String, at: u64| refusals.tell(text, (100 + at) * second);
        assert_eq!(tell("a".into(), 0).as_deref(), Some("a"));
        assert_eq!(tell("a".into(), 60), None, "the same again");
        let told: Vec<_> = (0..100_000).filter_map(|n| tell(n.to_string(), 61 + n / 5000)).collect();
        // 20 s.
        assert_eq!(told.len(), 2 * TOLD, "{told:?}");
        assert!(told[TOLD].ends_with("; 54996 earlier refusals were not reported"), "{told:?}");
        assert!(refusals.told.len() <= TOLD);
    }
}
