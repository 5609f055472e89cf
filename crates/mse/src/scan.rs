//! Received bytes that are not used yet.

use crate::{Error, MAX_PAD};

#[derive(Debug, Default)]
pub(crate) struct UnreadBytes {
    bytes: Vec<u8>,
    used: usize,
}

impl UnreadBytes {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.used);
        self.used = 0;
        self.bytes.extend_from_slice(bytes);
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.used..).unwrap_or_default()
    }

    /// The next `N` bytes, when they are here.
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let taken = *self.rest().first_chunk()?;
        self.used += N;
        Some(taken)
    }

    /// The next `len` bytes, when they are here.
    pub(crate) fn take_vec(&mut self, len: usize) -> Option<Vec<u8>> {
        let taken = self.rest().get(..len)?.to_vec();
        self.used += len;
        Some(taken)
    }

    /// All that is left.
    pub(crate) fn take_all(&mut self) -> Vec<u8> {
        self.take_vec(self.rest().len()).unwrap_or_default()
    }

    /// Skips a pad and the mark after it. True when that is done.
    ///
    /// # Errors
    /// [`Error::NoSync`] as soon as this many bytes are here that the mark should have been among them.
    pub(crate) fn pass(&mut self, mark: &[u8]) -> Result<bool, Error> {
        let most = MAX_PAD + mark.len();
        let within = self.rest().get(..most).unwrap_or(self.rest());
        match within.windows(mark.len()).position(|window| window == mark) {
            Some(at) => {
                self.used += at + mark.len();
                Ok(true)
            }
            None if within.len() == most => Err(Error::NoSync),
            None => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_mark_is_looked_for_behind_any_pad_and_no_further() {
        for pad in [0, 1, MAX_PAD - 1, MAX_PAD] {
            let mut held = UnreadBytes::default();
            held.add(&vec![9; pad]);
            assert!(!held.pass(b"mark").unwrap());
            held.add(b"marks");
            assert!(held.pass(b"mark").unwrap());
            assert_eq!(held.take_all(), b"s");
        }
        let mut held = UnreadBytes::default();
        held.add(&[9; MAX_PAD + 1]);
        assert!(!held.pass(b"mark").unwrap());
        held.add(b"mark");
        assert_eq!(held.pass(b"mark"), Err(Error::NoSync));
    }
}
