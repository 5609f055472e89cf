//! `tidecast field`: time steps of a 3-D field, over UDP into shared memory.

mod key;
mod recv;

use clap::Subcommand;

use super::Context;
use crate::failure::Outcome;
use crate::report::Reporter;

/// Watch a simulation from afar: time steps of a 3-D field, over UDP into shared memory
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    Recv(recv::Args),
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    match &args.what {
        What::Recv(args) => recv::run(args, context, reporter),
    }
}
