//! The buffer of encrypted data that is not sent yet.

/// A buffer that is written at its end and sent from its front. Its memory is cleared once, when it grows, not at each use.
#[derive(Default)]
pub(crate) struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    end: usize,
}

impl Outgoing {
    /// The bytes to send.
    pub(crate) fn waiting(&self) -> &[u8] {
        &self.bytes[self.sent..self.end]
    }

    /// This many bytes of it are sent.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.sent = (self.sent + bytes).min(self.end);
        if self.sent == self.end {
            (self.sent, self.end) = (0, 0);
        }
    }

    /// At least this many bytes after the waiting ones.
    pub(crate) fn room(&mut self, bytes: usize) -> &mut [u8] {
        let needed = self.end + bytes;
        if self.bytes.len() < needed {
            self.bytes.resize(needed, 0);
        }
        &mut self.bytes[self.end..]
    }

    /// This many bytes of the room are to be sent.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.end = (self.end + bytes).min(self.bytes.len());
    }
}
