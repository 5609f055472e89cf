//! `tidecast copy-server` and the hidden `tidecast copy-end`: the remote ends of `tidecast copy`.

use std::fs::File;
use std::path::PathBuf;

use anyhow::Context as _;
use tidecast::{ServeCopiesOptions, Stopper, serve_copies};
use tidecast_confine::Confinement;
use tidecast_mover::Cpus;
use tidecast_mover::end::answer;
use tidecast_mover::server::{self, Keys, User};
use tidecast_mover::transfer::Pipes;
use tidecast_text::escaped;

use super::{Context, run_operation};
use crate::failure::{Failure, Outcome};
use crate::open_files;
use crate::report::{Reporter, fields_of};
use tidecast::settings::Listen;

/// Serve a directory to `tidecast copy`, and print its URL
///
/// The first line on standard output is the URL. Clients with the writing key may read and write below the directory and
/// nowhere else, as the user who runs the server; clients with the reading key may only read. Both may have files sent to
/// another server. The keys are in files of the state directory and are kept for later runs. Set-id bits, capabilities, access
/// lists, devices and owners that clients send are dropped, unless --trust-metadata is given. The server continues when the
/// terminal is closed; Ctrl-C or SIGTERM (kill PID) stops it.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  tidecast copy-server --root /archive --read-only\n  tidecast copy-server --root /archive --as archive      # by root\n  # on another host, with the key in the file key:\n  TIDECAST_COPY_KEY=@key tidecast copy tidecast://host:6870/cmip6 /data"
)]
pub(crate) struct Args {
    /// Serve this directory
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Listen on this address and port
    #[arg(long, value_name = "[ADDR]:PORT", default_value = ":6870")]
    listen: Listen,
    /// Allow no writing
    #[arg(long)]
    read_only: bool,
    /// Send data unencrypted; clients must still prove that they know the key
    #[arg(long)]
    plain: bool,
    /// Become this user, with the user's groups, before listening: a name, or UID[:GID]. Root needs this or --as-root
    #[arg(long = "as", value_name = "USER", conflicts_with = "as_root")]
    user: Option<User>,
    /// Serve as root: a client with the writing key can change every file below the directory
    #[arg(long)]
    as_root: bool,
    /// Keep set-id bits, capabilities, access lists, devices and owners that clients send: if root runs the server, a
    /// client with the writing key can become root
    #[arg(long)]
    trust_metadata: bool,
    /// Run on these cores: 0-3,8, node:N (a NUMA node), card:NAME (the cores next to a network card)
    #[arg(long, value_name = "LIST")]
    cpus: Option<Cpus>,
    /// End when standard input is closed
    #[arg(long, hide = true)]
    while_input: bool,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    open_files::allow_most();
    if let Some(cpus) = &args.cpus {
        cpus.keep_to().map_err(Failure::usage)?;
    }
    server::check_user(args.user.as_ref(), args.as_root, ["--as USER", "--as-root"])
        .map_err(Failure::usage)?;
    let state = context.own_state_dir()?;
    // Before the change of user, which need not be able to read the keys.
    let keys = Keys::load(&state)?;
    if let Some(user) = &args.user {
        user.switch_to()?;
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
    let done = run_operation::serve(begin, reporter, |served, reporter| {
        reporter.result(&served.url);
        reporter.note(&confined);
        reporter.note(&format!("URL without a key: {}", served.bare));
        if !args.read_only {
            reporter.note(&format!("key for writing: {write}; clients use it with TIDECAST_COPY_KEY=@FILE"));
        }
        reporter.note(&format!("key for reading: {read}; clients use it with TIDECAST_COPY_KEY=@FILE"));
    })?;
    Ok(fields_of(&done))
}

/// Stops the server when standard input is closed, as then the program that started it has ended.
fn end_with_input(stopper: Stopper) {
    // The thread blocks in a read and ends with the process.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        stopper.stop();
    });
}

/// Runs one end of a copy that `tidecast copy` started through ssh, on standard input and output.
pub(crate) fn end() -> Outcome {
    let file = |fd: std::io::Result<std::os::fd::OwnedFd>| {
        fd.map(File::from).context("cannot use standard input and output")
    };
    let incoming = file(rustix::io::dup(std::io::stdin()).map_err(Into::into))?;
    let outgoing = file(rustix::io::dup(std::io::stdout()).map_err(Into::into))?;
    answer(Pipes::new(incoming, outgoing)?)?;
    Ok(serde_json::Map::new())
}
