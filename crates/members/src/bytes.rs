//! Fields of bounded bytes, big-endian: written to a vector, read without panic or trust.

use std::net::{IpAddr, SocketAddr};

/// What is left to read. Every answer is `None` when too little is left.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn left(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn slice(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.slice(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[b]| b)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Bytes with their length before them, at most `most`.
    pub(crate) fn field(&mut self, most: usize) -> Option<&'a [u8]> {
        let len = usize::from(self.u16()?);
        (len <= most).then(|| self.slice(len)).flatten()
    }

    pub(crate) fn text(&mut self, most: usize) -> Option<String> {
        String::from_utf8(self.field(most)?.to_vec()).ok()
    }

    pub(crate) fn address(&mut self) -> Option<SocketAddr> {
        let ip = match self.u8()? {
            4 => IpAddr::from(self.array::<4>()?),
            6 => IpAddr::from(self.array::<16>()?),
            _ => return None,
        };
        Some(SocketAddr::new(ip, self.u16()?))
    }

    /// `Some` when every byte was read.
    pub(crate) fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Writes a field with its length; the caller has checked that it is short enough.
pub(crate) fn put_field(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    out.extend(len.to_be_bytes());
    out.extend(bytes.iter().take(usize::from(len)));
}

pub(crate) fn put_address(out: &mut Vec<u8>, address: SocketAddr) {
    match address.ip() {
        IpAddr::V4(ip) => {
            out.push(4);
            out.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(6);
            out.extend(ip.octets());
        }
    }
    out.extend(address.port().to_be_bytes());
}
