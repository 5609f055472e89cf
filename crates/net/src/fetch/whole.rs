//! The whole metainfo file from another Tidecast, some parts in flight at a time.

use tidecast_metainfo::Manifest;
use tidecast_wire::Message;
use tidecast_wire::ext::{self, MAX_CHUNK, MAX_MANIFEST, ManifestRange};

use super::Asking;
use crate::error::ConnError;

/// Requests in flight.
const AHEAD: u32 = 4;
const PART: u32 = MAX_CHUNK as u32;

impl Asking<'_> {
    pub(super) async fn whole(&mut self) -> Result<Manifest, ConnError> {
        let mut bytes = Vec::new();
        let mut total = None;
        let mut asked = 0_u32;
        loop {
            let here = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            if total == Some(here) {
                break;
            }
            let end = total.unwrap_or(1);
            while asked < end && asked < here.saturating_add(AHEAD * PART) {
                let range = ManifestRange { channel: 0, offset: asked, len: PART };
                self.send(&Message::Tidecast(ext::Message::ManifestRequest(range))).await?;
                asked = asked.saturating_add(PART);
            }
            let (offset, whole, part) = self.part().await?;
            if whole > MAX_MANIFEST || total.is_some_and(|t| t != whole) {
                return Err(ConnError::Protocol("manifest too long, or its length changed"));
            }
            if offset != here || part.is_empty() || u64::from(here) + part.len() as u64 > u64::from(whole) {
                return Err(ConnError::Protocol("unrequested part of the manifest"));
            }
            total = Some(whole);
            bytes.extend_from_slice(&part);
        }
        let manifest = Manifest::parse(&bytes);
        let manifest = manifest.map_err(|_| ConnError::Protocol("malformed manifest"))?;
        self.check(manifest)
    }

    /// The next part of the manifest; other messages are passed over, but not without end.
    async fn part(&mut self) -> Result<(u32, u32, bytes::Bytes), ConnError> {
        for _ in 0..10_000 {
            match self.peer.input.message().await? {
                Message::Tidecast(ext::Message::ManifestData { offset, total, bytes, .. }) => {
                    return Ok((offset, total, bytes));
                }
                Message::Tidecast(ext::Message::ManifestReject(_)) => {
                    return Err(ConnError::Protocol("it rejected the request for the manifest"));
                }
                Message::Tidecast(ext::Message::Denied { text, .. }) => return Err(ConnError::Denied(text)),
                _ => {}
            }
        }
        Err(ConnError::Protocol("no manifest among its messages"))
    }
}
