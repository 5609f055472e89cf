//! The coordinator's input, and its reactions.

use std::net::IpAddr;
use std::time::Duration;

use tidecast_identity::NodeId;
use tidecast_swarm::Complaint;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::roster::stranger;
use super::{Event, Group, Input};
use crate::control::message::{Hello, ToCoordinator, ToWorker};
use crate::control::server::{ConnId, Incoming};
use crate::error::Error;
use crate::network::ties;
use crate::node::{Node, Stage};
use crate::reach::{Reached, connect_back, try_rates};

impl Group {
    pub(super) fn handle_input(
        &mut self,
        input: Input,
        tell: &mut (dyn FnMut(Event) + Send),
    ) -> Result<(), Error> {
        match input {
            Input::Control(Incoming::Joined { conn, node, hello, to }) => self.joined(conn, node, hello, to),
            Input::Control(Incoming::Message { conn, message }) => self.handle_message(conn, message, tell),
            Input::Control(Incoming::Lost { conn, why }) => self.lost(conn, &why),
            Input::LaunchEnded { places, why } => {
                for place in places {
                    // A worker that has connected is watched through its connection instead.
                    if let Some(node) = self.nodes.get_mut(place).filter(|n| n.conn.is_none()) {
                        node.fail(format!("cannot start its worker: {why}"));
                    }
                }
            }
            Input::ProbeResult(met) => self.probe_result(None, met),
            Input::Reached { place, conn, reached } => self.reached(place, conn, reached),
            Input::Source(source) => {
                let mut source = (*source)?;
                source.warnings.drain(..).for_each(|text| tell(Event::Warning(text)));
                self.source = Some(source);
                self.open_origin()?;
            }
        }
        Ok(())
    }

    fn lost(&mut self, conn: ConnId, why: &str) {
        let Some(place) = self.conns.remove(&conn) else { return };
        let Some(node) = self.nodes.get_mut(place) else { return };
        node.conn = None;
        let output = node.output.text();
        let output = if output.is_empty() { output } else { format!("; its output: {output}") };
        node.fail(format!("lost the connection to its worker: {why}{output}"));
        self.requeue_all(place);
    }

    fn joined(&mut self, conn: ConnId, id: NodeId, hello: Hello, to: mpsc::Sender<ToWorker>) {
        let free = |n: &Node| n.conn.is_none() && matches!(n.stage, Stage::Queued | Stage::Launched(_));
        let place = self.roster.place(&hello, |place| self.nodes.get(place).is_some_and(free));
        let refuse = |why| drop(to.try_send(ToWorker::Stop(why)));
        let Some((place, node)) = place.and_then(|p| Some((p, self.nodes.get_mut(p)?))) else {
            return refuse(stranger(&hello));
        };
        if !free(node) {
            return refuse(format!("{} already has a worker, or has failed", node.host.name));
        }
        let addresses: Vec<_> = hello.addresses.iter().map(|a| a.ip).collect();
        node.turn = None;
        node.stage = Stage::Joined;
        node.conn = Some((conn, to));
        let port = hello.answers;
        node.who = Some((id, hello));
        self.conns.insert(conn, place);
        self.last_join = Some(Instant::now());
        self.assign_launches(place);
        let inbox = self.inbox.clone();
        self.tasks.spawn(async move {
            let reached = connect_back(addresses, port, id).await;
            let _ = inbox.send(Input::Reached { place, conn, reached }).await;
        });
    }

    /// A worker's addresses were tried. For the first workers the rate of the networks may have to be measured.
    fn reached(&mut self, place: usize, conn: ConnId, reached: Vec<Reached>) {
        let node = self.nodes.get_mut(place).filter(|n| n.stage == Stage::Joined);
        let Some(node) = node.filter(|n| n.conn.as_ref().is_some_and(|(id, _)| *id == conn)) else { return };
        node.reached = reached;
        let ways = self.addresses_to_try(place);
        let Some(node) = self.nodes.get_mut(place) else { return };
        let untried = !ways.is_empty() && node.reached.iter().all(|r| r.rate.is_none());
        let Some((id, hello)) = node.who.as_ref().filter(|_| untried) else {
            node.stage = Stage::Ready;
            return;
        };
        self.trials -= 1;
        let (known, port) = ((*id, hello.pass), hello.answers);
        let (mut reached, inbox) = (node.reached.clone(), self.inbox.clone());
        self.tasks.spawn(async move {
            try_rates(&mut reached, &ways, port, known).await;
            let _ = inbox.send(Input::Reached { place, conn, reached }).await;
        });
    }

    /// The addresses of a worker to which a short trial measures the rate; mostly none.
    fn addresses_to_try(&self, place: usize) -> Vec<IpAddr> {
        let Some(node) = self.nodes.get(place) else { return Vec::new() };
        if self.trials == 0 || self.started.is_some() {
            return Vec::new();
        }
        let network = self.options.network.is_some();
        let ties = if network { Vec::new() } else { ties(&self.local, &node.place()) };
        if ties.is_empty() { self.unshared_address(node).into_iter().collect() } else { ties }
    }

    fn handle_message(&mut self, conn: ConnId, message: ToCoordinator, tell: &mut (dyn FnMut(Event) + Send)) {
        let now = Instant::now();
        let started = self.started;
        let Some(node) = self.conns.get(&conn).and_then(|place| self.nodes.get_mut(*place)) else { return };
        match message {
            ToCoordinator::Hello(_) => node.fail("its worker broke the protocol".into()),
            ToCoordinator::Progress(progress) => node.advance(progress, now),
            ToCoordinator::Done(done) if node.stage == Stage::Running => {
                node.advance(done.progress, now);
                for text in &done.warnings {
                    tell(Event::Warning(format!("{}: {text}", node.host.name)));
                }
                node.stage = Stage::Done(done, started.map_or(Duration::ZERO, |at| now - at));
            }
            ToCoordinator::Done(_) => {}
            ToCoordinator::Complaint { member, why } => {
                let why = match why {
                    0 => Complaint::Gone,
                    1 => Complaint::Silent,
                    _ => Complaint::Slow,
                };
                if let (Some(planning), Some(from)) = (&mut self.planning, node.number) {
                    planning.complain(from, member, why);
                }
            }
            ToCoordinator::SourceUnavailable(why) => {
                let name = &node.host.name;
                tell(Event::Warning(format!("{name} cannot serve the source: {why}")));
                if let (Some(planning), Some(source_member)) = (&mut self.planning, node.source_member) {
                    planning.gone(source_member);
                }
            }
            ToCoordinator::Counted(progress) => {
                node.advance(progress, now);
                self.counting.iter_mut().for_each(|(_, left)| *left = left.saturating_sub(1));
            }
            ToCoordinator::Failed(why) => node.fail(why),
            ToCoordinator::ProbeResult(met) => {
                let by = self.conns.get(&conn).copied();
                self.probe_result(by, met);
            }
            ToCoordinator::LaunchEnded { place, why } => {
                if let Some(by) = self.conns.get(&conn).copied() {
                    self.launch_returned(by, place as usize, &why);
                }
            }
        }
    }
}
