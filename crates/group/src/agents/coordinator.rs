//! The coordinator's end.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidecast_identity::{NodeKey, Tls};
use tidecast_net::local_addresses;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, interval};

use super::{AgentTicket, Down, Hello, Joined, Up};
use crate::broadcast::{Roster, unlisted};
use crate::channel::{self, Accepted};
use crate::control::ticket::{GroupTicket, Token};
use crate::error::{Error, system};
use crate::hosts::Host;
use crate::launch::run::{self, OutputTail};
use crate::launch::slurm::Allocation;
use crate::launch::{Here, Job, Launch, jobs};
use crate::reach;

/// Maximum number of concurrent launches.
const LAUNCHES: usize = 32;
/// Input that may wait, and orders that may wait for one agent.
const INBOX: usize = 4096;
const QUEUE: usize = 256;
/// How often deadlines are checked.
const TICK: Duration = Duration::from_millis(100);

/// On which hosts to start agents, and how.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The hosts.
    pub hosts: Vec<Host>,
    /// How agents are started; [`Launch::ByCaller`] is not supported.
    pub launch: Launch,
    /// Tidecast's program on the hosts.
    pub program: PathBuf,
    /// The time from its launch in which an agent must connect.
    pub patience: Duration,
}

/// Input of the coordinator; `place` is the number of the host in [`Agents::hosts`].
#[derive(Clone, Debug)]
pub enum Heard<R> {
    /// The agent of a host is connected.
    Joined {
        /// The host.
        place: usize,
        /// Facts about it.
        joined: Joined,
    },
    /// A report.
    Report {
        /// The host.
        place: usize,
        /// The report.
        report: R,
    },
    /// A host has failed; sent once for a host, and nothing after it.
    Failed {
        /// The host.
        place: usize,
        /// Why.
        why: String,
    },
}

type Sender<O> = mpsc::Sender<(Down<O>, Bytes)>;

enum Input<O, R> {
    Joined { number: u64, hello: Hello, to: Sender<O> },
    Report { number: u64, report: R },
    Lost { number: u64, why: String },
    LaunchEnded { places: Vec<usize>, why: String },
}

enum Stage<O> {
    Queued,
    Launched(Instant, OutputTail),
    Connected { number: u64, to: Sender<O>, words: OutputTail },
    Failed,
}

/// The agents of a list of hosts. Dropping it ends them.
pub struct Agents<O, R> {
    roster: Roster,
    hosts: Vec<Host>,
    stages: Vec<Stage<O>>,
    waiting: VecDeque<Job>,
    /// The places of each launch in progress.
    launching: Vec<Vec<usize>>,
    failed: VecDeque<(usize, String)>,
    patience: Duration,
    ticket: String,
    inbox: mpsc::Sender<Input<O, R>>,
    inputs: mpsc::Receiver<Input<O, R>>,
    tick: Interval,
    tasks: JoinSet<()>,
}

