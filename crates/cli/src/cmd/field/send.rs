//! `tidecast field send`: the steps of a field to receivers.

use std::net::SocketAddr;
use std::str::FromStr;

use anyhow::{Result, anyhow, bail};
use serde_json::{Map, json};
use tidecast_field::geometry::{Order, Shape};
use tidecast_field::packet::Packing;
use tidecast_field::send::{self, BlackHole, Fate, Options, Progress, Receiver, source};

use super::key::Key;
use super::place::{Steps, places, until_stopped};
use crate::cmd::Context;
use crate::failure::{Code, Failure, Outcome};
use crate::report::{Reporter, Snapshot, object, round};
use tidecast_mover::Cpus;
use tidecast_text::{Rate, Size, count};

/// Send the steps of a field to one receiver or several, at a set rate
///
/// SOURCE is a file of raw float32 (with --shape), NumPy .npy or .npz, `FILE:variable` of NetCDF, HDF5, Zarr or VTK's image data (.vti), whatever its name,
/// `script.py:function` (a Python generator of 3-D arrays), or `demo:gray-scott[:N]` and `demo:nbody[:N]`, which compute a field of
/// N x N x N. Several files, or a pattern in quotes (`'step*.nc:density'`), are one series, in the order of their numbers. Missing values, by the conventions that xarray knows, arrive as NaN; values that are no real numbers are refused.
/// Steps are read ahead, cut along z, and each slab goes by a UDP stream of its own.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// What to send
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<String>,
    /// The receivers; of several, each gets a part of the volume
    #[arg(long, value_name = "HOST:PORT", required = true, value_delimiter = ',')]
    to: Vec<String>,
    /// Cut the volume into so many slabs at most, one stream each; a slab has one plane at least
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u32).range(1..=4096))]
    streams: u32,
    /// Bits a second of UDP payload (10gbit), all streams together; auto: as much as arrives
    #[arg(long, value_name = "RATE", default_value = "auto")]
    rate: Pace,
    /// How values are packed: run, or the paper's xyz, four times as large
    #[arg(long, value_name = "HOW", default_value = "run")]
    packing: Packing,
    /// In which order values of a slab go: by planes, or in bricks along the Z-order curve, so that what is lost lies together
    #[arg(long, value_name = "HOW", default_value = "zslab")]
    order: Order,
    /// Parity packets to make up for lost ones, of the data packets
    #[arg(long, value_name = "0|5%", default_value = "0")]
    fec: Share,
    /// Begin again when the steps are over
    #[arg(long = "loop")]
    again: bool,
    /// Steps from A up to B, without B; either may be left out
    #[arg(long, value_name = "A:B", default_value = ":")]
    steps: Steps,
    /// Take these axes of the array, by name or place from 0: STEP,Z,Y,X or Z,Y,X or Y,X; default: the last three, and one of time as steps
    #[arg(long, visible_alias = "dims", value_name = "AXES")]
    axes: Option<String>,
    /// Shape of raw values, x fastest
    #[arg(long, value_name = "X,Y,Z")]
    shape: Option<Shape>,
    /// The receiver's key: @FILE has it, - reads it from standard input
    #[arg(
        long,
        value_name = "KEY",
        env = "TIDECAST_FIELD_KEY",
        hide_env_values = true,
        conflicts_with = "plain"
    )]
    key: Option<Key>,
    /// Without tags, whatever the key, to receivers that are plain too
    #[arg(long)]
    plain: bool,
    /// Send each step when a controller says so (field sync), here
    #[arg(long, value_name = "ADDR:PORT")]
    sync: Option<SocketAddr>,
    /// Work on these cores, a sending thread on each: 0-3,8, node:N (of a NUMA node), card:NAME (those next to a network card)
    #[arg(long, value_name = "LIST")]
    cpus: Option<Cpus>,
}

const EXAMPLES: &str = "\
Examples:
  tidecast field send demo:gray-scott --to viz:7500 --key @field.key
  tidecast field send run.nc:density --to viz:7500 --rate 10gbit --streams 32 --loop
  tidecast field send step*.raw --shape 512,512,512 --to viz1:7500,viz2:7500 --fec 5%
  tidecast field send simulation.py:steps --to viz:7500";

/// A rate, or that it finds itself.
#[derive(Debug, Clone, Copy)]
struct Pace(Option<u64>);

impl FromStr for Pace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self(None)),
            _ => match text.parse()? {
                Rate(0) => Err("nothing is sent at that rate".into()),
                Rate(rate) => Ok(Self(Some(rate))),
            },
        }
    }
}

