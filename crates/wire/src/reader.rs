//! A bounds-checked big-endian reader over one whole message. It never panics; each failure names the
//! message.

use crate::Error;

pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    message: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(message: &'static str, body: &'a [u8]) -> Self {
        Self { rest: body, message }
    }

    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], Error> {
        let (head, tail) = self.rest.split_at_checked(n).ok_or(Error::Length {
            message: self.message,
            len: self.rest.len() as u64,
            rule: "the message ends inside a field",
        })?;
        self.rest = tail;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Error> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Error> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// All that is left, as digests of 32 bytes.
    pub(crate) fn digests(&mut self) -> Result<Vec<[u8; 32]>, Error> {
        let (digests, odd) = self.rest.as_chunks::<32>();
        if !odd.is_empty() {
            return Err(Error::Length {
                message: self.message,
                len: self.rest.len() as u64,
                rule: "hashes are 32 bytes each (BEP 52)",
            });
        }
        self.rest = &[];
        Ok(digests.to_vec())
    }

    /// Nothing may be left.
    pub(crate) fn end(self) -> Result<(), Error> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(Error::Length {
            message: self.message,
            len: self.rest.len() as u64,
            rule: "extra bytes after the last field",
        })
    }
}
