//! `tidecast field recv`: takes a field's streams into shared memory.

use std::path::PathBuf;

use tidecast::Reached;
use tidecast::event::field::receive::{Done, Started};
use tidecast::field::{Key, Missing, Policy, ReceiveOptions, Shape, Volumes, kept_key};
use tidecast_mover::Cpus;

use super::tell::tell;
use crate::cmd::{Context, drive};
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, fields_of};
use tidecast::settings::Listen;

/// Take a field's streams into shared memory, where programs of this host see it
///
/// Stream i comes in at PORT + i, and its values go straight into /dev/shm/tidecast-field-NAME (docs/field-format.md). What is lost is
/// counted, by step and stream. The command line for the other side is printed. Ctrl-C ends it; the shared memory is gone then.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Receive the first stream here, the others at the ports behind it; port 0: neighbouring ports that the system chooses
    #[arg(long, value_name = "[ADDR]:PORT", default_value = ":7500")]
    listen: Listen,
    /// Streams at most
    #[arg(long, value_name = "N", default_value = "32", value_parser = clap::value_parser!(u32).range(1..=4096))]
    streams: u32,
    /// Name of the shared memory
    #[arg(long, visible_alias = "shm", value_name = "NAME", default_value = "field")]
    name: String,
    /// What readers see: one volume that is always changing, or steps when they have closed [default: live]
    #[arg(long, value_name = "WHAT", value_parser = ["live", "steps"])]
    volume: Option<String>,
    /// What readers find where values have not come: those of the step before, or NaN; a map says where, and recordings have NaN
    #[arg(long, value_name = "WHAT", default_value = "keep", value_parser = ["keep", "nan"])]
    missing: String,
    /// Show only steps of which nothing is missing; --volume steps goes with it
    #[arg(long)]
    complete: bool,
    /// Record steps into this directory, as a Zarr array and a series that ParaView opens; --volume steps goes with it
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// End after so many steps
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// The key that senders must have: @FILE has it, - reads it from standard input [default: one that is made once and kept]
    #[arg(long, value_name = "KEY", conflicts_with = "plain")]
    #[arg(env = "TIDECAST_FIELD_KEY", hide_env_values = true)]
    key: Option<Key>,
    /// Anybody may send, whatever the key: in a network that is yours alone
    #[arg(long)]
    plain: bool,
    /// Take the paper's packets from senders that know nothing else; with --plain and --shape
    #[arg(long, value_name = "HOW", value_parser = ["xyz"], requires_all = ["plain", "shape"])]
    packing: Option<String>,
    /// Shape of the volume of such a sender
    #[arg(long, value_name = "X,Y,Z", requires = "packing")]
    shape: Option<Shape>,
    /// Work on these cores: 0-3,8, node:N (of a NUMA node), card:NAME (those next to a network card)
    #[arg(long, value_name = "LIST")]
    cpus: Option<Cpus>,
}

const EXAMPLES: &str = "\
Examples:
  tidecast field recv --listen :7500                 # prints what to run at the other side
  tidecast field recv --volume steps --missing nan   # whole steps, with holes where values were lost
  tidecast field recv --record /scratch/run7         # all steps, for ParaView: /scratch/run7/series.xdmf
  tidecast field recv --plain --packing xyz --shape 1024,1024,1024   # from any sender of the paper's packets";

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
    let done =
        drive::serve_with_news(begin, reporter, announce, |news, reporter| tell("recv", &news, reporter));
    let lines = match done.as_ref().map_err(Failure::reached) {
        Ok(Done { received, .. }) => received.lines(),
        Err(Some(Reached::FieldReceive(received))) => received.lines(),
        Err(_) => Vec::new(),
    };
    lines.iter().for_each(|line| reporter.result(line));
    Ok(fields_of(&done?))
}
