//! Datagrams: two words, then values, parity or a control message, and a tag behind that unless it is a plain stream.

use std::fmt;
use std::str::FromStr;

use crate::key::TAG;

/// Bytes of the two words that every datagram begins with.
pub const HEAD: usize = 8;
/// Bytes of a value with its position.
pub const QUAD: usize = 16;
/// Bytes of a value.
pub const VALUE: usize = 4;
/// The most bytes of a datagram: the maximum of UDP over IPv4.
pub const MAX_DATAGRAM: usize = 65_507;
/// The largest datagram of the paper: 560 quads.
pub const PAPER_DATAGRAM: usize = 8_968;
/// The batch of control messages.
pub const CONTROL: u32 = u32::MAX;
/// The bit of the second word that tells parity from values.
const PARITY: u32 = 1 << 31;

/// A datagram that is not in the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It ends before it should.
    #[error("the datagram is cut short")]
    Short,
    /// Its length does not match its fields.
    #[error("the length of the datagram does not match its contents")]
    Length,
    /// A field has a value that it cannot have.
    #[error("invalid {0} in the datagram")]
    Field(&'static str),
}

/// How values are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Packing {
    /// The paper's: each value with its x, y and z.
    Xyz,
    /// The rank of the first value, then values in order.
    Run,
}

impl Packing {
    /// Values that fit in a datagram of this many bytes of UDP payload, with a tag or without.
    pub fn capacity(self, datagram: usize, sealed: bool) -> u32 {
        let room = datagram.min(MAX_DATAGRAM).saturating_sub(HEAD + if sealed { TAG } else { 0 });
        (room / self.width()) as u32
    }

    /// Bytes of a datagram with this many values.
    pub fn datagram(self, values: u32, sealed: bool) -> usize {
        HEAD + values as usize * self.width() + if sealed { TAG } else { 0 }
    }

    /// Bytes a value.
    pub fn width(self) -> usize {
        match self {
            Self::Xyz => QUAD,
            Self::Run => VALUE,
        }
    }
}

impl FromStr for Packing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "xyz" => Ok(Self::Xyz),
            "run" => Ok(Self::Run),
            _ => Err(format!("unknown packing {text:?}; use xyz or run")),
        }
    }
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Xyz => "xyz",
            Self::Run => "run",
        })
    }
}

/// The kind of a datagram, without its tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datagram<'a> {
    /// Values of a step.
    Values {
        /// Which sending of which step.
        batch: u32,
        /// [`Packing::Xyz`]: how many; [`Packing::Run`]: the rank of the first.
        word: u32,
        /// The quads or values: read them by [`quads`] or [`values`].
        body: &'a [u8],
    },
    /// Parity of a block of packets.
    Parity {
        /// Which sending of which step.
        batch: u32,
        /// Its number within the step.
        number: u32,
        /// The shard.
        body: &'a [u8],
    },
    /// See [`crate::control`].
    Control {
        /// Its contents.
        kind: u32,
        /// The message.
        body: &'a [u8],
    },
}

impl<'a> Datagram<'a> {
    /// Reads the two words of a datagram whose tag has been cut off, if it has one.
    ///
    /// # Errors
    /// [`Error::Short`].
    pub fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        let (batch, rest) = word(bytes)?;
        let (word, body) = word(rest)?;
        Ok(match (batch, word & PARITY) {
            (CONTROL, _) => Self::Control { kind: word, body },
            (_, 0) => Self::Values { batch, word, body },
            _ => Self::Parity { batch, number: word & !PARITY, body },
        })
    }
}

/// The `count` quads of a body.
///
/// # Errors
/// There are no quads, or the body has another length.
pub fn quads(count: u32, body: &[u8]) -> Result<impl ExactSizeIterator<Item = Quad> + '_, Error> {
    let (quads, rest) = body.as_chunks::<QUAD>();
    if quads.is_empty() || quads.len() != count as usize || !rest.is_empty() {
        return Err(Error::Length);
    }
    Ok(quads.iter().map(Quad::read))
}

/// How many values a body of a run has.
///
/// # Errors
/// There are no values, or a part of one.
pub fn values(body: &[u8]) -> Result<u32, Error> {
    let whole = !body.is_empty() && body.len().is_multiple_of(VALUE);
    whole.then_some((body.len() / VALUE) as u32).ok_or(Error::Length)
}

/// A value and where it is in the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quad {
    /// Along x.
    pub x: u32,
    /// Along y.
    pub y: u32,
    /// Along z.
    pub z: u32,
    /// The float32, as its bytes are in memory and on the wire.
    pub value: [u8; VALUE],
}

