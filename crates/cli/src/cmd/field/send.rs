//! `tidecast field send`: sends the steps of a field to receivers.

use std::net::SocketAddr;

use anyhow::{Result, bail};
use tidecast::PartialResult;
use tidecast::event::field::send::{Done, Started};
use tidecast::field::{Key, Order, Pace, Packing, SendOptions, Shape, Steps, addresses, open, share};
use tidecast_mover::Cpus;

use super::news::report_news;
use crate::cmd::run_operation;
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, fields_of};

/// Send the steps of a field to one or more receivers, at a set rate
///
/// SOURCE is a file of raw float32 (with --shape), NumPy .npy or .npz, `FILE:variable` of NetCDF, HDF5, Zarr or VTK image
/// data (.vti) with any file name, `script.py:function` (a Python generator of 3-D arrays), or `demo:gray-scott[:N]` and
/// `demo:nbody[:N]`, which compute a field of N x N x N. Several files, or a pattern in quotes (`'step*.nc:density'`), form
/// one series, in the order of their numbers. Missing values, by the conventions of xarray, and values outside of
/// valid_range arrive as NaN; values other than real numbers are rejected. Steps are read ahead and cut along z, and each
/// slab is sent by a separate UDP stream. The sender continues when the terminal is closed; Ctrl-C or SIGTERM (kill PID)
/// ends it.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Send this field; several files are one series
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<String>,
    /// Send to these receivers; with several, each gets a part of the volume
    #[arg(long, value_name = "HOST:PORT", required = true, value_delimiter = ',')]
    to: Vec<String>,
    /// Cut the volume into at most N slabs of at least one plane, one stream each
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u32).range(1..=4096))]
    streams: u32,
    /// Limit the UDP payload of all streams together (10gbit); auto: as much as arrives
    #[arg(long, value_name = "RATE", default_value = "auto")]
    rate: Pace,
    /// Pack values as run, or as the paper's xyz, which is four times as large
    #[arg(long, value_name = "HOW", default_value = "run")]
    packing: Packing,
    /// Send the values of a slab by planes (zslab), or in bricks along the Z-order curve (morton), so that losses stay
    /// close together
    #[arg(long, value_name = "HOW", default_value = "zslab")]
    order: Order,
    /// Add parity packets that restore lost ones, as a share of the data packets
    #[arg(long, value_name = "0|5%", default_value = "0", value_parser = share)]
    fec: f64,
    /// Start again from the first step after the last
    #[arg(long = "loop")]
    again: bool,
    /// Send steps from A up to, but not including B; either may be left out
    #[arg(long, value_name = "A:B", default_value = ":")]
    steps: Steps,
    /// Take these axes of the array, by name or position from 0: STEP,Z,Y,X or Z,Y,X or Y,X [default: the last three, and a
    /// time axis as steps]
    #[arg(long, visible_alias = "dims", value_name = "AXES")]
    axes: Option<String>,
    /// Shape of raw values, x fastest
    #[arg(long, value_name = "X,Y,Z")]
    shape: Option<Shape>,
    /// Use the receiver's key: @FILE reads it from a file, - from standard input
    #[arg(long, value_name = "KEY", conflicts_with = "plain")]
    #[arg(env = "TIDECAST_FIELD_KEY", hide_env_values = true)]
    key: Option<Key>,
    /// Send without encryption and authentication, to receivers with --plain
    #[arg(long)]
    plain: bool,
    /// Listen here for a controller (field sync), and send each step when it commands
    #[arg(long, value_name = "ADDR:PORT")]
    sync: Option<SocketAddr>,
    /// Run on these cores, one sending thread on each: 0-3,8, node:N (a NUMA node), card:NAME (the cores next to a network
    /// card)
    #[arg(long, value_name = "LIST")]
    cpus: Option<Cpus>,
}

const EXAMPLES: &str = "\
Examples:
  tidecast field send demo:gray-scott --to viz:7500 --key @field.key
  tidecast field send run.nc:density --to viz:7500 --rate 10gbit --streams 32 --loop
  tidecast field send step*.raw --shape 512,512,512 --to viz1:7500,viz2:7500 --fec 5%
  tidecast field send simulation.py:steps --to viz:7500";

pub(crate) fn run(args: &Args, reporter: &mut Reporter) -> Outcome {
    let mut options = args.options().map_err(Failure::usage)?;
    if let Some(cpus) = &args.cpus {
        cpus.keep_to().map_err(Failure::usage)?;
        options.cpus = cpus.numbers().map_err(Failure::usage)?;
    }
    let source = open(&args.sources, args.shape, args.axes.as_deref())?;
    let begin = || tidecast::field::send(source, options);
    let notes = |started: &Started, reporter: &Reporter| {
        started.notes().iter().for_each(|note| reporter.note(note));
    };
    let done = run_operation::serve_with_news(begin, reporter, notes, |news, reporter| {
        report_news("send", &news, reporter)
    });
    match done.as_ref().map_err(Failure::partial_result) {
        Ok(Done { sent, .. }) => reporter.result(&sent.to_string()),
        Err(Some(PartialResult::FieldSend(sent))) => reporter.result(&sent.to_string()),
        Err(_) => {}
    }
    Ok(fields_of(&done?))
}

impl Args {
    fn options(&self) -> Result<SendOptions> {
        let key = self.key.as_ref().map(|key| key.secret.clone()).filter(|_| !self.plain);
        if key.is_none() && !self.plain {
            bail!(
                "no key given; use --key @FILE with the receiver's key, set TIDECAST_FIELD_KEY, or use --plain for receivers with --plain"
            );
        }
        let count = self.steps.count().map_err(anyhow::Error::msg)?;
        Ok(SendOptions {
            to: addresses(&self.to)?,
            streams: self.streams,
            rate: self.rate.0,
            packing: self.packing,
            order: self.order,
            parity: self.fec,
            first: self.steps.begin,
            count,
            again: self.again,
            key,
            sync: self.sync,
            ..SendOptions::default()
        })
    }
}
