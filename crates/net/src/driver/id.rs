//! Keys and peer ids in messages between members and the maker of a plan: lists of numbers for older programs,
//! strings of hexadecimal digits for others. Both are read.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How ids are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Every program reads it.
    Numbers,
    /// Half as long; read by peers with the capability `GATHER_HEX`.
    Hex,
}

/// A key or a peer id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id<const N: usize> {
    pub(super) bytes: [u8; N],
    form: Form,
}

impl<const N: usize> Id<N> {
    pub(super) fn new(bytes: [u8; N], form: Form) -> Self {
        Id { bytes, form }
    }
}

impl<const N: usize> fmt::Display for Id<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<const N: usize> Serialize for Id<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.form {
            Form::Numbers => serializer.collect_seq(self.bytes),
            Form::Hex => serializer.collect_str(self),
        }
    }
}

impl<'de, const N: usize> Deserialize<'de> for Id<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reading)
    }
}

struct Reading<const N: usize>;

impl<'de, const N: usize> Visitor<'de> for Reading<N> {
    type Value = Id<N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{N} bytes as numbers or as hexadecimal digits")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Id<N>, E> {
        let mut bytes = [0; N];
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != N || !rest.is_empty() {
            return Err(E::invalid_length(text.len(), &self));
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            let digits = digit(*high).zip(digit(*low));
            let (high, low) = digits.ok_or_else(|| E::custom("not a hexadecimal digit"))?;
            *byte = high << 4 | low;
        }
        Ok(Id { bytes, form: Form::Hex })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Id<N>, A::Error> {
        let mut bytes = [0; N];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = seq.next_element()?.ok_or_else(|| A::Error::invalid_length(at, &self))?;
        }
        Ok(Id { bytes, form: Form::Numbers })
    }
}

fn digit(ascii: u8) -> Option<u8> {
    char::from(ascii).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(json: &str) -> Option<[u8; 4]> {
        serde_json::from_str::<Id<4>>(json).ok().map(|id| id.bytes)
    }

    #[test]
    fn both_forms_are_written_and_read() {
        let bytes = [0, 9, 0xab, 255];
        for (form, json) in [(Form::Numbers, "[0,9,171,255]"), (Form::Hex, "\"0009abff\"")] {
            assert_eq!(serde_json::to_string(&Id::new(bytes, form)).unwrap(), json);
            assert_eq!(serde_json::from_str::<Id<4>>(json).unwrap(), Id::new(bytes, form));
        }
        assert_eq!(read("\"0009ABFF\""), Some(bytes));
    }

    #[test]
    fn anything_else_is_refused() {
        for json in [
            "[0,9,171]",
            "[0,9,171,255,1]",
            "[0,9,171,256]",
            "\"0009ab\"",
            "\"0009abf\"",
            "\"0009abfff\"",
            "\"0009abfg\"",
            "\"+009abff\"",
            "\"\u{e9}09abff\"",
            "7",
            "null",
        ] {
            assert_eq!(read(json), None, "{json}");
        }
    }
}
