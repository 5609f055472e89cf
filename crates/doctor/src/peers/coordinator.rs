//! The coordinator: from a list of hosts to what was measured.
//!
//! First a quiet stage: reachability, times, losses and MTU of each pair. Then, if the user agrees, rates: each host takes
//! part in one transfer at a time; what is slow is measured again while no other pair sends. Last, if rates are measured, many
//! pairs send at once for moments, which shows hosts that share a link to the others.

mod rates;

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::time::Duration;

use tidecast_group::agents::{AgentOptions, Agents, Heard, Joined};
use tidecast_group::{Error, hosts::Host, launch::Launch};
use tokio::time::Instant;

use self::rates::MOMENTS;
use super::groups::{self, Times};
use super::message::{Member, Order, PROTOCOL, Probed, Report, Sent};
use super::pairs;

/// The time from its launch in which an agent must join, and from then on in which it must be ready.
const PATIENCE: Duration = Duration::from_secs(40);
/// Without news of any host for this time, those that are not ready fail.
const QUIET: Duration = Duration::from_secs(60);
/// Addresses that are kept of a host.
const ADDRESSES: usize = 16;
/// Round-trip times that are kept of a probe.
const TIMES: usize = 64;
/// Probes that one host takes part in at the same time: they send little.
const PROBES: usize = 3;
/// The time in which a result must come.
const RESULT: Duration = Duration::from_secs(25);
/// Rounds of probes between groups, and the most probes of each.
const OPEN_ROUNDS: usize = 6;
const OPEN_PROBES: usize = 64;
/// The time of a transfer, in round-trip times within bounds; and its bytes. Higher rates end earlier.
const SHORT: Duration = Duration::from_millis(500);
const LONG: Duration = Duration::from_secs(3);
const ROUND_TRIPS: u32 = 20;
const BYTES: u64 = 64 << 20;
/// Streams of the second transfer.
pub(super) const STREAMS: u32 = 4;
/// The wait for agents to end.
const END: Duration = Duration::from_secs(5);

/// What to check.
#[derive(Clone, Debug)]
pub struct Options {
    /// The hosts.
    pub hosts: Vec<Host>,
    /// How agents are started.
    pub launch: Launch,
    /// Tidecast's program on the hosts.
    pub program: std::path::PathBuf,
    /// Measure rates too, which fills links for moments.
    pub rates: bool,
}

/// News while it runs.
#[derive(Clone, Debug)]
pub enum Event {
    /// Several names of the list are one host.
    Aliases(String, Vec<String>),
    /// A stage begins, with so many pairs.
    Stage(&'static str, usize),
    /// A host failed.
    Failed(String, String),
    /// A path was probed.
    Probed(usize, usize),
}

/// What is known of a host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Its name in the list.
    pub(crate) name: String,
    /// Other names of it.
    pub(crate) aliases: Vec<String>,
    /// Why it failed.
    pub(crate) failed: Option<String>,
    /// Its own name.
    pub(crate) hostname: String,
    /// Version of Tidecast.
    pub(crate) version: String,
    /// Release of the kernel.
    pub(crate) kernel: String,
    ready: Option<(u16, u16)>,
    joined: Option<(Joined, Instant)>,
}

/// What was measured from one host to another.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Measured {
    /// The probe, or why there was no connection.
    pub(crate) probed: Option<Result<Probed, String>>,
    /// One stream.
    pub(crate) one: Option<Sent>,
    /// Several streams.
    pub(crate) several: Option<Sent>,
    /// The rates were measured while no other pair sent.
    pub(crate) alone: bool,
}

/// All that was measured.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// The hosts.
    pub(crate) hosts: Vec<Seen>,
    /// By path: from, to.
    pub(crate) paths: BTreeMap<(usize, usize), Measured>,
    /// By host, the number of its group.
    pub(crate) groups: Vec<usize>,
    /// Groups are found by rates too.
    pub(crate) by_rate: bool,
    /// Bytes received to measure rates.
    pub(crate) bytes: u64,
    /// Rates were measured.
    pub(crate) rates: bool,
}

