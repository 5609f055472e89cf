//! From the command line to what is simulated: every choice that the user left open, every bound that
//! keeps a hostile line from taking the machine.

use std::io::Read;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use tidecast_metainfo::choose_piece_length;
use tidecast_sim::Time;
use tidecast_sim::bound::{Bound, bound};
use tidecast_sim::fault::{Fault, Spec};
use tidecast_sim::job::{Host, Job, SPREAD, Speech};
use tidecast_sim::network::Model;
use tidecast_sim::outcome::Outcome;
use tidecast_sim::planned::Knows;
use tidecast_sim::rivals::{Algorithm, Broadcast, Mpi, Rival, Way};
use tidecast_sim::storm::{Load, Server, Storm};
use tidecast_sim::topology::{NodeId, Topology};
use tidecast_swarm::plan::stripes_for;
use tidecast_swarm::{Limits, Policy};

use super::Args;
use crate::failure::Failure;
use crate::units::{Rate, Size};

/// Longest topology file, bytes.
const MAX_FILE: u64 = 16 << 20;
/// Pieces received, over all nodes, that are simulated in minutes. Beyond, one stands for several.
const SOON: u64 = 4_200_000;
/// The same, for what cannot grow: beyond, it would take hours.
const LATE: u64 = 200_000_000;
/// A stock client's block.
const STOCK_BLOCK: u64 = 16 << 10;
/// The largest block between Tidecast nodes.
const BLOCK: u64 = 1 << 20;
/// Messages are held up at random by this part of a block's time, and no more than so many nanoseconds:
/// fluid flows of equal rate would else march in step, which nodes of a real cluster do not.
const JITTER: (u64, u64) = (40, 5_000_000);
/// Connections of a node whose pieces stand for many, at least.
const CONNECTIONS: usize = 40;
/// A queue holds two frames at least.
const QUEUE: u64 = 3_028;
/// Open MPI's best segment on Ethernet.
const SEGMENT: u64 = 128 << 10;
/// Nodes that a tracker names in an answer.
const ACQUAINTANCES: u32 = 50;
/// Nanoseconds until a node acts on a message.
const THINK: u64 = 20_000;
const SECOND: u64 = 1_000_000_000;

/// One way to broadcast.
#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    /// The engine.
    Engine { policy: Policy, speech: Speech, plan: Option<Knows> },
    /// A published schedule.
    Rival { rival: Rival, shuffled: bool },
    /// A file server.
    Server(Server),
}

/// What is simulated.
#[derive(Debug)]
pub(super) struct Plan {
    /// What the user called the topology.
    pub(super) form: String,
    pub(super) topology: Topology,
    pub(super) model: Model,
    pub(super) size: u64,
    /// Bytes in a piece.
    pub(super) piece: u32,
    /// So many pieces are simulated as one: the data and all rates are divided by it, and times stay.
    pub(super) grain: u64,
    segment: u64,
    /// Bytes per second that a node can verify and write.
    write: u64,
    pub(super) seed: u64,
    pub(super) faults: Vec<Spec>,
    /// By name, in the order they were given.
    pub(super) ways: Vec<(String, How)>,
    pub(super) bound: Bound,
}

/// The topology of the command line: a form or a file, with the nodes and the origin that flags name.
///
/// # Errors
/// A usage error that says what would be right.
pub(super) fn topology(args: &Args) -> Result<Topology, Failure> {
    let named = args.topology.as_deref().unwrap_or_default();
    let path = Path::new(named);
    let is_file = path.exists() && !path.is_dir();
    let read = if is_file { Topology::from_text(&text(path)?) } else { Topology::parse(named) };
    let advice = if is_file || named.contains(':') { "" } else { ", and no file of that name" };
    let mut topology = read.map_err(|e| Failure::usage(anyhow!("topology: {e}{advice}")))?;
    if let Some(nodes) = args.nodes {
        topology = topology.with_nodes(nodes).map_err(|e| Failure::usage(anyhow!("--nodes: {e}")))?;
    }
    if let (Some(Rate(rate)), Some(origin)) = (args.origin_rate, topology.nodes.first_mut()) {
        origin.rate = usable(Rate(rate), "--origin-rate")?;
    }
    Ok(topology)
}

