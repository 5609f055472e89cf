//! Frames: the length of a message and that of its payload (4 bytes each, big-endian), the message, the payload.

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Memory is allocated in steps of this size as bytes arrive, not by the announced length, which may be hostile.
const STEP: usize = 64 << 10;

/// The maximum lengths of the parts of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Of the message.
    pub message: usize,
    /// Of the payload.
    pub payload: usize,
}

impl Bounds {
    fn check(self, message: usize, payload: usize) -> Result<(), FrameError> {
        match message > self.message || payload > self.payload {
            true => Err(FrameError::TooLong(message.max(payload))),
            false => Ok(()),
        }
    }
}

/// Why a frame was not written or read.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The stream failed or ended within the frame.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A part of this length exceeds the bounds.
    #[error("a message of {0} bytes is too long")]
    TooLong(usize),
}

/// Writes a frame in one piece, and flushes.
///
/// # Errors
/// The stream's, or a part is too long: then nothing is written.
pub async fn write(
    to: &mut (impl AsyncWrite + Unpin),
    message: &[u8],
    payload: &[u8],
    bounds: Bounds,
) -> Result<(), FrameError> {
    bounds.check(message.len(), payload.len())?;
    let length = |part: &[u8]| u32::try_from(part.len()).map_err(|_| FrameError::TooLong(part.len()));
    let lengths = [length(message)?, length(payload)?].map(u32::to_be_bytes);
    to.write_all(&[lengths.as_flattened(), message, payload].concat()).await?;
    Ok(to.flush().await?)
}

/// Reads a frame: its message and its payload.
///
/// # Errors
/// The stream's, its end included, or a part is too long.
pub async fn read(from: &mut (impl AsyncRead + Unpin), bounds: Bounds) -> Result<(Bytes, Bytes), FrameError> {
    let first = from.read_u8().await?;
    read_rest(first, from, bounds).await
}

/// Reads the rest of a frame whose `first` byte was read before.
///
/// # Errors
/// As [`read`].
pub async fn read_rest(
    first: u8,
    from: &mut (impl AsyncRead + Unpin),
    bounds: Bounds,
) -> Result<(Bytes, Bytes), FrameError> {
    let mut rest = [0; 3];
    from.read_exact(&mut rest).await?;
    let [second, third, fourth] = rest;
    let message = u32::from_be_bytes([first, second, third, fourth]) as usize;
    let payload = from.read_u32().await? as usize;
    bounds.check(message, payload)?;
    let mut bytes = Vec::new();
    while bytes.len() < message + payload {
        let start = bytes.len();
        bytes.resize((message + payload).min(start + STEP), 0);
        from.read_exact(bytes.get_mut(start..).unwrap_or_default()).await?;
    }
    let mut message_bytes = Bytes::from(bytes);
    let payload = message_bytes.split_off(message);
    Ok((message_bytes, payload))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: Bounds = Bounds { message: 100_000, payload: 1000 };

    fn now<T>(task: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(task)
    }

    proptest! {
        #[test]
        fn frames_come_as_they_went_and_what_is_cut_is_an_error(
            message in prop::collection::vec(any::<u8>(), 0..300),
            payload in prop::collection::vec(any::<u8>(), 0..300),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut sent = Vec::new();
            now(write(&mut sent, &message, &payload, BOUNDS)).unwrap();
            let (read_message, read_payload) = now(read(&mut &sent[..], BOUNDS)).unwrap();
            prop_assert_eq!((&read_message[..], &read_payload[..]), (&message[..], &payload[..]));
            let cut = &sent[..cut.index(sent.len())];
            prop_assert!(matches!(now(read(&mut &*cut, BOUNDS)), Err(FrameError::Io(_))));
        }

        #[test]
        fn any_bytes_are_a_frame_within_the_bounds_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok((message, payload)) = now(read(&mut &bytes[..], BOUNDS)) {
                prop_assert!(message.len() + payload.len() + 8 <= bytes.len());
            }
        }
    }

    #[test]
    fn what_is_too_long_is_refused_before_memory_is_taken_or_a_byte_is_written() {
        let refused = |bytes: &[u8]| now(read(&mut &bytes[..], BOUNDS));
        assert!(matches!(refused(&[255; 8]), Err(FrameError::TooLong(0xffff_ffff))));
        assert!(matches!(refused(&[0, 0, 0, 0, 0, 0, 4, 0]), Err(FrameError::TooLong(1024))));
        let mut sink = Vec::new();
        assert!(now(write(&mut sink, &[], &[0; 1001], BOUNDS)).is_err());
        assert!(now(write(&mut sink, &[0; 100_001], &[], BOUNDS)).is_err());
        assert!(sink.is_empty());
        let long = vec![7; 100_000];
        now(write(&mut sink, &long, &[1; 1000], BOUNDS)).unwrap();
        assert_eq!(now(read(&mut &sink[..], BOUNDS)).unwrap().0, long);
    }
}