/// The longest time of measuring rates between so many hosts, and the most bytes, for people.
#[must_use]
pub fn estimate(hosts: usize) -> (Duration, u64) {
    let rounds = pairs::rounds(hosts);
    let transfers = rounds.iter().map(Vec::len).sum::<usize>() as u64 * 4;
    let time = SHORT * 4 * u32::try_from(rounds.len()).unwrap_or(u32::MAX) + MOMENTS;
    (time, transfers * BYTES)
}

/// Starts agents on the hosts, measures, and ends them.
///
/// # Errors
/// The agents cannot be started at all, or it was stopped.
pub async fn run(
    options: Options,
    stop: impl Future<Output = ()>,
    tell: &mut (dyn FnMut(Event, &Results) + Send),
) -> Result<Results, Error> {
    tokio::select! {
        results = measure(options, tell) => results,
        () = stop => Err(Error::Stopped),
    }
}

async fn measure(options: Options, tell: &mut (dyn FnMut(Event, &Results) + Send)) -> Result<Results, Error> {
    let Options { hosts, launch, program, rates } = options;
    let agents = Agents::start(AgentOptions { hosts, launch, program, patience: PATIENCE }).await?;
    let mut run = Run {
        agents,
        results: Results { rates, ..Results::default() },
        tell,
        tasks: 0,
        open: BTreeMap::new(),
        busy: Vec::new(),
        met: BTreeMap::new(),
    };
    run.gather().await;
    run.probe_all().await;
    if rates {
        run.measure_rates().await;
        run.measure_places().await;
    }
    for place in run.alive() {
        run.agents.order(place, Order::Finish);
    }
    run.agents.end(END).await;
    Ok(run.results)
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Job {
    from: usize,
    to: usize,
    work: Work,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Probe { brief: bool },
    Send { streams: u32, alone: bool },
}

struct Run<'a> {
    agents: Agents<Order, Report>,
    results: Results,
    tell: &'a mut (dyn FnMut(Event, &Results) + Send),
    tasks: u32,
    open: BTreeMap<u32, (Job, Instant)>,
    busy: Vec<usize>,
    /// The rates of the moments of a round, by task.
    met: BTreeMap<u32, Vec<u64>>,
}

