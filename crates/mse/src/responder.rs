//! The side that was dialled.

use std::collections::HashMap;

use crate::dh::{KEY, Private};
use crate::scan::UnreadBytes;
use crate::session::{Cipher, Random, Session, hash, mask, method_and_pad, select, streams};
use crate::{Error, HASH, MAX_FIRST, VC};

/// The swarms that a port serves, indexed by the hash that an initiator sends: the work is the same for any
/// number.
#[derive(Clone, Debug, Default)]
pub struct Swarms(HashMap<[u8; HASH], [u8; HASH]>);

impl Swarms {
    /// All ids of the swarms that are served: v1 hashes and truncated v2 hashes.
    pub fn new(info_hashes: impl IntoIterator<Item = [u8; HASH]>) -> Self {
        Self(info_hashes.into_iter().map(|id| (hash(&[b"req2", &id]), id)).collect())
    }

    /// Whether there are no swarms.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Answers a connection that did not begin with the plain handshake.
#[derive(Debug)]
pub struct Responder {
    random: Random,
    held: UnreadBytes,
    phase: Phase,
}

enum Phase {
    /// Waits for the peer's key.
    Key,
    /// Waits for the hash behind PadA: the secret, and the hash.
    Sync([u8; KEY], [u8; HASH]),
    /// Waits for the swarm.
    Swarm([u8; KEY]),
    /// Waits for VC, the methods, and the length of PadC.
    Head(Known),
    /// Waits for PadC and the length of the first payload.
    Pad(Known, u32, usize),
    /// Waits for the first payload.
    First(Known, u32, usize),
    Ended,
}

/// The swarm, and the ciphers for it.
struct Known {
    info_hash: [u8; HASH],
    cipher: Cipher,
}

impl std::fmt::Debug for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Phase::Key => "Key",
            Phase::Sync(..) => "Sync",
            Phase::Swarm(_) => "Swarm",
            Phase::Head(_) => "Head",
            Phase::Pad(..) => "Pad",
            Phase::First(..) => "First",
            Phase::Ended => "Ended",
        })
    }
}

impl Responder {
    /// Waits for the initiator's key; nothing is reckoned before it is whole.
    #[must_use]
    pub fn new(random: Random) -> Self {
        Self { random, held: UnreadBytes::default(), phase: Phase::Key }
    }

    /// Takes received bytes; adds the bytes to send to `out`. Returns a session when the opening is done.
    ///
    /// # Errors
    /// The rule that the peer broke; every further call fails too.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        swarms: &Swarms,
        out: &mut Vec<u8>,
    ) -> Result<Option<Session>, Error> {
        self.held.add(bytes);
        loop {
            let phase = std::mem::replace(&mut self.phase, Phase::Ended);
            match self.step(phase, swarms, out)? {
                StepResult::On(phase) => self.phase = phase,
                StepResult::Wait(phase) => {
                    self.phase = phase;
                    return Ok(None);
                }
                StepResult::Done(session) => return Ok(Some(session)),
            }
        }
    }

    fn step(&mut self, phase: Phase, swarms: &Swarms, out: &mut Vec<u8>) -> Result<StepResult, Error> {
        Ok(match phase {
            Phase::Key => match self.held.take::<KEY>() {
                Some(theirs) => StepResult::On(self.answer(&theirs, out)?),
                None => StepResult::Wait(phase),
            },
            Phase::Sync(secret, mark) => match self.held.pass(&mark)? {
                true => StepResult::On(Phase::Swarm(secret)),
                false => StepResult::Wait(phase),
            },
            Phase::Swarm(secret) => match self.held.take::<HASH>() {
                Some(masked) => StepResult::On(Phase::Head(find(masked, &secret, swarms)?)),
                None => StepResult::Wait(phase),
            },
            Phase::Head(mut known) => match self.held.take::<{ crate::HEAD }>() {
                Some(mut head) => {
                    known.cipher.incoming.apply(&mut head);
                    let [vc @ .., a, b, c, d, e, f] = head;
                    if vc != VC {
                        return Err(Error::Verification);
                    }
                    let (offered, pad) = method_and_pad([a, b, c, d, e, f])?;
                    StepResult::On(Phase::Pad(known, select(offered)?, pad))
                }
                None => StepResult::Wait(Phase::Head(known)),
            },
            Phase::Pad(mut known, method, pad) => match self.held.take_vec(pad + 2) {
                Some(mut padding) => {
                    known.cipher.incoming.apply(&mut padding);
                    let len = padding.last_chunk().map_or(0, |len| u16::from_be_bytes(*len));
                    if usize::from(len) > MAX_FIRST {
                        return Err(Error::First(len));
                    }
                    StepResult::On(Phase::First(known, method, len.into()))
                }
                None => StepResult::Wait(Phase::Pad(known, method, pad)),
            },
            Phase::First(mut known, method, len) => match self.held.take_vec(len) {
                Some(mut first) => {
                    known.cipher.incoming.apply(&mut first);
                    StepResult::Done(self.agree(known, method, first, out))
                }
                None => StepResult::Wait(Phase::First(known, method, len)),
            },
            Phase::Ended => return Err(Error::NoSync),
        })
    }

    /// Our key, for theirs.
    fn answer(&self, theirs: &[u8; KEY], out: &mut Vec<u8>) -> Result<Phase, Error> {
        let key = Private::new(&self.random.secret);
        let secret = key.shared(theirs)?;
        out.extend_from_slice(&key.public());
        out.extend_from_slice(self.random.pad());
        Ok(Phase::Sync(secret, hash(&[b"req1", &secret])))
    }

    fn agree(&mut self, mut known: Known, method: u32, first: Vec<u8>, out: &mut Vec<u8>) -> Session {
        let from = out.len();
        out.extend_from_slice(&VC);
        out.extend_from_slice(&method.to_be_bytes());
        out.extend_from_slice(&0_u16.to_be_bytes());
        known.cipher.outgoing.apply(&mut out[from..]);
        Session::new(method, known.cipher, (first, self.held.take_all()), known.info_hash)
    }
}

enum StepResult {
    On(Phase),
    Wait(Phase),
    Done(Session),
}

fn find(masked: [u8; HASH], secret: &[u8; KEY], swarms: &Swarms) -> Result<Known, Error> {
    let info_hash = *swarms.0.get(&mask(masked, secret)).ok_or(Error::UnknownSwarm)?;
    let (incoming, outgoing) = streams(secret, &info_hash);
    Ok(Known { info_hash, cipher: Cipher { incoming, outgoing } })
}
