//! `synchronise`: the paper's controller.

use std::net::SocketAddr;
use std::time::Duration;

use tidecast_event::field::sync::{Done, Go, News, Started};
use tidecast_event::{Error, Fault as _};
use tidecast_field::key::Secret;
use tidecast_field::send::{Controller, Steps};

use crate::operation::{Operation, Work, start};

/// The operation of [`synchronise`].
pub type Synchronising = Operation<Started, Done, News>;

/// The senders to notify, and the interval of the steps.
#[derive(Debug, Clone)]
pub struct SyncOptions {
    /// The senders, at the addresses of their [`sync`](tidecast_field::send::Options::sync).
    pub to: Vec<SocketAddr>,
    /// The senders' key; None: they are plain.
    pub key: Option<Secret>,
    /// Time between two steps.
    pub every: Duration,
    /// Steps, as counted since the senders began.
    pub steps: Steps,
}

impl Default for SyncOptions {
    fn default() -> Self {
        Self { to: Vec::new(), key: None, every: Duration::from_millis(1400), steps: Steps::default() }
    }
}

/// Tells senders to go to the next step, finished or not, by the clock, so that all of them are at the same step.
///
/// ```
/// use std::time::Duration;
/// use tidecast::field::{Steps, SyncOptions, synchronise};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (to, steps) = (vec!["127.0.0.1:7400".parse()?], Steps { begin: 0, end: Some(3) });
/// let options = SyncOptions { to, steps, every: Duration::from_millis(10), ..Default::default() };
/// assert_eq!(synchronise(options).wait_blocking()?.goes, 3);
/// # Ok(())
/// # }
/// ```
pub fn synchronise(options: SyncOptions) -> Synchronising {
    start(1, async move |work| run(&options, work))
}

fn run(options: &SyncOptions, work: &Work<Started, Done, News>) -> Result<Done, Error> {
    let batch = |step: u64| u32::try_from(step).unwrap_or(u32::MAX - 1);
    let batches = batch(options.steps.begin)..batch(options.steps.end.unwrap_or(u64::MAX));
    let controller = Controller::new(options.to.clone(), options.key.as_ref()).fault()?;
    let every = options.every.as_secs_f64();
    work.started(Started { command: "field sync", to: options.to.clone(), every });
    let mut goes = 0;
    let stay = || !work.stop.is_asked();
    let tell = |batch| {
        goes += 1;
        work.news(News::Go(Go { batch }));
    };
    controller.run(batches, options.every, stay, tell).fault()?;
    Ok(Done { seconds: work.seconds(), goes, senders: options.to.len() })
}
