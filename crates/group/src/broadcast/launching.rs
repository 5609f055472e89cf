//! Launching: the coordinator starts a bounded number of workers at a time, and each that has come starts some of those
//! that still wait; so the time grows with the logarithm of their number.
//!
//! A worker that cannot start another (it may have no key for `ssh`) hands it back, and the coordinator starts it. When
//! some have failed at it, nobody is asked any more.

use tokio::time::Instant;

use super::{Event, Group, Input, Options, begin::hostname};
use crate::control::message::{Errand, ToWorker};
use crate::control::ticket::GroupTicket;
use crate::launch::run::{self, LastWords};
use crate::launch::{Here, Job, Launch, jobs};
use crate::node::Stage;

/// Launches that the coordinator has under way at once.
pub(super) const LAUNCHES: usize = 32;
/// Hosts that one worker is asked to start.
const SHARE: usize = 8;
/// Launches by workers that may fail before they are asked no more.
const FAILURES: usize = 3;

impl Group {
    /// Lines up the launches.
    pub(super) fn launch_all(&mut self, ticket: GroupTicket, tell: &mut (dyn FnMut(Event) + Send)) {
        if self.options.launch == Launch::Themselves {
            // From now on they are awaited.
            let now = Instant::now();
            self.nodes.iter_mut().for_each(|node| node.stage = Stage::Launched(now));
            return tell(Event::Ticket(Box::new(ticket)));
        }
        let here = Here {
            hostname: hostname(),
            addresses: self.local.iter().map(|a| a.ip).collect(),
            in_slurm: std::env::var_os("SLURM_JOB_ID").is_some(),
        };
        let Options { launch, hosts, program, .. } = &self.options;
        self.waiting = jobs(launch, hosts, program, &here).into();
        self.ticket = ticket.to_string();
        self.launch_more();
    }

    /// Starts as many as may be under way.
    pub(super) fn launch_more(&mut self) {
        while !self.waiting.is_empty()
            && let Ok(turn) = self.turns.clone().try_acquire_owned()
            && let Some(job) = self.waiting.pop_front()
        {
            let (words, mut turn) = (LastWords::default(), Some(turn));
            for place in &job.hosts {
                if let Some(node) = self.nodes.get_mut(*place).filter(|n| n.stage == Stage::Queued) {
                    node.stage = Stage::Launched(Instant::now());
                    node.words = words.clone();
                    node.turn = turn.take();
                }
            }
            let (ticket, inbox) = (self.ticket.clone(), self.inbox.clone());
            self.launches.spawn(async move {
                let why = run::run(&job, &ticket, &words).await;
                let _ = inbox.send(Input::LaunchEnded { places: job.hosts, why }).await;
            });
        }
    }

    /// A worker has come: it starts some of those that still wait.
    pub(super) fn share_out(&mut self, place: usize) {
        if self.refusals >= FAILURES {
            return;
        }
        let mut errands = Vec::new();
        while errands.len() < SHARE
            && let Some(job) = self.waiting.pop_back_if(|job| job.anywhere)
        {
            let Some((target, node)) = job.hosts.first().and_then(|p| Some((*p, self.nodes.get_mut(*p)?)))
            else {
                continue;
            };
            errands.push(Errand { place: target as u32, argv: job.argv.clone() });
            node.stage = Stage::Launched(Instant::now());
            node.launcher = Some((place, job));
        }
        if let Some(node) = self.nodes.get_mut(place).filter(|_| !errands.is_empty()) {
            node.launches = true;
            node.say(ToWorker::Launch(errands));
        }
    }

    /// A worker could not start this host.
    pub(super) fn handed_back(&mut self, by: usize, place: usize, why: &str) {
        tracing::info!(by, place, why, "a launch is handed back");
        if self.take_back(by, place) {
            self.refusals += 1;
        }
    }

    /// A worker is lost: whom it was to start may never come.
    pub(super) fn take_back_all(&mut self, by: usize) {
        for place in 0..self.nodes.len() {
            self.take_back(by, place);
        }
    }

    /// Lines a host up again, if it was to be started by that one and has not come.
    fn take_back(&mut self, by: usize, place: usize) -> bool {
        let coming = |node: &&mut crate::node::Node| matches!(node.stage, Stage::Launched(_));
        let Some(node) = self.nodes.get_mut(place).filter(coming) else { return false };
        let Some((_, job)) = node.launcher.take_if(|(launcher, _)| *launcher == by) else { return false };
        node.stage = Stage::Queued;
        self.waiting.push_front(Job { anywhere: false, ..job });
        true
    }
}