impl Run<'_> {
    fn alive(&self) -> Vec<usize> {
        let usable = |host: &Seen| host.failed.is_none() && host.ready.is_some();
        self.results.hosts.iter().enumerate().filter(|(_, h)| usable(h)).map(|(place, _)| place).collect()
    }

    fn is_alive(&self, place: usize) -> bool {
        self.results.hosts.get(place).is_some_and(|host| host.failed.is_none() && host.ready.is_some())
    }

    /// Waits until every agent is ready or has failed, and tells all of them of each other.
    async fn gather(&mut self) {
        let names = self.agents.hosts().iter().zip(self.agents.aliases());
        let seen = |(host, aliases): (&Host, &Vec<String>)| Seen {
            name: host.name.clone(),
            aliases: aliases.clone(),
            ..Seen::default()
        };
        self.results.hosts = names.map(seen).collect();
        self.busy = vec![0; self.results.hosts.len()];
        for host in self.results.hosts.iter().filter(|host| !host.aliases.is_empty()) {
            (self.tell)(Event::Aliases(host.name.clone(), host.aliases.clone()), &self.results);
        }
        (self.tell)(Event::Stage("start", self.results.hosts.len()), &self.results);
        while self.results.hosts.iter().any(|host| host.failed.is_none() && host.ready.is_none()) {
            let silent = Instant::now() + QUIET;
            let next = self.unready().map(|(_, until)| until).fold(silent, Instant::min);
            match tokio::time::timeout_at(next, self.agents.next()).await {
                Ok(heard) => self.hear(heard),
                Err(_) if next == silent => self.give_up_waiting(),
                Err(_) => {}
            }
            self.fail_unready();
        }
        let (alive, key) = (self.alive(), rand::random());
        for me in &alive {
            let members = alive.iter().filter_map(|to| self.member(*me, *to)).collect();
            self.agents.order(*me, Order::Begin { me: number(*me), key, members });
        }
    }

    /// The hosts that have joined and are not ready, each with the time until which it has to be.
    fn unready(&self) -> impl Iterator<Item = (usize, Instant)> {
        let until = |host: &Seen| match (&host.joined, host.ready, &host.failed) {
            (Some((_, joined)), None, None) => Some(*joined + PATIENCE),
            _ => None,
        };
        self.results.hosts.iter().enumerate().filter_map(move |(place, host)| Some((place, until(host)?)))
    }

    /// Fails those whose time is over, whatever else they report.
    fn fail_unready(&mut self) {
        let now = Instant::now();
        let late: Vec<usize> =
            self.unready().filter(|(_, until)| *until <= now).map(|(place, _)| place).collect();
        for place in late {
            self.agents.fail(place, format!("its agent was not ready within {} s", PATIENCE.as_secs()));
        }
    }

    /// Fails the hosts that are not ready.
    fn give_up_waiting(&mut self) {
        let why = format!("its agent was not ready, and no other host reported for {} s", QUIET.as_secs());
        for place in 0..self.results.hosts.len() {
            if !self.is_alive(place) {
                self.agents.fail(place, why.clone());
            }
        }
    }

    /// What one agent is told of another.
    fn member(&self, me: usize, to: usize) -> Option<Member> {
        let other = self.results.hosts.get(to)?;
        let ((tcp, udp), (joined, _)) = (other.ready?, other.joined.as_ref()?);
        let here = self.share_machine(me, to);
        let addresses = joined.addresses.iter().take(ADDRESSES).map(|a| (a.ip, tcp).into()).collect();
        (me != to).then_some(Member { number: number(to), addresses, udp, here })
    }

    /// Whether two hosts are one machine with one network.
    fn share_machine(&self, a: usize, b: usize) -> bool {
        let of = |place: usize| self.results.hosts.get(place)?.joined.as_ref()?.0.machine.as_ref();
        of(a).is_some() && of(a) == of(b)
    }

    fn hear(&mut self, heard: Heard<Report>) {
        match heard {
            Heard::Joined { place, joined } => {
                if let Some(host) = self.results.hosts.get_mut(place) {
                    host.hostname = bounded(joined.hostname.clone());
                    host.joined = Some((joined, Instant::now()));
                }
            }
            Heard::Failed { place, why } => self.failed(place, why),
            Heard::Report { place, report } => match report {
                Report::Ready { protocol, tcp, udp, version, kernel } => {
                    let Some(host) = self.results.hosts.get_mut(place) else { return };
                    (host.version, host.kernel) = (bounded(version), bounded(kernel));
                    match protocol {
                        PROTOCOL => host.ready = Some((tcp, udp)),
                        other => {
                            let why = format!(
                                "Tidecast {} there has version {other} of the probes, this program {PROTOCOL}; \
                                 install the same Tidecast on all hosts",
                                host.version
                            );
                            self.agents.fail(place, why);
                        }
                    }
                }
                Report::Probed { task, result } => {
                    if let Some(job) = self.close(task, place) {
                        self.probed(job, result.map_err(bounded));
                    }
                }
                Report::Sent { task, result } => {
                    if let Some(job) = self.close(task, place) {
                        self.sent(job, result);
                    }
                }
                Report::Met { task, rate } => {
                    self.met
                        .get_mut(&task)
                        .filter(|rates| rates.len() < 2)
                        .into_iter()
                        .for_each(|r| r.push(rate));
                }
            },
        }
    }

    fn failed(&mut self, place: usize, why: String) {
        let Some(host) = self.results.hosts.get_mut(place) else { return };
        host.failed = Some(why.clone());
        let name = host.name.clone();
        let gone = |(job, _): &(Job, Instant)| job.from == place || job.to == place;
        let tasks: Vec<u32> =
            self.open.iter().filter(|(_, open)| gone(open)).map(|(task, _)| *task).collect();
        for task in tasks {
            self.take(task);
        }
        (self.tell)(Event::Failed(name, why), &self.results);
    }

    /// Ends a task whose result has come from its own agent.
    fn close(&mut self, task: u32, place: usize) -> Option<Job> {
        self.open.get(&task).filter(|(job, _)| job.from == place)?;
        self.take(task)
    }

    fn take(&mut self, task: u32) -> Option<Job> {
        let (job, _) = self.open.remove(&task)?;
        for end in [job.from, job.to] {
            self.busy.get_mut(end).into_iter().for_each(|busy| *busy = busy.saturating_sub(1));
        }
        Some(job)
    }

    fn probed(&mut self, job: Job, result: Result<Probed, String>) {
        let Work::Probe { brief } = job.work else { return };
        let mut result = result;
        result.iter_mut().for_each(|probed| probed.rtts.truncate(TIMES));
        let path = self.results.paths.entry((job.from, job.to)).or_default();
        path.probed = Some(result);
        if !brief {
            (self.tell)(Event::Probed(job.from, job.to), &self.results);
        }
    }

    fn sent(&mut self, job: Job, result: Result<Sent, String>) {
        let Work::Send { streams, alone } = job.work else { return };
        let sent = match result {
            Ok(sent) => sent,
            // Small messages pass and a transfer does not: its rate is 0.
            Err(error) => {
                tracing::info!(?job, error, "a transfer failed");
                Sent::default()
            }
        };
        self.results.bytes = self.results.bytes.saturating_add(sent.bytes);
        let path = self.results.paths.entry((job.from, job.to)).or_default();
        let old = if streams == 1 { &mut path.one } else { &mut path.several };
        // A second measurement counts if it is better: other pairs or programs may have been in its way.
        if old.is_none_or(|old| sent.rate > old.rate) {
            *old = Some(sent);
            path.alone = alone;
        }
    }

    /// Carries out all jobs; no host takes part in more than so many at a time.
    async fn carry_out(&mut self, jobs: impl IntoIterator<Item = Job>, at_once: usize, all: usize) {
        let mut queue: VecDeque<Job> = jobs.into_iter().collect();
        while !queue.is_empty() || !self.open.is_empty() {
            self.start_some(&mut queue, at_once, all);
            let Some(next) = self.open.values().map(|(_, until)| *until).min() else { continue };
            if let Ok(heard) = tokio::time::timeout_at(next, self.agents.next()).await {
                self.hear(heard);
            }
            self.give_up();
        }
    }

    fn start_some(&mut self, queue: &mut VecDeque<Job>, at_once: usize, all: usize) {
        for _ in 0..queue.len() {
            let Some(job) = queue.pop_front() else { return };
            if !self.is_alive(job.from) || !self.is_alive(job.to) {
                continue;
            }
            let free = |place: usize| self.busy.get(place).is_some_and(|busy| *busy < at_once);
            match self.open.len() < all && free(job.from) && free(job.to) {
                true => self.start(job),
                false => queue.push_back(job),
            }
        }
    }

    fn start(&mut self, job: Job) {
        self.tasks += 1;
        let (task, to) = (self.tasks, number(job.to));
        let order = match job.work {
            Work::Probe { brief } => Order::Probe { task, to, brief },
            Work::Send { streams, .. } => {
                let millis = u32::try_from(self.time(job).as_millis()).unwrap_or(u32::MAX);
                Order::Send { task, to, streams, millis, bytes: BYTES }
            }
        };
        for end in [job.from, job.to] {
            self.busy.get_mut(end).into_iter().for_each(|busy| *busy += 1);
        }
        self.open.insert(task, (job, Instant::now() + RESULT));
        self.agents.order(job.from, order);
    }

    /// The time of a transfer: some round-trip times, so that TCP reaches its rate.
    fn time(&self, job: Job) -> Duration {
        let rtt = self.rtt(job.from, job.to).unwrap_or_default();
        (rtt * ROUND_TRIPS).clamp(SHORT, LONG)
    }

    /// The lowest round-trip time of a pair.
    fn rtt(&self, a: usize, b: usize) -> Option<Duration> {
        let of = |path| self.results.paths.get(&path).and_then(lowest);
        [of((a, b)), of((b, a))].into_iter().flatten().min()
    }

    fn give_up(&mut self) {
        let now = Instant::now();
        let late: Vec<u32> =
            self.open.iter().filter(|(_, (_, until))| *until <= now).map(|(t, _)| *t).collect();
        for task in late {
            let Some(job) = self.take(task) else { continue };
            let why = format!("no result within {} s", RESULT.as_secs());
            self.probed(job, Err(why.clone()));
            self.sent(job, Err(why));
        }
    }

    /// The pairs to measure, in the order of the rounds.
    fn schedule(&self) -> Vec<(usize, usize)> {
        let alive = self.alive();
        let at = |i: usize| alive.get(i).copied();
        let pairs = pairs::rounds(alive.len()).into_iter().flatten();
        pairs.filter_map(|(a, b)| Some((at(a)?, at(b)?))).collect()
    }

    /// The quiet stage.
    async fn probe_all(&mut self) {
        let pairs = self.schedule();
        (self.tell)(Event::Stage("paths", pairs.len()), &self.results);
        let both = |(a, b)| [(a, b), (b, a)];
        let job = |brief| move |(from, to)| Job { from, to, work: Work::Probe { brief } };
        self.carry_out(pairs.into_iter().flat_map(both).map(job(false)), PROBES, usize::MAX).await;
        self.group();
        for _ in 0..OPEN_ROUNDS {
            let times = self.times();
            let more: Vec<Job> =
                groups::open(&self.results.groups, &times, OPEN_PROBES).into_iter().map(job(true)).collect();
            if more.is_empty() || groups::gap(&times).is_none() {
                break;
            }
            self.carry_out(more, PROBES, usize::MAX).await;
            self.group();
        }
    }

    fn times(&self) -> Times {
        let one = |(path, measured): (&(usize, usize), &Measured)| Some((*path, lowest(measured)?));
        self.results.paths.iter().filter_map(one).collect()
    }

    fn group(&mut self) {
        self.results.groups = groups::groups(self.results.hosts.len(), &self.times());
    }
}

/// By host, the highest rate that it sends and that it receives.
pub(super) fn best_rates(paths: &BTreeMap<(usize, usize), Measured>) -> BTreeMap<usize, (u64, u64)> {
    let mut best: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
    for ((from, to), measured) in paths {
        let Some(rate) = top(measured) else { continue };
        let sends = best.entry(*from).or_default();
        sends.0 = sends.0.max(rate);
        let receives = best.entry(*to).or_default();
        receives.1 = receives.1.max(rate);
    }
    best
}

/// The higher rate of one stream and of several.
pub(super) fn top(measured: &Measured) -> Option<u64> {
    [measured.one, measured.several].into_iter().flatten().map(|sent| sent.rate).max()
}

/// The lowest round-trip time.
pub(super) fn lowest(measured: &Measured) -> Option<Duration> {
    let probed = measured.probed.as_ref()?.as_ref().ok()?;
    probed.rtts.iter().min().map(|nanos| Duration::from_nanos(*nanos))
}

fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

/// A text of an agent, of bounded length.
fn bounded(text: String) -> String {
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}
