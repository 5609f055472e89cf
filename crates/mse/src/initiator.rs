//! The side that has dialled.

use crate::dh::{KEY, Private};
use crate::rc4::Rc4;
use crate::scan::UnreadBytes;
use crate::session::{Cipher, Offer, Random, Session, hash, mask, method_and_pad, streams};
use crate::{Error, HASH, PLAIN, RC4, VC};

/// Opens a connection to a peer that may demand encryption.
#[derive(Debug)]
pub struct Initiator {
    info_hash: [u8; HASH],
    offer: Offer,
    first: Vec<u8>,
    held: UnreadBytes,
    phase: Phase,
}

enum Phase {
    /// Waits for the peer's key.
    Key(Private),
    /// Waits for VC behind PadB: how it will look.
    Sync(Cipher, [u8; 8]),
    /// Waits for the selected method.
    Head(Cipher),
    /// Waits for PadD.
    Pad(Cipher, u32, usize),
    Ended,
}

impl std::fmt::Debug for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Phase::Key(_) => "Key",
            Phase::Sync(..) => "Sync",
            Phase::Head(_) => "Head",
            Phase::Pad(..) => "Pad",
            Phase::Ended => "Ended",
        })
    }
}

impl Initiator {
    /// Begins: the bytes to send are added to `out`. `first` is the payload sent with the opening, at most
    /// [`MAX_FIRST`](crate::MAX_FIRST) bytes; the rest is left out.
    #[must_use]
    pub fn new(
        info_hash: [u8; HASH],
        offer: Offer,
        first: &[u8],
        random: &Random,
        out: &mut Vec<u8>,
    ) -> Self {
        let key = Private::new(&random.secret);
        out.extend_from_slice(&key.public());
        out.extend_from_slice(random.pad());
        let first = first.get(..crate::MAX_FIRST).unwrap_or(first).to_vec();
        Self { info_hash, offer, first, held: UnreadBytes::default(), phase: Phase::Key(key) }
    }

    /// Takes received bytes; adds the bytes to send to `out`. Returns a session when the opening is done.
    ///
    /// # Errors
    /// The rule that the peer broke; every further call fails too.
    pub fn receive(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Option<Session>, Error> {
        self.held.add(bytes);
        loop {
            match std::mem::replace(&mut self.phase, Phase::Ended) {
                Phase::Key(key) => {
                    let Some(theirs) = self.held.take::<KEY>() else {
                        self.phase = Phase::Key(key);
                        return Ok(None);
                    };
                    self.phase = self.ask(&key.shared(&theirs)?, out);
                }
                Phase::Sync(cipher, mark) => {
                    if !self.held.pass(&mark)? {
                        self.phase = Phase::Sync(cipher, mark);
                        return Ok(None);
                    }
                    self.phase = Phase::Head(cipher);
                }
                Phase::Head(mut cipher) => {
                    let Some(mut head) = self.held.take::<6>() else {
                        self.phase = Phase::Head(cipher);
                        return Ok(None);
                    };
                    cipher.incoming.apply(&mut head);
                    let (method, pad) = method_and_pad(head)?;
                    if ![PLAIN, RC4].contains(&method) || method & self.offer.methods() == 0 {
                        return Err(Error::Method(method));
                    }
                    self.phase = Phase::Pad(cipher, method, pad);
                }
                Phase::Pad(mut cipher, method, pad) => {
                    let Some(mut padding) = self.held.take_vec(pad) else {
                        self.phase = Phase::Pad(cipher, method, pad);
                        return Ok(None);
                    };
                    cipher.incoming.apply(&mut padding);
                    let received = (Vec::new(), self.held.take_all());
                    return Ok(Some(Session::new(method, cipher, received, self.info_hash)));
                }
                Phase::Ended => return Err(Error::NoSync),
            }
        }
    }

    /// Names the swarm and the offered methods.
    fn ask(&self, secret: &[u8; KEY], out: &mut Vec<u8>) -> Phase {
        out.extend_from_slice(&hash(&[b"req1", secret]));
        out.extend_from_slice(&mask(hash(&[b"req2", &self.info_hash]), secret));
        let (mut outgoing, mut incoming): (Rc4, Rc4) = streams(secret, &self.info_hash);
        let len = u16::try_from(self.first.len()).unwrap_or_default();
        let from = out.len();
        out.extend_from_slice(&VC);
        out.extend_from_slice(&self.offer.methods().to_be_bytes());
        out.extend_from_slice(&0_u16.to_be_bytes());
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(&self.first);
        outgoing.apply(&mut out[from..]);
        let mut mark = VC;
        incoming.apply(&mut mark);
        Phase::Sync(Cipher { incoming, outgoing }, mark)
    }
}