impl Quad {
    /// From its bytes.
    #[inline]
    pub fn read(bytes: &[u8; QUAD]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, value @ ..] = *bytes;
        let word = u32::from_le_bytes;
        Self { x: word([a, b, c, d]), y: word([e, f, g, h]), z: word([i, j, k, l]), value }
    }

    /// As its bytes.
    #[inline]
    pub fn write(&self, to: &mut [u8; QUAD]) {
        to[..4].copy_from_slice(&self.x.to_le_bytes());
        to[4..8].copy_from_slice(&self.y.to_le_bytes());
        to[8..12].copy_from_slice(&self.z.to_le_bytes());
        to[12..].copy_from_slice(&self.value);
    }
}

/// The two words before values: with [`Packing::Xyz`] `word` is how many, with [`Packing::Run`] the rank of the first.
pub fn values_head(batch: u32, word: u32) -> [u8; HEAD] {
    head(batch, word & !PARITY)
}

/// The two words before parity.
pub fn parity_head(batch: u32, number: u32) -> [u8; HEAD] {
    head(batch, number | PARITY)
}

/// The two words before a control message.
pub fn control_head(kind: u32) -> [u8; HEAD] {
    head(CONTROL, kind)
}

fn head(first: u32, second: u32) -> [u8; HEAD] {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_le_bytes(), second.to_le_bytes());
    [a, b, c, d, e, f, g, h]
}

fn word(bytes: &[u8]) -> Result<(u32, &[u8]), Error> {
    let (word, rest) = bytes.split_first_chunk().ok_or(Error::Short)?;
    Ok((u32::from_le_bytes(*word), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_largest_packet_of_the_paper() {
        assert_eq!(Packing::Xyz.capacity(PAPER_DATAGRAM, false), 560);
        assert_eq!(Packing::Xyz.capacity(8972, false), 560);
        assert_eq!(Packing::Xyz.datagram(560, false), PAPER_DATAGRAM);
        assert_eq!(Packing::Xyz.capacity(PAPER_DATAGRAM, true), 559);
        assert_eq!(Packing::Run.capacity(PAPER_DATAGRAM, true), 2236);
        // The overhead beside values: less than 2%.
        assert!((PAPER_DATAGRAM as f64) < 1.02 * 4.0 * 2236.0);
        assert!(1472.0 < 1.02 * 4.0 * f64::from(Packing::Run.capacity(1472, true)));
        assert_eq!(Packing::Run.capacity(20, true), 0);
        assert_eq!(Packing::Run.capacity(usize::MAX, false), 16_374);
    }

    #[test]
    fn bytes_are_where_the_paper_has_them() {
        let mut bytes = values_head(7, 1).to_vec();
        let mut quad = [0; QUAD];
        Quad { x: 1, y: 2, z: 0x0103, value: 1.5f32.to_le_bytes() }.write(&mut quad);
        bytes.extend(quad);
        let expected = [7, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 1, 0, 0, 0, 0, 0xc0, 0x3f];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn lengths_must_agree() {
        assert_eq!(Datagram::read(&[0; 7]), Err(Error::Short));
        assert!(quads(0, &[]).is_err() && quads(2, &[0; 16]).is_err() && quads(1, &[0; 17]).is_err());
        assert!(quads(u32::MAX, &[0; 16]).is_err());
        assert!(values(&[]).is_err() && values(&[0; 6]).is_err());
        assert_eq!(values(&[0; 8]), Ok(2));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            match Datagram::read(&bytes) {
                Err(_) => prop_assert!(bytes.len() < HEAD),
                Ok(Datagram::Values { batch, word, body }) => {
                    prop_assert_eq!(&[&values_head(batch, word)[..], body].concat(), &bytes);
                    if let Ok(quads) = quads(word, body) {
                        let written: Vec<u8> = quads.flat_map(|quad| { let mut to = [0; QUAD]; quad.write(&mut to); to }).collect();
                        prop_assert_eq!(&written[..], body);
                    }
                }
                Ok(Datagram::Parity { batch, number, body }) =>
                    prop_assert_eq!(&[&parity_head(batch, number)[..], body].concat(), &bytes),
                Ok(Datagram::Control { kind, body }) => prop_assert_eq!(&[&control_head(kind)[..], body].concat(), &bytes),
            }
        }

        #[test]
        fn each_kind_comes_back(batch in 0..CONTROL, word in 0u32..1 << 31) {
            let (values, parity) = (values_head(batch, word), parity_head(batch, word));
            prop_assert_eq!(Datagram::read(&values), Ok(Datagram::Values { batch, word, body: &[] }));
            prop_assert_eq!(Datagram::read(&parity), Ok(Datagram::Parity { batch, number: word, body: &[] }));
        }
    }
}
