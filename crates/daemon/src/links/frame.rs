//! Frames of the control channel between daemons: those of `tidecast-control`, with a head in JSON as message.
//!
//! JSON is extensible: a newer daemon adds fields that this one ignores, and sends requests that this one answers with
//! "not understood". Large data, such as manifests, is payload.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

use bytes::Bytes;
use tidecast_control::Bounds;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::timeout;

/// Most bytes of a frame.
pub(crate) const BOUNDS: Bounds = Bounds { message: 1 << 20, payload: 4 << 20 };
/// A frame that has begun comes, or is taken, within this time.
const WHOLE: Duration = Duration::from_secs(30);

/// Why a control channel ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// The stream.
    #[error("connection failed: {0}")]
    Io(#[from] std::io::Error),
    /// A length beyond the bounds.
    #[error("message too long ({0} bytes)")]
    TooLong(usize),
    /// Not JSON, or not of this shape.
    #[error("malformed message: {0}")]
    Malformed(String),
    /// The stream ended within a message.
    #[error("message not complete after {} s", WHOLE.as_secs())]
    Late,
}

impl From<tidecast_control::FrameError> for FrameError {
    fn from(error: tidecast_control::FrameError) -> Self {
        match error {
            tidecast_control::FrameError::Io(error) => Self::Io(error),
            tidecast_control::FrameError::TooLong(bytes) => Self::TooLong(bytes),
        }
    }
}

/// Writes one frame.
pub(crate) async fn write<T: Serialize>(
    to: &mut (impl AsyncWrite + Unpin),
    head: &T,
    payload: &[u8],
) -> Result<(), FrameError> {
    let head = serde_json::to_vec(head).map_err(|e| FrameError::Malformed(e.to_string()))?;
    let written = tidecast_control::write(to, &head, payload, BOUNDS);
    Ok(timeout(WHOLE, written).await.map_err(|_| FrameError::Late)??)
}

/// Reads one frame; None at the end of the stream. Waits for its beginning as long as it takes.
pub(crate) async fn read<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
) -> Result<Option<(T, Bytes)>, FrameError> {
    read_within(from, BOUNDS).await
}

/// The same with other bounds: of a peer that has not authenticated yet, little is read.
pub(crate) async fn read_within<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
    bounds: Bounds,
) -> Result<Option<(T, Bytes)>, FrameError> {
    let first = match from.read_u8().await {
        Ok(first) => first,
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let rest = tidecast_control::read_rest(first, from, bounds);
    let (head, payload) = timeout(WHOLE, rest).await.map_err(|_| FrameError::Late)??;
    let head = serde_json::from_slice(&head).map_err(|e| FrameError::Malformed(e.to_string()))?;
    Ok(Some((head, payload)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn frames_come_as_they_went_and_ends_are_told_from_breaks() {
        let mut sent = Vec::new();
        write(&mut sent, &vec![1u8, 2], b"payload").await.unwrap();
        write(&mut sent, &Vec::<u8>::new(), b"").await.unwrap();
        let mut from = &sent[..];
        assert_eq!(read(&mut from).await.unwrap(), Some((vec![1u8, 2], Bytes::from_static(b"payload"))));
        assert_eq!(read(&mut from).await.unwrap(), Some((Vec::<u8>::new(), Bytes::new())));
        assert_eq!(read::<Vec<u8>>(&mut from).await.unwrap(), None);
        for cut in 1..sent.len() - 10 {
            let mut from = &sent[..cut];
            let read = read::<Vec<u8>>(&mut from).await;
            assert!(cut >= 20 || matches!(read, Err(FrameError::Io(_))), "{cut}: {read:?}");
        }
    }

    #[tokio::test]
    async fn what_is_too_long_or_malformed_is_refused_before_memory_is_taken() {
        let refused = async |bytes: &[u8]| read::<Vec<u8>>(&mut &bytes[..]).await.unwrap_err();
        assert!(matches!(refused(&[255; 8]).await, FrameError::TooLong(_)));
        assert!(matches!(refused(&[0, 0, 0, 2, 0, 0, 0, 0, b'{', b'}']).await, FrameError::Malformed(_)));
        assert!(write(&mut Vec::new(), &0u8, &vec![0; BOUNDS.payload + 1]).await.is_err());
    }
}
