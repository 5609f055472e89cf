//! Who may send: tags on datagrams by keys that come from one secret.
//!
//! Tags of values are those of AES-256-GCM over bytes that stay readable (which is GMAC), several GB/s a core; control messages have the
//! first half of an HMAC-SHA256, for they have no number that is never used twice.

use std::fmt;
use std::str::FromStr;

use aes_gcm::aead::AeadInOut as _;
use aes_gcm::{Aes256Gcm, KeyInit as _};
use data_encoding::BASE32_NOPAD;
use ring::{hkdf, hmac};

/// Bytes of a tag, at the end of a datagram.
pub const TAG: usize = 16;

/// A secret that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is no key of a field: 52 letters and digits, as `tidecast field recv` prints them")]
pub struct BadSecret;

/// What sender and receiver share: 32 bytes, written as 52 letters and digits (base32).
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

    /// The key of one stream's values and parity in one session.
    pub fn stream(&self, session: u64, stream: u32) -> StreamKey {
        let mut key = [0; 32];
        self.expand(&[b"tidecast field data", &session.to_le_bytes(), &stream.to_le_bytes()], &mut key);
        StreamKey(Box::new(Aes256Gcm::new(&key.into())))
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

    /// What is before the tag, if the tag is right; in constant time.
    pub fn open<'a>(&self, datagram: &'a [u8]) -> Option<&'a [u8]> {
        let (message, tag) = datagram.split_last_chunk::<TAG>()?;
        let right = self.tag(message).iter().zip(tag).fold(0, |wrong, (a, b)| wrong | (a ^ b));
        (std::hint::black_box(right) == 0).then_some(message)
    }
}

/// Tags of one stream's values and parity.
pub struct StreamKey(Box<Aes256Gcm>);

impl StreamKey {
    /// The tag of `bytes`: `place` is the rank of the first value, or [`parity_place`]. Never two different ones with one batch and place.
    pub fn tag(&self, batch: u32, place: u64, bytes: &[u8]) -> [u8; TAG] {
        // It fails only for 64 GiB and more.
        let tag = self.0.encrypt_inout_detached(&nonce(batch, place).into(), bytes, (&mut [][..]).into());
        debug_assert!(tag.is_ok());
        tag.map_or([0; TAG], Into::into)
    }

    /// Whether this is the tag of `bytes`; in constant time.
    pub fn check(&self, batch: u32, place: u64, bytes: &[u8], tag: &[u8; TAG]) -> bool {
        let empty = (&mut [][..]).into();
        self.0.decrypt_inout_detached(&nonce(batch, place).into(), bytes, empty, &(*tag).into()).is_ok()
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

    #[test]
    fn tags_of_values_are_those_of_gcm() {
        let mut bytes = [0; 32];
        let info = [b"tidecast field data".as_slice(), &7u64.to_le_bytes(), &3u32.to_le_bytes()].concat();
        secret().expand(&[&info], &mut bytes);
        let other = aead::LessSafeKey::new(aead::UnboundKey::new(&aead::AES_256_GCM, &bytes).unwrap());
        let key = secret().stream(7, 3);
        for size in [0, 1, 16, 17, 100, 8952] {
            let bytes = vec![size as u8; size];
            for place in [5, parity_place(5)] {
                let tag = key.tag(9, place, &bytes);
                let unique = aead::Nonce::assume_unique_for_key(nonce(9, place));
                let theirs =
                    other.seal_in_place_separate_tag(unique, aead::Aad::from(&bytes), &mut []).unwrap();
                assert_eq!(tag, theirs.as_ref());
                assert!(key.check(9, place, &bytes, &tag));
                assert!(!key.check(8, place, &bytes, &tag) && !key.check(9, place + 1, &bytes, &tag));
                assert!(!secret().stream(7, 4).check(9, place, &bytes, &tag), "another stream's");
                assert!(!secret().stream(8, 3).check(9, place, &bytes, &tag), "another session's");
            }
        }
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