impl<O, R> Agents<O, R>
where
    O: DeserializeOwned + Serialize + Send + Sync + 'static,
    R: DeserializeOwned + Serialize + Send + Sync + 'static,
{
    /// Opens the channel and begins to start agents; [`Agents::next`] continues that.
    ///
    /// # Errors
    /// Sockets, keys, or the list of hosts for a launcher cannot be made.
    pub async fn start(options: AgentOptions) -> Result<Self, Error> {
        let key = NodeKey::generate()?;
        let local = local_addresses().map_err(system("list this host's networks"))?;
        let roster = Roster::find(&options.hosts, &options.launch, false).await?;
        let hosts = roster.hosts();
        let listener = reach::listener()?;
        let port = listener.local_addr().map_err(system("listen"))?.port();
        let listener = TcpListener::from_std(listener).map_err(system("listen"))?;
        let token = Token::random();
        let addresses = local.iter().map(|a| (a.ip, port).into()).collect();
        let ticket = AgentTicket(GroupTicket::new(key.id(), token.clone(), addresses, None)).to_string();
        let (inbox, inputs) = mpsc::channel(INBOX);
        let mut tasks = JoinSet::new();
        let (tls, to) = (Tls::new(&key)?, inbox.clone());
        let serve = move |number, stream, _, first| serve(number, stream, first, to.clone());
        tasks.spawn(super::channel(&token).answer(listener, tls, serve));
        let slurm = Allocation::find(|name| std::env::var(name).ok());
        let by_srun = matches!(options.launch, Launch::Auto | Launch::Srun);
        let outside = |(place, host): (usize, &Host)| {
            let job = slurm.as_ref().filter(|job| by_srun && job.group(&host.name).is_none())?;
            Some((place, job.outside(&host.name)))
        };
        let mut agents = Self {
            stages: hosts.iter().map(|_| Stage::Queued).collect(),
            waiting: VecDeque::new(),
            launching: Vec::new(),
            failed: hosts.iter().enumerate().filter_map(outside).collect(),
            patience: options.patience,
            ticket,
            inbox,
            inputs,
            tick: interval(TICK),
            tasks,
            roster,
            hosts,
        };
        for (place, _) in &agents.failed {
            if let Some(stage) = agents.stages.get_mut(*place) {
                *stage = Stage::Failed;
            }
        }
        let here = Here { places: agents.roster.here(), slurm };
        agents.waiting = jobs(&options.launch, &agents.hosts, &options.program, &here)?.into();
        agents.launch_more();
        Ok(agents)
    }

    /// The hosts, each once.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Other names of each host in the list.
    #[must_use]
    pub fn aliases(&self) -> &[Vec<String>] {
        &self.roster.aliases
    }

    /// Sends an order to a connected agent; one that does not read its orders fails.
    pub fn order(&mut self, place: usize, order: O) {
        let Some(Stage::Connected { to, .. }) = self.stages.get(place) else { return };
        if to.try_send((Down::Order(order), Bytes::new())).is_err() {
            self.fail(place, "its agent does not read orders".into());
        }
    }

    /// The next input. Cancel safe.
    pub async fn next(&mut self) -> Heard<R> {
        loop {
            if let Some((place, why)) = self.failed.pop_front() {
                return Heard::Failed { place, why };
            }
            self.launch_more();
            tokio::select! {
                Some(input) = self.inputs.recv() => if let Some(heard) = self.hear(input) {
                    return heard;
                },
                _ = self.tick.tick() => self.check_deadlines(),
            }
        }
    }

    fn hear(&mut self, input: Input<O, R>) -> Option<Heard<R>> {
        match input {
            Input::Joined { number, hello, to } => self.joined(number, hello, to),
            Input::Report { number, report } => {
                self.place_of(number).map(|place| Heard::Report { place, report })
            }
            Input::Lost { number, why } => {
                let place = self.place_of(number)?;
                let words = match self.stages.get(place) {
                    Some(Stage::Connected { words, .. }) => words.text(),
                    _ => String::new(),
                };
                let output = if words.is_empty() { words } else { format!("; its output: {words}") };
                self.fail(place, format!("lost the connection to its agent: {why}{output}"));
                None
            }
            Input::LaunchEnded { places, why } => {
                for place in places {
                    // A connected agent is watched through its connection instead.
                    if matches!(self.stages.get(place), Some(Stage::Queued | Stage::Launched(..))) {
                        self.fail(place, format!("cannot start its agent: {why}"));
                    }
                }
                None
            }
        }
    }

    fn joined(&mut self, number: u64, hello: Hello, to: Sender<O>) -> Option<Heard<R>> {
        let free = |place: usize| matches!(self.stages.get(place), Some(Stage::Queued | Stage::Launched(..)));
        let addresses = hello.addresses.iter().map(|a| a.ip).collect();
        let scheduled = hello.scheduled.as_deref();
        let place = match &hello.host {
            Some(name) => self.roster.named(name),
            None => self.roster.told(scheduled, &hello.hostname, addresses, hello.machine.as_deref(), free),
        };
        let refuse = |why| drop(to.try_send((Down::Stop(why), Bytes::new())));
        let Some(place) = place else {
            let shown: Vec<_> = hello.addresses.iter().filter(|a| !a.loopback).map(|a| a.ip).collect();
            refuse(unlisted(scheduled.unwrap_or(&hello.hostname), &shown));
            return None;
        };
        if !free(place) {
            refuse("this host already has an agent, or has failed".into());
            return None;
        }
        let stage = self.stages.get_mut(place)?;
        let words = match stage {
            Stage::Launched(_, words) => words.clone(),
            _ => OutputTail::default(),
        };
        *stage = Stage::Connected { number, to, words };
        let addresses = hello.addresses.into_iter().map(Into::into).collect();
        let joined = Joined { hostname: hello.hostname, machine: hello.machine, addresses };
        Some(Heard::Joined { place, joined })
    }

    fn place_of(&self, conn: u64) -> Option<usize> {
        self.stages.iter().position(|s| matches!(s, Stage::Connected { number, .. } if *number == conn))
    }

    /// Ends the agent of a host, and reports the host as failed, unless that is done already.
    pub fn fail(&mut self, place: usize, why: String) {
        match self.stages.get_mut(place) {
            None | Some(Stage::Failed) => return,
            Some(stage) => {
                if let Stage::Connected { to, .. } = stage {
                    let _ = to.try_send((Down::Stop(why.clone()), Bytes::new()));
                }
                *stage = Stage::Failed;
            }
        }
        self.failed.push_back((place, why));
    }

    fn check_deadlines(&mut self) {
        let (now, patience) = (Instant::now(), self.patience);
        for place in 0..self.stages.len() {
            if let Some(Stage::Launched(at, words)) = self.stages.get(place)
                && now - *at > patience
            {
                let output = words.text();
                let output = if output.is_empty() { output } else { format!(": {output}") };
                let seconds = patience.as_secs();
                self.fail(place, format!("its agent did not connect within {seconds} s{output}"));
            }
        }
    }

    /// Starts as many launches as are allowed at the same time.
    fn launch_more(&mut self) {
        let stages = &self.stages;
        let open = |place: &usize| matches!(stages.get(*place), Some(Stage::Launched(..)));
        self.launching.retain(|places| places.iter().any(open));
        while self.launching.len() < LAUNCHES
            && let Some(job) = self.waiting.pop_front()
        {
            let words = OutputTail::default();
            for place in &job.hosts {
                if let Some(stage) = self.stages.get_mut(*place).filter(|s| matches!(s, Stage::Queued)) {
                    *stage = Stage::Launched(Instant::now(), words.clone());
                }
            }
            self.launching.push(job.hosts.clone());
            let (ticket, inbox) = (self.ticket.clone(), self.inbox.clone());
            self.tasks.spawn(async move {
                let why = run::run(&job, &ticket, &words).await;
                let _ = inbox.send(Input::LaunchEnded { places: job.hosts, why }).await;
            });
        }
    }

    /// Tells all agents to end, and waits until their launchers have ended, for this time at most.
    pub async fn end(mut self, bound: Duration) {
        self.stages.clear();
        self.waiting.clear();
        // Without senders each connection ends; then the launchers end with their agents.
        let all_ended = async {
            // The task that accepts connections never ends by itself.
            while self.tasks.len() > 1 && self.tasks.join_next().await.is_some() {}
        };
        let _ = tokio::time::timeout(bound, all_ended).await;
    }
}

/// Carries messages both ways until the connection ends.
async fn serve<O, R>(number: u64, stream: Accepted, first: Up<R>, to: mpsc::Sender<Input<O, R>>)
where
    O: DeserializeOwned + Serialize + Send + Sync + 'static,
    R: DeserializeOwned + Serialize + Send + Sync + 'static,
{
    let Up::Hello(hello) = first else { return };
    let (sender, queue) = mpsc::channel::<(Down<O>, Bytes)>(QUEUE);
    if to.send(Input::Joined { number, hello, to: sender }).await.is_err() {
        return;
    }
    let hear = {
        let to = &to;
        move |message: Up<R>, _| async move {
            match message {
                Up::Report(report) => to.send(Input::Report { number, report }).await.is_ok(),
                Up::Alive => true,
                Up::Hello(_) => false,
            }
        }
    };
    let ended = channel::carry(stream, hear, queue, Some(Down::<O>::Alive)).await;
    let why = ended.err().map_or_else(|| "its agent ended".to_owned(), |e| e.to_string());
    let _ = to.send(Input::Lost { number, why }).await;
}
