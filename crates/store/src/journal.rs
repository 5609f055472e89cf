//! The journal: which pieces are verified and durably on disk, and the state of the files in which they are.
//!
//! A header names the manifest; each record holds ranges of pieces, states of files, and a checksum chained to the record before it.
//! Reading stops at the first invalid record, so a torn tail costs only its own pieces, and a stale record can
//! never follow a newer one. Of a file the last state counts: if it is another one now, its pieces are checked again.
//!
//! ```text
//! header  "TIDEJRN2" | manifest id (32) | sum (16)
//! record  count u32 LE | files u32 LE | count x (start u32 LE, end u32 LE)
//!         | files x (file u32 LE, size u64 LE, twice: seconds i64 LE, nanoseconds u32 LE) | sum (16)
//! sum     first half of SHA-256(sum before it | bytes it covers)
//! ```

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::disk::{DiskFile, Meta};

const MAGIC: &[u8; 8] = b"TIDEJRN2";
const HEADER: usize = 8 + 32 + SUM;
const SUM: usize = 16;
type Sum = [u8; SUM];
/// Bytes of the two counts of a record, of a range, and of a file.
const COUNTS: usize = 8;
const RANGE: usize = 8;
const FILE: usize = 36;
/// Bytes of records that name no piece for the first time: a large file is in one of each second.
const RUNS: u64 = 16 << 20;
/// In the place of a file's number: the spill.
pub(crate) const SPILL: u32 = u32::MAX;

/// The state of a file that is part of a download: its size, and the times at which its content and its inode changed
/// last. No program can set back the latter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    size: u64,
    modified: (i64, u32),
    changed: (i64, u32),
}

impl From<&Meta> for State {
    fn from(meta: &Meta) -> Self {
        let stamp = &meta.stamp;
        Self { size: stamp.size, modified: (stamp.mtime, stamp.nanos), changed: meta.ctime }
    }
}

/// What a journal says.
#[derive(Debug, Default)]
pub(crate) struct Named {
    /// Pieces; unsorted, possibly overlapping.
    pub(crate) pieces: Vec<Range<u32>>,
    /// Files by number, and [`SPILL`].
    pub(crate) files: HashMap<u32, State>,
}

impl Named {
    /// Whether a file is as it was when the journal was written last.
    pub(crate) fn is_unchanged(&self, file: u32, meta: &Meta) -> bool {
        self.files.get(&file) == Some(&State::from(meta))
    }
}

/// An open journal, ready to append.
pub(crate) struct Journal {
    file: Arc<dyn DiskFile>,
    end: u64,
    /// Of the header, and of the last appended record.
    first: Sum,
    sum: Sum,
    durable: bool,
}

impl Journal {
    /// Opens the journal for manifest `id` of so many pieces and files, and returns what it says. An empty, torn or
    /// foreign one is started again.
    pub(crate) fn open(
        file: Arc<dyn DiskFile>,
        id: &[u8; 32],
        (pieces, files): (u32, u32),
        durable: bool,
    ) -> io::Result<(Self, Named)> {
        let bytes = read(&*file, pieces, files)?;
        let mut header = Vec::with_capacity(HEADER);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(id);
        let first = chain(&Sum::default(), &header);
        header.extend_from_slice(&first);

        if bytes.get(..HEADER) != Some(header.as_slice()) {
            file.set_len(0)?;
            file.write_at(&header, 0)?;
            if durable {
                file.sync(false)?;
            }
            return Ok((Journal { file, end: HEADER as u64, first, sum: first, durable }, Named::default()));
        }
        let (mut end, mut sum, mut named) = (HEADER, first, Named::default());
        while let Some((len, next)) = record(bytes.get(end..).unwrap_or_default(), &sum, pieces, &mut named) {
            end += len;
            sum = next;
        }
        file.set_len(end as u64)?;
        Ok((Journal { file, end: end as u64, first, sum, durable }, named))
    }

    /// Removes every record, then records `ranges`. A crash in between costs a check of existing data. To be called
    /// before anything is written that a removed record could cover.
    pub(crate) fn restart(&mut self, ranges: &[Range<u32>]) -> io::Result<()> {
        self.file.set_len(HEADER as u64)?;
        if self.durable {
            self.file.sync(false)?;
        }
        self.end = HEADER as u64;
        self.sum = self.first;
        self.append(ranges, &[])
    }

    /// Appends one record and makes it durable. After an error nothing was appended, as far as a
    /// later `open` is concerned, and the next append takes the same place.
    pub(crate) fn append(&mut self, ranges: &[Range<u32>], files: &[(u32, State)]) -> io::Result<()> {
        if ranges.is_empty() && files.is_empty() {
            return Ok(());
        }
        let mut body = Vec::with_capacity(COUNTS + ranges.len() * RANGE + files.len() * FILE + SUM);
        for count in [ranges.len(), files.len()] {
            body.extend_from_slice(&u32::try_from(count).map_err(io::Error::other)?.to_le_bytes());
        }
        for r in ranges {
            body.extend_from_slice(&r.start.to_le_bytes());
            body.extend_from_slice(&r.end.to_le_bytes());
        }
        for (file, state) in files {
            body.extend_from_slice(&file.to_le_bytes());
            body.extend_from_slice(&state.size.to_le_bytes());
            for (seconds, nanos) in [state.modified, state.changed] {
                body.extend_from_slice(&seconds.to_le_bytes());
                body.extend_from_slice(&nanos.to_le_bytes());
            }
        }
        let sum = chain(&self.sum, &body);
        body.extend_from_slice(&sum);
        self.file.write_at(&body, self.end)?;
        if self.durable {
            self.file.sync(false)?;
        }
        self.end += body.len() as u64;
        self.sum = sum;
        Ok(())
    }
}

