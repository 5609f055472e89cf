//! Times, rates and shares as people write them, in integers: parsing is exact, and a formatted value reads
//! back as the same number.

use tidecast_text::units::duration;

use crate::topology::units;

/// Nanoseconds of each unit of time, the largest first.
const TIMES: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];
/// A year: no fault comes later, so that times can be added.
const LONGEST: u64 = 366 * 86_400_000_000_000;
/// `12.5` times `unit`, where that is a whole number.
fn decimal(digits: &str, unit: u64) -> Option<u64> {
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    if whole.is_empty() || part.is_empty() || part.len() > 12 {
        return None;
    }
    let number = |s: &str| s.bytes().all(|b| b.is_ascii_digit()).then(|| s.parse::<u64>().ok()).flatten();
    let scale = 10_u64.pow(u32::try_from(part.len()).ok()?);
    let below = u128::from(number(part)?) * u128::from(unit);
    let below = below.is_multiple_of(u128::from(scale)).then(|| below / u128::from(scale))?;
    number(whole)?.checked_mul(unit)?.checked_add(u64::try_from(below).ok()?)
}

/// Nanoseconds of `3s`, `1.5ms`, `1h30m`; seconds where there is no unit; a year at most.
pub(super) fn time(text: &str) -> Option<u64> {
    let time = duration(text).ok().filter(|_| !text.contains([' ', ':']))?;
    u64::try_from(time.as_nanos()).ok().filter(|nanos| *nanos <= LONGEST)
}

/// Bits per second as in topologies (`10mbit`, `1.5gbit`, `125MB/s`), or none at all (`0bit`).
pub(super) fn rate(text: &str) -> Option<u64> {
    if text == "0bit" { Some(0) } else { units::rate(text).ok() }
}

/// Parts per million of `5%` or `0.5%`; above zero, 100% at most.
pub(super) fn share(text: &str) -> Option<u32> {
    let ppm = decimal(text.strip_suffix('%')?, 10_000)?;
    u32::try_from(ppm).ok().filter(|ppm| (1..=1_000_000).contains(ppm))
}

/// A time as [`time`] reads it: in the largest unit that it is a multiple of.
pub(super) fn show_time(nanos: u64) -> String {
    let unit = TIMES.iter().find(|(_, unit)| nanos != 0 && nanos.is_multiple_of(*unit));
    unit.map_or_else(|| "0s".to_owned(), |(name, unit)| format!("{}{name}", nanos / unit))
}

/// A rate as [`rate`] reads it.
pub(super) fn show_rate(bits: u64) -> String {
    if bits == 0 { "0bit".to_owned() } else { units::format_rate(bits) }
}

/// A share as [`share`] reads it.
pub(super) fn show_share(ppm: u32) -> String {
    let part = format!("{:04}", ppm % 10_000);
    let part = part.trim_end_matches('0');
    let dot = if part.is_empty() { "" } else { "." };
    format!("{}{dot}{part}%", ppm / 10_000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_people_write_is_read() {
        assert_eq!(time("3s"), Some(3_000_000_000));
        assert_eq!(time("3"), Some(3_000_000_000));
        assert_eq!(time("1.5ms"), Some(1_500_000));
        assert_eq!(time("1h30m"), Some(5_400_000_000_000));
        assert_eq!(rate("10mbit"), Some(10_000_000));
        assert_eq!(rate("0bit"), Some(0));
        assert_eq!(share("5%"), Some(50_000));
        assert_eq!(share("0.5%"), Some(5_000));
        for bad in
            ["", "s", "-1s", "1.s", ".5s", "0.1ns", "367d", "3 s", "1e3s", "1s-", "99999999999999999999s"]
        {
            assert_eq!(time(bad), None, "{bad}");
        }
        for bad in ["", "10", "10m", "10mb/s", "1bit", "2000gbit", "10mbit5", "-1mbit"] {
            assert_eq!(rate(bad), None, "{bad}");
        }
        for bad in ["5", "0%", "101%", "%", "-5%", "0.00001%"] {
            assert_eq!(share(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(t in 0..=LONGEST, r in 8_000..=1_000_000_000_000_u64, s in 1..=1_000_000_u32) {
            prop_assert_eq!(time(&show_time(t)), Some(t));
            prop_assert_eq!(rate(&show_rate(r)), Some(r));
            prop_assert_eq!(share(&show_share(s)), Some(s));
        }

        #[test]
        fn no_text_makes_it_panic(s in "\\PC{0,20}", n in "[0-9.]{0,30}", u in "[a-z/%]{0,6}") {
            for text in [s, format!("{n}{u}")] {
                let _ = (time(&text), rate(&text), share(&text));
            }
        }
    }
}
