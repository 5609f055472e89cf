//! What probes write on connections and in datagrams. Pure.
//!
//! ```text
//! caller                                        callee
//!   ── TCP ──▶      ◀── nonce (16 bytes) ──
//!   ── request (48 bytes), tag (32) ──▶         proves that the caller is of this run, and fresh
//!   ◀── tag (32) ──                             proves the same of the callee
//! ```
//!
//! Tags are HMAC-SHA256 with the key of the run, over both nonces. A datagram has a tag of its own; an answer to one is never
//! longer than the datagram.

use ring::hmac;

/// Bytes of a nonce.
pub(crate) const NONCE: usize = 16;
/// Bytes of a request without its tag.
pub(crate) const REQUEST: usize = 48;
/// Bytes of a tag.
pub(crate) const TAG: usize = 32;
/// Bytes of a datagram without padding.
pub(crate) const DATAGRAM: usize = 40;
/// First bytes of requests and datagrams.
const MAGIC: [u8; 4] = *b"tdp1";
/// Bytes of the tag in a datagram.
const SHORT: usize = 16;

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Times, and counts of datagrams.
    Probe,
    /// The caller sends at full rate.
    Send,
    /// Both send at full rate.
    Meet,
}

/// The request of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// What for.
    pub(crate) purpose: Purpose,
    /// The number of the task.
    pub(crate) task: u32,
    /// The caller's number.
    pub(crate) from: u32,
    /// The callee's number.
    pub(crate) to: u32,
    /// Milliseconds that a transfer takes at most.
    pub(crate) millis: u32,
    /// Bytes that a transfer takes at most.
    pub(crate) bytes: u64,
    /// The caller's nonce.
    pub(crate) nonce: [u8; NONCE],
}

/// The key of a run.
#[derive(Clone)]
pub(crate) struct Key(hmac::Key);

impl Key {
    /// The key of these bytes.
    #[must_use]
    pub(crate) fn new(bytes: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// The caller's proof.
    #[must_use]
    pub(crate) fn of_caller(&self, request: &Request, nonce: &[u8; NONCE]) -> [u8; TAG] {
        self.tag(b"caller", request, nonce)
    }

    /// The callee's proof.
    #[must_use]
    pub(crate) fn of_callee(&self, request: &Request, nonce: &[u8; NONCE]) -> [u8; TAG] {
        self.tag(b"callee", request, nonce)
    }

    fn tag(&self, side: &[u8], request: &Request, nonce: &[u8; NONCE]) -> [u8; TAG] {
        let text = [side, &request.encode()[..], &nonce[..]].concat();
        let mut tag = [0; TAG];
        tag.copy_from_slice(hmac::sign(&self.0, &text).as_ref());
        tag
    }

    /// Whether the tag is the caller's proof.
    #[must_use]
    pub(crate) fn is_caller(&self, request: &Request, nonce: &[u8; NONCE], tag: &[u8]) -> bool {
        let text = [b"caller", &request.encode()[..], &nonce[..]].concat();
        hmac::verify(&self.0, &text, tag).is_ok()
    }

    /// Whether the tag is the callee's proof.
    #[must_use]
    pub(crate) fn is_callee(&self, request: &Request, nonce: &[u8; NONCE], tag: &[u8]) -> bool {
        let text = [b"callee", &request.encode()[..], &nonce[..]].concat();
        hmac::verify(&self.0, &text, tag).is_ok()
    }
}

impl Request {
    /// As bytes.
    #[must_use]
    pub(crate) fn encode(&self) -> [u8; REQUEST] {
        let purpose: u32 = match self.purpose {
            Purpose::Probe => 1,
            Purpose::Send => 2,
            Purpose::Meet => 3,
        };
        let mut out = [0; REQUEST];
        let words = [purpose, self.task, self.from, self.to, self.millis].map(u32::to_be_bytes);
        let parts = [&MAGIC[..], words.as_flattened(), &self.bytes.to_be_bytes(), &self.nonce];
        for (to, from) in out.iter_mut().zip(parts.into_iter().flatten()) {
            *to = *from;
        }
        out
    }

    /// From bytes; `None` if they are not a request.
    #[must_use]
    pub(crate) fn decode(bytes: &[u8; REQUEST]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let (purpose, rest) = word(rest)?;
        let (task, rest) = word(rest)?;
        let (from, rest) = word(rest)?;
        let (to, rest) = word(rest)?;
        let (millis, rest) = word(rest)?;
        let (count, rest) = rest.split_first_chunk::<8>()?;
        let (nonce, _) = rest.split_first_chunk::<NONCE>()?;
        let purpose = match purpose {
            1 => Purpose::Probe,
            2 => Purpose::Send,
            3 => Purpose::Meet,
            _ => return None,
        };
        let request =
            Self { purpose, task, from, to, millis, bytes: u64::from_be_bytes(*count), nonce: *nonce };
        (*magic == MAGIC).then_some(request)
    }
}

/// The kind of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// To find losses.
    Loss,
    /// To find the largest packet.
    Size,
    /// The answer to one.
    Answer,
}