/// The whole file, up to the most that honest use can write: each piece and each file once, alone in its record,
/// in each of a few runs.
fn read(file: &dyn DiskFile, pieces: u32, files: u32) -> io::Result<Vec<u8>> {
    let each = (COUNTS + SUM) as u64;
    let bound =
        RUNS + (u64::from(pieces) * (each + RANGE as u64) + u64::from(files) * (each + FILE as u64)) * 4;
    let size = file.meta()?.stamp.size.min(bound);
    let mut bytes = vec![0; usize::try_from(size).map_err(io::Error::other)?];
    let n = file.read_at(&mut bytes, 0)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// Reads a record: its length and its sum.
fn record(bytes: &[u8], before: &Sum, pieces: u32, named: &mut Named) -> Option<(usize, Sum)> {
    let (counts, rest) = bytes.split_first_chunk::<COUNTS>()?;
    let (ranges, files) = (word(counts, 0)? as usize, word(counts, 4)? as usize);
    let (ranges, rest) = rest.split_at_checked(ranges.checked_mul(RANGE)?)?;
    let files = rest.get(..files.checked_mul(FILE)?)?;
    let len = COUNTS + ranges.len() + files.len();
    let sum = chain(before, bytes.get(..len)?);
    if len == COUNTS || bytes.get(len..len + SUM)? != sum {
        return None;
    }
    for range in ranges.as_chunks::<RANGE>().0 {
        let range = word(range, 0)?..word(range, 4)?;
        if range.start >= range.end || range.end > pieces {
            return None;
        }
        named.pieces.push(range);
    }
    for file in files.as_chunks::<FILE>().0 {
        let time = |at: usize| Some((long(file, at)?.cast_signed(), word(file, at + 8)?));
        let state = State { size: long(file, 4)?, modified: time(12)?, changed: time(24)? };
        named.files.insert(word(file, 0)?, state);
    }
    Some((len + SUM, sum))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}

fn chain(before: &Sum, bytes: &[u8]) -> Sum {
    let mut all = Vec::with_capacity(SUM + bytes.len());
    all.extend_from_slice(before);
    all.extend_from_slice(bytes);
    let mut sum = Sum::default();
    for (to, from) in sum.iter_mut().zip(tidecast_hash::sha256(&all)) {
        *to = from;
    }
    sum
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::single_range_in_vec_init)]
mod tests {
    use super::*;
    use crate::disk::{Disk, How};
    use crate::os::OsDisk;
    use std::path::Path;

    const STATE: State = State { size: 1 << 40, modified: (-1, 999_999_999), changed: (i64::MAX, 5) };

    fn file(dir: &tempfile::TempDir) -> Arc<dyn DiskFile> {
        OsDisk::new(dir.path()).unwrap().open(Path::new("j"), How::Create).unwrap()
    }

    #[test]
    fn any_cut_keeps_a_prefix_and_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let f = file(&dir);
        let (mut j, named) = Journal::open(f.clone(), &[7; 32], (100, 9), true).unwrap();
        assert!(named.pieces.is_empty());
        let ends: Vec<u64> = [vec![0..3, 5..6], vec![9..10], vec![20..40, 50..51, 99..100]]
            .iter()
            .map(|r| {
                j.append(r, &[(3, STATE)]).unwrap();
                j.end
            })
            .collect();
        let whole = read(&*f, 100, 9).unwrap();
        for cut in 0..=whole.len() {
            f.set_len(0).unwrap();
            f.write_at(&whole[..cut], 0).unwrap();
            let kept = ends.iter().filter(|e| **e <= cut as u64).count();
            let (mut j, named) = Journal::open(f.clone(), &[7; 32], (100, 9), true).unwrap();
            assert_eq!(named.pieces.len(), [0, 2, 3, 6][kept]);
            assert_eq!(named.files.get(&3), (kept > 0).then_some(&STATE));
            j.append(&[70..71], &[]).unwrap();
            let (_, again) = Journal::open(f.clone(), &[7; 32], (100, 9), true).unwrap();
            assert_eq!(again.pieces.len(), named.pieces.len() + 1);
        }
    }

    #[test]
    fn any_flipped_byte_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let f = file(&dir);
        let (mut j, _) = Journal::open(f.clone(), &[7; 32], (100, 9), true).unwrap();
        j.append(&[0..100], &[(1, STATE)]).unwrap();
        let whole = read(&*f, 100, 9).unwrap();
        for i in 0..whole.len() {
            let mut bad = whole.clone();
            bad[i] ^= 1;
            f.set_len(0).unwrap();
            f.write_at(&bad, 0).unwrap();
            let (_, named) = Journal::open(f.clone(), &[7; 32], (100, 9), true).unwrap();
            assert!(named.pieces.is_empty() && named.files.is_empty(), "byte {i}");
        }
    }

    #[test]
    fn another_manifest_or_piece_count_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let f = file(&dir);
        let (mut j, _) = Journal::open(f.clone(), &[7; 32], (100, 9), true).unwrap();
        j.append(&[0..100], &[(1, STATE)]).unwrap();
        assert!(Journal::open(f.clone(), &[7; 32], (99, 9), true).unwrap().1.pieces.is_empty());
        assert!(Journal::open(f, &[8; 32], (100, 9), true).unwrap().1.pieces.is_empty());
    }
}
