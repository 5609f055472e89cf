//! Times as people read them.

use time::OffsetDateTime;

/// Seconds since 1970 as a date and time of UTC.
#[must_use]
pub fn utc(seconds: u64) -> String {
    let at = i64::try_from(seconds).ok().and_then(|at| OffsetDateTime::from_unix_timestamp(at).ok());
    let Some(at) = at else { return "a time after the year 9999".into() };
    let (day, time) = (at.date(), at.time());
    let month = u8::from(day.month());
    let clock = format!("{:02}:{:02}:{:02}", time.hour(), time.minute(), time.second());
    format!("{:04}-{month:02}-{:02} {clock} UTC", day.year(), day.day())
}

/// How long a time is, in its two largest units.
#[must_use]
pub fn span(seconds: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let at = units.iter().position(|(unit, _)| seconds >= *unit).unwrap_or(3);
    let mut rest = seconds;
    let mut parts = units[at..].iter().take(2).map(|(unit, name)| {
        let count = rest / unit;
        rest %= unit;
        (count, *name)
    });
    let first = parts.next().map(|(count, name)| format!("{count} {name}"));
    let second = parts.next().filter(|(count, _)| *count > 0).map(|(count, name)| format!(" {count} {name}"));
    first.unwrap_or_default() + &second.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_as_people_say_them() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(1_800_000_000), "2027-01-15 08:00:00 UTC");
        assert_eq!(utc(u64::MAX), "a time after the year 9999");
        for (seconds, said) in [
            (0, "0 s"),
            (59, "59 s"),
            (61, "1 min 1 s"),
            (7_200, "2 h"),
            (9_000, "2 h 30 min"),
            (90_000, "1 d 1 h"),
        ] {
            assert_eq!(span(seconds), said);
        }
    }
}
