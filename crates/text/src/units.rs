//! Sizes, rates and durations as people write them: `10MB`, `1GiB`, `10gbit`, `125MB/s`, `30s`, `1h30m`.
//!
//! Flags, environment variables, configuration files, topologies and faults of the simulator all use this parser, so
//! that one spelling has one meaning. Invariants: integer arithmetic only, so that results are exact; nothing
//! overflows; a spelling with two common meanings (`10M`, `10mb/s`) is rejected, and the error names both.

use std::time::Duration;

/// Why a text is not a size, rate or duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// Not a size, or too large.
    #[error("{0:?} is not a size; write 512KiB, 10MB, 1GiB, or a number of bytes")]
    Size(String),
    /// Not a rate, or too large.
    #[error("{0:?} is not a rate; write 100mbit, 10gbit or 125MB/s")]
    Rate(String),
    /// Not a duration, too long, or with a fraction of a nanosecond.
    #[error("{0:?} is not a duration; write 500ms, 30s, 5m, 2h, 1d or 1h30m")]
    Duration(String),
    /// Two common meanings.
    #[error("{text:?} is ambiguous; write {one} or {other}")]
    Ambiguous {
        /// The text.
        text: String,
        /// The first meaning, as an unambiguous spelling.
        one: String,
        /// The second meaning, likewise.
        other: String,
    },
}

/// The prefixes of SI and IEC in lower case.
const PREFIXES: [(&str, u64); 11] = [
    ("", 1),
    ("k", 1_000),
    ("m", 1_000_000),
    ("g", 1_000_000_000),
    ("t", 1_000_000_000_000),
    ("p", 1_000_000_000_000_000),
    ("ki", 1 << 10),
    ("mi", 1 << 20),
    ("gi", 1 << 30),
    ("ti", 1 << 40),
    ("pi", 1 << 50),
];

/// Nanoseconds of each unit of time.
const TIMES: [(&[&str], u64); 8] = [
    (&["ns", "nsec"], 1),
    (&["us", "µs", "μs", "usec"], 1_000),
    (&["ms", "msec"], 1_000_000),
    (&["s", "sec", "secs", "second", "seconds", ""], 1_000_000_000),
    (&["m", "min", "mins", "minute", "minutes"], 60_000_000_000),
    (&["h", "hr", "hrs", "hour", "hours"], 3_600_000_000_000),
    (&["d", "day", "days"], 86_400_000_000_000),
    (&["w", "week", "weeks"], 604_800_000_000_000),
];

/// The maximum number of digits before and after the point.
const DIGITS: (usize, usize) = (20, 12);

/// An exact decimal number: `12.5` is 125 tenths.
#[derive(Clone, Copy)]
struct Decimal<'a> {
    text: &'a str,
    digits: u128,
    divisor: u128,
}

impl<'a> Decimal<'a> {
    /// Splits `12.5MB` into 12.5 and `MB`.
    fn split(text: &'a str) -> Option<(Self, &'a str)> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (text, unit) = text.split_at(end);
        let (whole, part) = match text.split_once('.') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (text, ""),
        };
        let plain = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || whole.len() > DIGITS.0 || part.len() > DIGITS.1 || !plain(part) {
            return None;
        }
        let digits = format!("{whole}{part}").parse().ok()?;
        let divisor = 10_u128.pow(u32::try_from(part.len()).ok()?);
        Some((Self { text, digits, divisor }, unit.trim_start()))
    }

    /// The product with a unit, rounded down.
    fn times(self, unit: u64) -> Option<u64> {
        u64::try_from(self.digits.checked_mul(unit.into())? / self.divisor).ok()
    }

    /// The product with a unit, if it is an integer.
    fn exactly(self, unit: u64) -> Option<u64> {
        let product = self.digits.checked_mul(unit.into())?;
        product.is_multiple_of(self.divisor).then(|| u64::try_from(product / self.divisor).ok()).flatten()
    }
}

