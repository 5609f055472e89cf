//! `tidecast bcast SRC --to DEST`: copies a file or tree to the same path on every host.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use tidecast::event::bcast::{Done, News};
use tidecast::hosts::Host;
use tidecast::{BroadcastOptions, Launch, Network, PartialResult, broadcast};
use tidecast_group::choose::{self, ChoiceError, destination};
use tidecast_group::{Algorithm, MANIFEST_LIMIT, topology_rules};
use tidecast_swarm::plan::topology::Map;
use tidecast_text::{Rate, with_causes};

use super::{Context, RECORDS, existing_files_help, run_operation};
use crate::failure::{Failure, Outcome};
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
  tidecast bcast data --to '/scratch/{host}/data' --hosts 'n[1-8]' --launch 'ip netns exec {host} {command}'";

const AFTER: &str = concat!(
    "\
Examples:
  # In a Slurm, PBS, LSF or Open MPI job the hosts are those of the job
  tidecast bcast model.bin --to /tmp/model.bin

  # By ssh (keys, no passwords); for a file with one host per line:
  # --hosts @nodes.txt
  tidecast bcast /sw/env --to /scratch/env --hosts 'node[001-064,100]'

  # A different path on each host; workers started by any command
  tidecast bcast data --to '/scratch/{host}/data' --hosts 'n[1-8]' \\
      --launch 'ip netns exec {host} {command}'

Hosts:
  node[001-064,100]      ranges, several brackets, commas between hosts
  n[0-62/2]!n[8-14]      every second host; ! removes, & keeps the hosts on
                         both sides, ^ the hosts on one side only
                         (--exclude removes as ! does)
  me@login:2222, [::1]   user and port of ssh; an IPv6 address
  a=10.0.0.1             a name, and the address to connect to
  @FILE                  a list on each line, or a machine file (slots=4 of
                         Open MPI, host:4 of MPICH and Intel MPI);
                         # begins a comment; @- is standard input
  A number up to 1023 after a bare host name is a process count and is
  ignored (22 is the port of ssh).
  Names with the same addresses are one host, which is served once (unless
  {host} in DEST gives each name a path of its own). A name whose addresses
  are all this machine's is this host. Short names are not compared.
  Without --hosts: SLURM_JOB_NODELIST (SLURM_JOB_NODELIST_HET_GROUP_*),
  PBS_NODEFILE, LSB_DJOB_HOSTFILE, LSB_MCPU_HOSTS, LSB_HOSTS, PE_HOSTFILE,
  OAR_NODEFILE, COBALT_NODEFILE, in a Flux job the output of
  `flux hostlist local`, or the default host file of Open MPI, Intel MPI or
  MPICH.

Launching:
  auto     srun in a Slurm job, else ssh; this host's worker needs neither
  ssh      ssh -o BatchMode=yes
  srun, mpirun (Open MPI)        one call for all hosts
  COMMAND  a command line with {host}, {address}, {port} and {command}. A word
           {command} becomes the worker's words; inside a longer word it is
           quoted for a shell.
  srun starts hosts of the job only; others are listed as failed. Long host
  lists are passed to srun in brackets or in a file, to mpirun in a file.
  With more than 32 hosts, workers that are connected start some of the
  others by the same command; this host starts those that they cannot.
  Tidecast must be installed at the same path on all hosts, or see --program.
  The ticket, a secret, is passed on standard input (srun, mpirun: in the
  environment).

Networks:
  The fastest network that reaches all hosts is used, by the rates that the
  drivers report. Between networks of equal or unknown rate, short trials
  (0.3 s each) decide.

Topology:
  One place per line: its path, and the hosts there: east/rack1 node[01-32]
  10.1.1.0/24 w-*; before the hosts the rate of its uplink, if known:
  rate=10gbit. Slurm's topology.conf and topology.yaml are accepted as they
  are. A wrong topology only costs speed; a topology without any of the hosts
  is rejected.
  Without --topology, if the transfer takes longer than 1.5 s, short transfers
  between pairs of hosts (2 s at most) find out which share a bottleneck.

Sources:
  With --sources 4, three other hosts that see SRC at the same path, with the
  same size and time, each read and send a quarter of it; this host takes over
  from a source that fails. This host still reads all of SRC once, to hash it.
  The bytes that all sources send count as the origin's copies.

A host that already has all data is done at once; a host with a part or an
older version fetches the differences. If a host fails, it is listed, the
others complete, and the exit code is 1.

",
    existing_files_help::existing_files_help!(),
    " DEST equal to SRC is left unchanged; DEST
  inside SRC is rejected, and so are --delete and --force with SRC inside
  DEST.

Other clients:
  With --plain --torrent FILE any BitTorrent client can join: as soon as the
  data is hashed, FILE is written and this host's peer address is printed. A
  client that is still fetching when all hosts are complete is served until it
  receives nothing for 10 s, for 10 minutes at most. Bytes sent to it count as
  sent.

Events with --json, one per line (all fields: docs/events.md):
  started   command, source, dest, hosts
  progress  seconds, stage (hash, launch, bcast), bytes, total (of all hosts),
            rate, hosts, hosts_done, hosts_failed
  warning   message
  waiting   seconds, hosts [name, seconds], queued, launchers, and the last
            output of a launcher: workers that are not connected yet, after
            4 s, 12 s, 28 s and so on
  open      torrent, peers: any client can join
  done      seconds (whole command), bytes, files, piece_length, algorithm,
            network, hash_seconds, gather_seconds (launching), transfer_seconds
            (all ready to last verified), rate (bytes a second and host),
            received, duplicate, corrupt, origin_sent, origin_copies, sources
            [name, sent: of origin_sent], hosts
            [name, ok, action (delivered, replaced, unchanged, failed),
            aliases (other names of it in the list), seconds, received, sent,
            kept, replaced, replaced_foreign and stale (foreign: of them, not
            delivered by tidecast), deleted (files), or reason (and
            coordinator_addresses, coordinator_error: the worker could not
            connect to this host)], hosts_done,
            hosts_failed; if the manifest was long and was broadcast before
            the data, manifest_bytes and manifest_sent; if the rate of the
            links is known, link_rate, link_rate_from (told, driver, trial),
            bound_seconds and efficiency
  error     seconds, code, kind, message; if hosts failed, all of done"
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
    /// Write the metainfo file to FILE, with which any BitTorrent client can join; prints the peer address for it
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
    let done = match &ended {
        Ok(done) => Some(done),
        Err(failure) => match failure.partial_result() {
            Some(PartialResult::Bcast(done)) => Some(&**done),
            _ => None,
        },
    };
    if let Some(done) = done {
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
