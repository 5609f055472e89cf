//! From a user's request to a simulation: the default of every option, and the bounds that keep a hostile
//! request from exhausting the machine.

mod request;
mod run;
mod topology;

use tidecast_metainfo::{choose_piece_length, is_new_piece_length};
use tidecast_swarm::{Limits, Policy};
use tidecast_text::{Rate, Size, grouped};

use crate::Time;
use crate::baselines::{Algorithm, Baseline, Broadcast, Method, Mpi};
use crate::bound::{Bound, bound, bound_with};
use crate::fault::Spec;
use crate::job::{Host, Job, Opens, Protocols, SPREAD};
use crate::network::Model;
use crate::planned::{self, Knowledge};
use crate::startup_storm::{Load, Server, Storm};
use crate::topology::{NodeId, Topology};

pub use request::{PlanError, PlanRequest};
pub use run::RunError;
pub use topology::topology;

/// Blocks received, over all nodes, that are simulated in minutes. Of more a beginning is simulated.
const SOON: u64 = 16_000_000;
/// The block that relays of a plan pass on, where links are fast.
const PASSED: u64 = 256 << 10;
/// Pieces of each stripe in half of a beginning, at least, and pieces in all.
const BEGUN: (u64, u64) = (8, 64);
/// Pieces received in a complete simulation: beyond, it would take hours.
const LATE: u64 = 200_000_000;
/// No engine takes more.
const MOST_PIECES: u64 = 1 << 24;
/// A stock client's block.
const STOCK_BLOCK: u64 = 16 << 10;
/// The largest block between Tidecast nodes.
const BLOCK: u64 = 1 << 20;
/// Messages are held up at random by this part of a block's time, and no more than this many nanoseconds:
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
pub enum SimulatedMethod {
    /// The engine.
    Engine {
        /// How it is set.
        policy: Policy,
        /// The protocol that it speaks.
        protocols: Protocols,
        /// The planner's knowledge, if there is a planner.
        plan: Option<Knowledge>,
    },
    /// The engine behind a mount: every node opens the files that it would read from a file server.
    Mount {
        /// The planner's knowledge, if there is a planner.
        plan: Option<Knowledge>,
    },
    /// A published schedule.
    Baseline {
        /// Which.
        baseline: Baseline,
        /// Ranks ignore the switches.
        shuffled: bool,
    },
    /// A file server.
    Server(Server),
}

/// The plan of the simulation.
#[derive(Debug)]
pub struct Plan {
    /// The topology as the user wrote it.
    pub form: String,
    /// The nodes and wires.
    pub topology: Topology,
    /// The network.
    pub model: Model,
    /// Bytes that are broadcast.
    pub size: u64,
    /// Bytes in a piece.
    pub piece: u32,
    /// All of it is simulated, however long that takes.
    whole: bool,
    segment: u64,
    /// Bytes per second that a node can verify and write.
    write: u64,
    /// Of all randomness.
    pub seed: u64,
    /// The faults.
    pub faults: Vec<Spec>,
    /// By name, in the order they were given.
    pub ways: Vec<(String, SimulatedMethod)>,
    /// The lower bound of any broadcast.
    pub bound: Bound,
}

fn refused<T>(why: impl Into<String>) -> Result<T, PlanError> {
    Err(PlanError::Refused(why.into()))
}

