//! Rates, delays, chances and sizes as people write them. Exact: no float, rounded down to the unit.

use tidecast_text::units;

use super::TopologyError;

/// No link is faster, bits per second.
pub const MAX_RATE: u64 = 1_000_000_000_000;
/// No link is slower, bits per second.
pub const MIN_RATE: u64 = 8_000;

/// Bits per second of `40mbit`, `1.5gbit`, `9600bit`, `125MB/s`.
pub fn rate(text: &str) -> Result<u64, TopologyError> {
    let bits = units::rate(text).ok();
    bits.filter(|bits| (MIN_RATE..=MAX_RATE).contains(bits)).ok_or_else(|| TopologyError::Rate(cut(text)))
}

/// The shortest way to write a rate exactly.
#[must_use]
pub fn format_rate(bits: u64) -> String {
    let units = [("g", 1_000_000_000), ("m", 1_000_000), ("k", 1_000)];
    let (unit, scale) = units.into_iter().find(|(_, scale)| bits.is_multiple_of(*scale)).unwrap_or(("", 1));
    format!("{}{unit}bit", bits / scale)
}

/// Nanoseconds, in whole microseconds, of `10ms`, `250us`, `1s`; at most ten seconds. The unit is needed.
pub fn delay(text: &str) -> Result<u64, TopologyError> {
    let with_unit = text.ends_with(|c: char| c.is_ascii_alphabetic());
    let micros = units::duration(text).ok().filter(|_| with_unit).map(|time| time.as_micros());
    let micros = micros.and_then(|us| u64::try_from(us).ok()).filter(|us| *us <= 10_000_000);
    Ok(micros.ok_or_else(|| TopologyError::Delay(cut(text)))? * 1_000)
}

/// Parts per million of a probability, `0.1%` or `0.001`.
pub fn chance(text: &str) -> Result<u32, TopologyError> {
    let ppm = text.strip_suffix('%').map_or_else(|| decimal(text, 1_000_000), |p| decimal(p, 10_000));
    let ppm = ppm.and_then(|ppm| u32::try_from(ppm).ok()).filter(|ppm| *ppm < 1_000_000);
    ppm.ok_or_else(|| TopologyError::Chance(cut(text)))
}

/// A probability as a fraction: `0.001`.
pub(super) fn format_chance(ppm: u32) -> String {
    format!("0.{ppm:06}").trim_end_matches('0').to_owned()
}

/// Bytes of `65536`, `64k`, `2m`.
pub(super) fn queue(text: &str) -> Result<u64, TopologyError> {
    let lower = text.to_ascii_lowercase();
    let units = [("k", 1 << 10), ("m", 1 << 20)];
    let known = units.iter().find_map(|(unit, scale)| Some((lower.strip_suffix(unit)?, *scale)));
    let (number, scale) = known.unwrap_or((&lower, 1));
    let bytes = whole(number).and_then(|n| n.checked_mul(scale));
    bytes.filter(|n| (3_000..=1 << 30).contains(n)).ok_or_else(|| TopologyError::Queue(cut(text)))
}

/// A ratio in millionths: `3`, `2.5`; a thousandth to a thousand.
pub(super) fn ratio(text: &str) -> Result<u64, TopologyError> {
    let millionths = decimal(text, 1_000_000);
    millionths.filter(|r| (1_000..=1_000_000_000).contains(r)).ok_or_else(|| TopologyError::Ratio(cut(text)))
}

/// A count: no sign, no leading zero, at most six digits.
pub(super) fn count(text: &str) -> Option<u32> {
    let plain = text.len() <= 6 && !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

/// The start of a text that may be long, for an error message.
pub(super) fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}

/// `digits` or `digits.digits` times `scale`, rounded down; at most 13 digits before the point and 9 behind.
fn decimal(text: &str, scale: u64) -> Option<u64> {
    let (before, behind) = text.split_once('.').map_or((text, None), |(a, b)| (a, Some(b)));
    let mut number = u128::from(whole(before)?);
    let mut divisor = 1;
    if let Some(behind) = behind {
        let digits = u32::try_from(behind.len()).ok().filter(|n| *n <= 9)?;
        divisor = 10_u128.pow(digits);
        number = number * divisor + u128::from(whole(behind)?);
    }
    u64::try_from(number * u128::from(scale) / divisor).ok()
}

fn whole(text: &str) -> Option<u64> {
    let plain = text.len() <= 13 && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}