/// A datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Datagram {
    /// Its kind.
    pub(crate) kind: Kind,
    /// The number of the task.
    pub(crate) task: u32,
    /// The sender's number.
    pub(crate) from: u32,
    /// The receiver's number.
    pub(crate) to: u32,
    /// Its number; of [`Kind::Size`] and its answer, the length of the datagram.
    pub(crate) number: u32,
}

impl Datagram {
    /// As `length` bytes, at least [`DATAGRAM`].
    #[must_use]
    pub(crate) fn encode(&self, length: usize, key: &Key) -> Vec<u8> {
        let kind: u32 = match self.kind {
            Kind::Loss => 1,
            Kind::Size => 2,
            Kind::Answer => 3,
        };
        let words = [kind, self.task, self.from, self.to, self.number].map(u32::to_be_bytes);
        let mut out = [&MAGIC[..], words.as_flattened()].concat();
        let tag = hmac::sign(&key.0, &out);
        out.extend(tag.as_ref().iter().take(SHORT));
        out.resize(length.max(DATAGRAM), 0);
        out
    }

    /// From bytes; `None` if they are not a datagram of this run.
    #[must_use]
    pub(crate) fn decode(bytes: &[u8], key: &Key) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(DATAGRAM - SHORT)?;
        let tag = rest.get(..SHORT)?;
        let (magic, fields) = head.split_first_chunk::<4>()?;
        let (kind, fields) = word(fields)?;
        let (task, fields) = word(fields)?;
        let (from, fields) = word(fields)?;
        let (to, fields) = word(fields)?;
        let (number, _) = word(fields)?;
        let kind = match kind {
            1 => Kind::Loss,
            2 => Kind::Size,
            3 => Kind::Answer,
            _ => return None,
        };
        let expected = hmac::sign(&key.0, head);
        let differs = expected.as_ref().iter().zip(tag).fold(0, |sum, (a, b)| sum | (a ^ b));
        (*magic == MAGIC && differs == 0).then_some(Self { kind, task, from, to, number })
    }
}

fn word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (first, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*first), rest))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn request(task: u32, bytes: u64) -> Request {
        Request { purpose: Purpose::Send, task, from: 2, to: 3, millis: 500, bytes, nonce: [7; NONCE] }
    }

    #[test]
    fn a_proof_holds_for_one_side_one_request_and_one_nonce() {
        let (key, other, request) = (Key::new(&[1; 32]), Key::new(&[2; 32]), request(1, 9));
        let tag = key.of_caller(&request, &[5; NONCE]);
        assert!(key.is_caller(&request, &[5; NONCE], &tag));
        assert!(!key.is_caller(&request, &[6; NONCE], &tag));
        assert!(!key.is_callee(&request, &[5; NONCE], &tag));
        assert!(!other.is_caller(&request, &[5; NONCE], &tag));
        assert!(!key.is_caller(&Request { bytes: 10, ..request }, &[5; NONCE], &tag));
        assert!(key.is_callee(&request, &[5; NONCE], &key.of_callee(&request, &[5; NONCE])));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(task: u32, bytes: u64, number: u32, length in 0usize..9000) {
            let request = request(task, bytes);
            prop_assert_eq!(Request::decode(&request.encode()), Some(request));
            let key = Key::new(&[3; 32]);
            let datagram = Datagram { kind: Kind::Size, task, from: 1, to: 2, number };
            let sent = datagram.encode(length, &key);
            prop_assert_eq!(sent.len(), length.max(DATAGRAM));
            prop_assert_eq!(Datagram::decode(&sent, &key), Some(datagram));
            prop_assert_eq!(Datagram::decode(&sent, &Key::new(&[4; 32])), None);
        }

        #[test]
        fn any_change_of_a_datagram_is_noticed(at in 0usize..DATAGRAM, bit in 0u32..8) {
            let key = Key::new(&[3; 32]);
            let mut sent = Datagram { kind: Kind::Loss, task: 1, from: 2, to: 3, number: 4 }.encode(0, &key);
            sent[at] ^= 1 << bit;
            prop_assert_eq!(Datagram::decode(&sent, &key), None);
        }

        #[test]
        fn any_bytes_are_read_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let key = Key::new(&[3; 32]);
            prop_assert_eq!(Datagram::decode(&bytes, &key), None);
            if let Some(head) = bytes.first_chunk::<REQUEST>() {
                let _ = Request::decode(head);
            }
        }
    }
}
