//! `tidecast field view`: a page that shows fields while they come.

use std::path::PathBuf;

use tidecast::field::{Place, Token, ViewOptions, view};

use crate::cmd::{Context, drive};
use crate::failure::Outcome;
use crate::report::{Reporter, fields_of};

/// See a field while it comes: a page for the browser, on this host
///
/// Several names are shown side by side, with one camera. A NAME is that of a receiver's shared memory (`field recv --name`), or
/// http://HOST:PORT[/NAME] of another viewer; several joined by + are one volume whose slabs lie at several receivers. The page needs
/// nothing from the network. Only whoever has the URL with its token sees anything. Ctrl-C ends it.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// What to show [default: all shared memory that there is]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Recorded steps to show, with a slider (field recv --record); may be given again
    #[arg(long, value_name = "DIR")]
    record: Vec<PathBuf>,
    /// Where to serve the page: an address, or unix:/PATH, a socket that this user alone reaches
    #[arg(long, value_name = "ADDR:PORT|unix:/PATH", default_value = "127.0.0.1:8765")]
    listen: Place,
    /// Take the token that the URL has to show from this file, of mode 0600, or from TIDECAST_VIEW_TOKEN; default: a random one
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Show other viewers among the names the token in this file, of mode 0600, or in TIDECAST_REMOTE_TOKEN
    #[arg(long, value_name = "FILE")]
    remote_token_file: Option<PathBuf>,
    /// Answer to this host name too, besides localhost and the address; may be given again
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Serve below this path, as a proxy (JupyterHub, Open OnDemand) shows it
    #[arg(long, value_name = "/PATH", default_value = "")]
    base_path: String,
}

const EXAMPLES: &str = "\
Examples:
  tidecast field view                                 # then open the URL that it prints
  tidecast field view fast slow                       # two streams side by side
  tidecast field view field+http://node2:8765/field   # slabs here and there, one volume
  tidecast field view --record run7                   # recorded steps
  tidecast field view --base-path /node/n7/8765 --allow-host portal.example    # behind Open OnDemand";

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
    let done = drive::serve(
        || view(options),
        reporter,
        |started, reporter| {
            let page = started.address.is_some();
            let what = if page { "open this in a browser" } else { "a proxy of this user connects to" };
            reporter.note(&format!("showing {}; {what}:", started.volumes.join(" and ")));
            reporter.result(&started.url);
        },
    )?;
    Ok(fields_of(&done))
}
