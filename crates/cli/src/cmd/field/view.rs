//! `tidecast field view`: a page that shows fields while they come.

use std::path::{Path, PathBuf};

use serde_json::json;
use tidecast_viewer::{Options, Place, Token, Viewer};

use crate::cmd::Context;
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, object};
use crate::stop::{Stop, block_on, hangups};
use tidecast_secret::Kind;

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
    #[arg(long, value_name = "ADDR:PORT|unix:/PATH", default_value = "127.0.0.1:8765", value_parser = place)]
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

fn place(text: &str) -> Result<Place, String> {
    match text.strip_prefix("unix:") {
        Some("") => Err("unix: needs a path".into()),
        Some(path) => Ok(Place::Unix(path.into())),
        None => text.parse().map(Place::Tcp).map_err(|_| "write ADDR:PORT or unix:/PATH".into()),
    }
}

/// The token that opens this viewer, and the one that opens others.
const TOKEN: Kind = Kind { name: "token", variable: "TIDECAST_VIEW_TOKEN" };
const REMOTE: Kind = Kind { name: "token", variable: "TIDECAST_REMOTE_TOKEN" };

/// A token of a file, or of the environment.
fn token(kind: Kind, file: Option<&Path>) -> Result<Option<Token>, Failure> {
    let text = match file {
        Some(file) => Some(kind.private_file(file)?),
        None => kind.given(None)?,
    };
    Ok(text.map(|text| text.trim().parse()).transpose()?)
}

const EXAMPLES: &str = "\
Examples:
  tidecast field view                                 # then open the URL that it prints
  tidecast field view fast slow                       # two streams side by side
  tidecast field view field+http://node2:8765/field   # slabs here and there, one volume
  tidecast field view --record run7                   # recorded steps
  tidecast field view --base-path /node/n7/8765 --allow-host portal.example    # behind Open OnDemand";

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let options = Options {
        names: args.names.clone(),
        records: args.record.clone(),
        listen: args.listen.clone(),
        token: token(TOKEN, args.token_file.as_deref())?,
        remote_token: token(REMOTE, args.remote_token_file.as_deref())?,
        allow_hosts: args.allow_host.clone(),
        base: args.base_path.clone(),
    };
    block_on(context.threads(), async {
        let stop = Stop::listen()?;
        let _hangups = hangups()?;
        let viewer = Viewer::start(&options).await?;
        let address = viewer.address()?;
        let url = match (&address, &args.listen) {
            (Some(address), _) => format!("http://{address}{}", viewer.path()),
            (None, Place::Unix(path)) => format!("unix:{}", path.display()),
            (None, Place::Tcp(address)) => format!("http://{address}"),
        };
        reporter.started(
            "field view",
            object(
                json!({ "url": url, "address": address, "path": viewer.path(), "volumes": viewer.names() }),
            ),
        );
        if !viewer.has_page() {
            reporter.warning(
                "this program was built without its page: run scripts/web in the sources, and build again",
            );
        }
        if let Some(address) = address.filter(|address| !address.ip().is_loopback()) {
            reporter
                .warning(&format!("{address} is not encrypted: the network sees the token and the field"));
        }
        let what =
            if address.is_some() { "open this in a browser" } else { "a proxy of this user connects to" };
        reporter.note(&format!("showing {}; {what}:", viewer.names().join(" and ")));
        reporter.result(&url);
        viewer.serve(stop.wait()).await;
        Ok(object(json!({})))
    })
}
