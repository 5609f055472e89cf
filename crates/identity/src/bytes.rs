//! Fields of bounded bytes, big-endian: written to a vector, read without panic or trust.

use std::net::{IpAddr, SocketAddr};

/// The remaining bytes. All methods return `None` if too few remain.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads `bytes` from their beginning.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Bytes that are left.
    pub fn left(&self) -> usize {
        self.0.len()
    }

    /// The next `len` bytes.
    pub fn slice(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }

    /// The next N bytes.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.slice(N)?.try_into().ok()
    }

    /// One byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[b]| b)
    }

    /// Two bytes, big-endian.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Four bytes, big-endian.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Eight bytes, big-endian.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Bytes with their length before them, at most `most`.
    pub fn field(&mut self, most: usize) -> Option<&'a [u8]> {
        let len = usize::from(self.u16()?);
        (len <= most).then(|| self.slice(len)).flatten()
    }

    /// A field of UTF-8.
    pub fn text(&mut self, most: usize) -> Option<String> {
        String::from_utf8(self.field(most)?.to_vec()).ok()
    }

    /// An address as [`put_address`] writes it.
    pub fn address(&mut self) -> Option<SocketAddr> {
        let ip = match self.u8()? {
            4 => IpAddr::from(self.array::<4>()?),
            6 => IpAddr::from(self.array::<16>()?),
            _ => return None,
        };
        Some(SocketAddr::new(ip, self.u16()?))
    }

    /// `Some` when every byte was read: trailing bytes are an error in all our formats.
    pub fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Writes a field with its length; the caller has checked that it is short enough.
pub fn put_field(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    out.extend(len.to_be_bytes());
    out.extend(bytes.iter().take(usize::from(len)));
}

/// Writes an address: 4 or 6, the bytes of the IP, the port.
pub fn put_address(out: &mut Vec<u8>, address: SocketAddr) {
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
