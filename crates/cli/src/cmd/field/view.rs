//! `tidecast field view`: a web page that shows fields while they arrive.

use std::path::PathBuf;

use tidecast::field::{ListenAddress, Token, ViewOptions, view};

use crate::cmd::{Context, run_operation};
use crate::failure::Outcome;
use crate::report::{Reporter, fields_of};

/// Show a field in the browser while it arrives
///
/// Several names are shown side by side, with one camera. A NAME is that of a receiver's shared memory (`field recv
/// --name`), or http://HOST:PORT[/NAME] of another viewer; names joined by + are one volume whose slabs are at several
/// receivers. The page loads nothing from other hosts. Only browsers with the token in the URL have access. The viewer
/// continues when the terminal is closed; Ctrl-C or SIGTERM (kill PID) ends it.
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("../../../help/field_view_examples.txt").trim_end())]
pub(crate) struct Args {
    /// Show these fields [default: all fields in shared memory]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Show recorded steps (field recv --record), with a slider; may be repeated
    #[arg(long, value_name = "DIR")]
    record: Vec<PathBuf>,
    /// Serve the page at this address, or at unix:/PATH, a socket that only this user can open
    #[arg(long, value_name = "ADDR:PORT|unix:/PATH", default_value = "127.0.0.1:8765")]
    listen: ListenAddress,
    /// Read the token that the URL must have from FILE, of mode 0600, or TIDECAST_VIEW_TOKEN [default: a random token]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Authenticate to other viewers with the token in FILE, of mode 0600, or in TIDECAST_REMOTE_TOKEN
    #[arg(long, value_name = "FILE")]
    remote_token_file: Option<PathBuf>,
    /// Also accept this host name in requests, besides localhost and the address; may be repeated
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Serve below this path, for a proxy (JupyterHub, Open OnDemand)
    #[arg(long, value_name = "/PATH", default_value = "")]
    base_path: String,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let options = ViewOptions {
        names: args.names.clone(),
        records: args.record.clone(),
        listen: args.listen.clone(),
        token: Token::given(args.token_file.as_deref())?,
        remote_token: Token::given_for_others(args.remote_token_file.as_deref())?,
        allow_hosts: args.allow_host.clone(),
        base: args.base_path.clone(),
        threads: context.threads_for_operation(),
    };
    let done = run_operation::serve(
        || view(options),
        reporter,
        |started, reporter| {
            let page = started.address.is_some();
            let what = if page { "open this URL in a browser" } else { "connect a proxy of this user to" };
            reporter.note(&format!("showing {}; {what}:", started.volumes.join(" and ")));
            reporter.result(&started.url);
        },
    )?;
    Ok(fields_of(&done))
}
