//! `tidecast bcast SRC --to DEST`: the same bytes at the same path on every host.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use tidecast::event::bcast::{Done, News};
use tidecast::hosts::Host;
use tidecast::{BroadcastOptions, Launch, Network, Reached, broadcast};
use tidecast_group::choose::{self, ChoiceError, destination};
use tidecast_group::{Algorithm, MANIFEST_LIMIT, topology_rules};
use tidecast_swarm::plan::topology::Map;
use tidecast_text::{Rate, with_causes};

use super::{Context, RECORDS, dest, drive};
use crate::failure::{Failure, Outcome};
use crate::output::{FOR_ALL, Output};
use crate::report::{Reporter, fields_of, outlive_reader};
use crate::stop::{Stop, block_on};

const EXAMPLES: &str = "\
Examples:
  # Within a Slurm, PBS, LSF or Open MPI job the hosts are known
  tidecast bcast model.bin --to /tmp/model.bin

  # By ssh (keys, no passwords); one host a line in a file: --hosts @nodes.txt
  tidecast bcast /sw/env --to /scratch/env --hosts node[001-064,100]

  # Each host has a directory of its own; whatever starts a command there will do
  tidecast bcast data --to '/scratch/{host}/data' --hosts n[1-8] --launch 'ip netns exec {host} {command}'";

