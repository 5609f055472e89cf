//! Sizes, durations and rates as people write them: `10MB`, `1GiB`, `30s`, `1h30m`, `10gbit`.
//!
//! Promises: a unit that could mean two things (`10M`) is refused with the two spellings; nothing
//! overflows silently; what is shown is short (three digits) and for people, never parsed again.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) u64);

/// A length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span(pub(crate) Duration);

/// A rate in bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rate(pub(crate) u64);

/// Splits `12.5MB` into 12.5 and `MB`.
fn number(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    Some((digits.parse().ok()?, unit.trim()))
}

/// `value * factor` as an integer, if it is one that a u64 holds.
fn whole(value: f64, factor: f64) -> Option<u64> {
    let product = (value * factor).round();
    // 2^53: beyond it a float no longer counts one by one.
    (product.is_finite() && (0.0..=9.007_199_254_740_992e15).contains(&product)).then_some(product as u64)
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a size; write 512KiB, 10MB, 1GiB, or a number of bytes");
        if let Ok(bytes) = text.trim().parse() {
            return Ok(Self(bytes));
        }
        let (value, unit) = number(text.trim()).ok_or_else(bad)?;
        let factor = match unit.to_ascii_lowercase().as_str() {
            "b" => 1.0,
            "kb" => 1e3,
            "mb" => 1e6,
            "gb" => 1e9,
            "tb" => 1e12,
            "kib" => 1024.0,
            "mib" => 1024f64.powi(2),
            "gib" => 1024f64.powi(3),
            "tib" => 1024f64.powi(4),
            "k" | "m" | "g" | "t" => {
                return Err(format!(
                    "{text:?} may mean {value}{unit}B (decimal) or {value}{unit}iB (binary): write one"
                ));
            }
            _ => return Err(bad()),
        };
        whole(value, factor).map(Self).ok_or_else(bad)
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a duration; write 500ms, 30s, 5m, 2h, 1d or 1h30m");
        let mut rest = text.trim();
        let mut total = 0u64;
        if rest.is_empty() {
            return Err(bad());
        }
        while !rest.is_empty() {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            let (digits, tail) = rest.split_at(end);
            let end = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(end);
            let millis = match unit {
                "ms" => 1.0,
                "s" | "" => 1e3,
                "m" | "min" => 60e3,
                "h" => 3600e3,
                "d" => 86_400e3,
                _ => return Err(bad()),
            };
            let value: f64 = digits.parse().map_err(|_| bad())?;
            let part = whole(value, millis).ok_or_else(bad)?;
            total = total.checked_add(part).ok_or_else(bad)?;
            rest = tail;
        }
        Ok(Self(Duration::from_millis(total)))
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a rate; write 100mbit, 10gbit or 125MB/s");
        let (value, unit) = number(text.trim()).ok_or_else(bad)?;
        let unit = unit.to_ascii_lowercase();
        let unit = match unit.strip_suffix("bps") {
            Some(prefix) => format!("{prefix}bit"),
            None => unit,
        };
        let factor = match unit.strip_suffix("/s").unwrap_or(&unit) {
            "bit" => 1.0,
            "kbit" => 1e3,
            "mbit" => 1e6,
            "gbit" => 1e9,
            "tbit" => 1e12,
            bytes if unit.ends_with("/s") => {
                let size: Size = format!("1{bytes}").parse().map_err(|_| bad())?;
                size.0 as f64 * 8.0
            }
            _ => return Err(bad()),
        };
        whole(value, factor).map(Self).ok_or_else(bad)
    }
}

/// Three digits and a unit: `1.23 GB`.
fn short(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut units = units.iter().peekable();
    let mut unit = units.next().copied().unwrap_or_default();
    // 999.5 would be shown as 1000.
    while value >= step - step / 2000.0 {
        let Some(next) = units.next() else { break };
        value /= step;
        unit = next;
    }
    let digits = if value.fract() == 0.0 && value < step && unit.len() <= 1 {
        0
    } else if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.digits$} {unit}")
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Exact powers of two (piece sizes) are shown as such.
        let binary = ["B", "KiB", "MiB", "GiB", "TiB"];
        let power = (1..=4usize).rev().find(|p| {
            let unit = 1u64 << (10 * p);
            self.0 >= unit && self.0.is_multiple_of(unit) && self.0 / unit < 1024
        });
        match power.and_then(|p| Some((p, binary.get(p)?))) {
            Some((p, unit)) => write!(f, "{} {unit}", self.0 >> (10 * p)),
            None => f.write_str(&short(self.0 as f64, 1000.0, &["B", "kB", "MB", "GB", "TB", "PB"])),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&short(
            self.0 as f64,
            1000.0,
            &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s", "Pbit/s", "Ebit/s"],
        ))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match seconds {
            0..=9 => write!(f, "{:.2} s", self.0.as_secs_f64()),
            10..=59 => write!(f, "{:.1} s", self.0.as_secs_f64()),
            60..=3599 => write!(f, "{}m {:02}s", seconds / 60, seconds % 60),
            _ => write!(f, "{}h {:02}m", seconds / 3600, seconds % 3600 / 60),
        }
    }
}

