//! `tidecast field`: time steps of a 3-D field, over UDP into shared memory.

use clap::Subcommand;

use super::Context;
use crate::failure::Outcome;
use crate::report::Reporter;

/// Watch a simulation from afar: time steps of a 3-D field, over UDP into shared memory
#[derive(clap::Args, Debug)]
#[command(hide = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {}

pub(crate) fn run(args: &Args, _context: &Context<'_>, _reporter: &mut Reporter) -> Outcome {
    match args.what {}
}