const AFTER: &str = concat!(
    "\
Examples:
  # Within a Slurm, PBS, LSF or Open MPI job the hosts are known
  tidecast bcast model.bin --to /tmp/model.bin

  # By ssh (keys, no passwords); one host a line in a file: --hosts @nodes.txt
  tidecast bcast /sw/env --to /scratch/env --hosts node[001-064,100]

  # Each host has a directory of its own; whatever starts a command there
  # will do
  tidecast bcast data --to '/scratch/{host}/data' --hosts n[1-8] \\
      --launch 'ip netns exec {host} {command}'

Hosts:
  node[001-064,100]      ranges, several brackets, commas between hosts
  n[0-62/2]!n[8-14]      every second one; ! takes away, & keeps what is on
                         both sides, ^ what is on one (--exclude does as !)
  me@login:2222, [::1]   user and port of ssh's; an IPv6 address
  a=10.0.0.1             a name, and where to reach it
  @FILE                  a list on each line, or a machine file (slots=4 of
                         Open MPI's, host:4 of MPICH's and Intel MPI's);
                         # begins a comment; @- is standard input
  A number up to 1023 after a bare host name is a number of processes, which
  counts for nothing here (22: the port of ssh).
  Names with the same addresses are one host, which is served once (unless
  {host} in DEST gives each name a path of its own); a name whose addresses
  are all this machine's is this host. A short name never decides.
  Without --hosts: SLURM_JOB_NODELIST (SLURM_JOB_NODELIST_HET_GROUP_*),
  PBS_NODEFILE, LSB_DJOB_HOSTFILE, LSB_MCPU_HOSTS, LSB_HOSTS, PE_HOSTFILE,
  OAR_NODEFILE, COBALT_NODEFILE, in a job of Flux what `flux hostlist local`
  says, or the default host file of Open MPI, Intel MPI or MPICH.

Launching:
  auto     srun within a Slurm job, else ssh; this host itself needs neither
  ssh      ssh -o BatchMode=yes
  srun, mpirun (of Open MPI)     one for all
  COMMAND  words with {host}, {address}, {port} and {command}. A word {command}
           becomes the worker's words; within a word it is quoted for a shell.
  srun starts hosts of the job only; others are listed as failed. Thousands of
  names go to srun in brackets or, as to mpirun, in a file.
  Of more than 32 hosts, those that have come start some of the others, by the
  same command; what they cannot start is started from here.
  Tidecast must be installed at the same path everywhere, or see --program.
  The ticket, a secret, goes by standard input (srun, mpirun: environment).

Networks:
  The fastest on which all can be reached, by what drivers say; between those
  of which they say the same, or nothing, short trials (0.3 s each) decide.

Topology:
  A line a place, as a path, and the hosts there: east/rack1 node[01-32]
  10.1.1.0/24 w-*; before them the rate upwards, if known: rate=10gbit. Or
  Slurm's topology.conf or topology.yaml as it is. A wrong one costs speed,
  nothing else; one that names none of the hosts is rejected.
  Untold, short transfers between pairs of hosts, at most 2 s, find out which
  share a bottleneck, where the data takes longer than 1.5 s.

Sources:
  With --sources 4 three hosts that see SRC at the same path, with the same
  size and time, each read and send a quarter of it; one that fails is
  replaced by this host. This host still reads all of it once, to hash it.
  What they send together counts as the origin's copies.

A host that has all of it already is done at once; of a part or a former
version only what differs is fetched. A host that fails is listed, the others
complete, and the exit code is 1.

",
    dest::standing!(),
    " A DEST that is SRC itself is left alone; one
  that lies in SRC is refused, and so are --delete and --force where SRC lies
  in DEST.

Other clients:
  With --plain --torrent FILE any BitTorrent client can join: as soon as the
  data is hashed, the file is there and a line says at which peer. A client
  that is still fetching when all hosts have theirs is served on while it takes
  something (10 s), for 10 minutes at most. What it gets counts as sent.

Events with --json, one a line:
  started   command, source, dest, hosts
  progress  seconds, stage (hash, launch, bcast), bytes, total (of all hosts),
            rate, hosts, hosts_done, hosts_failed
  warning   message
  waiting   seconds, hosts [name, seconds], queued, launchers, said: workers
            that have not come, after 4 s, 12 s, 28 s and so on
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
            hosts_failed; where the manifest was long and was broadcast before
            the data, manifest_bytes and manifest_sent; where the links' rate is known, link_rate,
            link_rate_from (told, driver, trial), bound_seconds and efficiency
  error     seconds, code, kind, message; if hosts failed, all of done"
);

/// Put a file or tree at the same path on many hosts, at once
///
/// Starts a worker on every host and hands them the data, which they pass on to each other. DEST is the path that
/// SRC's copy will have, not a directory to put it into (unless it ends with '/'). Nothing half-written ever has that
/// name.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = AFTER)]
pub(crate) struct Args {
    /// The file or directory
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// The path that it will have on each host; {host} becomes the host's name
    #[arg(long, value_name = "DEST")]
    to: PathBuf,
    /// The hosts: node[001-064,100], USER@HOST:PORT, NAME=ADDR, or @FILE [default: those of the batch job]
    #[arg(long, value_name = "LIST|@FILE")]
    hosts: Option<String>,
    /// Leave out these of the hosts [default: none]
    #[arg(short = 'x', long, value_name = "LIST|@FILE")]
    exclude: Option<String>,
    /// How to start workers: auto, ssh, srun, mpirun, or a command with {host} and {command}
    #[arg(long, value_name = "HOW", default_value = "auto")]
    launch: String,
    /// How the data goes: auto, plan, swarm; for comparison classic, chain, binomial, scatter-allgather
    #[arg(long, value_name = "NAME", default_value = "auto")]
    algorithm: Algorithm,
    /// Where hosts are: Slurm's topology.conf or topology.yaml, a lab's file, or rules (east/rack1 node[01-32] 10.1.1.0/24)
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// Write to FILE where hosts were found to be, for --topology of the next time; - is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "topology")]
    save_topology: Option<PathBuf>,
    /// What this host is called there [default: its own name]
    #[arg(long, value_name = "NAME", requires = "topology")]
    origin: Option<String>,
    /// Network to use: an interface (ib0) or a CIDR (10.1.0.0/16) [default: the fastest on which all can be reached]
    #[arg(long, value_name = "IFACE|CIDR")]
    net: Option<String>,
    /// How many hosts read SRC, this one among them: others that see it too (a shared file system) each send a share
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    sources: u32,
    /// The data need not be encrypted: faster on fast networks
    #[arg(long)]
    plain: bool,
    /// Write the metainfo file here, by which any BitTorrent client can join; its peer is named
    #[arg(long, value_name = "FILE", requires = "plain")]
    torrent: Option<PathBuf>,
    /// batched: synced to disk before it counts as done; none: nothing is synced
    #[arg(long, value_name = "batched|none", default_value = "none", value_parser = ["batched", "none"], hide_possible_values = true)]
    durable: String,
    /// Replace what was delivered to DEST and edited since, and links and directories that were not delivered
    #[arg(long)]
    force: bool,
    /// Remove from a tree at DEST what was delivered there and SRC does not have; with --force all that SRC does not have
    #[arg(long)]
    delete: bool,
    /// Take what an older version has that lies there on a host, a directory or file, instead of sending it, also where it moved
    /// within a file; {host} stands for its name; may be repeated, and may be DEST itself
    #[arg(long, value_name = "PATH")]
    base: Vec<PathBuf>,
    /// Rate of a host's link (10gbit), for the efficiency shown at the end [default: what drivers of hardware say]
    #[arg(long, value_name = "RATE")]
    link_rate: Option<Rate>,
    /// A longer manifest is broadcast like the data, before it (bytes)
    #[arg(long, value_name = "BYTES", default_value_t = MANIFEST_LIMIT, hide = true)]
    manifest_limit: usize,
    /// Where Tidecast is on the hosts [default: where it is here]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let options = options(args, context, reporter)?;
    let save = args.save_topology.as_deref().map(|path| Output::of(path, reporter)).transpose()?;
    outlive_reader();
    let ended = drive::run_with_news(|| broadcast(options), reporter, |_, _| (), show);
    let done = match &ended {
        Ok(done) => Some(done),
        Err(failure) => match failure.reached() {
            Some(Reached::Bcast(done)) => Some(&**done),
            _ => None,
        },
    };
    if let Some(done) = done {
        done.lines(reporter.seconds()).iter().for_each(|line| reporter.result(line));
        // What the broadcast did stands, whether or not more can be written about it.
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
            "{output} is not written (--save-topology): the transfer was too short to find out where hosts are"
        )),
    }
}