/// A rate within what topologies may have.
fn usable(rate: Rate, flag: &str) -> Result<u64, Failure> {
    match rate.0 {
        8_000..=1_000_000_000_000 => Ok(rate.0),
        _ => Err(Failure::usage(anyhow!("{flag}: {rate} is not between 8 kbit/s and 1 Tbit/s"))),
    }
}

fn text(path: &Path) -> Result<String, Failure> {
    let shown = path.display();
    let file = std::fs::File::open(path).with_context(|| format!("cannot read the topology {shown}"))?;
    let mut text = String::new();
    let read = file.take(MAX_FILE + 1).read_to_string(&mut text);
    let read = read.with_context(|| format!("cannot read the topology {shown}"))?;
    if read as u64 > MAX_FILE {
        return Err(Failure::usage(anyhow!(
            "{shown} is too long to be a topology (limit {})",
            Size(MAX_FILE)
        )));
    }
    Ok(text)
}

impl Plan {
    /// # Errors
    /// Usage errors that say what would be right.
    pub(super) fn new(args: &Args, topology: Topology) -> Result<Self, Failure> {
        let size = args.size.map_or(0, |s| s.0);
        let receivers = u64::from(topology.len()).saturating_sub(1);
        if size == 0 || receivers == 0 {
            return Err(Failure::usage(anyhow!("a broadcast needs a byte and two nodes at least")));
        }
        let piece = match args.piece_size {
            Some(asked) => piece(asked)?,
            None => choose_piece_length(size, std::iter::once(size)),
        };
        // Who names a piece size wants each piece.
        let grain = if args.piece_size.is_some() { 1 } else { soon_enough(piece.into(), size, receivers) };
        let ways = ways(&args.algorithm)?;
        let model = if args.exact { Model::exact() } else { Model::default() };
        let write = args.write_rate.map(|rate| usable(rate, "--write-rate")).transpose()?;
        let all: Vec<NodeId> = (1..topology.len()).map(NodeId).collect();
        let mut bound = bound(&topology, size, &all, model.payload, model.frame);
        if let Some(rate) = write {
            let time = u128::from(size) * 8 * u128::from(SECOND) / u128::from(rate);
            let time = Time(u64::try_from(time).unwrap_or(u64::MAX));
            if time > bound.time {
                bound = Bound { time, limit: format!("verifying and writing at {}", Rate(rate)) };
            }
        }
        let plan = Plan {
            form: args.topology.clone().unwrap_or_default(),
            topology,
            model,
            size,
            piece,
            grain,
            segment: args.segment.map_or(Ok(SEGMENT), segment)?,
            write: write.map_or(u64::MAX, |bits| bits / 8),
            seed: args.seed,
            faults: args.fault.clone(),
            ways,
            bound,
        };
        plan.check()?;
        Ok(plan)
    }

    /// Refuses what would not end, or not fit.
    fn check(&self) -> Result<(), Failure> {
        let refuse = |why: String| Err(Failure::usage(anyhow!("{why}")));
        for (name, how) in &self.ways {
            let How::Engine { speech, .. } = how else { continue };
            let pieces = (self.size / self.grain).div_ceil(self.piece.into());
            let (parts, advice) = match speech {
                Speech::Tidecast => (pieces, "larger pieces"),
                // However long its pieces are.
                _ => ((self.size / self.grain).div_ceil(STOCK_BLOCK), "a smaller size"),
            };
            let work = self.receivers().saturating_mul(parts);
            if work > LATE {
                let work = grouped(work);
                return refuse(format!(
                    "{name}: {work} blocks would take hours; take fewer nodes or {advice}"
                ));
            }
            let needs = self.memory(pieces);
            let there = available();
            if needs > there {
                let (needs, there) = (Size(needs), Size(there));
                return refuse(format!(
                    "{name} would take about {needs} of memory, and {there} is free; take fewer nodes or larger pieces"
                ));
            }
        }
        // Faults name nodes and switches: a wrong one is found before anything runs.
        self.job(Policy::TIDECAST, Speech::Tidecast, None).map(drop)
    }

