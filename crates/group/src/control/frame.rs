//! Messages on a stream: length, then content.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{ControlError, MAGIC, VERSION};

/// Longest message, bytes.
pub(crate) const MAX_MESSAGE: usize = 16 << 20;
/// A buffer grows as bytes come, not as a length promises.
const STEP: usize = 64 << 10;

/// Writes one message.
pub(crate) async fn write<T: Serialize>(
    to: &mut (impl AsyncWrite + Unpin),
    message: &T,
) -> Result<(), ControlError> {
    let body = postcard::to_stdvec(message).map_err(|_| ControlError::Garbage)?;
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= MAX_MESSAGE);
    let length = length.ok_or(ControlError::TooLong(body.len()))?;
    to.write_all(&length.to_be_bytes()).await?;
    to.write_all(&body).await?;
    to.flush().await?;
    Ok(())
}

/// Reads one message.
pub(crate) async fn read<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
) -> Result<T, ControlError> {
    let mut length = [0; 4];
    from.read_exact(&mut length).await?;
    let length = u32::from_be_bytes(length) as usize;
    if length > MAX_MESSAGE {
        return Err(ControlError::TooLong(length));
    }
    let mut body = Vec::new();
    while body.len() < length {
        let start = body.len();
        body.resize(length.min(start + STEP), 0);
        from.read_exact(body.get_mut(start..).unwrap_or_default()).await?;
    }
    match postcard::take_from_bytes(&body) {
        Ok((message, [])) => Ok(message),
        _ => Err(ControlError::Garbage),
    }
}

/// Says what this is, and hears whether the other is the same.
pub(crate) async fn greet(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Result<(), ControlError> {
    stream.write_all(&MAGIC).await?;
    stream.write_all(&VERSION.to_be_bytes()).await?;
    stream.flush().await?;
    let (mut magic, mut version) = ([0; MAGIC.len()], [0; 2]);
    stream.read_exact(&mut magic).await?;
    stream.read_exact(&mut version).await?;
    match u16::from_be_bytes(version) {
        _ if magic != MAGIC => Err(ControlError::Stranger),
        VERSION => Ok(()),
        theirs => Err(ControlError::Version { theirs }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn messages_come_as_they_went() {
        let (mut a, mut b) = tokio::io::duplex(1 << 20);
        for message in [vec![], vec![7u8; 200_000]] {
            write(&mut a, &message).await.unwrap();
            assert_eq!(read::<Vec<u8>>(&mut b).await.unwrap(), message);
        }
    }

    #[tokio::test]
    async fn what_is_too_long_garbled_or_cut_is_refused() {
        let refused = async |bytes: &[u8]| read::<Vec<u8>>(&mut &bytes[..]).await.unwrap_err();
        assert!(matches!(refused(&[255; 8]).await, ControlError::TooLong(_)));
        assert!(matches!(refused(&[0, 0, 0, 3, 1, 9, 9]).await, ControlError::Garbage), "a byte left over");
        assert!(matches!(refused(&[0, 0, 0, 2, 5, 9]).await, ControlError::Garbage), "five promised");
        assert!(matches!(refused(&[0, 255, 0, 0, 1]).await, ControlError::Closed));
        assert!(matches!(refused(&[]).await, ControlError::Closed));
        let mut sink = Vec::new();
        let long = vec![0u8; MAX_MESSAGE + 1];
        assert!(matches!(write(&mut sink, &long).await, Err(ControlError::TooLong(_))));
        assert!(sink.is_empty());
    }

    #[tokio::test]
    async fn another_version_is_told() {
        let (mut a, mut b) = tokio::io::duplex(100);
        a.write_all(&MAGIC).await.unwrap();
        a.write_all(&9u16.to_be_bytes()).await.unwrap();
        assert!(matches!(greet(&mut b).await, Err(ControlError::Version { theirs: 9 })));
        let (mut a, mut b) = tokio::io::duplex(100);
        a.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        assert!(matches!(greet(&mut b).await, Err(ControlError::Stranger)));
    }
}