/// The factor of a prefix, in upper or lower case.
fn prefix(text: &str) -> Option<u64> {
    PREFIXES.iter().find(|(name, _)| text.eq_ignore_ascii_case(name)).map(|(_, factor)| *factor)
}

fn ambiguous(text: &str, one: String, other: String) -> UnitError {
    UnitError::Ambiguous { text: text.into(), one, other }
}

/// Bytes of `10MB`, `1GiB`, `1.5Gi`, `65536`, in any case. `10M` is decimal to some programs and binary to others.
///
/// # Errors
/// See [`UnitError`].
pub fn size(text: &str) -> Result<u64, UnitError> {
    let bad = || UnitError::Size(text.into());
    let (number, unit) = Decimal::split(text.trim()).ok_or_else(bad)?;
    let lower = unit.to_ascii_lowercase();
    let bytes = ["bytes", "byte", "b"].into_iter().find_map(|name| lower.strip_suffix(name));
    match (bytes.map(str::trim_end), prefix(&lower)) {
        (Some(before), _) => prefix(before).and_then(|factor| number.times(factor)).ok_or_else(bad),
        (None, Some(1)) => number.exactly(1).ok_or_else(bad),
        (None, Some(factor)) if lower.ends_with('i') => number.times(factor).ok_or_else(bad),
        (None, Some(_)) => {
            let n = number.text;
            Err(ambiguous(text, format!("{n}{unit}B (decimal)"), format!("{n}{unit}iB (binary)")))
        }
        (None, None) => Err(bad()),
    }
}

/// Bits per second of `10gbit`, `2.5Gbps`, `10Gb/s`, `100 Mbits/sec`, `125MB/s`, `119MiB/s`.
///
/// `bit` and `bps` are bits, `B` is bytes, `b` is bits after a capital. `b` after a small letter (`10mb/s`) and a
/// missing unit (`10m`) are ambiguous: iperf reads them as bits, rsync as bytes; so is `GBPS`.
///
/// # Errors
/// See [`UnitError`].
pub fn rate(text: &str) -> Result<u64, UnitError> {
    let bad = || UnitError::Rate(text.into());
    let (number, unit) = Decimal::split(text.trim()).ok_or_else(bad)?;
    let lower = unit.to_ascii_lowercase();
    if lower == "gbe" {
        return number.times(1_000_000_000).ok_or_else(bad);
    }
    let per = ["/second", "/sec", "/s"].into_iter().find(|per| lower.ends_with(per));
    let (unit, per, bps) = match per {
        Some(per) => (&unit[..unit.len() - per.len()], true, false),
        None if lower.ends_with("bps") => (&unit[..unit.len() - 2], true, true),
        None => (unit, false, false),
    };
    let both = |before: &str| {
        let (n, before) = (number.text, before.to_ascii_lowercase());
        let capital = before.get(..1).unwrap_or_default().to_ascii_uppercase();
        let bytes = if before == "k" { "k".into() } else { capital + before.get(1..).unwrap_or_default() };
        ambiguous(text, format!("{n}{before}bit (bits)"), format!("{n}{bytes}B/s (bytes)"))
    };
    let scaled = |before: &str, bits: u64| {
        let factor = prefix(before.trim_end()).and_then(|factor| factor.checked_mul(bits));
        factor.and_then(|factor| number.times(factor)).ok_or_else(bad)
    };
    let lower = unit.to_ascii_lowercase();
    let cut = |name: &str| lower.strip_suffix(name).and_then(|before| unit.get(..before.len()));
    if let Some(before) = cut("bits").or_else(|| cut("bit")) {
        return scaled(before, 1);
    }
    if let Some(before) = cut("bytes").or_else(|| cut("byte")) {
        return if per { scaled(before, 8) } else { Err(bad()) };
    }
    let capital = |before: &str| before.contains(|c: char| c.is_ascii_uppercase());
    if let Some(before) = unit.strip_suffix('B') {
        let shouted = bps && text.trim_end().ends_with("PS");
        return match prefix(before) {
            Some(_) if shouted => Err(both(before)),
            Some(_) if per => scaled(before, 8),
            _ => Err(bad()),
        };
    }
    if let Some(before) = unit.strip_suffix('b') {
        return match prefix(before) {
            Some(_) if bps || capital(before) => scaled(before, 1),
            Some(_) => Err(both(before)),
            None => Err(bad()),
        };
    }
    if !unit.is_empty() && prefix(unit).is_some() { Err(both(unit)) } else { Err(bad()) }
}

