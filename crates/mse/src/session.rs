//! The negotiated session, and the derivation of keys and methods.

use tidecast_hash::Sha1;

use crate::dh::{KEY, SECRET};
use crate::rc4::Rc4;
use crate::{Error, HASH, MAX_PAD, PLAIN, RC4};

/// Random numbers for one connection.
#[derive(Clone)]
pub struct Random {
    /// The private key.
    pub secret: [u8; SECRET],
    /// The pad after the public key; bytes beyond [`MAX_PAD`] are left out.
    pub pad: Vec<u8>,
}

impl Random {
    pub(crate) fn pad(&self) -> &[u8] {
        self.pad.get(..MAX_PAD).unwrap_or(&self.pad)
    }
}

/// The keys of the private key stay out of logs.
impl std::fmt::Debug for Random {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Random").finish_non_exhaustive()
    }
}

/// How the payload may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Plain or enciphered, as the responder selects.
    Either,
    /// Enciphered.
    Rc4,
}

impl Offer {
    pub(crate) fn methods(self) -> u32 {
        match self {
            Offer::Either => PLAIN | RC4,
            Offer::Rc4 => RC4,
        }
    }
}

/// The end of an opening.
#[derive(Debug)]
pub struct Session {
    /// How the payload goes from now on.
    pub cipher: Option<Cipher>,
    /// Payload received already, decrypted.
    pub received: Vec<u8>,
    /// The swarm that the initiator named.
    pub info_hash: [u8; HASH],
}

/// The two streams of an enciphered connection.
#[derive(Debug)]
pub struct Cipher {
    /// Decrypts incoming bytes.
    pub incoming: Rc4,
    /// Encrypts outgoing bytes.
    pub outgoing: Rc4,
}

impl Session {
    /// `method` tells whether the rest of `received` after `first` is encrypted.
    pub(crate) fn new(
        method: u32,
        mut cipher: Cipher,
        (mut first, mut rest): (Vec<u8>, Vec<u8>),
        info_hash: [u8; HASH],
    ) -> Self {
        let cipher = (method == RC4).then(|| {
            cipher.incoming.apply(&mut rest);
            cipher
        });
        first.append(&mut rest);
        Self { cipher, received: first, info_hash }
    }
}

/// SHA-1 of words one after the other.
pub(crate) fn hash(words: &[&[u8]]) -> [u8; HASH] {
    let mut sha1 = Sha1::new();
    words.iter().for_each(|word| sha1.update(word));
    sha1.finish()
}

/// The initiator's stream and the responder's.
pub(crate) fn streams(secret: &[u8; KEY], info_hash: &[u8; HASH]) -> (Rc4, Rc4) {
    let stream = |name: &[u8]| Rc4::new(&hash(&[name, secret, info_hash]));
    (stream(b"keyA"), stream(b"keyB"))
}

/// Where the swarm is hidden, and back.
pub(crate) fn mask(hashed: [u8; HASH], secret: &[u8; KEY]) -> [u8; HASH] {
    let mut masked = hashed;
    masked.iter_mut().zip(hash(&[b"req3", secret])).for_each(|(a, b)| *a ^= b);
    masked
}

/// The selected method of those `offered`. Plain payload where the other end accepts it: RC4 protects
/// nothing, and plain payload goes from the page cache to the network without a copy.
pub(crate) fn select(offered: u32) -> Result<u32, Error> {
    [PLAIN, RC4].into_iter().find(|method| offered & method != 0).ok_or(Error::Method(offered))
}

/// The contents of a header: offered or selected methods, and the length of a pad.
pub(crate) fn method_and_pad(head: [u8; 6]) -> Result<(u32, usize), Error> {
    let [a, b, c, d, e, f] = head;
    let pad = u16::from_be_bytes([e, f]);
    if usize::from(pad) > MAX_PAD {
        return Err(Error::Pad(pad));
    }
    Ok((u32::from_be_bytes([a, b, c, d]), usize::from(pad)))
}
