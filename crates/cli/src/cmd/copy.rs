//! `tidecast copy SRC... DEST`: any mix of files from host to host.

mod filter;
mod memory;
mod rsync;
mod run;

use std::ffi::OsString;

use anyhow::anyhow;
use clap::builder::RangedU64ValueParser;
use tidecast_mover::Cpus;
use tidecast_mover::back::{MAX_STREAMS, Options};
use tidecast_mover::end::ServerKey;
use tidecast_mover::filter::Rule;
use tidecast_mover::part::BLOCK;
use tidecast_mover::session::{Copy, How, Launcher, Memory, Reach, Reading};
use tidecast_mover::spec::{Durable, ReceiveSpec, SendSpec};
use tidecast_text::{Rate, Size, Span};

use self::filter::Filter;
use self::rsync::Rsync;
use crate::failure::{Failure, Outcome};
use crate::report::Reporter;

/// Copy files and directories from host to host at line rate
///
/// SRC and DEST are as with rsync: paths of this host, `[user@]host:path` of one that ssh reaches (which needs tidecast too), or
/// `tidecast://[KEY@]host:port/path` of a copy-server, in which KEY may be `@FILE` that has it or `-` for standard input (see --key). All attributes are kept; a slash at the end of a source directory means its
/// contents, and what several such have, the first gives. Files that are there already, by size and time, stay (as with rsync; --checksum compares contents). Data goes in blocks of 4 MiB on encrypted connections of its own, so
/// that ten thousand small files cost what one large one does. One file, of this host or another, can be copied to a pipe or device of this host, or to standard output (-). What is interrupted goes on where it was when the command is given again.
/// Where a list of hosts that see the same files stands for a host, as dtn[1-4]:/data/ or tidecast://dtn[1-4]/data/, pairs of them divide the work: a quick one takes
/// more, and the others do that of one that breaks. Flags of rsync mean what they mean to rsync: -a keeps everything, as no flag does; of -rlptgoD who names
/// some keeps these alone (-rt: times, and no links, modes or owners). Those that ask for what is done anyway (-z, -P, -S, ...) change nothing; -h alone asks for help.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub(crate) struct Args {
    /// What to copy, and last where to (with --to-memory only what)
    #[arg(required = true, value_name = "SRC... DEST")]
    paths: Vec<OsString>,
    #[command(flatten)]
    filter: Filter,
    /// Delete what the sources do not have, but for what --exclude names
    #[arg(long, aliases = ["del", "delete-before", "delete-during", "delete-delay", "delete-after"])]
    delete: bool,
    /// Compare contents, not times
    #[arg(short, long)]
    checksum: bool,
    /// Leave files that are newer at the destination; hard links are copied as files then
    #[arg(short, long)]
    update: bool,
    /// Only say what would be done
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Whether to go on where an interrupted copy has stopped
    #[arg(long, value_name = "HOW", default_value = "auto", default_missing_value = "auto", num_args = 0..=1, require_equals = true, value_parser = ["auto", "never"])]
    resume: String,
    /// When data must be on the disk: when the copy ends, each file before it gets its name, or never
    #[arg(long, value_name = "WHEN", default_value = "end", value_parser = ["end", "each", "never"])]
    fsync: String,
    /// Into shared memory, at most SIZE of it, for a program that reads standard output: a JSON object a line, of which `file` has number, path, and
    /// `at`, where it is. The program writes `release NUMBER` when it is through with a file [default SIZE: 1GiB, or a quarter of what is free]
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, default_missing_value = "auto", conflicts_with_all = ["delete", "checksum", "update", "dry_run", "resume", "fsync", "itemize-changes"])]
    to_memory: Option<memory::Budget>,
    /// With --to-memory: tell of each part of a file as it comes (`block`: number, offset, bytes), to be given back by `release NUMBER OFFSET`
    #[arg(long, requires = "to_memory")]
    blocks: bool,
    #[command(flatten)]
    way: WayArgs,
    #[command(flatten)]
    tune: TuneArgs,
    #[command(flatten)]
    rsync: Rsync,
}

