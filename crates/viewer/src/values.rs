//! Values of shared memory.

use std::cell::RefCell;
use std::sync::Arc;

use crate::error::Error;
use crate::reduce::Values;
use crate::shm::{Front, Open};

thread_local! {
    static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Fills `values` with the little-endian bytes that `read` returns.
pub(crate) fn fill(
    values: &mut [f32],
    read: impl FnOnce(&mut [u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    with_bytes(values.len() * 4, |bytes| {
        read(bytes)?;
        for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
            *value = f32::from_le_bytes(*bytes);
        }
        Ok(())
    })
}

/// Lends this many bytes that are kept from one call to the next.
pub(crate) fn with_bytes(
    count: usize,
    work: impl FnOnce(&mut [u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    BYTES.with_borrow_mut(|bytes| {
        bytes.resize(count, 0);
        work(bytes)
    })
}

/// The front volume of a file of shared memory.
pub(crate) struct FrontVolume {
    pub(crate) open: Arc<Open>,
    pub(crate) front: Front,
    /// Planes with received values.
    pub(crate) filled: Vec<(u64, u64)>,
}

impl Values for FrontVolume {
    fn shape(&self) -> [u64; 3] {
        self.open.layout.shape
    }

    fn read(&self, place: [u64; 3], values: &mut [f32]) -> Result<(), Error> {
        if !self.filled.iter().any(|(begin, end)| (*begin..*end).contains(&place[2])) {
            values.fill(f32::NAN);
            return Ok(());
        }
        fill(values, |bytes| self.open.values(&self.front, place, bytes))?;
        self.open.blank(&self.front, place, values)
    }
}