impl Plan {
    /// The plan of this request on that topology, which [`topology`] reads.
    ///
    /// # Errors
    /// [`PlanError::Refused`], with the valid form.
    pub fn new(ask: &PlanRequest, topology: Topology) -> Result<Self, PlanError> {
        let size = ask.size;
        let receivers = u64::from(topology.len()).saturating_sub(1);
        if size == 0 || receivers == 0 {
            return refused("a broadcast needs at least one byte and two nodes");
        }
        let piece = match ask.piece_size {
            Some(asked) => piece(asked)?,
            None => choose_piece_length(size, std::iter::once(size)),
        };
        // A given piece size asks for every piece, and faults strike at their time.
        let whole = ask.piece_size.is_some() || !ask.faults.is_empty();
        let ways = ways(&ask.algorithms)?;
        let model = if ask.exact { Model::exact() } else { Model::default() };
        let write = ask.write_rate.map(|rate| topology::usable(rate, "--write-rate")).transpose()?;
        let all: Vec<NodeId> = (1..topology.len()).map(NodeId).collect();
        let mut bound = bound(&topology, size, &all, model.payload, model.frame);
        if let Some(rate) = write {
            let time = u128::from(size) * 8 * u128::from(SECOND) / u128::from(rate);
            let time = Time(u64::try_from(time).unwrap_or(u64::MAX));
            if time > bound.time {
                bound = Bound { time, limit: format!("verifying and writing at {}", Rate(rate)), ..bound };
            }
        }
        let mut plan = Plan {
            form: ask.topology.clone(),
            topology,
            model,
            size,
            piece,
            whole,
            segment: ask.segment.map_or(Ok(SEGMENT), segment)?,
            write: write.map_or(u64::MAX, |bits| bits / 8),
            seed: ask.seed,
            faults: ask.faults.clone(),
            ways,
            bound,
        };
        plan.check()?;
        // Faults name nodes, switches and pieces: a wrong one is found before anything runs.
        let begun = plan.size.min(u64::from(plan.piece) * MOST_PIECES);
        let faults = plan.job(Policy::TIDECAST, Protocols::Tidecast, None, begun)?.faults;
        let struck = bound_with(&plan.topology, &faults, size, &all, plan.model.payload, plan.model.frame);
        if struck.time > plan.bound.time {
            plan.bound = struck;
        }
        Ok(plan)
    }

