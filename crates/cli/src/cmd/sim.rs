//! `tidecast sim TOPOLOGY`: what a broadcast would cost, before anything is bought.

mod soak;
mod table;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use serde_json::{Value, json};
use tidecast_sim::fault::{self, Spec};
use tidecast_sim::outcome::Outcome as Run;
use tidecast_sim::plan::{self, Ask, Plan, PlanError, RunError};
use tidecast_sim::progress::Progress;
use tidecast_sim::rivals::Algorithm;
use tidecast_sim::storm::Server;
use tidecast_sim::{plot, report};
use tidecast_text::{Rate, Size, Span};

use self::soak::Seeds;
use super::Context;
use crate::failure::{Failure, Outcome};
use crate::output::{FOR_ALL, Output};
use crate::report::{Reporter, Snapshot, object};
use crate::stop::{Stop, block_on};

/// Simulate a broadcast to a cluster, beside other ways
///
/// Runs the engine of this program for every node on a modelled network: how long would it take, what would
/// each link carry, what if nodes die? Beside it, other ways to do the same, and the bound that no program
/// beats. A run is its seed: the same command gives the same figures on any machine.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = more())]
pub(crate) struct Args {
    /// The cluster: a short form (leafspine:100,16,40@100gbit; all with --help), or a file, as Slurm's topology.conf
    #[arg(required_unless_present = "seeds")]
    topology: Option<String>,
    /// The same shape with so many nodes, the origin (node 0) included
    #[arg(long, value_name = "N")]
    nodes: Option<u32>,
    /// Rate of each node's network card [default: as the topology says, else 10gbit]
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Rate of the origin's network card [default: as the topology says]
    #[arg(long, value_name = "RATE")]
    origin_rate: Option<Rate>,
    /// How much is broadcast
    #[arg(long, value_name = "SIZE", required_unless_present_any = ["seeds", "print_topology"])]
    size: Option<Size>,
    /// In which way: plan, swarm, chain, sbcast, classic, nfs, ... (all with --help); several with commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "plan")]
    algorithm: Vec<String>,
    /// What goes wrong: crash:12@3s, slow:5%=1gbit, ... (all with --help); may be repeated
    #[arg(long, value_name = "FAULT")]
    fault: Vec<Spec>,
    /// Another seed, another run
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Draw completion curves and link use (SVG) into FILE; - is standard output
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Bytes in a piece, a power of two from 16KiB [default: as publish chooses]
    #[arg(long, value_name = "S")]
    piece_size: Option<Size>,
    /// Bytes in a segment of the ways that have them [default: 128KiB]
    #[arg(long, value_name = "S")]
    segment: Option<Size>,
    /// What a node can verify and write [default: as much as its network card brings]
    #[arg(long, value_name = "RATE")]
    write_rate: Option<Rate>,
    /// A network of rates and delays alone, without headers, ramp-up and queues: for comparison with arithmetic
    #[arg(long)]
    exact: bool,
    /// Print the topology as a file and do nothing
    #[arg(long, conflicts_with = "seeds")]
    print_topology: bool,
    /// Test the program instead: a random cluster with random faults for each seed (A..B, A.., or random)
    #[arg(long, value_name = "A..B", conflicts_with_all = ["topology", "size", "plot", "fault"], help_heading = "Testing")]
    seeds: Option<Seeds>,
    /// With --seeds: no new run after so long (2h)
    #[arg(
        long = "for",
        value_name = "T",
        requires = "seeds",
        conflicts_with = "topology",
        help_heading = "Testing"
    )]
    during: Option<Span>,
}

const EXAMPLES: &str = "\
Examples:
  # What would a job start on 4,000 nodes cost, with the origin on 25 Gbit/s?
  tidecast sim leafspine:100,16,40@100gbit --origin-rate 25gbit --size 100GiB

  # Beside other ways, with a picture
  tidecast sim single:64@10gbit --size 10GiB --algorithm plan,chain,sbcast,nfs --plot out.svg

  # A node in twenty dies on the way
  tidecast sim single:64@10gbit --size 10GiB --fault die:5%@2s";

/// The forms, names and faults, which need more room than a line each flag has.
fn more() -> String {
    let indented = |text: &str| text.lines().map(|line| format!("  {line}\n")).collect::<String>();
    format!(
        "{EXAMPLES}\n\n\
         Topologies (node 0 is the origin; RATE is a node's card's, each way):\n\
         \x20 single:N@RATE                     one switch\n\
         \x20 bordeaux:N,N,N@RATE               switches in a row, a narrow link:\n\
         \x20     ,bottleneck=RATE ,trunk=RATE ,delay=10ms ,loss=0.1%\n\
         \x20 nat:N@RATE                        all but the origin behind a NAT\n\
         \x20 sites:N,N@RATE,wan=RATE,delay=T   places far apart\n\
         \x20 leafspine:LEAVES,SPINES,N@RATE    N nodes a leaf\n\
         \x20 fattree:K@RATE                    both take ,oversubscribe=X\n\
         \x20 dragonfly:A,H,P@RATE              ,global=RATE ,local=RATE ,delay=T\n\
         \x20 Each takes ,origin=RATE too. A file has lines `switch NAME`,\n\
         \x20 `nodes COUNT SWITCH RATE`, `link SWITCH SWITCH RATE`;\n\
         \x20 --print-topology shows one. Slurm's topology.conf and\n\
         \x20 topology.yaml, and rules as of bcast --topology, do as well: with\n\
         \x20 --rate, and links as wide as the nodes below them.\n\n\
         Algorithms:\n\
         \x20 {names}\n\
         \x20 plan: bcast, told the topology; plan-untold: not told; swarm: nobody\n\
         \x20 knows who takes part (get); classic, stock: BitTorrent with all of its\n\
         \x20 mechanisms and with none\n\
         \x20 file servers that all read: {servers}\n\
         \x20 mount: all open the same files, which go to everyone as they are\n\
         \x20 touched; mount-pull: each node fetches them for itself\n\
         \x20 -shuffled after those from flat on: ranks ignore the switches;\n\
         \x20 sbcast-4: --fanout 4.\n\n\
         Faults, WHAT:WHOM[=VALUE][@WHEN[+HOW LONG]]:\n{faults}",
        names = wrapped(&Algorithm::NAMES, 64, "\n  "),
        servers = Server::NAMES.join(", "),
        faults = indented(&fault::help()).trim_end(),
    )
}

