//! `send`: the steps of a field to receivers.

use tidecast_event::field::send::{Done, News, Started};
use tidecast_event::{Error, Kind, PartialResult};
use tidecast_field::send::source::Source;
use tidecast_field::send::{Error as Failed, Options, supervise};

use crate::operation::{Operation, start};

/// The operation of [`send`].
pub type Sending = Operation<Started, Done, News>;

/// Sends the steps of a source to one receiver or several, at a set rate, until they are over or it is stopped.
///
/// A source is a result of [`open`](crate::field::open): files of raw values, NumPy, NetCDF, HDF5 and Zarr, a
/// generator in Python, a demonstration; or an implementation of [`Source`]. If receivers do not accept it,
/// the operation fails, and the error has the counts of sent data:
///
/// ```
/// use std::time::Duration;
/// use tidecast::field::{SendOptions, open, send};
/// use tidecast::{Kind, PartialResult};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let source = open(&["demo:nbody:8".into()], None, None)?;
/// let to = vec!["127.0.0.1:9".parse()?];
/// let options = SendOptions { to, streams: 1, rate: Some(10_000_000), count: Some(2), ..Default::default() };
/// let error = send(source, options).wait_blocking().unwrap_err();
/// assert_eq!(error.kind(), Kind::Interrupted);
/// assert!(matches!(error.partial_result(), Some(PartialResult::FieldSend(sent)) if sent.steps == 2), "{error}");
/// # Ok(())
/// # }
/// ```
pub fn send(mut source: Box<dyn Source>, options: Options) -> Sending {
    start(1, async move |work| {
        let stay = || !work.stop.is_asked();
        let tell = &mut |update| work.update(update);
        let sent = supervise(source.as_mut(), &options, &stay, tell).map_err(error)?;
        Ok(Done { seconds: work.seconds(), sent })
    })
}

fn error(error: Failed) -> Error {
    let kind = match &error {
        Failed::Geometry(_)
        | Failed::Receivers { .. }
        | Failed::Ports(..)
        | Failed::Overlap(_)
        | Failed::First { .. }
        | Failed::Parity => Kind::Usage,
        Failed::Stopped(_) | Failed::Missed { refused: false, .. } => Kind::Interrupted,
        _ => Kind::Fault,
    };
    let sent = match &error {
        Failed::Stopped(sent) | Failed::Missed { sent, .. } => Some(sent.clone()),
        _ => None,
    };
    let error = Error::new(kind, error);
    sent.into_iter().fold(error, |error, sent| error.with(PartialResult::FieldSend(sent)))
}
