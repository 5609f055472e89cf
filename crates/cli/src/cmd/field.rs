//! `tidecast field`: time steps of a 3-D field, over UDP into shared memory.

mod news;
mod recv;
mod send;
mod sync;
mod view;

use clap::Subcommand;

use super::Context;
use crate::failure::Outcome;
use crate::report::Reporter;

/// Stream the time steps of a simulation's 3-D field to another host, over UDP into shared memory
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    Send(send::Args),
    Recv(recv::Args),
    Sync(sync::Args),
    View(view::Args),
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    match &args.what {
        What::Send(args) => send::run(args, reporter),
        What::Sync(args) => sync::run(args, reporter),
        What::View(args) => view::run(args, context, reporter),
        What::Recv(args) => recv::run(args, context, reporter),
    }
}
