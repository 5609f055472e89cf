//! One web seed (BEP 19): the state of the server over the whole run.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidecast_metainfo::Manifest;

use crate::error::WebError;
use crate::report::WebReport;

/// At the start peers are given this long to appear, so that nodes beside one web seed begin with different parts of it.
const START: Duration = Duration::from_millis(250);
/// Failures without a byte in between, after which it is tried ever more rarely, up to once an hour.
const TRIES: u32 = 8;
/// Files that a server lacks before it has given any; then its URL is taken for wrong.
const MISSES: usize = 16;
/// The longest pause that a server may ask for.
const PAUSE_MOST: Duration = Duration::from_secs(300);
/// If a server ignores ranges, each file is fetched from its start, and unwanted data is read and dropped: at most
/// as much as all the data, plus this.
const SPARE: u64 = 64 << 20;

/// One web seed over the whole run.
pub(crate) struct Seed {
    /// From the manifest.
    pub(crate) url: String,
    manifest: Arc<Manifest>,
    received: AtomicU64,
    dropped_bytes: AtomicU64,
    /// It sent wrong data, or has none of its files: it gets no more requests.
    dropped: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Files that are not there.
    missing: BTreeSet<u32>,
    /// Ranges are ignored.
    from_start: bool,
    /// Failures since the last byte.
    fails: u32,
    tried: bool,
    not_before: Option<Instant>,
    why: Option<String>,
}

impl Seed {
    pub(crate) fn new(url: &str, manifest: &Arc<Manifest>) -> Self {
        Self {
            url: url.to_owned(),
            manifest: manifest.clone(),
            received: AtomicU64::new(0),
            dropped_bytes: AtomicU64::new(0),
            dropped: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// It lied: it is asked for nothing any more.
    pub(crate) fn drop_it(&self) {
        self.dropped.store(true, Ordering::Relaxed);
        self.state.lock().why = Some(WebError::Lied.to_string());
    }

    pub(crate) fn report(&self) -> WebReport {
        WebReport {
            url: self.url.clone(),
            received_bytes: self.received(),
            error: self.state.lock().why.clone(),
        }
    }

    /// Bytes that came from it.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn knows_no_ranges(&self) -> bool {
        self.state.lock().from_start
    }

    /// Whether the server can give all of a piece, as far as is known.
    pub(crate) fn has(&self, piece: u32) -> bool {
        let state = self.state.lock();
        if state.missing.is_empty() {
            return true;
        }
        let mut spans =
            self.manifest.spans(piece, 0, self.manifest.piece_len(piece)).filter(|span| !span.pad);
        spans.all(|span| !state.missing.contains(&span.file))
    }

    /// All pieces that it has.
    pub(crate) fn pieces(&self) -> Vec<Range<u32>> {
        let count = self.manifest.piece_count();
        let plain = self.state.lock().missing.is_empty();
        let mut ranges: Vec<Range<u32>> = Vec::new();
        if plain {
            ranges.extend((count > 0).then_some(0..count));
            return ranges;
        }
        for piece in (0..count).filter(|piece| self.has(*piece)) {
            match ranges.last_mut().filter(|last| last.end == piece) {
                Some(last) => last.end += 1,
                None => ranges.push(piece..piece + 1),
            }
        }
        ranges
    }

    /// A file is not there; an error if that makes all of the server doubtful.
    pub(crate) fn misses(&self, file: u32, error: &WebError) -> Result<(), WebError> {
        let mut state = self.state.lock();
        state.missing.insert(file);
        state.why = Some(error.to_string());
        if state.missing.len() >= MISSES && self.received.load(Ordering::Relaxed) == 0 {
            self.dropped.store(true, Ordering::Relaxed);
            return Err(WebError::Nothing(error.to_string()));
        }
        Ok(())
    }

    /// Bytes of a server that ignores ranges were read and dropped; false if that is too much.
    pub(crate) fn may_drop(&self, bytes: u64) -> bool {
        let all = self.dropped_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        all <= self.manifest.total_len().saturating_add(SPARE)
    }

    pub(crate) fn came(&self, bytes: u32) {
        self.received.fetch_add(u64::from(bytes), Ordering::Relaxed);
        self.state.lock().fails = 0;
    }

    /// Takes note of a failure; whether it has failed too often.
    pub(crate) fn failed(&self, error: &WebError) -> bool {
        let mut state = self.state.lock();
        state.fails = state.fails.saturating_add(1);
        state.why = Some(error.to_string());
        if let WebError::NoRanges { .. } = error {
            self.dropped.store(true, Ordering::Relaxed);
        }
        if let WebError::Busy { after: Some(after), .. } = error {
            state.not_before = Some(Instant::now() + (*after).min(PAUSE_MOST));
        }
        state.fails >= TRIES || self.is_dropped()
    }

    /// Ranges are ignored from now on; whether that is news.
    pub(crate) fn ignores_ranges(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().from_start, true)
    }

    /// None of its files is there, or none has bytes: nothing is asked of it any more.
    pub(crate) fn gives_nothing(&self) -> WebError {
        self.dropped.store(true, Ordering::Relaxed);
        let state = self.state.lock();
        match &state.why {
            Some(why) if !state.missing.is_empty() => WebError::Nothing(why.clone()),
            _ => WebError::NoFiles,
        }
    }

    /// Waits until it may be asked.
    pub(crate) async fn ready(&self) {
        let until = {
            let mut state = self.state.lock();
            let start = (!std::mem::replace(&mut state.tried, true)).then(|| Instant::now() + START);
            state.not_before.max(start)
        };
        if let Some(until) = until {
            tokio::time::sleep_until(until.into()).await;
        }
    }

    /// The first file that it may have and that has bytes.
    pub(crate) fn first_file(&self) -> Option<u32> {
        let state = self.state.lock();
        let mut files = self.manifest.files().filter(|f| !f.is_empty() && f.same_as() == f.index());
        files.find(|f| !state.missing.contains(&f.index())).map(|f| f.index())
    }
}

/// The number by which a node of this peer id is known where web seeds are shared; both ends of a connection see the same.
pub(crate) fn key_of(peer_id: &[u8; 20]) -> u64 {
    let tail = peer_id.last_chunk::<8>().copied().unwrap_or_default();
    u64::from_be_bytes(tail).max(1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tidecast_metainfo::{Builder, Content, Entry, Version};

    use super::*;

    #[test]
    fn a_web_seed_without_files_to_request_has_a_reason() {
        let content = Content::File { len: 0, executable: false, holes: Default::default(), hard_link: None };
        let empty = Entry { path: Vec::new(), content, mode: None, mtime: None, xattrs: Default::default() };
        let builder = Builder::new(b"empty", Version::V2, 16 << 10, vec![empty]).unwrap();
        let seed = Seed::new("http://h/", &Arc::new(builder.draft().unwrap()));
        assert_eq!(seed.first_file(), None);
        assert!(seed.gives_nothing().to_string().contains("only padding or empty files"));
        assert!(seed.is_dropped());
    }
}
