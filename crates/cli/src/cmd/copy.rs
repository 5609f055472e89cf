//! `tidecast copy SRC... DEST`: copies files of any size from host to host.

mod filter;
mod memory;
mod rsync;
mod run;

use std::ffi::OsString;

use anyhow::anyhow;
use clap::builder::RangedU64ValueParser;
use tidecast_mover::Cpus;
use tidecast_mover::end::ServerKey;
use tidecast_mover::filter::Rule;
use tidecast_mover::part::BLOCK;
use tidecast_mover::session::{ConnectOptions, Copy, How, Launcher, Memory, Reading};
use tidecast_mover::spec::{Durable, ReceiveSpec, SendSpec};
use tidecast_mover::transfer::{MAX_STREAMS, Options};
use tidecast_text::{Rate, Size, Span};

use self::filter::Filter;
use self::rsync::Rsync;
use crate::failure::{Failure, Outcome};
use crate::open_files;
use crate::report::Reporter;

/// Copy files and directories from host to host at line rate
///
/// SRC and DEST are as with rsync: paths of this host, `[user@]host:path` of a host that ssh reaches (tidecast must be
/// installed there), or `tidecast://[KEY@]host:port/path` of a copy-server, in which KEY may be `@FILE` or `-` for standard
/// input (see --key). All attributes are kept. A slash at the end of a source directory means its contents; if several
/// sources have the same name, the first source wins. Files of the same size and time at the destination are not copied
/// again (as with rsync; --checksum compares contents).
///
/// Data is sent in blocks of 4 MiB on separate encrypted connections, so that many small files are as fast as one large
/// file. A single file can also be copied to a local pipe or device, or to standard output (-). To resume an interrupted
/// copy, give the same command again.
///
/// A list of hosts that see the same files may take the place of a host, like dtn[1-4]:/data/ or
/// tidecast://dtn[1-4]/data/: pairs of hosts then divide the work; fast pairs copy more, and the other pairs take over
/// from a pair that fails.
///
/// rsync's flags have rsync's meaning. -a keeps all attributes, access lists and extended ones too, as do all of
/// -rlptgoD, and no flag at all; with some of these only they are kept (-rt: times, but no links, modes or owners).
/// Flags for things that are always done (-z, -P, -S, ...) have no effect; -h alone prints the help.
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("../../help/copy_examples.txt").trim_end(), args_override_self = true)]
pub(crate) struct Args {
    /// Sources, and last the destination (with --to-memory, sources only)
    #[arg(required = true, value_name = "SRC... DEST")]
    paths: Vec<OsString>,
    #[command(flatten)]
    filter: Filter,
    /// Delete files at the destination that the sources do not have, except those that --exclude matches
    #[arg(long, aliases = ["del", "delete-before", "delete-during", "delete-delay", "delete-after"])]
    delete: bool,
    /// Compare files by content instead of size and time
    #[arg(short, long)]
    checksum: bool,
    /// Skip files that are newer at the destination; hard links are then copied as separate files
    #[arg(short, long)]
    update: bool,
    /// Only show the changes that a copy would make
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Resume an interrupted copy (auto), or start it over (never)
    #[arg(long, value_name = "HOW", default_value = "auto", default_missing_value = "auto", num_args = 0..=1, require_equals = true, value_parser = ["auto", "never"])]
    resume: String,
    /// Sync data to disk when the copy ends (end), before each file gets its name (each), or never
    #[arg(long, value_name = "WHEN", default_value = "end", value_parser = ["end", "each", "never"])]
    fsync: String,
    /// Copy into shared memory, at most SIZE of it, for a program that reads events from standard output: one JSON
    /// object per line, of which `file` has number, path, and `at`, the path in shared memory. The program writes
    /// `release NUMBER` when it no longer needs a file [default SIZE: 1GiB, or a quarter of the free memory]
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, default_missing_value = "auto", conflicts_with_all = ["delete", "checksum", "update", "dry_run", "resume", "fsync", "itemize-changes"])]
    to_memory: Option<memory::Budget>,
    /// With --to-memory: report each part of a file as it arrives (`block`: number, offset, bytes); the program releases it
    /// by `release NUMBER OFFSET`
    #[arg(long, requires = "to_memory")]
    blocks: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    tune: TuneArgs,
    #[command(flatten)]
    rsync: Rsync,
}

/// The maximum number of threads per end.
const MAX_READERS: u64 = 256;
/// The minimum pool: one block is sent while the other is filled.
const MIN_POOL: u64 = 2 * BLOCK as u64;

