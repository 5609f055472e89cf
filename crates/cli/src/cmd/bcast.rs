//! `tidecast bcast SRC --to DEST`: copies a file or tree to the same path on every host.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use tidecast::event::bcast::{Done, News};
use tidecast::hosts::Host;
use tidecast::{BroadcastOptions, Launch, Network, broadcast};
use tidecast_group::choose::{self, ChoiceError, destination};
use tidecast_group::{Algorithm, MANIFEST_LIMIT, topology_rules};
use tidecast_swarm::plan::topology::Map;
use tidecast_text::{Rate, with_causes};

use super::{Context, RECORDS, run_operation};
use crate::failure::{Failure, Outcome, reached};
use crate::output::{FOR_ALL, Output};
use crate::report::{Reporter, fields_of, outlive_reader};
use crate::stop::{Stop, block_on};

const EXAMPLES: &str = "\
Examples:
  # In a Slurm, PBS, LSF or Open MPI job the hosts are those of the job
  tidecast bcast model.bin --to /tmp/model.bin

  # By ssh (keys, no passwords); for a file with one host per line: --hosts @nodes.txt
  tidecast bcast /sw/env --to /scratch/env --hosts 'node[001-064,100]'

  # A different path on each host; workers started by any command
  tidecast bcast data --to '/scratch/{host}/data' --hosts 'n[1-8]' \\
      --launch 'ip netns exec {host} {command}'";

const AFTER: &str = concat!(
    include_str!("../../help/bcast.txt"),
    "\n",
    include_str!("../../help/existing_files.txt"),
    include_str!("../../help/bcast_events.txt")
);

/// Copy a file or tree to the same path on many hosts, in parallel
///
/// A worker is started on every host; the workers receive the data and send it on to each other. DEST is the path of the
/// copy itself, not of a directory around it (unless it ends with '/'). The name DEST appears only when the copy is
/// complete.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = AFTER)]
pub(crate) struct Args {
    /// File or directory to copy
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// Path of the copy on each host; {host} becomes the host's name
    #[arg(long, value_name = "DEST")]
    to: PathBuf,
    /// Copy to these hosts: node[001-064,100], USER@HOST:PORT, NAME=ADDR, or @FILE [default: the hosts of the batch job]
    #[arg(long, value_name = "LIST|@FILE")]
    hosts: Option<String>,
    /// Leave out these hosts [default: none]
    #[arg(short = 'x', long, value_name = "LIST|@FILE")]
    exclude: Option<String>,
    /// Start workers by auto, ssh, srun, mpirun, or a command with {host} and {command}
    #[arg(long, value_name = "HOW", default_value = "auto")]
    launch: String,
    /// Distribute the data by auto, plan, swarm; for comparison classic, chain, binomial, scatter-allgather
    #[arg(long, value_name = "NAME", default_value = "auto")]
    algorithm: Algorithm,
    /// Read the places of hosts from FILE: Slurm's topology.conf or topology.yaml, a lab's file, or rules (east/rack1
    /// node[01-32] 10.1.1.0/24) [default: measured]
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// Write the measured places of hosts to FILE, for a later --topology; - is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "topology")]
    save_topology: Option<PathBuf>,
    /// Use this name for this host in the topology [default: its own name]
    #[arg(long, value_name = "NAME", requires = "topology")]
    origin: Option<String>,
    /// Use this network: an interface (ib0) or a CIDR (10.1.0.0/16) [default: the fastest that reaches all hosts]
    #[arg(long, value_name = "IFACE|CIDR")]
    net: Option<String>,
    /// Let K hosts read SRC, this one included; the others must see it too (shared file system), and each sends a share
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    sources: u32,
    /// Send the data unencrypted: faster on fast networks
    #[arg(long)]
    plain: bool,
    /// Write the metainfo file to FILE, with which BitTorrent clients can join; prints the peer address for it
    #[arg(long, value_name = "FILE", requires = "plain")]
    torrent: Option<PathBuf>,
    /// Sync the copy to disk before a host counts as done (batched), or not at all (none)
    #[arg(long, value_name = "batched|none", default_value = "none", value_parser = ["batched", "none"], hide_possible_values = true)]
    durable: String,
    /// Replace delivered files that were edited since, and links and directories that were not delivered
    #[arg(long)]
    force: bool,
    /// Remove files from a tree at DEST that were delivered and are no longer in SRC; with --force all that SRC does not have
    #[arg(long)]
    delete: bool,
    /// Reuse data of an older version at PATH on each host, a directory or file, instead of sending it, even if it moved
    /// within a file; {host} becomes the host's name; may be repeated, and may be DEST itself
    #[arg(long, value_name = "PATH")]
    base: Vec<PathBuf>,
    /// Compute the efficiency shown at the end for this rate of a host's link (10gbit) [default: as the driver reports]
    #[arg(long, value_name = "RATE")]
    link_rate: Option<Rate>,
    /// Broadcast a manifest larger than this like the data, before it
    #[arg(long, value_name = "BYTES", default_value_t = MANIFEST_LIMIT, hide = true)]
    manifest_limit: usize,
    /// Run this program on the hosts [default: the path of tidecast on this host]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let options = options(args, context, reporter)?;
    let save = args.save_topology.as_deref().map(|path| Output::of(path, reporter)).transpose()?;
    outlive_reader();
    let ended = run_operation::run_with_news(|| broadcast(options), reporter, |_, _| (), show);
    if let Some(done) = reached(&ended) {
        done.lines(reporter.seconds()).iter().for_each(|line| reporter.result(line));
        // A failure to write the topology is a warning: the broadcast itself has succeeded.
        save.iter().for_each(|output| save_topology(output, done, reporter));
    }
    Ok(fields_of(&ended?))
}

