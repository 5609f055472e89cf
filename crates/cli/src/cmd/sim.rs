//! `tidecast sim TOPOLOGY`: simulates a broadcast, to compare clusters before one is bought.

use std::path::PathBuf;

use tidecast::sim::{Algorithm, Fault, Seeds, Server, SimulateOptions, SoakOptions};
use tidecast_text::{Rate, Size, Span};

use super::{Context, run_operation};
use crate::failure::{Outcome, reached};
use crate::output::{FOR_ALL, Output};
use crate::report::{Reporter, fields_of};
use crate::stop::{Stop, block_on};

/// Simulate a broadcast to a cluster, and compare it with other algorithms
///
/// Runs the engine of this program for every node on a modelled network, and reports the duration, the traffic of each
/// link and the effect of failures. Other algorithms and the theoretical lower bound are shown for comparison. A run is
/// determined by its seed: the same command gives the same figures on any machine.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = more())]
pub(crate) struct Args {
    /// Cluster: a short form (leafspine:100,16,40@100gbit; all with --help), or a file such as Slurm's topology.conf
    #[arg(required_unless_present = "seeds")]
    topology: Option<String>,
    /// Scale the topology to N nodes, the origin (node 0) included
    #[arg(long, value_name = "N")]
    nodes: Option<u32>,
    /// Set the rate of each node's network card [default: from the topology, else 10gbit]
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Set the rate of the origin's network card [default: from the topology]
    #[arg(long, value_name = "RATE")]
    origin_rate: Option<Rate>,
    /// Broadcast this amount of data
    #[arg(long, value_name = "SIZE", required_unless_present_any = ["seeds", "print_topology"])]
    size: Option<Size>,
    /// Simulate these algorithms, separated by commas: plan, swarm, chain, sbcast, classic, nfs, ... (all with --help)
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "plan")]
    algorithm: Vec<String>,
    /// Inject a fault: crash:12@3s, slow:5%=1gbit, ... (all with --help); may be repeated
    #[arg(long, value_name = "FAULT")]
    fault: Vec<Fault>,
    /// Seed the random choices of the run
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Draw completion curves and link use (SVG) into FILE; - is standard output
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Set the piece size, a power of two from 16KiB [default: as publish chooses]
    #[arg(long, value_name = "S")]
    piece_size: Option<Size>,
    /// Set the segment size of algorithms that use segments [default: 128KiB]
    #[arg(long, value_name = "S")]
    segment: Option<Size>,
    /// Limit the rate at which a node verifies and writes [default: the rate of its network card]
    #[arg(long, value_name = "RATE")]
    write_rate: Option<Rate>,
    /// Model rates and delays only, without headers, ramp-up and queues: for comparison with calculations
    #[arg(long)]
    exact: bool,
    /// Print the topology as a file, and simulate nothing
    #[arg(long, conflicts_with = "seeds")]
    print_topology: bool,
    /// Test the program instead: simulate a random cluster with random faults for each seed (A..B, A.., or random)
    #[arg(long, value_name = "A..B", value_parser = seeds, conflicts_with_all = ["topology", "size", "plot", "fault"], help_heading = "Testing")]
    seeds: Option<Seeds>,
    /// With --seeds: start no new run after this time (2h)
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
  # A job start on 400 nodes, with the origin on 2.5 Gbit/s
  tidecast sim leafspine:10,4,40@10gbit --origin-rate 2.5gbit --size 1GiB

  # Compare algorithms, with a plot
  tidecast sim single:64@10gbit --size 10GiB --algorithm plan,chain,sbcast,nfs --plot out.svg

  # One node in twenty fails during the transfer
  tidecast sim single:64@10gbit --size 10GiB --fault die:5%@2s";

/// The topologies, algorithms and faults, which need more space than the help of a flag has.
fn more() -> String {
    let indented = |text: &str| text.lines().map(|line| format!("  {line}\n")).collect::<String>();
    let text = include_str!("../../help/sim.txt")
        .replace("{names}", &wrapped(&Algorithm::NAMES, 64, "\n  "))
        .replace("{servers}", &Server::NAMES.join(", "))
        .replace("{faults}", &indented(&tidecast::sim::faults()));
    format!("{EXAMPLES}\n\n{}", text.trim_end())
}

/// Words with commas, in lines of at most `width` letters.
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

/// Parses seeds; `random` leaves 2^24 seeds after its start, more than any run reaches.
fn seeds(text: &str) -> Result<Seeds, String> {
    if text == "random" { Ok(Seeds::from(u64::from(rand::random::<u32>()) << 24)) } else { text.parse() }
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    if let Some(seeds) = &args.seeds {
        return soak(seeds, args.during, context, reporter);
    }
    let options = args.options();
    if args.print_topology {
        let done = tidecast::sim::topology(&options)?;
        done.topology.trim_end().lines().for_each(|line| reporter.result(line));
        return Ok(fields_of(&done));
    }
    let plot = args.plot.as_deref().map(|path| Output::of(path, reporter)).transpose()?;
    let begin = || tidecast::sim::simulate(options, plot.is_some());
    let done = run_operation::run(begin, reporter, |started, reporter| {
        started.notes.iter().for_each(|note| reporter.note(note))
    })?;
    if let (Some(path), Some(drawn)) = (&plot, &done.plot) {
        block_on(1, async { path.write(drawn.as_bytes(), FOR_ALL, Some(&Stop::listen()?)) })?;
    }
    done.table.iter().for_each(|line| reporter.result(line));
    plot.iter().for_each(|path| reporter.result(&format!("plot written to {path}")));
    Ok(fields_of(&done))
}

/// Simulates random clusters until the last seed, the end of the time, or Ctrl-C.
fn soak(seeds: &Seeds, during: Option<Span>, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let threads = context.threads_for_operation();
    let options = SoakOptions { seeds: seeds.clone(), during: during.map(|span| span.0), threads };
    let done = run_operation::run(
        || tidecast::sim::soak(options),
        reporter,
        |started, reporter| {
            let (first, threads) = (started.first_seed, started.threads);
            reporter.note(&format!("running seeds from {first} on, {threads} in parallel; Ctrl-C stops"));
        },
    );
    reached(&done).map_or("", |done| &done.text).lines().for_each(|line| reporter.result(line));
    Ok(fields_of(&done?))
}

impl Args {
    fn options(&self) -> SimulateOptions {
        SimulateOptions {
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