/// How to connect to the other end.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Connections")]
pub(crate) struct ConnectionArgs {
    /// Send data unencrypted (each block is still verified)
    #[arg(long)]
    plain: bool,
    /// Send data on separate connections (auto), or through ssh where a firewall blocks these (ssh)
    #[arg(long, value_name = "WAY", value_parser = ["auto", "ssh"], default_value = "auto")]
    via: String,
    /// Use this key for copy-servers whose URL has no key: @FILE reads it from a file, - from standard input [default:
    /// $TIDECAST_COPY_KEY]
    #[arg(long, value_name = "@FILE|-", value_parser = ServerKey::given)]
    key: Option<ServerKey>,
    /// Start the other end by this command: a program and its arguments, quoted if they contain blanks; it is run as
    /// `COMMAND HOST -- PROGRAM copy-end` and must connect that program's standard input and output
    #[arg(
        short = 'e',
        long,
        alias = "rsh",
        value_name = "COMMAND",
        env = "TIDECAST_SSH",
        default_value = "ssh"
    )]
    ssh: Launcher,
    /// Run this program at the other end
    #[arg(long, value_name = "PROGRAM", default_value = "tidecast")]
    remote_program: String,
    /// Let the other end listen on this port [default: any free port]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Spread the streams over these addresses of the listening end, separated by commas, e.g. one for each network card;
    /// `all`: all its addresses [default: the first of its addresses that answers]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    address: Vec<String>,
    /// Use this TCP congestion control [default: bbr over long distances, if the system has it]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Give up after this time without a message from the other end
    #[arg(long, value_name = "TIME", default_value = "1m")]
    timeout: Span,
    /// Limit the transfer rate (e.g. 10gbit, 100MB/s) [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = limit)]
    limit: Option<Rate>,
}

/// Parameters that adapt while the copy runs, unless they are given.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Tuning (automatic by default)")]
pub(crate) struct TuneArgs {
    /// Use N data connections [default: adapted to the rate]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=MAX_STREAMS as u64))]
    streams: Option<usize>,
    /// Use N reading and N writing threads [default: adapted to the rate]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=MAX_READERS))]
    readers: Option<usize>,
    /// Use SIZE of memory for blocks at each end [default: as the threads need, and more if that is faster, up to 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = pool)]
    pool: Option<Size>,
    /// Run on these cores of this host: 0-3,8, node:N (a NUMA node), card:NAME (the cores next to a network card)
    #[arg(long, value_name = "LIST")]
    cpus: Option<Cpus>,
    /// Send SIZE of random data instead of files, in files of FILE bytes
    #[arg(long, value_name = "SIZE[,FILE]")]
    from_null: Option<String>,
    /// Verify blocks, but write nothing
    #[arg(long, conflicts_with = "to_memory")]
    to_null: bool,
    /// Measure steps from the simplest transfer to the whole copy, report the rate of each and the bottleneck, and copy
    #[arg(long, conflicts_with_all = ["from_null", "to_null", "dry_run", "to_memory", "itemize-changes"])]
    explain: bool,
}

pub(crate) fn run(args: &Args, reporter: &mut Reporter) -> Outcome {
    let copy = args.copy(reporter).map_err(Failure::usage)?;
    if let Some(cpus) = &args.tune.cpus {
        cpus.keep_to().map_err(Failure::usage)?;
    }
    open_files::allow_most();
    reporter.go_live("copy");
    if args.to_memory.is_some() {
        return memory::run(copy, reporter);
    }
    let shown = run::Shown { itemize: args.rsync.0.itemize, stats: args.rsync.0.stats };
    run::run(copy, shown, reporter)
}

impl Args {
    /// Whether a program reads standard output.
    pub(crate) fn is_for_a_program(&self) -> bool {
        self.to_memory.is_some()
    }

    /// The copy that these arguments describe.
    fn copy(&self, reporter: &Reporter) -> anyhow::Result<Copy> {
        let null = self.tune.from_null.as_deref().map(noise).transpose()?;
        let mut copy = match (self.to_memory, null, self.paths.split_last()) {
            (Some(memory::Budget(budget)), ..) => {
                let memory = Memory { budget: budget.map(|size| size.0), blocks: self.blocks };
                Copy::to_memory(&self.paths, memory)?
            }
            (None, Some(null), Some((to, from))) => Copy::of_noise(null, from, to)?,
            (None, None, Some((to, from))) => Copy::new(from, to)?,
            (None, _, None) => {
                return Err(anyhow!("no source and destination given; write tidecast copy SRC... DEST"));
            }
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
        copy.reach = self.connection.reach();
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
            delete: self.delete || self.rsync.0.delete_excluded,
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
            rate: self.connection.limit.map(|rate| rate.0 / 8).or(self.rsync.0.limit),
            timeout: self.connection.timeout.0,
        }
    }
}

impl ConnectionArgs {
    fn reach(&self) -> ConnectOptions {
        ConnectOptions {
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

/// Parses the size of a pool of at least [`MIN_POOL`].
fn pool(text: &str) -> Result<Size, String> {
    match text.parse::<Size>()? {
        size if size.0 < MIN_POOL => Err(format!("the pool is too small: use at least {}", Size(MIN_POOL))),
        size => Ok(size),
    }
}

/// Parses a rate of at least one byte per second.
fn limit(text: &str) -> Result<Rate, String> {
    match text.parse::<Rate>()? {
        rate if rate.0 < 8 => {
            Err("the rate is below one byte per second; for no limit, leave out --limit".into())
        }
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