/// A duration: `30s`, `1.5m`, `1h30m`, `1h 30min`, or seconds without a unit; also `D-HH:MM:SS` and `HH:MM:SS`, as
/// schedulers write limits.
///
/// # Errors
/// See [`UnitError`].
pub fn duration(text: &str) -> Result<Duration, UnitError> {
    let bad = || UnitError::Duration(text.into());
    let mut rest = text.trim();
    if rest.contains(':') {
        return clock(rest).ok_or_else(bad);
    }
    let (mut nanos, mut is_first) = (0_u64, true);
    loop {
        let (number, tail) = Decimal::split(rest).ok_or_else(bad)?;
        let end = tail.find(|c: char| !c.is_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let factor = TIMES.iter().find(|(names, _)| names.contains(&unit)).ok_or_else(bad)?.1;
        nanos = number.exactly(factor).and_then(|part| nanos.checked_add(part)).ok_or_else(bad)?;
        rest = tail.trim_start();
        // A number without a unit means seconds only if it is the whole text: `1h30` is meant as an hour and a half.
        if unit.is_empty() && !(is_first && rest.is_empty()) {
            return Err(bad());
        }
        if rest.is_empty() {
            return Ok(Duration::from_nanos(nanos));
        }
        is_first = false;
    }
}

/// `D-HH:MM:SS` and `HH:MM:SS`. `MM:SS` is rejected, because some schedulers read it as hours and minutes.
fn clock(text: &str) -> Option<Duration> {
    let number = |s: &str| {
        let plain = (1..=6).contains(&s.len()) && s.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| s.parse::<u64>().ok()).flatten()
    };
    let (days, rest) = text.split_once('-').map_or(Some((0, text)), |(d, rest)| Some((number(d)?, rest)))?;
    let parts = rest.split(':').map(number).collect::<Option<Vec<u64>>>()?;
    let &[hours, minutes @ 0..60, seconds @ 0..60] = parts.as_slice() else { return None };
    Some(Duration::from_secs(days * 86_400 + hours * 3_600 + minutes * 60 + seconds))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("18446744073709551615", u64::MAX),
            ("10MB", 10_000_000),
            ("10 mb", 10_000_000),
            ("1.5 GiB", 3 << 29),
            ("64kib", 65_536),
            ("64Ki", 65_536),
            ("2Gi", 2 << 30),
            ("12B", 12),
            ("12 bytes", 12),
            ("2 MBytes", 2_000_000),
            ("1PB", 1_000_000_000_000_000),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for bad in
            ["", "MB", "-1", "+1", "1e3", "10XB", "99999999TiB", "1.2.3MB", "NaN", "inf", "1.5", "1.", "10iB"]
        {
            assert!(size(bad).is_err(), "{bad}");
        }
        for two in ["10M", "10k", "1.5G"] {
            let told = size(two).unwrap_err().to_string();
            assert!(
                told.contains(&format!("{two}B (dec")) && told.contains(&format!("{two}iB (bin")),
                "{told}"
            );
        }
    }

    #[test]
    fn rates_mean_the_same_in_every_spelling() {
        for text in [
            "1gbit",
            "1Gbit",
            "1GBIT",
            "1000mbit",
            "1gbps",
            "1Gbps",
            "1Gbit/s",
            "1 Gbits/sec",
            "1Gb/s",
            "1Gb",
            "1GbE",
            "1000Mb/s",
            "125MB/s",
            "125MBps",
            "125 MBytes/sec",
            "125000kB/s",
            "0.125GB/s",
            "1000000000bit",
            "125000000B/s",
        ] {
            assert_eq!(rate(text), Ok(1_000_000_000), "{text}");
        }
        assert_eq!(rate("1GiB/s"), Ok(8 << 30));
        assert_eq!(rate("1gibit"), Ok(1 << 30));
        assert_eq!(rate("0bit"), Ok(0));
        assert_eq!(rate("1tbit"), Ok(1_000_000_000_000));
        for bad in [
            "",
            "10",
            "10MB",
            "10MiB",
            "gbit",
            "-1gbit",
            "10 gallons/s",
            "10xbit",
            "1.2.3gbit",
            "1e9bit",
            "10/s",
            "99999999tbit",
            "10mbit5",
            "gbe",
            "é1bps",
            "1é/s",
        ] {
            assert!(matches!(rate(bad), Err(UnitError::Rate(_))), "{bad}: {:?}", rate(bad));
        }
    }

    #[test]
    fn a_rate_of_bits_or_bytes_is_not_guessed() {
        for (text, one, other) in [
            ("10m", "10mbit", "10MB/s"),
            ("10G", "10gbit", "10GB/s"),
            ("100mb/s", "100mbit", "100MB/s"),
            ("5kb/s", "5kbit", "5kB/s"),
            ("5gb", "5gbit", "5GB/s"),
            ("5GBPS", "5gbit", "5GB/s"),
            ("7mib/s", "7mibit", "7MiB/s"),
        ] {
            let told = rate(text).unwrap_err();
            assert!(matches!(told, UnitError::Ambiguous { .. }), "{text}: {told}");
            let told = told.to_string();
            assert!(told.contains(one) && told.contains(other), "{told}");
            assert!(rate(one).is_ok() && rate(other).is_ok(), "{told}");
        }
    }

    #[test]
    fn durations() {
        for (text, millis) in [
            ("30s", 30_000),
            ("30", 30_000),
            ("0.25", 250),
            ("500ms", 500),
            ("1h30m", 5_400_000),
            ("1h 30min", 5_400_000),
            ("1.5m", 90_000),
            ("5 minutes", 300_000),
            ("1d", 86_400_000),
            ("2 weeks", 1_209_600_000),
            ("00:01:30", 90_000),
            ("1-00:00:00", 86_400_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(duration("250µs"), Ok(Duration::from_micros(250)));
        for bad in [
            "",
            "s",
            "-3s",
            "5 parsecs",
            "1h-3m",
            "99999999999999999999d",
            "1.5.2s",
            "0.1ns",
            "5M",
            "1 2",
            "10 5s",
            "1h30",
            "1h 30",
            "1:30",
            "00:60:00",
            "1-00:00",
            "::",
            "1-",
            "99999999d",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(s in "\\PC{0,20}", n in "[0-9.]{0,30}", u in "[a-zA-Z/µ:é -]{0,8}") {
            for text in [s, format!("{n}{u}"), format!("{n}{u}/s"), format!("{n}{u}bps")] {
                let _ = (size(&text), rate(&text), duration(&text));
            }
        }

        #[test]
        fn a_byte_is_eight_bits(n in 0u64..1_000_000, p in prop::sample::select(vec!["k", "M", "G", "Ki", "Mi", "Gi"])) {
            let bytes = size(&format!("{n}{p}B")).unwrap();
            prop_assert_eq!(rate(&format!("{n}{p}B/s")), Ok(bytes * 8));
            prop_assert_eq!(rate(&format!("{n}{p}bit")), Ok(bytes));
        }
    }
}
