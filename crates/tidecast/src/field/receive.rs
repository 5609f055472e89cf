//! `receive`: takes a field's streams into shared memory.

use tidecast_event::field::receive::{Done, News, Started};
use tidecast_event::{Error, PartialResult};
use tidecast_field::recv::{Error as Failed, Options, supervise};
use tidecast_field::shm::Error as ShmError;

use crate::doctor::{DoctorPurpose, host_limits};
use crate::operation::{Operation, start};

/// From this share of lost packets on a setting of this host may be the reason.
const LOSSY: f64 = 0.001;

/// The operation of [`receive`].
pub type Receiving = Operation<Started, Done, News>;

/// Receives a field's streams into shared memory, until stopped or until [`Options::steps`] have arrived;
/// then the shared memory is removed. `started` has the ports, and the command line for the other side.
///
/// The file `/dev/shm/tidecast-field-NAME` is described in `docs/field-format.md`. Losses are counted, by
/// step and stream:
///
/// ```
/// use tidecast::field::{ReceiveOptions, SendOptions, open, receive, send};
/// use tidecast::{Event, event::field::receive::News};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let name = format!("doc-receive-{}", std::process::id());
/// let listen = "127.0.0.1:0".parse()?;
/// let options = ReceiveOptions { listen, streams: 2, name, steps: Some(2), ..Default::default() };
/// let key = options.secret.clone();
/// let mut receiving = receive(options);
/// let to = vec![receiving.ready_blocking()?.address];
/// # let sending = SendOptions { to, key, streams: 2, rate: Some(50_000_000), ..Default::default() };
/// # let _sending = send(open(&["demo:gray-scott:16".into()], None, None)?, sending);
/// while let Some(event) = receiving.next_blocking() {
///     if let Event::News(News::Step(step)) = event {
///         println!("step {}: {} of its values are missing", step.closed.step, step.closed.missing);
///     }
/// }
/// assert_eq!(receiving.wait_blocking()?.received.steps, 2);
/// # Ok(())
/// # }
/// ```
pub fn receive(options: Options) -> Receiving {
    start(1, async move |work| {
        let stay = || !work.stop.is_asked();
        let mut received = supervise(&options, &stay, &mut |update| work.update(update)).map_err(error)?;
        let share = received.lost as f64 / received.packets.saturating_add(received.lost).max(1) as f64;
        if share > LOSSY {
            received.host_limits = host_limits(DoctorPurpose::Field, None);
        }
        Ok(Done { seconds: work.seconds(), received })
    })
}

fn error(error: Failed) -> Error {
    match error {
        Failed::Unrecorded { ref received, .. } => {
            let reached = PartialResult::FieldReceive(received.clone());
            Error::fault(error).with(reached)
        }
        Failed::Shared(ShmError::Name(_)) => Error::usage(error),
        error => Error::fault(error),
    }
}