/// Words with commas, in lines of at most so many letters.
fn wrapped(words: &[&str], width: usize, newline: &str) -> String {
    let mut text = String::new();
    let mut line = 0;
    for (i, word) in words.iter().enumerate() {
        let comma = if i + 1 < words.len() { ", " } else { "" };
        if line + word.len() > width {
            text.truncate(text.trim_end().len());
            text.push_str(newline);
            line = 0;
        }
        text.push_str(word);
        text.push_str(comma);
        line += word.len() + comma.len();
    }
    text
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    if let Some(seeds) = &args.seeds {
        return soak::run(seeds, args.during, context, reporter);
    }
    let ask = args.ask();
    let topology = plan::topology(&ask).map_err(refused)?;
    if args.print_topology {
        let text = topology.to_text();
        text.trim_end().lines().for_each(|line| reporter.result(line));
        return Ok(object(json!({ "nodes": topology.len(), "topology": text })));
    }
    let plan = Arc::new(Plan::new(&ask, topology).map_err(refused)?);
    block_on(context.threads(), async {
        let stop = Stop::listen()?;
        let plot = args.plot.as_deref().map(|path| Output::of(path, reporter)).transpose()?;
        reporter.started("sim", table::started(&plan));
        plan.notes().iter().for_each(|note| reporter.note(note));
        let mut runs: Vec<Run> = Vec::new();
        for way in 0..plan.ways.len() {
            runs.push(watch(&plan, way, reporter, &stop).await?);
        }
        reporter.clear();
        if let Some(path) = &plot {
            let drawn = plot::svg(&plan.title(), &plan.subtitle(), &runs, Some(plan.bound.time));
            path.write(drawn.as_bytes(), FOR_ALL, Some(&stop))?;
        }
        let figures: Vec<report::Summary> =
            runs.iter().map(|run| report::Summary::of(run, Some(plan.bound.time), &plan.model)).collect();
        table::text(&plan, &runs, &figures).iter().for_each(|line| reporter.result(line));
        if let Some(path) = &plot {
            reporter.result(&format!("drawn in {path}"));
        }
        let runs: Vec<Value> = runs.iter().zip(&figures).map(|(run, f)| table::json(run, f)).collect();
        let bound = json!({ "seconds": report::seconds(plan.bound.time), "limit": plan.bound.limit });
        Ok(object(json!({ "bound": bound, "runs": runs })))
    })
}

impl Args {
    fn ask(&self) -> Ask {
        Ask {
            topology: self.topology.clone().unwrap_or_default(),
            nodes: self.nodes,
            rate: self.rate.map(|rate| rate.0),
            origin_rate: self.origin_rate.map(|rate| rate.0),
            size: self.size.map_or(0, |size| size.0),
            algorithms: self.algorithm.clone(),
            faults: self.fault.clone(),
            seed: self.seed,
            piece_size: self.piece_size.map(|size| size.0),
            segment: self.segment.map(|size| size.0),
            write_rate: self.write_rate.map(|rate| rate.0),
            exact: self.exact,
        }
    }
}

fn refused(error: PlanError) -> Failure {
    match error {
        PlanError::Refused(_) => Failure::usage(error),
        other => other.into(),
    }
}

/// Runs the way of that number on a thread of its own, with progress and Ctrl-C.
async fn watch(plan: &Arc<Plan>, way: usize, reporter: &mut Reporter, stop: &Stop) -> Result<Run, Failure> {
    let progress = Arc::new(Progress::new());
    let name = plan.ways.get(way).map(|(name, _)| name.clone()).unwrap_or_default();
    let (of_run, plan_of_run) = (progress.clone(), plan.clone());
    let mut task = tokio::task::spawn_blocking(move || plan_of_run.run(way, &of_run));
    let began = Instant::now();
    let outcome = loop {
        tokio::select! {
            done = &mut task => break done.context("a thread of Tidecast failed")?,
            () = tokio::time::sleep(Duration::from_millis(100)) => {}
        }
        if stop.is_asked() {
            progress.stop();
        }
        let (now, done, of) = progress.get();
        let total = plan.size.saturating_mul(u64::from(plan.topology.len()).saturating_sub(1));
        let bytes = (u128::from(total) * u128::from(done)).checked_div(of.into()).unwrap_or(0) as u64;
        let run = Some((name.clone(), Some(report::seconds(now))));
        reporter.progress(&Snapshot { stage: "sim", bytes, total, run, ..Snapshot::default() });
    };
    tracing::info!("{name}: {:.1} s of real time", began.elapsed().as_secs_f64());
    if stop.is_asked() {
        let at = report::seconds(progress.get().0);
        let error =
            anyhow!("interrupted in {name} at {at:.3} s of simulated time; the same command begins anew");
        return Err(Failure { error, ..Failure::cut("") });
    }
    outcome.map_err(|error| match error {
        RunError::Refused(_) => Failure::usage(error),
        other => other.into(),
    })
}