/// A share of one: `5%`, `0`.
#[derive(Debug, Clone, Copy)]
struct Share(f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim_end_matches('%').parse::<f64>() {
            Ok(percent) if (0.0..=100.0).contains(&percent) && (text.ends_with('%') || percent == 0.0) => {
                Ok(Self(percent / 100.0))
            }
            _ => Err(format!("{text:?} is not a share: write 5%, or 0 for none")),
        }
    }
}

pub(crate) fn run(args: &Args, _context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let mut options = args.options().map_err(Failure::usage)?;
    if let Some(cpus) = &args.cpus {
        cpus.keep_to().map_err(Failure::usage)?;
        options.cpus = cpus.numbers().map_err(Failure::usage)?;
    }
    let mut source = source::open(&args.sources, args.shape, args.axes.as_deref())?;
    let (shape, steps) = (source.shape(), source.steps());
    if let Some(steps) = steps.filter(|steps| options.first >= *steps) {
        let error = anyhow!(
            "{} has {}, and --steps begins at {}",
            source.name(),
            count(steps, "step"),
            options.first
        );
        return Err(Failure::usage(error));
    }
    let (nx, ny, nz) = shape.sides();
    let used = options.streams_for(shape);
    let asked = std::mem::replace(&mut options.streams, used);
    let fields = json!({
        "name": source.name(), "shape": [nx, ny, nz], "steps": steps, "streams": options.streams, "to": options.to, "rate": options.rate,
    });
    reporter.started("field send", object(fields));
    let size = Size(shape.values() * 4);
    let many = steps.map_or("steps without end".into(), |steps| count(steps, "step"));
    reporter.note(&format!("{} of {nx} x {ny} x {nz}, {many} of {size}", source.name()));
    if options.streams < asked {
        let (planes, used) = (count(nz.into(), "plane"), count(options.streams.into(), "stream"));
        reporter
            .note(&format!("{planes} go by {used}: of --streams {asked} the others have nothing to carry"));
    }
    if let Some((all, end)) = steps.zip(args.steps.end).filter(|(all, end)| end > all) {
        let all = count(all, "step");
        reporter.warning(&format!("{} has {all}: --steps {}:{end} ends there", source.name(), options.first));
    }
    let stopped = until_stopped()?;
    let mut told = Told::default();
    let outcome = send::run(source.as_mut(), &options, &|| !stopped(), &mut |now| told.tell(now, reporter));
    let last = outcome.map_err(|error| match error {
        send::Error::Geometry(_)
        | send::Error::Receivers { .. }
        | send::Error::Ports(..)
        | send::Error::Overlap(_)
        | send::Error::Parity => Failure::usage(error),
        error => error.into(),
    })?;
    let short = options.count.is_some_and(|asked| last.steps < asked) && steps.is_none();
    if short && !stopped() && !options.again && options.sync.is_none() {
        let sent = count(last.steps, "step");
        reporter.warning(&format!("{} has ended after {sent}, before --steps does", source.name()));
    }
    let fields = summary(&last, &options, reporter);
    // What has no end is ended so, and what has one is cut off.
    if stopped() && !options.again && steps.is_some() && options.sync.is_none() {
        return Err(Failure::cut("stopped before the last step").with(fields));
    }
    match missed(&last.receivers, &options) {
        Some(failure) => Err(failure.with(fields)),
        None => Ok(fields),
    }
}

/// What it comes to that receivers have not taken what was sent.
fn missed(receivers: &[Receiver], options: &Options) -> Option<Failure> {
    // The paper's own receivers say nothing.
    let silent = options.key.is_none() && options.packing == Packing::Xyz;
    let missed: Vec<_> = receivers
        .iter()
        .filter(|one| one.fate != Fate::Taken && !(silent && one.fate == Fate::Silent))
        .collect();
    let code = match missed.iter().map(|one| one.fate).max()? {
        Fate::Refused => Code::Fault,
        _ => Code::Cut,
    };
    let how = if options.key.is_some() {
        "it does not run, cannot be reached, or has another key (or --plain)"
    } else {
        "it does not run, cannot be reached, or wants a key"
    };
    let said: Vec<_> = missed
        .iter()
        .map(|Receiver { at, fate, streams }| match fate {
            Fate::Refused => format!(
                "the receiver at {at} refuses what is sent, and says why: it may have fewer --streams, no room for the volume, or another sender"
            ),
            Fate::Gone => format!("the receiver at {at} has gone before the end"),
            _ => format!("no receiver has answered at {at} ({}): {how}", count(*streams as u64, "stream")),
        })
        .collect();
    Some(Failure::new(code, anyhow!(said.join("; "))))
}

