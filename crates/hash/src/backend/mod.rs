//! Selects the code that hashes a group of messages, and handles unused lanes of a group.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod lanes;
mod portable;
#[cfg(target_arch = "x86_64")]
pub(crate) mod sha1_avx512;
#[cfg(target_arch = "x86_64")]
mod sha_ni;

use crate::{Digest, sha256};

/// A way to hash several messages of equal length at once. The digests are the same whichever is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// Sixteen messages at once with AVX-512.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// Two messages at once with the x86 SHA instructions.
    #[cfg(target_arch = "x86_64")]
    ShaNi,
    /// Eight messages at once with AVX2.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// One message at a time with the `sha2` crate, which detects Arm's SHA instructions and others.
    Single,
    /// One message at a time in plain Rust.
    Portable,
}

impl Backend {
    /// The backends that this CPU has, fastest first (by measurement; see `examples/speed.rs`).
    pub fn available() -> impl Iterator<Item = Self> {
        [
            #[cfg(target_arch = "x86_64")]
            Self::Avx512,
            #[cfg(target_arch = "x86_64")]
            Self::ShaNi,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2,
            Self::Single,
            Self::Portable,
        ]
        .into_iter()
        .filter(|backend| backend.is_available())
    }

    /// Whether this CPU has it.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => avx512::available(),
            #[cfg(target_arch = "x86_64")]
            Self::ShaNi => sha_ni::available(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::available(),
            Self::Single | Self::Portable => true,
        }
    }

    /// The fastest that this CPU has.
    pub(crate) fn best() -> Self {
        Self::available().next().unwrap_or(Self::Portable)
    }

    /// Hashes `messages`, all of one length that is a multiple of 64 and whose last block is `closing`.
    ///
    /// A group that fills too few lanes for them to pay goes to a narrower backend.
    pub(crate) fn group(self, messages: &[&[u8]], closing: &[u32; 64], out: &mut [Digest]) {
        debug_assert_eq!(messages.len(), out.len());
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                // Two by two, the SHA instructions take as long for eleven messages as the lanes do for any
                // number up to sixteen; plain code is slower from three on.
                let (narrower, pays) =
                    if sha_ni::available() { (Self::ShaNi, 11) } else { (Self::Single, 3) };
                wide(
                    messages,
                    out,
                    pays,
                    |m| avx512::hash(m, closing),
                    |m, out| narrower.group(m, closing, out),
                );
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                wide(messages, out, 3, |m| avx2::hash(m, closing), each);
            }
            #[cfg(target_arch = "x86_64")]
            Self::ShaNi => {
                wide(messages, out, 2, |m| sha_ni::hash(m, closing), each);
            }
            Self::Single => each(messages, out),
            Self::Portable => {
                wide(messages, out, 1, |m| portable::hash(m, closing), each);
            }
        }
    }
}

/// Hashes one by one.
fn each(messages: &[&[u8]], out: &mut [Digest]) {
    for (message, digest) in messages.iter().zip(out) {
        *digest = sha256(message);
    }
}

/// Hashes `LANES` at a time with `hash`. The rest goes there too if it has at least `pays` messages (the
/// lanes without a message get the last one again), else to `rest`.
fn wide<const LANES: usize>(
    messages: &[&[u8]],
    out: &mut [Digest],
    pays: usize,
    hash: impl Fn(&[&[u8]; LANES]) -> [Digest; LANES],
    rest: impl Fn(&[&[u8]], &mut [Digest]),
) {
    for (messages, out) in messages.chunks(LANES).zip(out.chunks_mut(LANES)) {
        match (messages.first_chunk::<LANES>(), messages.last()) {
            (Some(full), _) => out.copy_from_slice(&hash(full)),
            (None, Some(last)) if messages.len() >= pays => {
                let mut full = [*last; LANES];
                full[..messages.len()].copy_from_slice(messages);
                out.copy_from_slice(&hash(&full)[..messages.len()]);
            }
            _ => rest(messages, out),
        }
    }
}
