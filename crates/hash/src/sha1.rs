//! SHA-1, for the pieces of BitTorrent v1: of one message at once or in parts, and of many messages of equal
//! length at once. A single stream uses the `sha1` crate, which detects SHA-NI and Arm's instructions.

use crate::Sha1Digest;

/// SHA-1 of one message.
#[must_use]
pub fn sha1(data: &[u8]) -> Sha1Digest {
    let mut state = Sha1::new();
    state.update(data);
    state.finish()
}

/// SHA-1 of a message that comes in parts: a v1 piece may span many files.
#[derive(Clone, Debug, Default)]
pub struct Sha1(sha1::Sha1);

impl Sha1 {
    /// The state before the first byte.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends `data` to the message.
    pub fn update(&mut self, data: &[u8]) {
        use sha1::Digest as _;
        self.0.update(data);
    }

    /// The digest of all the bytes given so far.
    #[must_use]
    pub fn finish(self) -> Sha1Digest {
        use sha1::Digest as _;
        self.0.finalize().into()
    }
}

/// SHA-1 of [`Sha1Lanes::COUNT`] messages of one length at once, in parts: pieces of v1, side by side.
#[derive(Clone, Debug)]
pub struct Sha1Lanes(Lanes);

#[derive(Clone, Debug)]
enum Lanes {
    #[cfg(target_arch = "x86_64")]
    Avx512 {
        state: Box<crate::backend::sha1_avx512::State>,
        len: u64,
    },
    Single(Box<[Sha1; Sha1Lanes::COUNT]>),
}

impl Default for Sha1Lanes {
    fn default() -> Self {
        Self::new()
    }
}

impl Sha1Lanes {
    /// Messages at once.
    pub const COUNT: usize = 16;

    /// The least number of messages for which all lanes together are faster than one message after another, by
    /// measurement; `None` if they never are on this CPU.
    #[must_use]
    pub fn pays_from() -> Option<usize> {
        #[cfg(target_arch = "x86_64")]
        if crate::backend::sha1_avx512::available() {
            return Some(5);
        }
        None
    }

    /// The state before the first byte.
    #[must_use]
    pub fn new() -> Self {
        #[cfg(target_arch = "x86_64")]
        if crate::backend::sha1_avx512::available() {
            let state = Box::new(crate::backend::sha1_avx512::START);
            return Self(Lanes::Avx512 { state, len: 0 });
        }
        Self::single()
    }

    /// As [`Sha1Lanes::new`], one message after another whatever the CPU has: for tests.
    #[must_use]
    pub fn single() -> Self {
        Self(Lanes::Single(Box::new(std::array::from_fn(|_| Sha1::new()))))
    }

    /// Appends a part to each message. A lane without a message may be given that of another.
    ///
    /// # Panics
    /// When the parts are not of one length that is a multiple of 64.
    pub fn update(&mut self, parts: &[&[u8]; Self::COUNT]) {
        let part = parts[0].len();
        let equal = parts.iter().all(|p| p.len() == part);
        assert!(equal && part.is_multiple_of(64), "parts of one length, a multiple of 64");
        match &mut self.0 {
            #[cfg(target_arch = "x86_64")]
            Lanes::Avx512 { state, len } => {
                crate::backend::sha1_avx512::update(state, parts);
                *len += part as u64;
            }
            Lanes::Single(states) => {
                for (state, part) in states.iter_mut().zip(parts) {
                    state.update(part);
                }
            }
        }
    }

    /// The digests of all that was given so far.
    #[must_use]
    pub fn finish(self) -> [Sha1Digest; Self::COUNT] {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Lanes::Avx512 { mut state, len } => {
                // A one bit, zeros, and the length in bits: the same for all.
                let mut last = [0; crate::BLOCK];
                last[0] = 0x80;
                last[56..].copy_from_slice(&(len * 8).to_be_bytes());
                crate::backend::sha1_avx512::update(&mut state, &[&last; Self::COUNT]);
                std::array::from_fn(|lane| {
                    let mut digest = [0; 20];
                    for (bytes, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(&*state) {
                        *bytes = word[lane].to_be_bytes();
                    }
                    digest
                })
            }
            Lanes::Single(states) => states.map(Sha1::finish),
        }
    }
}