    /// Bytes that a run of the engine takes, roughly: tables of each node and its connections, and a bit or
    /// so for each piece in each of them.
    fn memory(&self, pieces: u64) -> u64 {
        let known = self.receivers().min(ACQUAINTANCES.into());
        let node = 16_000 + 12 * pieces + known * (2_000 + pieces / 4);
        self.receivers().saturating_mul(node)
    }

    fn receivers(&self) -> u64 {
        u64::from(self.topology.len()).saturating_sub(1)
    }

    /// The job for an engine of this policy, on the scale of `grain`.
    ///
    /// # Errors
    /// A fault that the topology does not know.
    pub(super) fn job(&self, policy: Policy, speech: Speech, plan: Option<Knows>) -> Result<Job, Failure> {
        let (size, piece) = (self.size.div_ceil(self.grain), u64::from(self.piece));
        let mut lengths = vec![self.piece; (size / piece) as usize];
        lengths.extend(Some((size % piece) as u32).filter(|rest| *rest > 0));
        let mut job = Job {
            topology: self.topology.clone(),
            model: self.model,
            lengths,
            policy,
            limits: Limits::default(),
            speech,
            leaves: speech == Speech::Tidecast,
            host: Host { settle: self.write, think: THINK },
            plan: plan.map(|knows| (knows, self.stripes())),
            acquaintances: ACQUAINTANCES,
            joins: Vec::new(),
            faults: Vec::new(),
            jitter: self.jitter(),
            spread: if plan.is_some() { 0 } else { SPREAD },
            wants: Vec::new(),
            until: Time(0),
            seed: self.seed,
        };
        for fault in &self.faults {
            fault.apply(&mut job).map_err(|e| Failure::usage(anyhow!("--fault {fault}: {e}")))?;
        }
        let last =
            job.faults.iter().map(|f| f.at).chain(job.joins.iter().map(|j| j.0)).max().unwrap_or_default();
        // Who is not complete by then never will be.
        let patience = self.bound.time.0.saturating_mul(100).saturating_add(3600 * SECOND);
        job.until = Time(last.0.saturating_add(patience));
        self.scale_down(&mut job);
        Ok(job)
    }

    /// Trees of a plan.
    fn stripes(&self) -> u16 {
        stripes_for(self.topology.len().saturating_sub(1), self.size / self.grain, self.piece)
    }

    fn jitter(&self) -> u64 {
        if self.model == Model::exact() {
            return 0;
        }
        let rate = self.topology.nodes.iter().map(|node| node.rate).max().unwrap_or(1).max(1);
        let block = u64::from(self.piece).min(BLOCK) * 8 * self.grain;
        let time = u128::from(block) * u128::from(SECOND) / u128::from(rate);
        u64::try_from(time).unwrap_or(u64::MAX).checked_div(JITTER.0).unwrap_or(0).min(JITTER.1)
    }

    /// Divides all rates, and the queues with them.
    fn scale_down(&self, job: &mut Job) {
        if self.grain == 1 {
            return;
        }
        // Everybody who asks the origin at the start has a piece under way: that must take as long as in reality.
        job.limits.peers = (job.limits.peers / self.grain as usize).max(CONNECTIONS);
        let part = |rate: &mut u64| *rate = if *rate == 0 { 0 } else { (*rate / self.grain).max(1) };
        let queue = |bytes: &mut u64| *bytes = if *bytes == 0 { 0 } else { (*bytes / self.grain).max(QUEUE) };
        job.topology.nodes.iter_mut().for_each(|node| part(&mut node.rate));
        for link in &mut job.topology.links {
            part(&mut link.rate);
            queue(&mut link.queue);
        }
        queue(&mut job.model.queue);
        part(&mut job.host.settle);
        for timed in &mut job.faults {
            if let Fault::NodeRate { rate, .. } | Fault::LinkRate { rate, .. } = &mut timed.fault {
                part(rate);
            }
        }
    }