/// The user's wishes, flags over settings.
fn options(args: &Args, context: &Context<'_>, reporter: &Reporter) -> Result<BroadcastOptions, Failure> {
    let settings = context.settings;
    let network = args.net.as_ref().or(settings.net.as_ref()).map(|n| n.parse::<Network>());
    let network = network.transpose().map_err(|e| Failure::usage(anyhow!("--net: {e}")))?;
    let launch: Launch = args.launch.parse().map_err(|e| Failure::usage(anyhow!("--launch: {e}")))?;
    let own = std::env::current_exe().context("cannot find out where this program is");
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

/// A directory that the user chose for the state of this host is for its worker, too.
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

/// Where hosts are, if a file says so.
fn topology(args: &Args, hosts: &[Host], reporter: &Reporter) -> Result<Option<Map>, Failure> {
    let Some(path) = &args.topology else { return Ok(None) };
    let (map, warnings) = choose::topology(path, args.origin.as_deref(), hosts).map_err(unchosen)?;
    warnings.iter().for_each(|warning| reporter.warning(warning));
    Ok(Some(map))
}

/// Shows what happens.
fn show(news: News, reporter: &mut Reporter) {
    match (&news, news.line()) {
        (News::Waiting(waiting), _) if reporter.is_json() => reporter.happened("waiting", fields_of(waiting)),
        (News::Open(open), _) if reporter.is_json() => reporter.happened("open", fields_of(open)),
        // Said with --quiet too: others wait for it.
        (News::Open(_), Some(line)) => reporter.say(&line),
        (_, Some(line)) => reporter.note(&line),
        (_, None) => {}
    }
}
