//! `tidecast field recv`: takes a field's streams into shared memory.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use serde_json::{Map, Value, json};
use tidecast_field::geometry::Shape;
use tidecast_field::key::Secret;
use tidecast_field::recv::{Closed, Event, Missing, Options, Policy, Progress, Receiver, Total, Volumes};

use super::key::{KEPT, Key, kept};
use super::place::until_stopped;
use crate::cmd::Context;
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, Snapshot, object, round};
use crate::settings::Listen;
use tidecast_mover::Cpus;
use tidecast_text::{Rate, count};

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
    #[arg(
        long,
        value_name = "KEY",
        env = "TIDECAST_FIELD_KEY",
        hide_env_values = true,
        conflicts_with = "plain"
    )]
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
    let live = args.volume.as_deref() == Some("live");
    if live && (args.complete || args.record.is_some()) {
        let what = if args.complete { "--complete" } else { "--record" };
        return Err(Failure::usage(anyhow!(
            "{what} needs --volume steps: one that is always changing is never a step"
        )));
    }
    let secret = match (&args.key, args.plain) {
        (_, true) => None,
        (Some(key), _) => Some((key.secret.clone(), key.file.clone())),
        (None, _) => {
            let state = context.own_state_dir()?;
            Some((kept(&state)?, Some(state.join(KEPT))))
        }
    };
    let (secret, key_file) = secret.unzip();
    let key_file = key_file.map(|file| file.unwrap_or_else(|| PathBuf::from("KEYFILE")));
    let options = options(args, secret);
    let mut receiver = Receiver::start(&options)?;
    let stopped = until_stopped()?;
    announce(args, key_file.as_deref(), receiver.addresses(), reporter)?;
    let mut watch = Watch { steps: 0, left: args.steps, loss: 0.0, rates: Rates::default() };
    while !watch.is_over() && !stopped() {
        match receiver.events().recv_timeout(Duration::from_millis(100)) {
            Ok(event) => watch.hear(event, reporter),
            Err(_) => watch.progress(receiver.progress(), reporter),
        }
    }
    receiver.end();
    while let (false, Ok(event)) = (watch.is_over(), receiver.events().try_recv()) {
        watch.hear(event, reporter);
    }
    let mut fields = tell(&receiver.totals(), watch.steps, reporter);
    if let Some(dir) = &args.record {
        let (recorded, skipped) = receiver.recorded();
        let slow =
            if skipped > 0 { format!("; {skipped} were not, for want of time") } else { String::new() };
        reporter.result(&format!("{} recorded in {}{slow}", count(recorded, "step"), dir.display()));
        fields.extend(object(json!({ "recorded": recorded, "skipped": skipped })));
    }
    match receiver.unrecorded() {
        Some(why) => Err(Failure::from(anyhow!(why)).with(fields)),
        None => Ok(fields),
    }
}

/// Says where it listens, and what to run at the other side.
fn announce(
    args: &Args,
    key_file: Option<&Path>,
    addresses: &[SocketAddr],
    reporter: &mut Reporter,
) -> anyhow::Result<()> {
    let first = addresses.first().copied().context("no stream")?;
    let command = args.packing.is_none().then(|| command(args, key_file, first));
    let ports: Vec<u16> = addresses.iter().map(SocketAddr::port).collect();
    let fields = json!({ "address": first, "ports": ports, "streams": args.streams, "name": args.name, "send": command });
    reporter.started("field recv", object(fields));
    let ip = first.ip();
    match ports.as_slice() {
        [.., last] if ports.len() > 1 => {
            reporter.note(&format!(
                "listening at UDP ports {} to {last} of {ip}, one for each stream",
                first.port()
            ));
        }
        _ => reporter.note(&format!("listening at UDP port {} of {ip}", first.port())),
    }
    if let Some(command) = &command {
        let key = match key_file {
            Some(file) => format!("; {}: a file of mode 0600 there that has the key", file.display()),
            None => String::new(),
        };
        reporter.note(&format!("to send here, run at the other side (SOURCE: a file of the field{key}):"));
        reporter.result(command);
    }
    Ok(())
}

fn options(args: &Args, secret: Option<Secret>) -> Options {
    let steps = args.volume.as_deref() == Some("steps") || args.complete || args.record.is_some();
    Options {
        listen: SocketAddr::new(
            args.listen.ip.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
            args.listen.port,
        ),
        streams: args.streams,
        name: args.name.clone(),
        secret,
        policy: Policy {
            volumes: if steps { Volumes::Steps } else { Volumes::Live },
            missing: if args.missing == "nan" { Missing::Nan } else { Missing::Keep },
            complete: args.complete,
        },
        record: args.record.clone(),
        foreign: args.shape,
    }
}

