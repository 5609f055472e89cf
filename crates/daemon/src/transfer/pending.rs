//! Contents of caches that are being fetched: for peers that want to join before there is a record.

use std::collections::HashMap;

use parking_lot::Mutex;
use tidecast_depot::CacheId;

/// The content of each.
#[derive(Default)]
pub(crate) struct PendingContents(Mutex<HashMap<CacheId, [u8; 32]>>);

impl PendingContents {
    /// The content of a cache that is being fetched.
    pub(crate) fn of(&self, id: CacheId) -> Option<[u8; 32]> {
        self.0.lock().get(&id).copied()
    }

    /// Records the content of a cache that is being fetched, until the guard is dropped.
    pub(crate) fn coming(&self, id: CacheId, content: [u8; 32]) -> PendingContent<'_> {
        self.0.lock().insert(id, content);
        PendingContent { contents: self, id }
    }
}

/// A fetch in progress; it ends when this is dropped.
pub(crate) struct PendingContent<'a> {
    contents: &'a PendingContents,
    id: CacheId,
}

impl Drop for PendingContent<'_> {
    fn drop(&mut self) {
        self.contents.0.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_content_is_known_as_long_as_it_comes() {
        let (contents, id) = (PendingContents::default(), "1".parse().unwrap());
        let coming = contents.coming(id, [7; 32]);
        assert_eq!(contents.of(id), Some([7; 32]));
        drop(coming);
        assert_eq!(contents.of(id), None);
    }
}
