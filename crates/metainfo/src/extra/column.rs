//! Columns of numbers: variable-length integers, runs of equal values, deltas.
//!
//! Promise: reading never allocates more than a few times the bytes it has read.

use crate::Error;

/// Appends an unsigned integer: seven bits a byte, lowest first, the top bit on all but the last.
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Signed as unsigned, small magnitudes first: 0, -1, 1, -2, …
pub(super) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Reads the numbers of one column.
pub(super) struct Numbers<'a> {
    bytes: &'a [u8],
    column: &'static str,
}

impl<'a> Numbers<'a> {
    pub(super) fn new(bytes: &'a [u8], column: &'static str) -> Self {
        Numbers { bytes, column }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn fail<T>(&self, why: &str) -> Result<T, Error> {
        Err(Error::Extra(format!("in `{}`, {why}", self.column)))
    }

    pub(super) fn next(&mut self) -> Result<u64, Error> {
        let mut value = 0;
        for (i, byte) in self.bytes.iter().enumerate().take(10) {
            let bits = u64::from(byte & 0x7f);
            let shift = 7 * i as u32;
            if bits.checked_shl(shift).map(|v| v >> shift) != Some(bits) {
                return self.fail("a number exceeds 64 bits");
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                self.bytes = self.bytes.get(i + 1..).unwrap_or_default();
                return Ok(value);
            }
        }
        self.fail("a number is truncated or too long")
    }

    /// A number that must be at most `max`.
    pub(super) fn up_to(&mut self, max: u64) -> Result<u64, Error> {
        match self.next()? {
            value if value <= max => Ok(value),
            value => self.fail(&format!("{value} is more than {max}")),
        }
    }

    /// One number for each of `count` entries, each the (wrapping) difference to
    /// the one before.
    pub(super) fn deltas(mut self, count: u32) -> Result<Vec<i64>, Error> {
        let mut all = Vec::with_capacity((count as usize).min(self.bytes.len()));
        let mut last: i64 = 0;
        while !self.is_empty() {
            let value = last.wrapping_add(unzigzag(self.next()?));
            if all.len() >= count as usize {
                return self.fail("there are more values than files and directories");
            }
            all.push(value);
            last = value;
        }
        if all.len() != count as usize {
            return self.fail("there are fewer values than files and directories");
        }
        Ok(all)
    }

    /// A column of runs over `count` entries, with values of at most `max`.
    pub(super) fn runs(mut self, count: u32, max: u64) -> Result<Runs, Error> {
        let mut runs = Runs::default();
        let mut end: u64 = 0;
        while !self.is_empty() {
            let length = self.up_to(u64::from(count) - end)?;
            if length == 0 {
                return self.fail("a run is empty");
            }
            end += length;
            runs.ends.push(end as u32);
            runs.values.push(self.up_to(max)? as u32);
        }
        if end != u64::from(count) {
            return self.fail("there are fewer values than files and directories");
        }
        runs.ends.shrink_to_fit();
        runs.values.shrink_to_fit();
        Ok(runs)
    }
}

/// Appends the runs of a column.
pub(super) fn put_runs(out: &mut Vec<u8>, values: impl Iterator<Item = u32>) {
    let mut run: Option<(u32, u64)> = None;
    for value in values {
        run = match run {
            Some((same, length)) if same == value => Some((same, length + 1)),
            _ => {
                flush(out, run);
                Some((value, 1))
            }
        };
    }
    flush(out, run);
}

fn flush(out: &mut Vec<u8>, run: Option<(u32, u64)>) {
    if let Some((value, length)) = run {
        put(out, length);
        put(out, value.into());
    }
}

/// A column in which adjacent values are often equal.
#[derive(Debug, Clone, Default)]
pub(crate) struct Runs {
    /// End (exclusive) of each run.
    ends: Vec<u32>,
    values: Vec<u32>,
}

impl Runs {
    pub(super) fn get(&self, entry: u32) -> Option<u32> {
        let run = self.ends.partition_point(|end| *end <= entry);
        self.values.get(run).copied()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn numbers_come_back() {
        let values = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX];
        let mut out = Vec::new();
        values.iter().for_each(|v| put(&mut out, *v));
        let mut n = Numbers::new(&out, "test");
        assert!(values.iter().all(|v| n.next().unwrap() == *v));
        assert!(n.is_empty());
    }

    #[test]
    fn signs_come_back() {
        for v in [0, -1, 1, i64::MIN, i64::MAX, -1_000_000] {
            assert_eq!(unzigzag(zigzag(v)), v);
        }
    }

    #[test]
    fn broken_numbers_are_refused() {
        for bytes in [&[0x80][..], &[0xff; 11], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]] {
            assert!(Numbers::new(bytes, "test").next().is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn runs_must_cover_all_entries() {
        let mut out = Vec::new();
        put_runs(&mut out, [5, 5, 5, 7].into_iter());
        assert_eq!(out, [3, 5, 1, 7]);
        let read = |count, max| Numbers::new(&out, "test").runs(count, max);
        let runs = read(4, 7).unwrap();
        let back: Vec<_> = (0..5).map(|i| runs.get(i)).collect();
        assert_eq!(back, [Some(5), Some(5), Some(5), Some(7), None]);
        assert!(read(5, 7).is_err() && read(3, 7).is_err() && read(4, 6).is_err());
        assert!(Numbers::new(&[0, 1], "test").runs(0, 9).is_err(), "an empty run");
    }
}