/// Bytes per second, shown.
pub(crate) fn bytes_per_second(rate: f64) -> String {
    let rate = if rate.is_finite() && rate > 0.0 { rate } else { 0.0 };
    format!("{}/s", short(rate, 1000.0, &["B", "kB", "MB", "GB", "TB"]))
}

/// A count with its noun: `1 file`, `2 files`, `3 entries`.
pub(crate) fn count(n: u64, noun: &str) -> String {
    let plural = match noun.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{noun}s"),
    };
    format!("{n} {}", if n == 1 { noun } else { &plural })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn size(s: &str) -> u64 {
        s.parse::<Size>().unwrap().0
    }

    fn millis(s: &str) -> u128 {
        s.parse::<Span>().unwrap().0.as_millis()
    }

    fn rate(s: &str) -> u64 {
        s.parse::<Rate>().unwrap().0
    }

    #[test]
    fn sizes() {
        assert_eq!(size("0"), 0);
        assert_eq!(size("18446744073709551615"), u64::MAX);
        assert_eq!(size("10MB"), 10_000_000);
        assert_eq!(size("1.5 GiB"), 3 << 29);
        assert_eq!(size("64kib"), 65_536);
        assert_eq!(size("12B"), 12);
        for bad in ["", "MB", "-1", "1e3", "10XB", "99999999TiB", "1.2.3MB", "NaN", "inf"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
        let both = "10M".parse::<Size>().unwrap_err();
        assert!(both.contains("10MB") && both.contains("10MiB"), "{both}");
    }

    #[test]
    fn durations() {
        assert_eq!(millis("30s"), 30_000);
        assert_eq!(millis("30"), 30_000);
        assert_eq!(millis("500ms"), 500);
        assert_eq!(millis("1h30m"), 5_400_000);
        assert_eq!(millis("1.5m"), 90_000);
        assert_eq!(millis("1d"), 86_400_000);
        for bad in ["", "s", "-3s", "5 parsecs", "1h-3m", "99999999999999999999d", "1.5.2s"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
    }

    #[test]
    fn rates() {
        assert_eq!(rate("10gbit"), 10_000_000_000);
        assert_eq!(rate("100mbit"), 100_000_000);
        assert_eq!(rate("1Gbit/s"), 1_000_000_000);
        assert_eq!(rate("2.5gbps"), 2_500_000_000);
        assert_eq!(rate("125MB/s"), 1_000_000_000);
        assert_eq!(rate("1GiB/s"), 8 << 30);
        for bad in ["", "10", "10MB", "gbit", "-1gbit", "10 gallons/s"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn shown() {
        assert_eq!(Size(0).to_string(), "0 B");
        assert_eq!(Size(999).to_string(), "999 B");
        assert_eq!(Size(1_000).to_string(), "1.00 kB");
        assert_eq!(Size(999_999).to_string(), "1.00 MB");
        assert_eq!(Size(12_345_678).to_string(), "12.3 MB");
        assert_eq!(Size(16_384).to_string(), "16 KiB");
        assert_eq!(Size(4 << 20).to_string(), "4 MiB");
        assert_eq!(Rate(1_000_000_000).to_string(), "1.00 Gbit/s");
        assert_eq!(Span(Duration::from_millis(1234)).to_string(), "1.23 s");
        assert_eq!(Span(Duration::from_secs(125)).to_string(), "2m 05s");
        assert_eq!(Span(Duration::from_secs(7260)).to_string(), "2h 01m");
        assert_eq!(bytes_per_second(f64::NAN), "0 B/s");
        assert_eq!(bytes_per_second(1.5e9), "1.50 GB/s");
        assert_eq!(
            (count(1, "file"), count(2, "file"), count(0, "entry")),
            ("1 file".into(), "2 files".into(), "0 entries".into())
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(s in "\\PC{0,20}", n in "[0-9.]{0,30}", u in "[a-zA-Z/]{0,6}") {
            for text in [s, format!("{n}{u}")] {
                let _ = (text.parse::<Size>(), text.parse::<Span>(), text.parse::<Rate>());
            }
        }

        #[test]
        fn every_value_can_be_shown(n: u64) {
            prop_assert!(Size(n).to_string().len() <= 12);
            prop_assert!(Rate(n).to_string().len() <= 14);
        }
    }
}
