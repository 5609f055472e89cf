//! From the command line to what is simulated: every choice that the user left open, every bound that
//! keeps a hostile line from taking the machine.

use std::io::Read;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use tidecast_metainfo::choose_piece_length;
use tidecast_sim::Time;
use tidecast_sim::bound::{Bound, bound, bound_with};
use tidecast_sim::fault::Spec;
use tidecast_sim::job::{Host, Job, Opens, SPREAD, Speech};
use tidecast_sim::network::Model;
use tidecast_sim::planned::{self, Knows};
use tidecast_sim::rivals::{Algorithm, Broadcast, Mpi, Rival, Way};
use tidecast_sim::storm::{Load, Server, Storm};
use tidecast_sim::topology::{NodeId, Topology};
use tidecast_swarm::plan::topology::{Form, MARK, Map};
use tidecast_swarm::{Limits, Policy};

use super::Args;
use crate::failure::Failure;
use crate::units::{Rate, Size};

/// Bits per second of a node's card where a file names hosts and no rates.
const CARD: u64 = 10_000_000_000;
/// Longest topology file, bytes.
const MAX_FILE: u64 = 16 << 20;
/// Blocks received, over all nodes, that are simulated in minutes. Of more a beginning is simulated.
const SOON: u64 = 16_000_000;
/// The block that relays of a plan pass on, where links are fast.
const PASSED: u64 = 256 << 10;
/// Pieces of each stripe in half of a beginning, at least, and pieces in all.
const BEGUN: (u64, u64) = (8, 64);
/// Pieces received, of what is simulated whole: beyond, it would take hours.
const LATE: u64 = 200_000_000;
/// No engine takes more.
const MOST_PIECES: u64 = 1 << 24;
/// A stock client's block.
const STOCK_BLOCK: u64 = 16 << 10;
/// The largest block between Tidecast nodes.
const BLOCK: u64 = 1 << 20;
/// Messages are held up at random by this part of a block's time, and no more than so many nanoseconds:
/// fluid flows of equal rate would else march in step, which nodes of a real cluster do not.
const JITTER: (u64, u64) = (40, 5_000_000);
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
    /// The engine behind a mount: every node opens the files that it would read from a file server.
    Mount { plan: Option<Knows> },
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
    /// All of it is simulated, however long that takes.
    whole: bool,
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
    let card = args.rate.map(|rate| usable(rate, "--rate")).transpose()?;
    let advice = if is_file || named.contains(':') { "" } else { ", and no file of that name" };
    let read = match is_file {
        true => of_file(&text(path)?, card).map_err(|e| e.context(path.display().to_string())),
        false => Topology::parse(named).map_err(|e| anyhow!("{e}{advice}")),
    };
    let mut topology = read.map_err(|e| Failure::usage(e.context("topology")))?;
    if let Some(rate) = card {
        topology.nodes.iter_mut().for_each(|node| node.rate = rate);
    }
    if let Some(nodes) = args.nodes {
        topology = topology.with_nodes(nodes).map_err(|e| Failure::usage(anyhow!("--nodes: {e}")))?;
    }
    if let (Some(Rate(rate)), Some(origin)) = (args.origin_rate, topology.nodes.first_mut()) {
        origin.rate = usable(Rate(rate), "--origin-rate")?;
    }
    Ok(topology)
}

