//! `tidecast field recv`: receives a field's streams into shared memory.

use std::path::PathBuf;

use tidecast::PartialResult;
use tidecast::event::field::receive::{Done, Started};
use tidecast::field::{Key, Missing, Policy, ReceiveOptions, Shape, Volumes, kept_key};
use tidecast_mover::Cpus;

use super::news::report_news;
use crate::cmd::{Context, run_operation};
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, fields_of};
use tidecast::settings::Listen;

/// Receive a field's streams into shared memory, where programs of this host can read it
///
/// Stream i arrives at PORT + i, and its values are written to /dev/shm/tidecast-field-NAME (docs/field-format.md). Lost
/// packets are counted by step and stream. The command line for the sender is printed. The receiver continues when the
/// terminal is closed; Ctrl-C or SIGTERM (kill PID) ends it and removes the shared memory.
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("../../../help/field_recv_examples.txt").trim_end())]
pub(crate) struct Args {
    /// Receive the first stream at this port, the others at the next ports; port 0: consecutive free ports
    #[arg(long, value_name = "[ADDR]:PORT", default_value = ":7500")]
    listen: Listen,
    /// Limit the number of streams
    #[arg(long, value_name = "N", default_value = "32", value_parser = clap::value_parser!(u32).range(1..=4096))]
    streams: u32,
    /// Name the shared memory
    #[arg(long, visible_alias = "shm", value_name = "NAME", default_value = "field")]
    name: String,
    /// Show readers one volume that changes all the time (live), or each step when it is closed (steps) [default: live]
    #[arg(long, value_name = "WHAT", value_parser = ["live", "steps"])]
    volume: Option<String>,
    /// Fill missing values with the values of the step before (keep), or NaN; a map marks them, and recordings have NaN
    #[arg(long, value_name = "WHAT", default_value = "keep", value_parser = ["keep", "nan"])]
    missing: String,
    /// Show complete steps only; implies --volume steps
    #[arg(long)]
    complete: bool,
    /// Record steps into this directory, as a Zarr array and a series that ParaView opens; implies --volume steps
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// End after N steps [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// Require this key of senders: @FILE reads it from a file, - from standard input [default: a key of this host,
    /// made once and kept]
    #[arg(long, value_name = "KEY", conflicts_with = "plain")]
    #[arg(env = "TIDECAST_FIELD_KEY", hide_env_values = true)]
    key: Option<Key>,
    /// Accept any sender, without a key; use it in private networks only
    #[arg(long)]
    plain: bool,
    /// Accept the paper's packets from other programs; needs --plain and --shape
    #[arg(long, value_name = "HOW", value_parser = ["xyz"], requires_all = ["plain", "shape"])]
    packing: Option<String>,
    /// Shape of the volume with --packing
    #[arg(long, value_name = "X,Y,Z", requires = "packing")]
    shape: Option<Shape>,
    /// Run on these cores: 0-3,8, node:N (a NUMA node), card:NAME (the cores next to a network card)
    #[arg(long, value_name = "LIST")]
    cpus: Option<Cpus>,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    if let Some(cpus) = &args.cpus {
        cpus.keep_to().map_err(Failure::usage)?;
    }
    let volumes =
        args.volume.as_ref().map(|word| if word == "live" { Volumes::Live } else { Volumes::Steps });
    let missing = if args.missing == "nan" { Missing::Nan } else { Missing::Keep };
    let policy = Policy::new(volumes, missing, args.complete, args.record.is_some());
    let policy = policy.map_err(Failure::usage)?;
    let key = match (&args.key, args.plain) {
        (_, true) => None,
        (Some(key), _) => Some(key.clone()),
        (None, _) => Some(kept_key(Some(&context.state_dir()?))?),
    };
    let (secret, key_file) = key.map(|key| (key.secret, key.file)).unzip();
    let options = ReceiveOptions {
        listen: args.listen.addr(),
        streams: args.streams,
        name: args.name.clone(),
        secret,
        key_file: key_file.flatten(),
        policy,
        record: args.record.clone(),
        foreign: args.shape,
        steps: args.steps,
    };
    let announce = |started: &Started, reporter: &Reporter| {
        started.notes().iter().for_each(|note| reporter.note(note));
        started.send.iter().for_each(|command| reporter.result(command));
    };
    let begin = || tidecast::field::receive(options);
    let done = run_operation::serve_with_news(begin, reporter, announce, |news, reporter| {
        report_news("recv", &news, reporter)
    });
    let lines = match done.as_ref().map_err(Failure::partial_result) {
        Ok(Done { received, .. }) => received.lines(),
        Err(Some(PartialResult::FieldReceive(received))) => received.lines(),
        Err(_) => Vec::new(),
    };
    lines.iter().for_each(|line| reporter.result(line));
    Ok(fields_of(&done?))
}
