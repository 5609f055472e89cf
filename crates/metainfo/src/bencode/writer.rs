//! Canonical bencode, written straight into a buffer.
//!
//! Promise: the same calls give the same bytes. Debug builds check that the keys of every
//! dictionary come in ascending order, as BEP 3 demands.

/// Appends bencode to a buffer.
///
/// ```
/// # use tidecast_metainfo::bencode::Writer;
/// let mut w = Writer::new();
/// w.dict(|d| {
///     d.key(b"age").int(7);
///     d.key(b"name").bytes(b"ada");
/// });
/// assert_eq!(w.into_bytes(), b"d3:agei7e4:name3:adae");
/// ```
#[derive(Debug, Default)]
pub struct Writer {
    out: Vec<u8>,
    #[cfg(debug_assertions)]
    keys: Vec<Option<Vec<u8>>>,
}

impl Writer {
    /// An empty writer.
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes written so far.
    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    /// Writes an integer.
    pub fn int(&mut self, value: i64) {
        self.out.push(b'i');
        self.out.extend_from_slice(value.to_string().as_bytes());
        self.out.push(b'e');
    }

    /// Writes a string of bytes.
    pub fn bytes(&mut self, value: &[u8]) {
        self.out.extend_from_slice(value.len().to_string().as_bytes());
        self.out.push(b':');
        self.out.extend_from_slice(value);
    }

    /// Writes a value that is bencoded already.
    pub fn raw(&mut self, value: &[u8]) {
        self.out.extend_from_slice(value);
    }

    /// Writes a list; `body` writes its items.
    pub fn list(&mut self, body: impl FnOnce(&mut Self)) {
        self.out.push(b'l');
        body(self);
        self.out.push(b'e');
    }

    /// Writes a dictionary; `body` calls [`Writer::key`] and writes a value, in turn.
    pub fn dict(&mut self, body: impl FnOnce(&mut Self)) {
        self.begin_dict();
        body(self);
        self.end_dict();
    }

    /// Starts a dictionary that [`Writer::end_dict`] ends, for writers that keep their own stack.
    pub fn begin_dict(&mut self) {
        self.out.push(b'd');
        #[cfg(debug_assertions)]
        self.keys.push(None);
    }

    /// Ends the dictionary begun last.
    pub fn end_dict(&mut self) {
        self.out.push(b'e');
        #[cfg(debug_assertions)]
        self.keys.pop();
    }

    /// Writes a dictionary key; keys must come in ascending order.
    pub fn key(&mut self, key: &[u8]) -> &mut Self {
        #[cfg(debug_assertions)]
        if let Some(last) = self.keys.last_mut() {
            debug_assert!(last.as_deref().is_none_or(|l| l < key), "dictionary keys out of order");
            *last = Some(key.to_vec());
        }
        self.bytes(key);
        self
    }
}