/// A file of any form that a broadcast reads, too. Where nobody says how fast a node's card is, it has the usual rate.
fn of_file(text: &str, card: Option<u64>) -> anyhow::Result<Topology> {
    let text = text.trim_start_matches(MARK);
    match Form::of(text) {
        Form::Lab => Ok(Topology::from_text(text)?),
        _ => Ok(Topology::of_map(&Map::read(text)?, card.unwrap_or(CARD))?),
    }
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
        // Who names a piece size wants each piece, and faults strike at their time.
        let whole = args.piece_size.is_some() || !args.fault.is_empty();
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
        let mut plan = Plan {
            form: args.topology.clone().unwrap_or_default(),
            topology,
            model,
            size,
            piece,
            whole,
            segment: args.segment.map_or(Ok(SEGMENT), segment)?,
            write: write.map_or(u64::MAX, |bits| bits / 8),
            seed: args.seed,
            faults: args.fault.clone(),
            ways,
            bound,
        };
        plan.check()?;
        // Faults name nodes, switches and pieces: a wrong one is found before anything runs.
        let begun = plan.size.min(u64::from(plan.piece) * MOST_PIECES);
        let faults = plan.job(Policy::TIDECAST, Speech::Tidecast, None, begun)?.faults;
        let struck = bound_with(&plan.topology, &faults, size, &all, plan.model.payload, plan.model.frame);
        if struck.time > plan.bound.time {
            plan.bound = struck;
        }
        Ok(plan)
    }

    /// Refuses what would not end, or not fit.
    fn check(&self) -> Result<(), Failure> {
        let refuse = |why: String| Err(Failure::usage(anyhow!("{why}")));
        for (name, how) in &self.ways {
            let (speech, size) = match how {
                How::Engine { speech, .. } => (*speech, self.beginning(*speech).unwrap_or(self.size)),
                How::Mount { .. } => (Speech::Tidecast, self.size),
                _ => continue,
            };
            let pieces = size.div_ceil(self.piece.into());
            let (parts, advice) = match speech {
                Speech::Tidecast => (pieces, "larger pieces"),
                // However long its pieces are.
                _ => (size.div_ceil(STOCK_BLOCK), "a smaller size"),
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
        Ok(())
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

    /// Bytes of the beginning that stands for the whole, which would take hours: what comes after it goes on
    /// as its second half did. Not for BitTorrent, whose timers are longer than it.
    pub(super) fn beginning(&self, speech: Speech) -> Option<u64> {
        let (piece, stripes) = (u64::from(self.piece), u64::from(self.stripes(Knows::Topology)));
        let blocks = piece.div_ceil(PASSED) * self.receivers();
        let pieces = (SOON / blocks).max(2 * BEGUN.0 * stripes).max(BEGUN.1);
        // Each half has equally many of each stripe.
        let begun = pieces.div_ceil(2 * stripes) * 2 * stripes * piece;
        (speech == Speech::Tidecast && !self.whole && begun < self.size).then_some(begun)
    }

    /// The job of so many bytes for an engine of this policy.
    ///
    /// # Errors
    /// A fault that the topology does not know.
    pub(super) fn job(
        &self,
        policy: Policy,
        speech: Speech,
        plan: Option<Knows>,
        size: u64,
    ) -> Result<Job, Failure> {
        let piece = u64::from(self.piece);
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
            plan: plan.map(|knows| (knows, self.stripes(knows))),
            acquaintances: ACQUAINTANCES,
            joins: Vec::new(),
            faults: Vec::new(),
            jitter: self.jitter(),
            spread: if plan.is_some() { 0 } else { SPREAD },
            wants: Vec::new(),
            opens: None,
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
        Ok(job)
    }

    /// Trees of a plan.
    fn stripes(&self, knows: Knows) -> u16 {
        planned::stripes(&self.topology, knows, self.size, self.piece)
    }

    fn jitter(&self) -> u64 {
        if self.model == Model::exact() {
            return 0;
        }
        let rate = self.topology.nodes.iter().map(|node| node.rate).max().unwrap_or(1).max(1);
        let block = u64::from(self.piece).min(BLOCK) * 8;
        let time = u128::from(block) * u128::from(SECOND) / u128::from(rate);
        u64::try_from(time).unwrap_or(u64::MAX).checked_div(JITTER.0).unwrap_or(0).min(JITTER.1)
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

    /// The job of a mount whose files all nodes open: by a plan on demand, or each for itself.
    ///
    /// # Errors
    /// A fault that the topology does not know.
    pub(super) fn mount(&self, plan: Option<Knows>) -> Result<Job, Failure> {
        let policy = Policy { on_demand: plan.is_some(), ..Policy::TIDECAST };
        let mut job = self.job(policy, Speech::Tidecast, plan, self.size)?;
        let load = Load::libraries(self.size);
        let (mut files, piece) = (Vec::new(), u64::from(self.piece));
        job.lengths.clear();
        for file in 0..u64::from(load.files) {
            let upto = |file: u64| self.size * file / u64::from(load.files);
            let (size, first) = (upto(file + 1) - upto(file), job.lengths.len() as u32);
            job.lengths.extend(std::iter::repeat_n(self.piece, (size / piece) as usize));
            job.lengths.extend(Some((size % piece) as u32).filter(|rest| *rest > 0));
            files.push(first..job.lengths.len() as u32);
        }
        // By then all are connected.
        job.opens = Some(Opens { files, start: Time(SECOND), think: THINK });
        Ok(job)
    }

    /// What a start-up storm needs.
    pub(super) fn storm(&self, server: Server) -> Storm<'_> {
        let (topology, model, load) = (&self.topology, self.model, Load::libraries(self.size));
        Storm { topology, model, server, load, until: Time(u64::MAX) }
    }

    /// What the user should know before the run: where a choice of ours differs from the real program.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let ours = |how: &How| matches!(how, How::Engine { speech: Speech::Tidecast, .. });
        let ours = self.ways.iter().any(|(_, how)| ours(how));
        if let Some(begun) = self.beginning(Speech::Tidecast).filter(|_| ours) {
            notes.push(format!(
                "simulated are the first {} and half of that; the rest is taken to go on as between the two (--piece-size {} simulates all of it, in hours)",
                Size(begun),
                Size(self.piece.into())
            ));
        }
        let rivals = self.ways.iter().any(|(_, how)| !matches!(how, How::Engine { .. } | How::Mount { .. }));
        if !self.faults.is_empty() && rivals {
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
            None if name == "mount" => How::Mount { plan: Some(Knows::Topology) },
            None if name == "mount-pull" => How::Mount { plan: None },
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
        plan.job(Policy::TIDECAST, Speech::Tidecast, None, plan.size).unwrap()
    }

    #[test]
    fn what_is_small_is_simulated_as_it_is() {
        let plan = plan("single:1000@10gbit,origin=25gbit --size 1GiB").unwrap();
        let job = tidecast(&plan);
        assert_eq!(
            (plan.beginning(Speech::Tidecast), plan.piece, job.lengths.len()),
            (None, 256 << 10, 4096)
        );
        assert_eq!(
            (job.topology.nodes[0].rate, job.topology.nodes[1].rate),
            (25_000_000_000, 10_000_000_000)
        );
        assert!(plan.notes().is_empty(), "{:?}", plan.notes());
    }

    #[test]
    fn of_what_is_large_a_beginning_is_simulated() {
        let plan_of = |more: &str| plan(&format!("bordeaux:3000,1000@100gbit --size 100GiB{more}")).unwrap();
        let large = plan_of("");
        let begun = large.beginning(Speech::Tidecast).unwrap();
        assert!(
            begun % (2 * u64::from(large.stripes(Knows::Topology)) * u64::from(large.piece)) == 0
                && begun < 2 << 30,
            "{begun}"
        );
        assert_eq!(large.beginning(Speech::Stock { fast: true }), None, "its timers take longer");
        assert!(large.notes()[0].contains("the first"), "{:?}", large.notes());
        for whole in [" --fault slow:7=1gbit@1s", " --piece-size 4MiB"] {
            assert_eq!(plan_of(whole).beginning(Speech::Tidecast), None, "{whole}");
        }
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
            ("single:4 --size 1MiB --piece-size 256KiB --fault lost:3=4@1s", "no piece 4"),
            ("single:4 --size 1GB --algorithm ,", "no algorithm"),
            ("single:4 --size 1GB --nodes 0", "--nodes"),
        ] {
            let failure = plan(line).unwrap_err();
            assert_eq!(failure.code, crate::failure::Code::Usage, "{line}");
            assert!(failure.error.to_string().contains(said), "{line}: {}", failure.error);
        }
    }

    #[test]
    fn any_piece_may_be_lost() {
        let job = tidecast(&plan("single:4 --size 1MiB --piece-size 256KiB --fault lost:3=3@1s").unwrap());
        assert_eq!((job.lengths.len(), job.faults.len()), (4, 1));
    }

    #[test]
    fn a_thousand_has_a_comma() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
