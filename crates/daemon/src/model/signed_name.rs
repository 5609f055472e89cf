//! The origin's signed record of a cache, as kept with the cache, and the key by which its holders are found.

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};
use tidecast_hash::sha256;
use tidecast_identity::NodeId;
use tidecast_members::{Record, Slot};

/// The origin's signed record of a cache, kept with the cache by its holders. `directory::names` creates and
/// verifies it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SignedName {
    /// The signed record, in base64.
    record: String,
    /// The card of its signer.
    pub(crate) card: String,
}

impl SignedName {
    pub(crate) fn new(record: &Record, card: &str) -> Self {
        Self { record: BASE64.encode(&record.encode()), card: card.to_owned() }
    }

    /// The record, if it can be read.
    pub(crate) fn record(&self) -> Option<Record> {
        Record::decode(&BASE64.decode(self.record.as_bytes()).ok()?)
    }

    pub(crate) fn slot(&self) -> Option<Slot> {
        Some(self.record()?.slot())
    }

    /// The node that created the cache.
    pub(crate) fn signer(&self) -> Option<NodeId> {
        Some(self.record()?.signer)
    }
}

/// The key for finding holders of a cache: computable only with its name and its content.
pub(crate) fn held(name: &str, content: &[u8; 32]) -> [u8; 32] {
    sha256(&[b"tidecast held\0".as_slice(), content, name.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_found_by_name_and_content_together() {
        let one = held("head/nt@1", &[1; 32]);
        assert_eq!(one, held("head/nt@1", &[1; 32]));
        assert!(one != held("head/nt@2", &[1; 32]) && one != held("head/nt@1", &[2; 32]));
    }

    #[test]
    fn what_is_no_record_is_none() {
        for record in ["", "not base64!", "AAAA"] {
            let said = SignedName { record: record.into(), card: String::new() };
            assert!(said.record().is_none() && said.signer().is_none() && said.slot().is_none(), "{record}");
        }
    }
}
