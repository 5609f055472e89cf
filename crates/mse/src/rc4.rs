//! RC4, without its first 1024 bytes. Written out here: it is shorter than the use of a library for it.

/// A stream of RC4.
#[derive(Clone)]
pub struct Rc4 {
    state: [u8; 256],
    i: u8,
    j: u8,
}

/// Bytes of the stream that are not used: they reveal much of the key.
const DROPPED: usize = 1024;

impl Rc4 {
    pub(crate) fn new(key: &[u8; 20]) -> Self {
        let mut rc4 = Self::undropped(key);
        let mut dropped = [0; DROPPED];
        rc4.apply(&mut dropped);
        rc4
    }

    fn undropped(key: &[u8]) -> Self {
        let mut state = [0_u8; 256];
        (0..=255).zip(&mut state).for_each(|(n, s)| *s = n);
        let mut j = 0_u8;
        for (i, k) in (0..256).zip(key.iter().cycle()) {
            j = j.wrapping_add(state[i]).wrapping_add(*k);
            state.swap(i, usize::from(j));
        }
        Self { state, i: 0, j: 0 }
    }

    /// Enciphers, or deciphers, the next bytes of the stream in place.
    pub fn apply(&mut self, bytes: &mut [u8]) {
        let Self { state, i, j } = self;
        for byte in bytes {
            *i = i.wrapping_add(1);
            let a = state[usize::from(*i)];
            *j = j.wrapping_add(a);
            let b = std::mem::replace(&mut state[usize::from(*j)], a);
            state[usize::from(*i)] = b;
            *byte ^= state[usize::from(a.wrapping_add(b))];
        }
    }
}

/// The key stays out of logs.
impl std::fmt::Debug for Rc4 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rc4")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 6229: key 0102030405, offsets 0, 1024 and 4096.
    #[test]
    fn the_stream_of_the_rfc() {
        let mut stream = [0; 4112];
        Rc4::undropped(&[1, 2, 3, 4, 5]).apply(&mut stream);
        assert_eq!(stream[..8], [0xb2, 0x39, 0x63, 0x05, 0xf0, 0x3d, 0xc0, 0x27]);
        assert_eq!(stream[1024..1032], [0x30, 0xab, 0xbc, 0xc7, 0xc2, 0x0b, 0x01, 0x60]);
        assert_eq!(stream[4096..4104], [0xff, 0x25, 0xb5, 0x89, 0x95, 0x99, 0x67, 0x07]);
    }

    #[test]
    fn the_first_1024_bytes_are_left_out() {
        let key = [7; 20];
        let mut whole = [0; 1040];
        Rc4::undropped(&key).apply(&mut whole);
        let mut tail = [0; 16];
        Rc4::new(&key).apply(&mut tail);
        assert_eq!(whole[1024..], tail);
    }
}