fn save_topology(output: &Output, done: &Done, reporter: &Reporter) {
    // A signal ends the wait for the reader of a pipe.
    let write = |rules: String| {
        block_on(1, async { output.write(rules.as_bytes(), FOR_ALL, Some(&Stop::listen()?)) })
    };
    match done.places.as_ref().map(|places| write(topology_rules(places))) {
        Some(Ok(())) => {}
        Some(Err(failure)) => {
            reporter.warning(&format!("--save-topology: {}", with_causes(failure.error.as_ref())));
        }
        None => reporter.warning(&format!(
            "no topology written to {output} (--save-topology): the transfer was too short to measure the places of hosts"
        )),
    }
}

/// The options: flags override settings.
fn options(args: &Args, context: &Context<'_>, reporter: &Reporter) -> Result<BroadcastOptions, Failure> {
    let settings = context.settings;
    let network = args.net.as_ref().or(settings.net.as_ref()).map(|n| n.parse::<Network>());
    let network = network.transpose().map_err(|e| Failure::usage(anyhow!("--net: {e}")))?;
    let launch: Launch = args.launch.parse().map_err(|e| Failure::usage(anyhow!("--launch: {e}")))?;
    let own = std::env::current_exe().context("cannot find the path of this program");
    let hosts = choose::choose(args.hosts.as_deref(), args.exclude.as_deref()).map_err(unchosen)?;
    Ok(BroadcastOptions {
        source: args.source.clone(),
        dest: destination(&args.to, &args.source).map_err(unchosen)?,
        topology: topology(args, &hosts, reporter)?,
        hosts,
        launch,
        algorithm: args.algorithm,
        name: args.origin.clone().or_else(|| std::env::var("SLURMD_NODENAME").ok()),
        program: args.program.clone().map_or_else(|| own, Ok)?,
        sources: args.sources,
        network,
        plain: args.plain || settings.plain == Some(true),
        torrent: args.torrent.clone(),
        durable: args.durable == "batched",
        force: args.force,
        delete: args.delete,
        bases: args.base.iter().map(std::path::absolute).collect::<Result<_, _>>()?,
        records: context.global.state_dir.as_ref().map(|_| context.own_state_dir()).transpose()?.map(records),
        manifest_limit: args.manifest_limit,
        link_rate: args.link_rate.or(settings.link_rate).map(|rate| rate.0),
        threads: context.threads(),
    })
}

/// A state directory that the user chose on this host is used by this host's worker, too.
fn records(state_dir: PathBuf) -> PathBuf {
    let dir = state_dir.join(RECORDS);
    std::path::absolute(&dir).unwrap_or(dir)
}

fn unchosen(error: ChoiceError) -> Failure {
    match error {
        ChoiceError::Refused(_) => Failure::usage(error),
        other => other.into(),
    }
}

/// The places of hosts, if `--topology` has them.
fn topology(args: &Args, hosts: &[Host], reporter: &Reporter) -> Result<Option<Map>, Failure> {
    let Some(path) = &args.topology else { return Ok(None) };
    let (map, warnings) = choose::topology(path, args.origin.as_deref(), hosts).map_err(unchosen)?;
    warnings.iter().for_each(|warning| reporter.warning(warning));
    Ok(Some(map))
}

/// Prints the news of a broadcast.
fn show(news: News, reporter: &mut Reporter) {
    match (&news, news.line()) {
        (News::Waiting(waiting), _) if reporter.is_json() => reporter.happened("waiting", fields_of(waiting)),
        (News::Open(open), _) if reporter.is_json() => reporter.happened("open", fields_of(open)),
        // Printed with --quiet too: users of other clients wait for this line.
        (News::Open(_), Some(line)) => reporter.print(&line),
        (_, Some(line)) => reporter.note(&line),
        (_, None) => {}
    }
}