const EXAMPLES: &str = "\
Examples:
  tidecast copy /data/cmip6 store:/archive           # to host store, into /archive/cmip6
  tidecast copy store:'/archive/cmip6/*.nc' .        # and back
  tidecast copy store:/archive/all.tar - | tar t     # one file to standard output
  tidecast copy --delete a:/data/ b:/mirror/         # from one host to another
  tidecast copy dtn[1-4]:/data/ dtn[5-8]:/archive/   # by four pairs of hosts at once
  tidecast copy --from-null 10GiB store:/tmp --to-null   # the network alone
  tidecast copy --explain /data/cmip6 store:/archive # where the time goes
  tidecast copy --key @key /data/cmip6 tidecast://store/   # to a copy-server
  tidecast copy store:'/archive/*.nc' --to-memory    # for a program (Python: tidecast.copy.files)";

/// Most threads of a side.
const MAX_READERS: u64 = 256;
/// The least pool: one block is on its way while the other is filled.
const MIN_POOL: u64 = 2 * BLOCK as u64;

/// How the ends are reached.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Connections")]
pub(crate) struct WayArgs {
    /// Data unencrypted (each block is still checked)
    #[arg(long)]
    plain: bool,
    /// `ssh`: all data through ssh, where nothing else passes
    #[arg(long, value_name = "WAY", value_parser = ["auto", "ssh"], default_value = "auto")]
    via: String,
    /// Key of the copy-servers whose URL has none: @FILE has it, - reads it from standard input [default: $TIDECAST_COPY_KEY]
    #[arg(long, value_name = "@FILE|-", value_parser = ServerKey::given)]
    key: Option<ServerKey>,
    /// How to start the other end: a program and its words, in quotes where they have blanks
    #[arg(
        short = 'e',
        long,
        alias = "rsh",
        value_name = "COMMAND",
        env = "TIDECAST_SSH",
        default_value = "ssh"
    )]
    ssh: Launcher,
    /// What tidecast is called there
    #[arg(long, value_name = "PROGRAM", default_value = "tidecast")]
    remote_program: String,
    /// The port on which the other end listens [default: any]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Addresses of the end that listens, between commas, over which the streams go round: those of its cards, or `all` that it has
    /// [default: the first of its addresses that answers]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    address: Vec<String>,
    /// Congestion control of the streams [default: bbr on long ways, where the system has it]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Give up after so long without a word from the other end
    #[arg(long, value_name = "TIME", default_value = "1m")]
    timeout: Span,
    /// At most so much a second
    #[arg(long, value_name = "RATE", value_parser = limit)]
    limit: Option<Rate>,
}

/// What is found out by itself, unless it is told.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Tuning (found out while it runs)")]
pub(crate) struct TuneArgs {
    /// Connections that carry data
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=MAX_STREAMS as u64))]
    streams: Option<usize>,
    /// Threads that read, and as many that write
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=MAX_READERS))]
    readers: Option<usize>,
    /// Memory for blocks, at each end [default: what its threads need, and more where that is quicker, to 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = pool)]
    pool: Option<Size>,
    /// Work on these cores of this host: 0-3,8, node:N (of a NUMA node), card:NAME (those next to a network card)
    #[arg(long, value_name = "LIST")]
    cpus: Option<Cpus>,
    /// Send so many bytes of noise instead of files, in files of FILE bytes
    #[arg(long, value_name = "SIZE[,FILE]")]
    from_null: Option<String>,
    /// Write nothing; blocks are checked
    #[arg(long, conflicts_with = "to_memory")]
    to_null: bool,
    /// Climb from the simplest transfer to the whole one, say what each step costs and which is the limit, and copy
    #[arg(long, conflicts_with_all = ["from_null", "to_null", "dry_run", "to_memory", "itemize-changes"])]
    explain: bool,
}

pub(crate) fn run(args: &Args, reporter: &mut Reporter) -> Outcome {
    let copy = args.copy(reporter).map_err(Failure::usage)?;
    if let Some(cpus) = &args.tune.cpus {
        cpus.keep_to().map_err(Failure::usage)?;
    }
    reporter.go_live("copy");
    if args.to_memory.is_some() {
        return memory::run(copy, reporter);
    }
    let shown = run::Shown { itemize: args.rsync.0.itemize, stats: args.rsync.0.stats };
    run::run(copy, shown, reporter)
}

