//! Sizes, durations and rates: parsed by [`units`], printed for people.
//!
//! The printed form is short (three digits) and only for people; it is never parsed again.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::units;

/// A size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// A rate in bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

/// Parses a quantity by the project's one parser.
macro_rules! read {
    ($kind:ident, $parse:path) => {
        impl FromStr for $kind {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                $parse(text).map(Self).map_err(|error| error.to_string())
            }
        }
    };
}

read!(Size, units::size);
read!(Span, units::duration);
read!(Rate, units::rate);

impl Size {
    /// Parses a size as rsync does: `10M` is binary, and `10M-1` one byte less.
    ///
    /// # Errors
    /// The text is not a size.
    pub fn as_rsync(text: &str) -> Result<Self, String> {
        let (text, offset) = match (text.strip_suffix("+1"), text.strip_suffix("-1")) {
            (Some(text), _) => (text, 1),
            (_, Some(text)) => (text, -1),
            _ => (text, 0),
        };
        let is_bare = text.ends_with(|c: char| "kmgt".contains(c.to_ascii_lowercase()));
        let size: Self = if is_bare { format!("{text}iB").parse()? } else { text.parse()? };
        Ok(Self(size.0.saturating_add_signed(offset)))
    }
}

/// Three digits and a unit: `1.23 GB`.
fn short(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut units = units.iter().peekable();
    let mut unit = units.next().copied().unwrap_or_default();
    // Without this 999.5 would be printed as 1000.
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
        // Multiples of powers of two, such as piece sizes, get binary units.
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
            3600..=172_799 => write!(f, "{}h {:02}m", seconds / 3600, seconds % 3600 / 60),
            _ => write!(f, "{}d {:02}h", seconds / 86400, seconds % 86400 / 3600),
        }
    }
}

/// Bytes per second, for people.
#[must_use]
pub fn bytes_per_second(rate: f64) -> String {
    let rate = if rate.is_finite() && rate > 0.0 { rate } else { 0.0 };
    format!("{}/s", short(rate, 1000.0, &["B", "kB", "MB", "GB", "TB"]))
}

/// A number with a comma before each three digits: `3,999`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let comma = |at: usize| if at > 0 && (digits.len() - at).is_multiple_of(3) { "," } else { "" };
    digits.char_indices().map(|(at, digit)| format!("{}{digit}", comma(at))).collect()
}

/// A count with its noun: `1 file`, `2 files`, `3 entries`, `4 losses`.
#[must_use]
pub fn count(n: u64, noun: &str) -> String {
    let plural = match noun.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if noun.ends_with('s') => format!("{noun}es"),
        None => format!("{noun}s"),
    };
    format!("{n} {}", if n == 1 { noun } else { &plural })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        assert_eq!(
            [count(1, "loss"), count(2, "loss"), count(0, "entry")],
            ["1 loss", "2 losses", "0 entries"]
        );
        assert_eq!(Span(Duration::from_millis(1234)).to_string(), "1.23 s");
        assert_eq!(Span(Duration::from_secs(125)).to_string(), "2m 05s");
        assert_eq!(Span(Duration::from_secs(7260)).to_string(), "2h 01m");
        assert_eq!(Span(Duration::from_secs(172_799)).to_string(), "47h 59m");
        assert_eq!(Span(Duration::from_secs(30 * 86_400)).to_string(), "30d 00h");
        assert_eq!(bytes_per_second(f64::NAN), "0 B/s");
        assert_eq!(bytes_per_second(1.5e9), "1.50 GB/s");
        assert_eq!(
            (count(1, "file"), count(2, "file"), count(0, "entry")),
            ("1 file".into(), "2 files".into(), "0 entries".into())
        );
    }

    #[test]
    fn a_thousand_has_a_comma() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    proptest! {
        #[test]
        fn every_value_can_be_shown(n: u64) {
            prop_assert!(Size(n).to_string().len() <= 12);
            prop_assert!(Rate(n).to_string().len() <= 14);
        }
    }
}