impl Args {
    fn options(&self) -> Result<Options> {
        let key = match (&self.key, self.plain) {
            (_, true) => None,
            (Some(key), false) => Some(key.secret.clone()),
            (None, false) => bail!(
                "no key given; name a file that has the receiver's with --key @FILE, set TIDECAST_FIELD_KEY, or --plain for receivers that are plain"
            ),
        };
        let count = self.steps.end.map(|end| end.saturating_sub(self.steps.begin));
        if count == Some(0) {
            bail!("--steps {}:{} are none", self.steps.begin, self.steps.end.unwrap_or_default());
        }
        Ok(Options {
            to: places(&self.to)?,
            streams: self.streams,
            rate: self.rate.0,
            packing: self.packing,
            order: self.order,
            parity: self.fec.0,
            first: self.steps.begin,
            count,
            again: self.again,
            key,
            sync: self.sync,
            cpus: Vec::new(),
            memory: None,
            wait: send::WAIT,
        })
    }
}

/// What has been said so far.
#[derive(Default)]
struct Told {
    /// Times that it was told.
    times: u32,
    absent: bool,
    refused: bool,
    black_hole: Option<BlackHole>,
    last: Option<(f64, u64)>,
}

impl Told {
    fn tell(&mut self, now: &Progress, reporter: &mut Reporter) {
        self.swallowed(now, reporter);
        self.times += 1;
        // In the first second receivers are just being asked.
        if self.times > 4
            && now.seconds > 0.0
            && now.accepted < now.streams
            && !std::mem::replace(&mut self.absent, true)
        {
            let (all, here) = (now.streams, now.accepted);
            reporter.warning(&format!(
                "{} of {all} streams have a receiver: it is sent all the same",
                if here == 0 { "none".into() } else { here.to_string() }
            ));
        }
        self.absent &= now.accepted < now.streams;
        if now.refused > 0 && !std::mem::replace(&mut self.refused, true) {
            reporter.warning("a receiver refuses this session: its volume may be of another size, or another sender busy with it");
        }
        let (seconds, bytes) = self.last.replace((now.seconds, now.bytes)).unwrap_or_default();
        let rate = (now.bytes.saturating_sub(bytes)) as f64 * 8.0 / (now.seconds - seconds).max(1e-3);
        let loss = match now.accepted {
            0 => "no receiver".into(),
            _ => format!("{} lost", percent(now.loss())),
        };
        let said = match now.seconds {
            0.0 => format!("waiting for receivers, {} of {} streams are taken", now.accepted, now.streams),
            _ => format!("step {}, {} of {} asked, {loss}", now.step, Rate(rate as u64), Rate(now.rate)),
        };
        if reporter.is_json() {
            let fields = json!({
                "step": now.step, "batch": now.batch, "steps": now.steps, "bytes": now.bytes, "packets": now.packets, "rate": rate.round(),
                "asked": now.rate, "accepted": now.accepted, "streams": now.streams, "received": now.received, "lost": now.lost,
            });
            reporter.happened("progress", object(fields));
        } else {
            reporter.progress(&Snapshot { stage: "send", said: Some(said), ..Snapshot::default() });
        }
    }
}

impl Told {
    /// Says once of each size that it does not arrive.
    fn swallowed(&mut self, now: &Progress, reporter: &Reporter) {
        let Some(hole) = now.black_hole.filter(|hole| self.black_hole != Some(*hole)) else { return };
        self.black_hole = Some(hole);
        // Receivers are asked again.
        self.times = 0;
        if let Some(smaller) = hole.smaller() {
            reporter.warning(&format!(
                "datagrams of {} bytes do not arrive at {}, small ones do: a link on the path has a smaller MTU than this host's and drops the \
                 ICMP messages that say so; sending at most {smaller} bytes",
                hole.size, hole.to
            ));
        }
    }
}

fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

fn summary(last: &Progress, options: &Options, reporter: &Reporter) -> Map<String, serde_json::Value> {
    let rate = last.bytes as f64 * 8.0 / last.seconds.max(1e-9);
    reporter.clear();
    let asked = options.rate.map_or("auto".into(), |rate| Rate(rate).to_string());
    let loss = match last.received + last.lost {
        0 => "no receiver has said what came".into(),
        _ => format!("{} lost", percent(last.loss())),
    };
    reporter.result(&format!(
        "{} in {:.2} s: {} at {} (asked: {asked}), {loss}",
        count(last.steps, "step"),
        last.seconds,
        Size(last.bytes),
        Rate(rate as u64)
    ));
    object(json!({
        "steps": last.steps, "bytes": last.bytes, "packets": last.packets, "sending_seconds": round(last.seconds), "rate": rate.round(),
        "asked": options.rate, "received": last.received, "lost": last.lost, "loss": last.loss(), "datagram": last.datagram,
        "accepted": last.accepted, "streams": last.streams,
    }))
}
