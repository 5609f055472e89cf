//! Launching: the coordinator starts a bounded number of workers at a time, and each connected worker starts some of the
//! waiting ones; so the time grows with the logarithm of their number.
//!
//! A worker that cannot start another (it may have no key for `ssh`) returns the launch, and the coordinator starts it.
//! After some such failures no worker is asked any more.

use std::collections::BTreeSet;
use std::time::Duration;

use tidecast_event::bcast::{Late, News, Waiting};
use tokio::time::Instant;

use super::{Event, Group, Input, Options};
use crate::control::message::{LaunchRequest, ToWorker};
use crate::control::ticket::GroupTicket;
use crate::error::Error;
use crate::launch::run::{self, OutputTail};
use crate::launch::slurm::Allocation;
use crate::launch::{Here, Job, Launch, jobs};
use crate::node::{Node, Stage};

/// Maximum number of concurrent launches of the coordinator.
pub(super) const LAUNCHES: usize = 32;
/// Hosts that one worker is asked to start.
const SHARE: usize = 8;
/// Failed launches by workers after which workers are no longer asked.
const FAILURES: usize = 3;

/// The delay before the hosts that are waited for are reported; the pauses after that double.
pub(super) const WAITING: Duration = Duration::from_secs(4);

impl Group {
    /// Reports from time to time which hosts are not connected, since when, and their launchers.
    pub(super) fn tell_waiting(&mut self, now: Instant, tell: &mut (dyn FnMut(Event) + Send)) {
        if now < self.tell_waiting.0 {
            return;
        }
        let pause = self.tell_waiting.1 * 2;
        self.tell_waiting = (now + pause, pause);
        let launched = |node: &&Node| matches!(node.stage, Stage::Launched(at) if now - at >= WAITING);
        let late: Vec<&Node> = self.nodes.iter().filter(launched).collect();
        let Some(first) = late.first() else { return };
        let since = |node: &Node| match node.stage {
            Stage::Launched(at) => now - at,
            _ => Duration::ZERO,
        };
        let mut hosts = late.clone();
        hosts.sort_by_key(|node| std::cmp::Reverse(since(node)));
        let named = |node: &&Node| Late { name: node.host.name.clone(), seconds: since(node).as_secs_f64() };
        let launchers: BTreeSet<String> = late.iter().map(|node| node.launched_by.clone()).collect();
        tell(Event::News(News::Waiting(Waiting {
            hosts: hosts.iter().map(named).collect(),
            queued: self.nodes.iter().filter(|node| node.stage == Stage::Queued).count(),
            launchers: launchers.into_iter().filter(|by| !by.is_empty()).collect(),
            said: first.output.text(),
        })));
    }

    /// Queues the launches.
    pub(super) fn launch_all(
        &mut self,
        ticket: GroupTicket,
        tell: &mut (dyn FnMut(Event) + Send),
    ) -> Result<(), Error> {
        if self.options.launch == Launch::ByCaller {
            // The timeout of their workers starts now.
            let now = Instant::now();
            self.nodes.iter_mut().for_each(|node| node.stage = Stage::Launched(now));
            tell(Event::Ticket(Box::new(ticket)));
            return Ok(());
        }
        let slurm = Allocation::find(|name| std::env::var(name).ok());
        let Options { launch, hosts, program, .. } = &self.options;
        let by_srun = matches!(launch, Launch::Auto | Launch::Srun);
        for node in &mut self.nodes {
            if let Some(job) = slurm.as_ref().filter(|job| by_srun && job.group(&node.host.name).is_none()) {
                node.fail(job.outside(&node.host.name));
            }
        }
        let here = Here { places: self.roster.here(), slurm };
        self.waiting = jobs(launch, hosts, program, &here)?.into();
        self.ticket = ticket.to_string();
        self.launch_more();
        Ok(())
    }

    /// Starts as many launches as are allowed at the same time.
    pub(super) fn launch_more(&mut self) {
        while !self.waiting.is_empty()
            && let Ok(turn) = self.turns.clone().try_acquire_owned()
            && let Some(job) = self.waiting.pop_front()
        {
            let (output, mut turn) = (OutputTail::default(), Some(turn));
            for place in &job.hosts {
                if let Some(node) = self.nodes.get_mut(*place).filter(|n| n.stage == Stage::Queued) {
                    node.stage = Stage::Launched(Instant::now());
                    node.output = output.clone();
                    node.launched_by = job.argv.first().cloned().unwrap_or_default();
                    node.turn = turn.take();
                }
            }
            let (ticket, inbox) = (self.ticket.clone(), self.inbox.clone());
            self.launches.spawn(async move {
                let why = run::run(&job, &ticket, &output).await;
                let _ = inbox.send(Input::LaunchEnded { places: job.hosts, why }).await;
            });
        }
    }

    /// A worker has connected: it starts some of the waiting ones.
    pub(super) fn assign_launches(&mut self, place: usize) {
        if self.refusals >= FAILURES {
            return;
        }
        let mut requests = Vec::new();
        let launching = self.nodes.get(place).map(|node| node.host.name.clone()).unwrap_or_default();
        while requests.len() < SHARE
            && let Some(job) = self.waiting.pop_back_if(|job| job.anywhere)
        {
            let Some((target, node)) = job.hosts.first().and_then(|p| Some((*p, self.nodes.get_mut(*p)?)))
            else {
                continue;
            };
            requests.push(LaunchRequest { place: target as u32, argv: job.argv.clone() });
            node.stage = Stage::Launched(Instant::now());
            node.launched_by = format!("{} on {launching}", job.argv.first().map_or("", String::as_str));
            node.launcher = Some((place, job));
        }
        if let Some(node) = self.nodes.get_mut(place).filter(|_| !requests.is_empty()) {
            node.launches = true;
            node.send(ToWorker::Launch(requests));
        }
    }

    /// A worker could not start this host.
    pub(super) fn launch_returned(&mut self, by: usize, place: usize, why: &str) {
        tracing::info!(by, place, why, "a worker returned a launch");
        if self.requeue(by, place) {
            self.refusals += 1;
        }
    }

    /// A worker is lost: queues again the hosts that it was to start.
    pub(super) fn requeue_all(&mut self, by: usize) {
        for place in 0..self.nodes.len() {
            self.requeue(by, place);
        }
    }

    /// Queues a host again, if worker `by` was to start it and it is not connected.
    fn requeue(&mut self, by: usize, place: usize) -> bool {
        let coming = |node: &&mut Node| matches!(node.stage, Stage::Launched(_));
        let Some(node) = self.nodes.get_mut(place).filter(coming) else { return false };
        let Some((_, job)) = node.launcher.take_if(|(launcher, _)| *launcher == by) else { return false };
        node.stage = Stage::Queued;
        self.waiting.push_front(Job { anywhere: false, ..job });
        true
    }
}
