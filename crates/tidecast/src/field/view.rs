//! `view`: a page that shows fields while they come.

use tidecast_event::field::view::{Done, Started};
use tidecast_event::{Error, Fault as _};
use tidecast_viewer::{Options, Viewer};

use crate::operation::{Operation, Work, start};

/// The operation of [`view`].
pub type Viewing = Operation<Started, Done>;

/// Serves a page that shows fields while they come, until stopped; `started` has the URL, with the token that opens it.
///
/// ```
/// use tidecast::field::{ViewOptions, view};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let viewing = view(ViewOptions { listen: "127.0.0.1:0".parse()?, ..Default::default() });
/// assert!(viewing.ready_blocking()?.url.starts_with("http://127.0.0.1:"));
/// viewing.stop();
/// viewing.wait_blocking()?;
/// # Ok(())
/// # }
/// ```
pub fn view(options: Options) -> Viewing {
    start(options.threads.unwrap_or(0), async move |work| run(&options, work).await)
}

async fn run(options: &Options, work: &Work<Started, Done>) -> Result<Done, Error> {
    let viewer = Viewer::start(options).await.fault()?;
    let (address, path) = (viewer.address().fault()?, viewer.path());
    let url = match address {
        Some(address) => format!("http://{address}{path}"),
        None => options.listen.to_string(),
    };
    let volumes = viewer.names().to_vec();
    work.started(Started { command: "field view", url, address, path, volumes });
    if !viewer.has_page() {
        work.warning(
            "this program was built without its page: run scripts/web in the sources, then build again",
        );
    }
    if let Some(address) = address.filter(|address| !address.ip().is_loopback()) {
        work.warning(format!(
            "{address} is not encrypted: the token and the field are readable on the network"
        ));
    }
    viewer.serve(work.stop.wait()).await;
    Ok(Done { seconds: work.seconds() })
}