    /// Rejects requests that would not end, or not fit into memory.
    fn check(&self) -> Result<(), PlanError> {
        for (name, how) in &self.ways {
            let (protocols, size) = match how {
                SimulatedMethod::Engine { protocols, .. } => {
                    (*protocols, self.beginning(*protocols).unwrap_or(self.size))
                }
                SimulatedMethod::Mount { .. } => (Protocols::Tidecast, self.size),
                _ => continue,
            };
            let pieces = size.div_ceil(self.piece.into());
            let (parts, advice) = match protocols {
                Protocols::Tidecast => (pieces, "larger pieces"),
                // However long its pieces are.
                _ => (size.div_ceil(STOCK_BLOCK), "a smaller size"),
            };
            let work = self.receivers().saturating_mul(parts);
            if work > LATE {
                let work = grouped(work);
                return refused(format!(
                    "{name}: {work} blocks would take hours; take fewer nodes or {advice}"
                ));
            }
            let needs = self.memory(pieces);
            let there = available();
            if needs > there {
                let (needs, there) = (Size(needs), Size(there));
                return refused(format!(
                    "{name} would need about {needs} of memory, but {there} is free; take fewer nodes or larger pieces"
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

    /// Bytes of the beginning that stands for the whole, which would take hours: the rest is assumed to
    /// continue as its second half did. Not for BitTorrent, whose timers are longer than it.
    #[must_use]
    pub fn beginning(&self, protocols: Protocols) -> Option<u64> {
        let (piece, stripes) = (u64::from(self.piece), u64::from(self.stripes(Knowledge::Topology)));
        let blocks = piece.div_ceil(PASSED) * self.receivers();
        let pieces = (SOON / blocks).max(2 * BEGUN.0 * stripes).max(BEGUN.1);
        // Each half has equally many of each stripe.
        let begun = pieces.div_ceil(2 * stripes) * 2 * stripes * piece;
        (protocols == Protocols::Tidecast && !self.whole && begun < self.size).then_some(begun)
    }

    /// The job of this many bytes for an engine of this policy.
    ///
    /// # Errors
    /// A fault that the topology does not know.
    pub fn job(
        &self,
        policy: Policy,
        protocols: Protocols,
        plan: Option<Knowledge>,
        size: u64,
    ) -> Result<Job, PlanError> {
        let piece = u64::from(self.piece);
        let mut lengths = vec![self.piece; (size / piece) as usize];
        lengths.extend(Some((size % piece) as u32).filter(|rest| *rest > 0));
        let mut job = Job {
            topology: self.topology.clone(),
            model: self.model,
            lengths,
            policy,
            limits: Limits::default(),
            protocols,
            leaves: protocols == Protocols::Tidecast,
            host: Host { settle: self.write, think: THINK },
            plan: plan.map(|knows| (knows, self.stripes(knows))),
            acquaintances: ACQUAINTANCES,
            joins: Vec::new(),
            faults: Vec::new(),
            jitter: self.jitter(),
            spread: if plan.is_some() { 0 } else { SPREAD },
            wants: Vec::new(),
            gathers: false,
            opens: None,
            until: Time(0),
            seed: self.seed,
        };
        for fault in &self.faults {
            fault.apply(&mut job).map_err(|e| PlanError::Refused(format!("--fault {fault}: {e}")))?;
        }
        let last =
            job.faults.iter().map(|f| f.at).chain(job.joins.iter().map(|j| j.0)).max().unwrap_or_default();
        // A node that is not complete by then never will be.
        let patience = self.bound.time.0.saturating_mul(100).saturating_add(3600 * SECOND);
        job.until = Time(last.0.saturating_add(patience));
        Ok(job)
    }

    /// Trees of a plan.
    fn stripes(&self, knows: Knowledge) -> u16 {
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

    /// The inputs of a schedule.
    #[must_use]
    pub fn broadcast(&self) -> Broadcast<'_> {
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
    pub fn mount(&self, plan: Option<Knowledge>) -> Result<Job, PlanError> {
        let policy = Policy { on_demand: plan.is_some(), ..Policy::TIDECAST };
        let mut job = self.job(policy, Protocols::Tidecast, plan, self.size)?;
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

    /// The inputs of a start-up storm.
    #[must_use]
    pub fn storm(&self, server: Server) -> Storm<'_> {
        let (topology, model, load) = (&self.topology, self.model, Load::libraries(self.size));
        Storm { topology, model, server, load, until: Time(u64::MAX) }
    }

    /// Notes for the user before the run: where a choice of ours differs from the real program.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let ours = |how: &SimulatedMethod| {
            matches!(how, SimulatedMethod::Engine { protocols: Protocols::Tidecast, .. })
        };
        let ours = self.ways.iter().any(|(_, how)| ours(how));
        if let Some(begun) = self.beginning(Protocols::Tidecast).filter(|_| ours) {
            notes.push(format!(
                "only the first {} and half of that are simulated, the rest is extrapolated from the two (--piece-size {} simulates everything, which takes hours)",
                Size(begun),
                Size(self.piece.into()).to_string().replace(' ', "")
            ));
        }
        let baselines = self
            .ways
            .iter()
            .any(|(_, how)| !matches!(how, SimulatedMethod::Engine { .. } | SimulatedMethod::Mount { .. }));
        if !self.faults.is_empty() && baselines {
            notes.push(
                "faults apply to Tidecast and BitTorrent only; the other algorithms do not handle them"
                    .to_owned(),
            );
        }
        notes
    }

    /// `100 GiB to 3,999 nodes`.
    #[must_use]
    pub fn title(&self) -> String {
        let plural = if self.receivers() == 1 { "node" } else { "nodes" };
        format!("{} to {} {plural}", Size(self.size), grouped(self.receivers()))
    }

    /// The other parameters of the run, on a line.
    #[must_use]
    pub fn subtitle(&self) -> String {
        let origin = self.topology.nodes.first().map_or(0, |node| node.rate);
        let mut parts = vec![self.form.clone(), format!("origin at {}", Rate(origin))];
        parts.push(format!("pieces of {}", Size(self.piece.into())));
        parts.push(format!("seed {}", self.seed));
        parts.extend(self.faults.iter().map(ToString::to_string));
        parts.join(", ")
    }
}

fn piece(size: u64) -> Result<u32, PlanError> {
    match u32::try_from(size) {
        Ok(bytes) if is_new_piece_length(size) => Ok(bytes),
        _ => refused(format!("--piece-size: {} is not a power of two from 16 KiB to 512 MiB", Size(size))),
    }
}

fn segment(size: u64) -> Result<u64, PlanError> {
    match size {
        1024..=0x4000_0000 => Ok(size),
        _ => refused(format!("--segment: {} is not between 1 KiB and 1 GiB", Size(size))),
    }
}

/// Each name once, in order.
fn ways(names: &[String]) -> Result<Vec<(String, SimulatedMethod)>, PlanError> {
    let mut ways: Vec<(String, SimulatedMethod)> = Vec::new();
    for name in names.iter().map(|name| name.trim()) {
        if ways.iter().any(|(known, _)| known == name) {
            continue;
        }
        let how = match Server::parse(name) {
            Some(server) => SimulatedMethod::Server(server),
            None if name == "mount" => SimulatedMethod::Mount { plan: Some(Knowledge::Topology) },
            None if name == "mount-pull" => SimulatedMethod::Mount { plan: None },
            None => match Algorithm::parse(name).map(|found| found.method) {
                Ok(Method::Tidecast(plan)) => {
                    SimulatedMethod::Engine { policy: Policy::TIDECAST, protocols: Protocols::Tidecast, plan }
                }
                Ok(Method::Torrent(policy)) => {
                    SimulatedMethod::Engine { policy, protocols: Protocols::Stock { fast: true }, plan: None }
                }
                Ok(Method::Baseline { baseline, shuffled }) => {
                    SimulatedMethod::Baseline { baseline, shuffled }
                }
                Err(unknown) => {
                    let servers = Server::NAMES.join(", ");
                    return refused(format!("--algorithm: {unknown}; file servers: {servers}"));
                }
            },
        };
        ways.push((name.to_owned(), how));
    }
    Ok(ways)
}

/// Bytes of memory that are free; 8 GiB where the system does not report it.
fn available() -> u64 {
    let told = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    tidecast_text::meminfo(&told, "MemAvailable").unwrap_or(8 << 30)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    /// As the command line has it: the topology, then flags and their values.
    fn plan(line: &str) -> Result<Plan, PlanError> {
        let mut words = line.split(' ');
        let mut ask = PlanRequest { topology: words.next().unwrap().to_owned(), ..PlanRequest::default() };
        let size = |word: &str| tidecast_text::units::size(word).unwrap();
        while let (Some(flag), Some(value)) = (words.next(), words.next()) {
            match flag {
                "--size" => ask.size = size(value),
                "--piece-size" => ask.piece_size = Some(size(value)),
                "--segment" => ask.segment = Some(size(value)),
                "--algorithm" => ask.algorithms = value.split(',').map(str::to_owned).collect(),
                "--nodes" => ask.nodes = Some(value.parse().unwrap()),
                "--fault" => ask.faults.push(value.parse().unwrap()),
                other => panic!("{other}"),
            }
        }
        Plan::new(&ask, topology(&ask)?)
    }

    fn tidecast(plan: &Plan) -> Job {
        plan.job(Policy::TIDECAST, Protocols::Tidecast, None, plan.size).unwrap()
    }

    #[test]
    fn what_is_small_is_simulated_as_it_is() {
        let plan = plan("single:1000@10gbit,origin=25gbit --size 1GiB").unwrap();
        let job = tidecast(&plan);
        assert_eq!(
            (plan.beginning(Protocols::Tidecast), plan.piece, job.lengths.len()),
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
        let begun = large.beginning(Protocols::Tidecast).unwrap();
        assert!(
            begun % (2 * u64::from(large.stripes(Knowledge::Topology)) * u64::from(large.piece)) == 0
                && begun < 2 << 30,
            "{begun}"
        );
        assert_eq!(large.beginning(Protocols::Stock { fast: true }), None, "its timers take longer");
        assert!(large.notes()[0].contains("the first"), "{:?}", large.notes());
        for whole in [" --fault slow:7=1gbit@1s", " --piece-size 4MiB"] {
            assert_eq!(plan_of(whole).beginning(Protocols::Tidecast), None, "{whole}");
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
            ("single:4 --size 1MiB --piece-size 256KiB --fault lost:3=4@1s", "unknown piece 4"),
            ("single:4 --size 1GB --algorithm ,", "unknown algorithm"),
            ("single:4 --size 1GB --nodes 0", "--nodes"),
        ] {
            let error = plan(line).unwrap_err();
            assert!(matches!(error, PlanError::Refused(_)), "{line}: {error}");
            assert!(error.to_string().contains(said), "{line}: {error}");
        }
    }

    #[test]
    fn any_piece_may_be_lost() {
        let job = tidecast(&plan("single:4 --size 1MiB --piece-size 256KiB --fault lost:3=3@1s").unwrap());
        assert_eq!((job.lengths.len(), job.faults.len()), (4, 1));
    }
}
