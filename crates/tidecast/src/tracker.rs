//! `serve_tracker`: nodes of a swarm find each other through it.

use std::net::SocketAddr;
use std::time::Duration;

use tidecast_discovery::server::{Options, Tracker};
use tidecast_event::tracker::{Done, News, Started};
use tidecast_event::{Context as _, Error};

use crate::operation::{Operation, start};

/// The interval of its progress events.
const TELLS: Duration = Duration::from_secs(10);

/// The operation of [`serve_tracker`].
pub type TrackerServer = Operation<Started, Done, News>;

/// Runs a tracker over HTTP and UDP at one port until stopped, which is its normal end: for nodes of Tidecast and every other
/// BitTorrent client. It keeps nothing on disk. `threads`: by default one for each core.
///
/// ```
/// # fn main() -> Result<(), tidecast::Error> {
/// let tracker = tidecast::serve_tracker(([127, 0, 0, 1], 0).into(), Some(1));
/// let [http, _udp] = tracker.ready_blocking()?.urls;
/// assert!(http.starts_with("http://127.0.0.1:"));
/// tracker.stop();
/// assert_eq!(tracker.wait_blocking()?.stats.peers, 0);
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn serve_tracker(listen: SocketAddr, threads: Option<usize>) -> TrackerServer {
    start(threads.unwrap_or(0), async move |work| {
        let tracker = Tracker::bind(listen, Options::default()).context("cannot start the tracker")?;
        let addr = tracker.local_addr();
        work.started(Started { command: "tracker", listen: addr, urls: urls(addr) });
        let mut seen = tracker.stats();
        loop {
            tokio::select! {
                () = work.stop.wait() => break,
                () = tokio::time::sleep(TELLS) => {}
            }
            let stats = tracker.stats();
            if (stats.swarms, stats.peers) != (seen.swarms, seen.peers) {
                work.news(News::Known { swarms: stats.swarms, peers: stats.peers });
                seen = stats;
            }
        }
        Ok::<_, Error>(Done { seconds: work.seconds(), stats: tracker.stats() })
    })
}

/// Reachable addresses instead of "any address".
fn urls(addr: SocketAddr) -> [String; 2] {
    let host = if addr.ip().is_unspecified() { "HOST".to_owned() } else { addr.ip().to_string() };
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let port = addr.port();
    [format!("http://{host}:{port}/announce"), format!("udp://{host}:{port}")]
}