impl Args {
    /// Whether standard output is for a program.
    pub(crate) fn is_for_a_program(&self) -> bool {
        self.to_memory.is_some()
    }

    /// What is asked for.
    fn copy(&self, reporter: &Reporter) -> anyhow::Result<Copy> {
        let null = self.tune.from_null.as_deref().map(noise).transpose()?;
        let mut copy = match (self.to_memory, null, self.paths.split_last()) {
            (Some(memory::Budget(budget)), ..) => {
                let memory = Memory { budget: budget.map(|size| size.0), blocks: self.blocks };
                Copy::to_memory(&self.paths, memory)?
            }
            (None, Some(null), Some((to, from))) => Copy::of_noise(null, from, to)?,
            (None, None, Some((to, from))) => Copy::new(from, to)?,
            (None, _, None) => return Err(anyhow!("what to copy, and where to?")),
        };
        let reading = Reading { exposed: self.rsync.0.delete_excluded, nul: self.rsync.0.paths.nul };
        let [sends, mut receives] = self.filter.rules(reading, reporter)?;
        if let Some(backups) = self.rsync.0.backups() {
            Rule::add(&mut receives, &backups, false)?;
        }
        copy.send = SendSpec {
            relative: self.rsync.0.paths.relative(copy.send.sources.len())?,
            filter: sends,
            checksum: self.checksum,
            sources: copy.send.sources,
            null: copy.send.null,
            ..self.rsync.0.send.clone()
        };
        copy.receive = self.receive(copy.receive.dest, receives);
        copy.options = self.options();
        copy.reach = self.way.reach();
        if self.tune.explain {
            copy.how = How::Explained;
        }
        Ok(copy)
    }

    fn receive(&self, dest: OsString, filter: Vec<Rule>) -> ReceiveSpec {
        let durable = match self.fsync.as_str() {
            "each" => Durable::Each,
            "never" => Durable::No,
            _ => Durable::End,
        };
        ReceiveSpec {
            dest,
            update: self.update,
            delete: self.delete,
            filter,
            checksum: self.checksum,
            dry_run: self.dry_run,
            itemize: self.rsync.0.itemize,
            resume: self.resume == "auto",
            durable,
            null: self.tune.to_null,
            ..self.rsync.0.receive.clone()
        }
    }

    fn options(&self) -> Options {
        let blocks = |size: Size| {
            usize::try_from(size.0 / tidecast_mover::part::BLOCK as u64).unwrap_or(usize::MAX).max(2)
        };
        Options {
            streams: self.tune.streams,
            fronts: self.tune.readers,
            pool: self.tune.pool.map(blocks),
            rate: self.way.limit.map(|rate| rate.0 / 8).or(self.rsync.0.limit),
            timeout: self.way.timeout.0,
        }
    }
}

impl WayArgs {
    fn reach(&self) -> Reach {
        Reach {
            plain: self.plain,
            through_ssh: self.via == "ssh",
            key: self.key.clone(),
            ssh: self.ssh.clone(),
            remote_program: self.remote_program.clone(),
            port: self.port,
            address: self.address.clone(),
            congestion: self.congestion.clone(),
        }
    }
}

/// A pool that holds something.
fn pool(text: &str) -> Result<Size, String> {
    match text.parse::<Size>()? {
        size if size.0 < MIN_POOL => Err(format!("a pool has at least {} bytes, 8MiB", MIN_POOL)),
        size => Ok(size),
    }
}

/// A rate at which something moves.
fn limit(text: &str) -> Result<Rate, String> {
    match text.parse::<Rate>()? {
        rate if rate.0 < 8 => Err("nothing moves at that rate; without --limit there is none".into()),
        rate => Ok(rate),
    }
}

/// `SIZE[,FILE]`.
fn noise(text: &str) -> anyhow::Result<(u64, u64)> {
    let size = |text: &str| text.parse::<Size>().map(|size| size.0).map_err(|e| anyhow!("--from-null: {e}"));
    match text.split_once(',') {
        Some((all, file)) => Ok((size(all)?, size(file)?)),
        None => Ok((size(text)?, 0)),
    }
}
