//! `tidecast field`: time steps of a 3-D field, over UDP into shared memory.

mod recv;
mod send;
mod sync;
mod view;

use std::fmt::Display;

use clap::Subcommand;

use super::Context;
use crate::failure::Outcome;
use crate::report::{Reporter, Snapshot, fields_of};

/// Watch a simulation from afar: time steps of a 3-D field, over UDP into shared memory
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

/// Says what only operations on fields tell: an event for programs, a note or a state of the work for people.
fn tell(stage: &'static str, news: &(impl serde::Serialize + Display), reporter: &mut Reporter) {
    let (fields, text) = (fields_of(news), news.to_string());
    let name = fields.get("event").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    match name.as_str() {
        _ if reporter.is_json() => reporter.happened(&name, fields),
        "session" => reporter.note(&text),
        "step" => {}
        _ => reporter.progress(&Snapshot { stage, said: Some(text), ..Snapshot::default() }),
    }
}
