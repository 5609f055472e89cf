//! Numbers of other kinds become float32.

use std::cell::Cell;

/// A kind of number that a file may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Half precision.
    F16,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// Signed integers of this many bytes (1, 2, 4, 8).
    Signed(u8),
    /// Unsigned integers of this many bytes (1, 2, 4, 8); truth values too.
    Unsigned(u8),
}

impl Kind {
    /// Bytes of one.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
            Self::Signed(n) | Self::Unsigned(n) => usize::from(n),
        }
    }
}

/// Writes the numbers of `from`, whole ones of `kind`, to `into` as little-endian float32: four bytes each. Whether some
/// were beyond the range of float32, and became infinite.
#[must_use]
pub(super) fn convert(kind: Kind, big_endian: bool, from: &[u8], into: &mut [u8]) -> bool {
    let beyond = Cell::new(false);
    let narrow = |value: f64| {
        let narrow = value as f32;
        beyond.set(beyond.get() | (narrow.is_infinite() & value.is_finite()));
        narrow
    };
    macro_rules! each {
        ($bytes:literal, $read:expr) => {{
            let read = $read;
            for (from, into) in from.as_chunks::<$bytes>().0.iter().zip(into.as_chunks_mut::<4>().0) {
                let mut bytes = *from;
                if big_endian {
                    bytes.reverse();
                }
                let value: f32 = read(bytes);
                *into = value.to_le_bytes();
            }
        }};
    }
    match kind {
        Kind::F16 => each!(2, |bytes| half(u16::from_le_bytes(bytes))),
        Kind::F32 => each!(4, f32::from_le_bytes),
        Kind::F64 => each!(8, |bytes| narrow(f64::from_le_bytes(bytes))),
        Kind::Signed(1) => each!(1, |bytes| f32::from(i8::from_le_bytes(bytes))),
        Kind::Signed(2) => each!(2, |bytes| f32::from(i16::from_le_bytes(bytes))),
        Kind::Signed(4) => each!(4, |bytes| i32::from_le_bytes(bytes) as f32),
        Kind::Signed(_) => each!(8, |bytes| i64::from_le_bytes(bytes) as f32),
        Kind::Unsigned(1) => each!(1, |bytes| f32::from(u8::from_le_bytes(bytes))),
        Kind::Unsigned(2) => each!(2, |bytes| f32::from(u16::from_le_bytes(bytes))),
        Kind::Unsigned(4) => each!(4, |bytes| u32::from_le_bytes(bytes) as f32),
        Kind::Unsigned(_) => each!(8, |bytes| u64::from_le_bytes(bytes) as f32),
    }
    beyond.get()
}

/// IEEE 754 half precision: every one is a float32 too.
fn half(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let (exponent, fraction) = (u32::from(bits >> 10) & 31, u32::from(bits) & 0x3ff);
    let magnitude = match exponent {
        // Subnormal: this many times 2^-24.
        0 => (fraction as f32 / 16_777_216.0).to_bits(),
        31 => 0x7f80_0000 | fraction << 13,
        _ => (exponent + 112) << 23 | fraction << 13,
    };
    f32::from_bits(sign | magnitude)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(kind: Kind, big: bool, bytes: &[u8]) -> f32 {
        let mut into = [0; 4];
        assert!(!convert(kind, big, bytes, &mut into), "{kind:?} {bytes:?}");
        f32::from_le_bytes(into)
    }

    #[test]
    fn every_kind_in_both_byte_orders() {
        for big in [false, true] {
            let order = |mut bytes: Vec<u8>| {
                if big {
                    bytes.reverse();
                }
                bytes
            };
            assert_eq!(one(Kind::F32, big, &order((-1.5f32).to_le_bytes().into())), -1.5);
            assert_eq!(one(Kind::F64, big, &order(0.1f64.to_le_bytes().into())), 0.1);
            assert_eq!(one(Kind::F16, big, &order(0xc100u16.to_le_bytes().into())), -2.5);
            assert_eq!(one(Kind::Signed(1), big, &[0xfe]), -2.0);
            assert_eq!(one(Kind::Signed(2), big, &order((-300i16).to_le_bytes().into())), -300.0);
            assert_eq!(one(Kind::Signed(4), big, &order((-70_000i32).to_le_bytes().into())), -70_000.0);
            assert_eq!(
                one(Kind::Signed(8), big, &order((-(1i64 << 40)).to_le_bytes().into())),
                -1.099_511_6e12
            );
            assert_eq!(one(Kind::Unsigned(1), big, &[0xfe]), 254.0);
            assert_eq!(one(Kind::Unsigned(2), big, &order(60_000u16.to_le_bytes().into())), 60_000.0);
            assert_eq!(one(Kind::Unsigned(4), big, &order(u32::MAX.to_le_bytes().into())), 4_294_967_296.0);
            assert_eq!(one(Kind::Unsigned(8), big, &order((1u64 << 63).to_le_bytes().into())), 9.223_372e18);
        }
    }

    #[test]
    fn finite_numbers_that_become_infinite_are_noticed() {
        let most = f64::from(f32::MAX);
        let beyond = |values: &[f64]| {
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_be_bytes()).collect();
            convert(Kind::F64, true, &bytes, &mut vec![0; values.len() * 4])
        };
        assert!(!beyond(&[
            0.0,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            most,
            -most,
            most * (1.0 + 1e-9)
        ]));
        assert!(beyond(&[0.0, 1e39, 1.0]) && beyond(&[-f64::MAX]));
    }

    #[test]
    fn halves_are_what_their_definition_says() {
        for bits in 0..=u16::MAX {
            let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3ff));
            let size = match exponent {
                0 => fraction * 2f64.powi(-24),
                31 if fraction > 0.0 => f64::NAN,
                31 => f64::INFINITY,
                _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
            };
            let expected = (if bits >> 15 == 1 { -size } else { size }) as f32;
            let found = half(bits);
            assert!(
                found == expected || found.is_nan() && expected.is_nan(),
                "{bits:#x}: {found} {expected}"
            );
        }
    }
}
