//! The reads of a run, as a prefetch list for the next one.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;

use parking_lot::Mutex;

use crate::list::{Entry, List, MAX_ENTRIES, Name};

/// A gap in a file that is fetched as well: its bytes cost less than another request.
const GAP: u64 = 64 << 10;

/// Records the bytes of each file that are read, in the order of first access. Many threads may use it: an
/// access costs one search in a sorted map under a lock. Memory is bounded by [`MAX_ENTRIES`] ranges.
#[derive(Debug, Default)]
pub struct Recorder {
    touched: Mutex<Touched>,
}

/// Ranges by file and first byte. Between two of one file there is a gap of [`GAP`] bytes or more.
#[derive(Debug, Default)]
struct Touched {
    spans: BTreeMap<(u32, u64), Span>,
    /// How many spans were begun: the number of the next.
    begun: u64,
    left_out: u64,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    end: u64,
    /// When it was begun; the smallest number is the first touch.
    number: u64,
}

impl Recorder {
    /// No access yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// These bytes of the file were asked for.
    pub fn touch(&self, file: u32, range: Range<u64>) {
        if !range.is_empty() {
            self.touched.lock().touch(file, range);
        }
    }

    /// How many accesses were not recorded because there were too many ranges.
    pub fn left_out(&self) -> u64 {
        self.touched.lock().left_out
    }

    /// The accesses so far. `file` returns path and length of a file; files without these are left out.
    pub fn finish(&self, manifest: Option<String>, file: impl Fn(u32) -> Option<(Vec<u8>, u64)>) -> List {
        let spans = self.touched.lock().spans.clone();
        let mut spans: Vec<_> = spans.into_iter().collect();
        spans.sort_unstable_by_key(|(_, span)| span.number);
        let entry = |((index, start), span): ((u32, u64), Span)| {
            let (path, len) = file(index)?;
            let whole = start < GAP && span.end.saturating_add(GAP) > len;
            let range = start..span.end.min(len);
            (whole || !range.is_empty())
                .then(|| Entry { name: Name::Path(path), range: (!whole).then_some(range) })
        };
        List { manifest, entries: spans.into_iter().filter_map(entry).collect() }
    }
}

impl Touched {
    fn touch(&mut self, file: u32, range: Range<u64>) {
        let before = self.spans.range(..=(file, range.start)).next_back();
        let before = before.filter(|((f, _), span)| *f == file && range.start < span.end.saturating_add(GAP));
        let (start, mut span) = match before {
            Some((_, span)) if span.end >= range.end => return,
            Some((&(_, start), &Span { end, number })) => (start, Span { end: end.max(range.end), number }),
            None if self.spans.len() >= MAX_ENTRIES => {
                self.left_out += 1;
                return;
            }
            None => {
                self.begun += 1;
                (range.start, Span { end: range.end, number: self.begun })
            }
        };
        // Those that follow and are near become part of it, and the first touch of any is that of all.
        while let Some((&key, &next)) = self
            .spans
            .range((file, start)..(file, span.end.saturating_add(GAP)))
            .find(|((_, s), _)| *s > start)
        {
            self.spans.remove(&key);
            span = Span { end: span.end.max(next.end), number: span.number.min(next.number) };
        }
        self.spans.insert((file, start), span);
    }
}

/// Writes the list to the user's file, with the mode of the umask. It does not wait for a pipe that no
/// process reads.
pub fn save(list: &List, path: &Path) -> io::Result<()> {
    tidecast_paths::output(path, &list.to_bytes(), 0o666, &|| true)
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