    /// Puts what came of [`Plan::job`] on its real scale again.
    pub(super) fn scale_up(&self, run: &mut Outcome) {
        if self.grain == 1 {
            return;
        }
        let times = |bytes: &mut u64| *bytes = bytes.saturating_mul(self.grain);
        run.size = self.size;
        [&mut run.origin_sent, &mut run.control, &mut run.duplicate].into_iter().for_each(times);
        for port in &mut run.ports {
            times(&mut port.bytes);
            times(&mut port.rate);
        }
        run.samples.iter_mut().flat_map(|(_, bytes)| bytes).for_each(times);
    }

    /// What a schedule needs.
    pub(super) fn broadcast(&self) -> Broadcast<'_> {
        Broadcast {
            topology: &self.topology,
            model: self.model,
            size: self.size,
            segment: self.segment,
            mpi: if self.model == Model::exact() { Mpi::EXACT } else { Mpi::default() },
            seed: self.seed,
            until: Time(u64::MAX),
        }
    }

    /// What a start-up storm needs.
    pub(super) fn storm(&self, server: Server) -> Storm<'_> {
        let (topology, model, load) = (&self.topology, self.model, Load::libraries(self.size));
        Storm { topology, model, server, load, until: Time(u64::MAX) }
    }

    /// What the user should know before the run: where a choice of ours differs from the real program.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let has = |engine: bool| self.ways.iter().any(|(_, how)| matches!(how, How::Engine { .. }) == engine);
        if self.grain > 1 && has(true) {
            notes.push(format!(
                "each simulated piece stands for {}, so that it takes minutes, not hours (--piece-size {} simulates each)",
                self.grain,
                Size(self.piece.into())
            ));
        }
        if !self.faults.is_empty() && has(false) {
            notes.push(
                "faults strike Tidecast and BitTorrent only: other ways have no answer to them".to_owned(),
            );
        }
        notes
    }

    /// `100 GiB to 3,999 nodes`.
    pub(super) fn title(&self) -> String {
        let plural = if self.receivers() == 1 { "node" } else { "nodes" };
        format!("{} to {} {plural}", Size(self.size), grouped(self.receivers()))
    }

    /// What else decides the run, on a line.
    pub(super) fn subtitle(&self) -> String {
        let origin = self.topology.nodes.first().map_or(0, |node| node.rate);
        let mut parts = vec![self.form.clone(), format!("origin at {}", Rate(origin))];
        parts.push(format!("pieces of {}", Size(self.piece.into())));
        parts.push(format!("seed {}", self.seed));
        parts.extend(self.faults.iter().map(ToString::to_string));
        parts.join(", ")
    }
}

/// How many parts of `length` bytes must count as one, so that there are few enough to simulate soon; a
/// power of two.
fn soon_enough(length: u64, size: u64, receivers: u64) -> u64 {
    let parts = u128::from(size.div_ceil(length)) * u128::from(receivers);
    let times = parts.div_ceil(SOON.into()).next_power_of_two();
    // At least one part is left.
    u64::try_from(times).unwrap_or(u64::MAX).min((size / length).max(1))
}

fn piece(size: Size) -> Result<u32, Failure> {
    match u32::try_from(size.0) {
        Ok(bytes) if bytes.is_power_of_two() && (16 << 10..=1 << 30).contains(&bytes) => Ok(bytes),
        _ => Err(Failure::usage(anyhow!("--piece-size: {size} is no power of two from 16 KiB to 1 GiB"))),
    }
}

fn segment(size: Size) -> Result<u64, Failure> {
    match size.0 {
        1024..=0x4000_0000 => Ok(size.0),
        _ => Err(Failure::usage(anyhow!("--segment: {size} is not between 1 KiB and 1 GiB"))),
    }
}

