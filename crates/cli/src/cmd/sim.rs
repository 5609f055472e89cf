//! `tidecast sim TOPOLOGY`: what a broadcast would cost, before anything is bought.

use std::path::PathBuf;

use tidecast::Reached;
use tidecast::sim::{Algorithm, Fault, Seeds, Server, SimulateOptions, SoakOptions};
use tidecast_text::{Rate, Size, Span};

use super::{Context, drive};
use crate::failure::Outcome;
use crate::output::{FOR_ALL, Output};
use crate::report::{Reporter, fields_of};
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
    fault: Vec<Fault>,
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
    #[arg(long, value_name = "A..B", value_parser = seeds, conflicts_with_all = ["topology", "size", "plot", "fault"], help_heading = "Testing")]
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
        faults = indented(&tidecast::sim::faults()).trim_end(),
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

/// Seeds as text; `random` has room for as many as anybody will wait for.
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
    let done = drive::run(begin, reporter, |started, reporter| {
        started.notes.iter().for_each(|note| reporter.note(note))
    })?;
    if let (Some(path), Some(drawn)) = (&plot, &done.plot) {
        block_on(1, async { path.write(drawn.as_bytes(), FOR_ALL, Some(&Stop::listen()?)) })?;
    }
    done.table.iter().for_each(|line| reporter.result(line));
    plot.iter().for_each(|path| reporter.result(&format!("drawn in {path}")));
    Ok(fields_of(&done))
}

/// Runs random clusters until the seeds or the time are over, or Ctrl-C.
fn soak(seeds: &Seeds, during: Option<Span>, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let threads = context.threads_for_operation();
    let options = SoakOptions { seeds: seeds.clone(), during: during.map(|span| span.0), threads };
    let done = drive::run(
        || tidecast::sim::soak(options),
        reporter,
        |started, reporter| {
            let (first, threads) = (started.first_seed, started.threads);
            reporter.note(&format!("seeds from {first} on, {threads} at a time; Ctrl-C stops"));
        },
    );
    let text = match &done {
        Ok(done) => &done.text,
        Err(failure) => match failure.reached() {
            Some(Reached::Soak(done)) => &done.text,
            _ => "",
        },
    };
    text.lines().for_each(|line| reporter.result(line));
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