/// What to run at the other side.
fn command(args: &Args, key_file: Option<&Path>, first: SocketAddr) -> String {
    let host = match first.ip() {
        ip if ip.is_unspecified() => rustix::system::uname().nodename().to_string_lossy().into_owned(),
        IpAddr::V6(ip) => format!("[{ip}]"),
        ip => ip.to_string(),
    };
    let how = match key_file {
        Some(file) => format!("--key @{}", tidecast_text::quote(&file.display().to_string())),
        None => "--plain".to_owned(),
    };
    format!("tidecast field send SOURCE --to {host}:{} --streams {} {how}", first.port(), args.streams)
}

/// What has been heard so far.
struct Watch {
    steps: u64,
    left: Option<u64>,
    /// Of the last step, what part of its packets was lost.
    loss: f64,
    rates: Rates,
}

impl Watch {
    fn is_over(&self) -> bool {
        self.left == Some(0)
    }

    fn hear(&mut self, event: Event, reporter: &mut Reporter) {
        match event {
            Event::Step(closed) => {
                self.steps += 1;
                self.left = self.left.map(|left| left.saturating_sub(1));
                self.loss = 1.0 - closed.received as f64 / closed.expected.max(1) as f64;
                reporter.happened("step", step(&closed));
            }
            Event::Session { title, shape, streams, first, here, rate, file } => {
                let fields = json!({
                    "title": title, "shape": shape.to_string(), "streams": streams, "first": first, "here": here,
                    "rate": rate, "file": file,
                });
                reporter.happened("session", object(fields));
                let title = if title.is_empty() { String::new() } else { format!("{title}, ") };
                let streams = count(here.into(), "stream");
                reporter
                    .note(&format!("receiving {title}{shape} values, {streams}, into {}", file.display()));
            }
            Event::Note(text) => reporter.warning(&text),
            _ => {}
        }
    }

    fn progress(&mut self, progress: Option<Progress>, reporter: &mut Reporter) {
        let Some(progress) = progress else { return };
        let said = format!(
            "step {}: {:.1}%, loss of the last {:.2}%, {}",
            progress.step,
            progress.filled as f64 * 100.0 / progress.units.max(1) as f64,
            self.loss.max(0.0) * 100.0,
            Rate(self.rates.of(progress.bytes))
        );
        reporter.progress(&Snapshot {
            stage: "recv",
            bytes: progress.filled,
            total: progress.units,
            received: progress.bytes,
            said: Some(said),
            ..Snapshot::default()
        });
    }
}

/// Bits a second over the last second or so.
#[derive(Default)]
struct Rates(Option<(Instant, u64, u64)>);

impl Rates {
    fn of(&mut self, bytes: u64) -> u64 {
        let now = Instant::now();
        let (since, before, rate) = self.0.unwrap_or((now, bytes, 0));
        let seconds = (now - since).as_secs_f64();
        if seconds < 1.0 {
            self.0.get_or_insert((now, bytes, 0));
            return rate;
        }
        let rate = (bytes.saturating_sub(before) as f64 * 8.0 / seconds) as u64;
        self.0 = Some((now, bytes, rate));
        rate
    }
}

/// A closed step for programs.
fn step(closed: &Closed) -> Map<String, Value> {
    let mut fields = object(serde_json::to_value(closed).unwrap_or_default());
    fields.insert("seconds".into(), round(closed.seconds).into());
    let rate = closed.bytes as f64 * 8.0 / closed.seconds.max(1e-6);
    fields.insert("rate".into(), (rate.round() as u64).into());
    fields
}

/// The end, for people and programs.
fn tell(totals: &[Total], steps: u64, reporter: &Reporter) -> Map<String, Value> {
    let sum = |of: fn(&Total) -> u64| totals.iter().map(of).sum::<u64>();
    let (packets, lost, recovered) = (sum(|t| t.packets), sum(|t| t.lost), sum(|t| t.recovered));
    reporter.clear();
    reporter.result(&format!(
        "{}, {}; {lost} lost, of which {recovered} recovered; {} duplicate, {} of an old step, {} rejected, {} reordered",
        count(steps, "step"),
        count(packets, "packet"),
        sum(|t| t.duplicate),
        sum(|t| t.stale),
        sum(|t| t.rejected),
        sum(|t| t.reordered)
    ));
    for (stream, total) in totals.iter().enumerate().filter(|(_, total)| total.lost > 0) {
        let percent = total.lost as f64 * 100.0 / (total.packets + total.lost) as f64;
        reporter.result(&format!(
            "stream {stream}: {} lost ({percent:.2}%), {} recovered",
            total.lost, total.recovered
        ));
    }
    object(
        json!({ "steps": steps, "packets": packets, "lost": lost, "recovered": recovered, "streams": totals }),
    )
}
