//! `tidecast field view`: a page that shows fields while they come.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::json;
use tidecast_viewer::{Options, Viewer};

use crate::cmd::Context;
use crate::failure::Outcome;
use crate::report::{Reporter, object};
use crate::stop::{Stop, block_on};

/// See a field while it comes: a page for the browser, on this host
///
/// Several names are shown side by side, with one camera. A NAME is that of a receiver's shared memory (`field recv --name`), or
/// http://HOST:PORT[/NAME] of another viewer; several joined by + are one volume whose slabs lie at several receivers. The page needs
/// nothing from the network. Ctrl-C ends it.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// What to show [default: all shared memory that there is]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Recorded steps to show, with a slider (field recv --record); may be given again
    #[arg(long, value_name = "DIR")]
    record: Vec<PathBuf>,
    /// Where to serve the page; whoever reaches another address than 127.0.0.1 sees the field too
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8765")]
    listen: SocketAddr,
}

const EXAMPLES: &str = "\
Examples:
  tidecast field view                                 # then open http://127.0.0.1:8765
  tidecast field view fast slow                       # two streams side by side
  tidecast field view field+http://node2:8765/field   # slabs here and there, one volume
  tidecast field view --record run7                   # recorded steps";

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let options = Options { names: args.names.clone(), records: args.record.clone(), listen: args.listen };
    block_on(context.threads(), async {
        let stop = Stop::listen()?;
        let viewer = Viewer::start(&options).await?;
        let address = viewer.address()?;
        let url = format!("http://{address}");
        reporter.started(
            "field view",
            object(json!({ "url": url, "address": address, "volumes": viewer.names() })),
        );
        if !address.ip().is_loopback() {
            reporter.warning(&format!("whoever reaches {address} sees the field: there is no password"));
        }
        if !viewer.has_page() {
            reporter.warning(
                "this program was built without its page: run scripts/web in the sources, and build again",
            );
        }
        reporter.note(&format!("showing {}; open this in a browser:", viewer.names().join(" and ")));
        reporter.result(&url);
        viewer.serve(stop.wait()).await;
        Ok(object(json!({})))
    })
}
