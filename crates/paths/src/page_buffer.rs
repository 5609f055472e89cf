//! A buffer for what is read from files.

use std::ops::{Deref, DerefMut};

/// Disks that are read past the page cache want buffers to begin at a multiple of this.
const PAGE: usize = 4096;

/// Bytes that begin on a page, as those in the page cache do.
///
/// The system's allocator puts large buffers 16 bytes behind the start of a page. To there some processors (Zen 3, Zen 4) copy
/// from the page cache at a third of their rate: their `rep movsb` is slow if the target lies a few bytes behind the source, modulo a page.
#[derive(Debug, Default)]
pub struct PageBuffer {
    memory: Box<[u8]>,
    start: usize,
    len: usize,
}

impl PageBuffer {
    /// A buffer of `len` zeros.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let memory = vec![0; len + PAGE].into_boxed_slice();
        let start = memory.as_ptr().align_offset(PAGE).min(PAGE);
        Self { memory, start, len }
    }
}

impl Deref for PageBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..][..self.len]
    }
}

impl DerefMut for PageBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_on_a_page() {
        for len in [0, 1, PAGE, 1 << 20] {
            let mut buffer = PageBuffer::new(len);
            assert_eq!((buffer.len(), buffer.as_ptr().align_offset(PAGE)), (len, 0));
            buffer.fill(7);
            assert!(buffer.iter().all(|byte| *byte == 7));
        }
        assert!(PageBuffer::default().is_empty());
    }
}
