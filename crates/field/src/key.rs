//! Authentication of senders and readers: keys derived from one secret.
//!
//! Runs of values and parity are encrypted by AES-128-GCM, which costs less than the tag alone of bytes that stay readable: ring has
//! assembly for the whole and none for a part. Values in the paper's packing stay readable, as its packets are, with the tag of
//! AES-256-GCM (which is GMAC then). Control messages have the first half of an HMAC-SHA256, for they have no number that is never used
//! twice.

use std::fmt;
use std::str::FromStr;

use aes_gcm::aead::AeadInOut as _;
use aes_gcm::{Aes256Gcm, KeyInit as _};
use data_encoding::BASE32_NOPAD;
use ring::{aead, hkdf, hmac};

use crate::packet::HEAD;

/// Bytes of a tag, at the end of a datagram.
pub const TAG: usize = 16;

/// A secret that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid field key: a key has 52 letters and digits, as `tidecast field recv` prints it")]
pub struct BadSecret;

/// The secret shared by sender and receiver: 32 bytes, written as 52 letters and digits (base32).
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// A new one.
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// The key of control messages.
    pub fn control(&self) -> ControlKey {
        let mut key = [0; 32];
        self.expand(&[b"tidecast field control"], &mut key);
        ControlKey(hmac::Key::new(hmac::HMAC_SHA256, &key))
    }

    /// The key of one stream's values and parity in one session: they are encrypted, or stay readable and have a tag only.
    pub fn stream(&self, session: u64, stream: u32, encrypted: bool) -> StreamKey {
        if encrypted { self.cipher(session, stream) } else { self.tags(session, stream) }
    }

    fn tags(&self, session: u64, stream: u32) -> StreamKey {
        let mut key = [0; 32];
        self.expand(&[b"tidecast field data", &session.to_le_bytes(), &stream.to_le_bytes()], &mut key);
        StreamKey(Seal::Tags(Box::new(Aes256Gcm::new(&key.into()))))
    }

    #[expect(clippy::expect_used, reason = "an AES-128 key has 16 bytes")]
    fn cipher(&self, session: u64, stream: u32) -> StreamKey {
        let mut key = [0; 32];
        self.expand(&[b"tidecast field values", &session.to_le_bytes(), &stream.to_le_bytes()], &mut key);
        let key = aead::UnboundKey::new(&aead::AES_128_GCM, &key[..16]).expect("a key of 16 bytes");
        StreamKey(Seal::Cipher(Box::new(aead::LessSafeKey::new(key))))
    }

    fn expand(&self, info: &[&[u8]], key: &mut [u8; 32]) {
        // It fails only for lengths that are not the algorithm's.
        let made = hkdf::Salt::new(hkdf::HKDF_SHA256, &[])
            .extract(&self.0)
            .expand(info, hkdf::HKDF_SHA256)
            .and_then(|okm| okm.fill(key));
        debug_assert!(made.is_ok());
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE32_NOPAD.encode(&self.0).to_ascii_lowercase())
    }
}

/// Not shown: logs are read by others.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl FromStr for Secret {
    type Err = BadSecret;

    fn from_str(text: &str) -> Result<Self, BadSecret> {
        let bytes =
            BASE32_NOPAD.decode(text.trim().to_ascii_uppercase().as_bytes()).map_err(|_| BadSecret)?;
        bytes.try_into().map(Self).map_err(|_| BadSecret)
    }
}

/// Tags of control messages.
#[derive(Debug, Clone)]
pub struct ControlKey(hmac::Key);

impl ControlKey {
    /// The tag of `message`.
    pub fn tag(&self, message: &[u8]) -> [u8; TAG] {
        let mut tag = [0; TAG];
        let whole = hmac::sign(&self.0, message);
        tag.iter_mut().zip(whole.as_ref()).for_each(|(to, from)| *to = *from);
        tag
    }

    /// The bytes before the tag, if the tag is valid; in constant time.
    pub fn open<'a>(&self, datagram: &'a [u8]) -> Option<&'a [u8]> {
        let (message, tag) = datagram.split_last_chunk::<TAG>()?;
        let right = self.tag(message).iter().zip(tag).fold(0, |wrong, (a, b)| wrong | (a ^ b));
        (std::hint::black_box(right) == 0).then_some(message)
    }
}

/// Seals one stream's values and parity.
pub struct StreamKey(Seal);

enum Seal {
    Tags(Box<Aes256Gcm>),
    Cipher(Box<aead::LessSafeKey>),
}

impl StreamKey {
    /// Appends a tag to the datagram that begins at `begin`, and encrypts the part after its head if values
    /// are to be hidden. `place` is the rank of the first value, or [`parity_place`]. Never two different
    /// datagrams with one batch and place.
    pub fn seal(&self, batch: u32, place: u64, begin: usize, into: &mut Vec<u8>) {
        let datagram = into.get_mut(begin..).unwrap_or_default();
        // It fails only for 64 GiB and more.
        let tag = match &self.0 {
            Seal::Tags(key) => key
                .encrypt_inout_detached(&nonce(batch, place).into(), datagram, (&mut [][..]).into())
                .map_or([0; TAG], Into::into),
            Seal::Cipher(key) => {
                let (head, body) = datagram.split_at_mut(HEAD.min(datagram.len()));
                let nonce = aead::Nonce::assume_unique_for_key(nonce(batch, place));
                let tag = key.seal_in_place_separate_tag(nonce, aead::Aad::from(&*head), body);
                tag.ok().and_then(|tag| tag.as_ref().try_into().ok()).unwrap_or([0; TAG])
            }
        };
        into.extend(tag);
    }

