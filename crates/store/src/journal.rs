//! The journal: which pieces are verified and durably on disk.
//!
//! A header names the manifest; each record holds ranges of pieces and a checksum chained to the record before it.
//! Reading stops at the first invalid record, so a torn tail costs only its own pieces, and a stale record can
//! never follow a newer one.
//!
//! ```text
//! header  "TIDEJRN1" | manifest id (32) | sum (16)
//! record  count u32 LE | count x (start u32 LE, end u32 LE) | sum (16)
//! sum     first half of SHA-256(sum before it | bytes it covers)
//! ```

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::disk::DiskFile;

const MAGIC: &[u8; 8] = b"TIDEJRN1";
const HEADER: usize = 8 + 32 + SUM;
const SUM: usize = 16;
type Sum = [u8; SUM];

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
    /// Opens the journal for manifest `id` of `pieces` pieces and returns its ranges (unsorted, possibly
    /// overlapping). An empty, torn or foreign one is started again.
    pub(crate) fn open(
        file: Arc<dyn DiskFile>,
        id: &[u8; 32],
        pieces: u32,
        durable: bool,
    ) -> io::Result<(Self, Vec<Range<u32>>)> {
        let bytes = read(&*file, pieces)?;
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
            return Ok((Journal { file, end: HEADER as u64, first, sum: first, durable }, Vec::new()));
        }
        let (mut end, mut sum, mut named) = (HEADER, first, Vec::new());
        while let Some((len, next, ranges)) = record(bytes.get(end..).unwrap_or_default(), &sum, pieces) {
            end += len;
            sum = next;
            named.extend(ranges);
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
        self.append(ranges)
    }

    /// Appends one record and makes it durable. After an error nothing was appended, as far as a
    /// later `open` is concerned, and the next append takes the same place.
    pub(crate) fn append(&mut self, ranges: &[Range<u32>]) -> io::Result<()> {
        if ranges.is_empty() {
            return Ok(());
        }
        let count = u32::try_from(ranges.len()).map_err(io::Error::other)?;
        let mut body = Vec::with_capacity(4 + ranges.len() * 8 + SUM);
        body.extend_from_slice(&count.to_le_bytes());
        for r in ranges {
            body.extend_from_slice(&r.start.to_le_bytes());
            body.extend_from_slice(&r.end.to_le_bytes());
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

/// The whole file, up to the most that honest use can write: each piece once, alone in its record,
/// in each of a few runs.
fn read(file: &dyn DiskFile, pieces: u32) -> io::Result<Vec<u8>> {
    let bound = (1 << 20) + u64::from(pieces) * (4 + 8 + SUM as u64) * 4;
    let size = file.meta()?.stamp.size.min(bound);
    let mut bytes = vec![0; usize::try_from(size).map_err(io::Error::other)?];
    let n = file.read_at(&mut bytes, 0)?;
    bytes.truncate(n);
    Ok(bytes)
}

fn record(bytes: &[u8], before: &Sum, pieces: u32) -> Option<(usize, Sum, Vec<Range<u32>>)> {
    let count = u32::from_le_bytes(*bytes.first_chunk()?);
    if count == 0 || count > pieces {
        return None;
    }
    let body = bytes.get(..4 + count as usize * 8)?;
    let sum = chain(before, body);
    if bytes.get(body.len()..body.len() + SUM)? != sum {
        return None;
    }
    let (pairs, _) = body.get(4..)?.as_chunks::<4>();
    let mut ranges = Vec::with_capacity(count as usize);
    for pair in pairs.chunks_exact(2) {
        let [start, end] = pair else { return None };
        let range = u32::from_le_bytes(*start)..u32::from_le_bytes(*end);
        if range.start >= range.end || range.end > pieces {
            return None;
        }
        ranges.push(range);
    }
    Some((body.len() + SUM, sum, ranges))
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

    fn file(dir: &tempfile::TempDir) -> Arc<dyn DiskFile> {
        OsDisk::new(dir.path()).unwrap().open(Path::new("j"), How::Create).unwrap()
    }

    #[test]
    fn any_cut_keeps_a_prefix_and_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let f = file(&dir);
        let (mut j, named) = Journal::open(f.clone(), &[7; 32], 100, true).unwrap();
        assert!(named.is_empty());
        let ends: Vec<u64> = [vec![0..3, 5..6], vec![9..10], vec![20..40, 50..51, 99..100]]
            .iter()
            .map(|r| {
                j.append(r).unwrap();
                j.end
            })
            .collect();
        let whole = read(&*f, 100).unwrap();
        for cut in 0..=whole.len() {
            f.set_len(0).unwrap();
            f.write_at(&whole[..cut], 0).unwrap();
            let kept = ends.iter().filter(|e| **e <= cut as u64).count();
            let (mut j, named) = Journal::open(f.clone(), &[7; 32], 100, true).unwrap();
            assert_eq!(named.len(), [0, 2, 3, 6][kept]);
            j.append(&[70..71]).unwrap();
            let (_, again) = Journal::open(f.clone(), &[7; 32], 100, true).unwrap();
            assert_eq!(again.len(), named.len() + 1);
        }
    }

    #[test]
    fn any_flipped_byte_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let f = file(&dir);
        let (mut j, _) = Journal::open(f.clone(), &[7; 32], 100, true).unwrap();
        j.append(&[0..100]).unwrap();
        let whole = read(&*f, 100).unwrap();
        for i in 0..whole.len() {
            let mut bad = whole.clone();
            bad[i] ^= 1;
            f.set_len(0).unwrap();
            f.write_at(&bad, 0).unwrap();
            let (_, named) = Journal::open(f.clone(), &[7; 32], 100, true).unwrap();
            assert!(named.is_empty(), "byte {i}");
        }
    }

    #[test]
    fn another_manifest_or_piece_count_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let f = file(&dir);
        let (mut j, _) = Journal::open(f.clone(), &[7; 32], 100, true).unwrap();
        j.append(&[0..100]).unwrap();
        assert!(Journal::open(f.clone(), &[7; 32], 99, true).unwrap().1.is_empty());
        assert!(Journal::open(f, &[8; 32], 100, true).unwrap().1.is_empty());
    }
}