/// Each name once, in order.
fn ways(names: &[String]) -> Result<Vec<(String, How)>, Failure> {
    let mut ways: Vec<(String, How)> = Vec::new();
    for name in names.iter().map(|name| name.trim()) {
        if ways.iter().any(|(known, _)| known == name) {
            continue;
        }
        let how = match Server::parse(name) {
            Some(server) => How::Server(server),
            None => match Algorithm::parse(name).map(|found| found.way) {
                Ok(Way::Tidecast(plan)) => {
                    How::Engine { policy: Policy::TIDECAST, speech: Speech::Tidecast, plan }
                }
                Ok(Way::Torrent(policy)) => {
                    How::Engine { policy, speech: Speech::Stock { fast: true }, plan: None }
                }
                Ok(Way::Rival { rival, shuffled }) => How::Rival { rival, shuffled },
                Err(unknown) => {
                    let servers = Server::NAMES.join(", ");
                    return Err(Failure::usage(anyhow!("--algorithm: {unknown}; file servers: {servers}")));
                }
            },
        };
        ways.push((name.to_owned(), how));
    }
    Ok(ways)
}

/// Bytes of memory that are free; 8 GiB where the system does not say.
fn available() -> u64 {
    let told = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = told.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.map_or(8 << 30, |kib| kib.saturating_mul(1024))
}

/// `3,999`.
pub(super) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn plan(line: &str) -> Result<Plan, Failure> {
        let cli = Cli::try_parse_from(["tidecast", "sim"].into_iter().chain(line.split(' '))).unwrap();
        let Command::Sim(args) = cli.command else { panic!("{line}") };
        Plan::new(&args, topology(&args)?)
    }

    fn tidecast(plan: &Plan) -> Job {
        plan.job(Policy::TIDECAST, Speech::Tidecast, None).unwrap()
    }

    #[test]
    fn what_is_small_is_simulated_as_it_is() {
        let plan = plan("single:1000@10gbit,origin=25gbit --size 1GiB").unwrap();
        let job = tidecast(&plan);
        assert_eq!((plan.grain, plan.piece, job.lengths.len()), (1, 256 << 10, 4096));
        assert_eq!(
            (job.topology.nodes[0].rate, job.topology.nodes[1].rate),
            (25_000_000_000, 10_000_000_000)
        );
        assert!(plan.notes().is_empty(), "{:?}", plan.notes());
    }

    #[test]
    fn what_is_large_keeps_its_times() {
        let plan =
            plan("bordeaux:3000,1000@100gbit --size 100GiB --fault slow:7=1gbit@1s --fault cut:s0-s1@2s")
                .unwrap();
        let job = tidecast(&plan);
        let total: u64 = job.lengths.iter().map(|&len| u64::from(len)).sum();
        assert!(plan.grain.is_power_of_two() && plan.grain > 1, "{}", plan.grain);
        assert_eq!(
            (total * plan.grain, job.topology.nodes[5].rate * plan.grain),
            (100 << 30, 100_000_000_000)
        );
        assert!(total / u64::from(plan.piece) * 3999 <= SOON);
        assert_eq!(job.topology.links[0].rate * plan.grain, plan.topology.links[0].rate);
        assert_eq!(job.faults[0].fault, Fault::NodeRate { node: NodeId(7), rate: 125_000_000 / plan.grain });
        assert_eq!(job.faults[1].fault, Fault::LinkRate { link: 0, rate: 0 }, "a cut stays a cut");
        assert!(plan.notes()[0].contains(&plan.grain.to_string()), "{:?}", plan.notes());
    }

    #[test]
    fn hostile_lines_are_refused() {
        for (line, said) in [
            ("single:4@1gbit --size 1000TiB --piece-size 16KiB", "larger pieces"),
            ("single:200000 --size 1TiB --piece-size 1MiB", "hours"),
            ("single:4000 --size 100GB --piece-size 1MiB --algorithm classic", "smaller size"),
            ("single:4 --size 1GB --segment 1", "--segment"),
            ("single:1 --size 1GB", "two nodes"),
            ("single:4 --size 1GB --fault crash:17", "17"),
            ("single:4 --size 1GB --algorithm ,", "no algorithm"),
            ("single:4 --size 1GB --nodes 0", "--nodes"),
        ] {
            let failure = plan(line).unwrap_err();
            assert_eq!(failure.code, crate::failure::Code::Usage, "{line}");
            assert!(failure.error.to_string().contains(said), "{line}: {}", failure.error);
        }
    }

    #[test]
    fn a_thousand_has_a_comma() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
