//! `tidecast copy-server` and the hidden `tidecast copy-end`: ends of copies for those who run `tidecast copy` elsewhere.

use std::fs::File;
use std::path::PathBuf;

use anyhow::Context as _;
use tidecast::{ServeCopiesOptions, Stopper, serve_copies};
use tidecast_confine::Confinement;
use tidecast_mover::Cpus;
use tidecast_mover::back::Pipes;
use tidecast_mover::end::answer;
use tidecast_mover::server::{self, Keys, User};
use tidecast_text::escaped;

use super::{Context, drive};
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, fields_of};
use tidecast::settings::Listen;

/// Serve a directory to `tidecast copy`; the first line on standard output is its URL
///
/// Whoever has the writing key may read and write below the directory and nowhere else, as the user who runs the server, and have it sent
/// to another server; whoever has the reading key may read. Both keys are in files of the state directory, and stay the same.
/// What others send has no set-id bits, capabilities, access lists, devices or owners, unless --trust-metadata. Ctrl-C stops
/// the server.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  tidecast copy-server --root /archive --read-only\n  tidecast copy-server --root /archive --as archive      # by root\n  # elsewhere, where the file key has the key:\n  TIDECAST_COPY_KEY=@key tidecast copy tidecast://host:6870/cmip6 /data"
)]
pub(crate) struct Args {
    /// The directory
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Where to listen
    #[arg(long, value_name = "[ADDR]:PORT", default_value = ":6870")]
    listen: Listen,
    /// Nothing can be written
    #[arg(long)]
    read_only: bool,
    /// Data unencrypted; who connects must still prove that they know the key
    #[arg(long)]
    plain: bool,
    /// Become this user, with the user's groups, before listening: a name, or UID[:GID]. Root needs this or --as-root
    #[arg(long = "as", value_name = "USER", conflicts_with = "as_root")]
    user: Option<User>,
    /// Serve as root: whoever has the writing key can change every file below the directory
    #[arg(long)]
    as_root: bool,
    /// Keep set-id bits, capabilities, access lists, devices and owners that others send: with the writing key of a server of
    /// root's they are root
    #[arg(long)]
    trust_metadata: bool,
    /// Work on these cores: 0-3,8, node:N (of a NUMA node), card:NAME (those next to a network card)
    #[arg(long, value_name = "LIST")]
    cpus: Option<Cpus>,
    /// End with the program that holds standard input open
    #[arg(long, hide = true)]
    while_input: bool,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    if let Some(cpus) = &args.cpus {
        cpus.keep_to().map_err(Failure::usage)?;
    }
    server::check_user(args.user.as_ref(), args.as_root, ["--as USER", "--as-root"])
        .map_err(Failure::usage)?;
    let state = context.own_state_dir()?;
    // As whoever has started it: another user need not be able to read the keys.
    let keys = Keys::load(&state)?;
    if let Some(user) = &args.user {
        user.become_it()?;
    }
    let reach = Confinement::new();
    let reach = if args.read_only { reach.reads(&args.root) } else { reach.writes(&args.root) };
    let confined = reach.apply();
    let [write, read] = [&keys.write_file, &keys.read_file].map(|file| escaped(file).to_string());
    let options = ServeCopiesOptions {
        listen: args.listen.addr(),
        read_only: args.read_only,
        plain: args.plain,
        trust_metadata: args.trust_metadata,
        as_root: args.as_root,
        keys: Some(keys),
        confined: Some(confined.clone()),
        state_dir: None,
    };
    let begin = || {
        let serving = serve_copies(&args.root, options);
        if args.while_input {
            end_with_input(serving.stopper());
        }
        serving
    };
    let done = drive::serve(begin, reporter, |served, reporter| {
        reporter.result(&served.url);
        reporter.note(&confined);
        reporter.note(&format!("without a key the URL is {}", served.bare));
        if !args.read_only {
            reporter.note(&format!("{write} has the key for writing: TIDECAST_COPY_KEY=@FILE"));
        }
        reporter.note(&format!("{read} has the key for reading: TIDECAST_COPY_KEY=@FILE"));
    })?;
    Ok(fields_of(&done))
}

/// Stops when standard input has ended: the program at its other end has.
fn end_with_input(stopper: Stopper) {
    // It cannot be ended while it reads, and goes with the process.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        stopper.stop();
    });
}

/// An end of a copy that `tidecast copy` has started by ssh: speaks on standard input and output.
pub(crate) fn end() -> Outcome {
    let file = |fd: std::io::Result<std::os::fd::OwnedFd>| fd.map(File::from).context("no pipe");
    let incoming = file(rustix::io::dup(std::io::stdin()).map_err(Into::into))?;
    let outgoing = file(rustix::io::dup(std::io::stdout()).map_err(Into::into))?;
    answer(Pipes::new(incoming, outgoing)?)?;
    Ok(serde_json::Map::new())
}