    /// The datagram without its tag and readable, if the tag is right; in constant time.
    pub fn open<'a>(&self, batch: u32, place: u64, datagram: &'a mut [u8]) -> Option<&'a [u8]> {
        let end = datagram.len().checked_sub(TAG)?;
        match &self.0 {
            Seal::Tags(key) => {
                let (inner, tag) = datagram.split_last_chunk::<TAG>()?;
                let empty = (&mut [][..]).into();
                key.decrypt_inout_detached(&nonce(batch, place).into(), inner, empty, &(*tag).into()).ok()?;
            }
            Seal::Cipher(key) => {
                let (head, body) = datagram.split_at_mut_checked(HEAD)?;
                let nonce = aead::Nonce::assume_unique_for_key(nonce(batch, place));
                key.open_in_place(nonce, aead::Aad::from(&*head), body).ok()?;
            }
        }
        datagram.get(..end)
    }
}

/// Not shown: logs are read by others.
impl fmt::Debug for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamKey(..)")
    }
}

/// The place of a parity packet in its nonce.
pub fn parity_place(number: u32) -> u64 {
    1 << 63 | u64::from(number)
}

fn nonce(batch: u32, place: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&batch.to_le_bytes());
    nonce[4..].copy_from_slice(&place.to_le_bytes());
    nonce
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::aead;

    fn secret() -> Secret {
        Secret(std::array::from_fn(|i| i as u8))
    }

    #[test]
    fn a_secret_is_one_word() {
        let text = secret().to_string();
        assert_eq!(text.len(), 52);
        assert_eq!(format!("  {}\n", text.to_uppercase()).parse::<Secret>().unwrap(), secret());
        assert_eq!(format!("{:?}", secret()), "Secret(..)");
        for wrong in ["", "aaaa", &text[1..], &format!("{text}a"), &text.replace('a', "1")] {
            assert_eq!(wrong.parse::<Secret>(), Err(BadSecret), "{wrong}");
        }
        assert_ne!(Secret::random(), Secret::random());
    }

    /// The result of ring for the same input, key and nonce given.
    fn judge(algorithm: &'static aead::Algorithm, key: &[u8], place: u64, head: &[u8], body: &mut Vec<u8>) {
        let key = aead::LessSafeKey::new(aead::UnboundKey::new(algorithm, key).unwrap());
        let unique = aead::Nonce::assume_unique_for_key(nonce(9, place));
        key.seal_in_place_append_tag(unique, aead::Aad::from(head), body).unwrap();
    }

    #[test]
    fn values_are_sealed_as_the_document_says() {
        let info = |label: &[u8]| [label, &7u64.to_le_bytes(), &3u32.to_le_bytes()].concat();
        let (mut tags, mut cipher) = ([0; 32], [0; 32]);
        secret().expand(&[&info(b"tidecast field data")], &mut tags);
        secret().expand(&[&info(b"tidecast field values")], &mut cipher);
        for size in [8, 9, 16, 17, 100, 8952] {
            let plain = vec![size as u8; size];
            for place in [5, parity_place(5)] {
                let mut readable = Vec::new();
                judge(&aead::AES_256_GCM, &tags, place, &plain, &mut readable);
                let readable = [&plain[..], &readable].concat();
                let mut hidden = plain[HEAD..].to_vec();
                judge(&aead::AES_128_GCM, &cipher[..16], place, &plain[..HEAD], &mut hidden);
                let hidden = [&plain[..HEAD], &hidden].concat();
                for (key, expected) in [(secret().tags(7, 3), readable), (secret().cipher(7, 3), hidden)] {
                    // Behind another datagram, which stays as it is.
                    let mut into = [&[1; 5], &plain[..]].concat();
                    key.seal(9, place, 5, &mut into);
                    assert_eq!((&into[..5], &into[5..]), (&[1; 5][..], &expected[..]));
                    assert_eq!(key.open(9, place, &mut expected.clone()), Some(&plain[..]));
                }
            }
        }
    }

    #[test]
    fn a_sealed_datagram_opens_only_as_it_was() {
        for which in [Secret::tags, Secret::cipher] {
            let mut sealed = vec![3; 40];
            which(&secret(), 7, 3).seal(9, 5, 0, &mut sealed);
            let opens = |session, stream, batch, place, datagram: &[u8]| {
                which(&secret(), session, stream).open(batch, place, &mut datagram.to_vec()).is_some()
            };
            assert!(opens(7, 3, 9, 5, &sealed));
            assert!(!opens(7, 3, 8, 5, &sealed) && !opens(7, 3, 9, 6, &sealed));
            assert!(!opens(7, 4, 9, 5, &sealed), "another stream's");
            assert!(!opens(8, 3, 9, 5, &sealed), "another session's");
            for i in 0..sealed.len() {
                let mut damaged = sealed.clone();
                damaged[i] ^= 1;
                assert!(!opens(7, 3, 9, 5, &damaged) && !opens(7, 3, 9, 5, &sealed[..i]));
            }
        }
        let mut sealed = vec![3; 40];
        secret().cipher(7, 3).seal(9, 5, 0, &mut sealed);
        assert!(secret().tags(7, 3).open(9, 5, &mut sealed.clone()).is_none(), "sealed in another way");
        assert!(!sealed[HEAD..].windows(8).any(|bytes| bytes == [3; 8]), "it can be read");
    }

    #[test]
    fn a_control_message_opens_only_as_it_was() {
        let key = secret().control();
        let mut sealed = b"hello".to_vec();
        sealed.extend(key.tag(b"hello"));
        assert_eq!(key.open(&sealed), Some(&b"hello"[..]));
        for i in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[i] ^= 1;
            assert_eq!(key.open(&damaged), None);
            assert_eq!(key.open(&sealed[..i]), None);
        }
        assert_eq!(Secret::random().control().open(&sealed), None);
    }
}
