//! Dates and times of day, as C's library knows them in its plain locale.

use crate::number::{real_prefix, to_i32};
use crate::value::AbsTime;

const DAY: i64 = 86_400;

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A date and a time of day; nothing checks that they exist.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Civil {
    pub(crate) year: i64,
    /// 1 to 12.
    pub(crate) month: i64,
    pub(crate) day: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
}

impl Civil {
    /// The UTC time of this many seconds since 1970.
    pub(crate) fn at(secs: i64) -> Self {
        let (days, rest) = (secs.div_euclid(DAY), secs.rem_euclid(DAY));
        // Years that begin in March have their odd day at the end, and 400 of them are 146,097 days.
        let days = days + 719_468;
        let era = days.div_euclid(146_097);
        let day_of_era = days.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Self { year, month, day, hour: rest / 3600, minute: rest / 60 % 60, second: rest % 60 }
    }

    /// Seconds since 1970, if it is UTC. Months and days may be out of range: they carry over.
    pub(crate) fn secs(&self) -> i64 {
        let days = days_before(self.year, self.month) + self.day - 1;
        days * DAY + self.hour * 3600 + self.minute * 60 + self.second
    }

    /// 0 is Sunday.
    fn weekday(&self) -> i64 {
        (days_before(self.year, self.month) + self.day - 1 + 4).rem_euclid(7)
    }

    /// From 0.
    pub(crate) fn day_of_year(&self) -> i64 {
        days_before(self.year, self.month) + self.day - 1 - days_before(self.year, 1)
    }

    pub(crate) fn day_of_week(&self) -> i64 {
        self.weekday()
    }

    fn hour12(&self) -> i64 {
        (self.hour + 11).rem_euclid(12) + 1
    }

    /// Year and week by ISO 8601.
    fn iso_week(&self) -> (i64, i64) {
        let monday_based = (self.weekday() + 6) % 7;
        let week = (self.day_of_year() - monday_based + 10) / 7;
        if week < 1 {
            (self.year - 1, weeks_in(self.year - 1))
        } else if week > weeks_in(self.year) {
            (self.year + 1, 1)
        } else {
            (self.year, week)
        }
    }
}

/// Days from 1970 to the first day of a month; months out of range count on.
fn days_before(year: i64, month: i64) -> i64 {
    let year = year + (month - 1).div_euclid(12);
    let month = (month - 1).rem_euclid(12) + 1;
    // Years from March on, as in `Civil::at`.
    let year = year - i64::from(month <= 2);
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let year_of_era = year.rem_euclid(400);
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + (153 * shifted + 2) / 5;
    year.div_euclid(400) * 146_097 + day_of_era - 719_468
}

fn weeks_in(year: i64) -> i64 {
    let ends_on =
        |year: i64| (year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400)).rem_euclid(7);
    if ends_on(year) == 4 || ends_on(year - 1) == 3 { 53 } else { 52 }
}

/// `2020-01-31T12:00:00+01:00`
pub(crate) fn absolute_text(time: AbsTime) -> String {
    let t = Civil::at(time.secs.saturating_add(time.offset.into()).clamp(-(1 << 55), 1 << 55));
    let sign = if time.offset > 0 { '+' } else { '-' };
    let offset = time.offset.unsigned_abs();
    format!(
        "{}-{:02}-{:02}T{:02}:{:02}:{:02}{sign}{:02}:{:02}",
        t.year,
        t.month,
        t.day,
        t.hour,
        t.minute,
        t.second,
        offset / 3600,
        offset / 60 % 60
    )
}

/// `[-][days+]hh:mm:ss`, leading parts left out that are zero. Fractions of a second only if they are asked
/// for: HTCondor cuts them.
pub(crate) fn relative_text(secs: f64, fractions: bool) -> String {
    let whole = to_i32(secs);
    let sign = if secs < 0.0 && (whole != 0 || fractions && secs.fract() != 0.0) { "-" } else { "" };
    let whole = whole.unsigned_abs();
    let (days, hours, minutes, secs_left) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60, whole % 60);
    let mut text = if days > 0 {
        format!("{sign}{days}+{hours:02}:{minutes:02}:{secs_left:02}")
    } else if hours > 0 {
        format!("{sign}{hours:02}:{minutes:02}:{secs_left:02}")
    } else if minutes > 0 {
        format!("{sign}{minutes:02}:{secs_left:02}")
    } else {
        format!("{sign}{secs_left:02}")
    };
    if fractions && secs.is_finite() && secs.fract() != 0.0 {
        // The fraction, with as few digits as identify it.
        text.push_str(secs.fract().abs().to_string().trim_start_matches('0'));
    }
    text
}

/// Reads `[[[-][days+]hh:]mm:]ss[.fff]`, also with the units d, h, m and s behind the numbers.
pub(crate) fn parse_relative(text: &[u8]) -> Option<f64> {
    let mut rest = Backwards(text);
    rest.skip_space();
    let mut secs = 0.0;
    if rest.last().is_some_and(|b| b.is_ascii_digit() || b.eq_ignore_ascii_case(&b's')) {
        if rest.last().is_some_and(|b| !b.is_ascii_digit()) {
            rest.drop_last();
        }
        rest.skip_space();
        let digits = rest.digits();
        let from = if rest.last() == Some(b'.') {
            rest.drop_last();
            let whole = rest.digits();
            whole.len() + 1 + digits.len()
        } else {
            digits.len()
        };
        let end = rest.0.len() + from;
        secs = real_prefix(&text[rest.0.len()..end]).unwrap_or(0.0);
    }
    let mut total = secs;
    for (units, factor) in [(*b"mM:", 60.0), (*b"hH:", 3600.0), (*b"dD+", 86_400.0)] {
        rest.skip_space();
        if rest.last().is_some_and(|b| units.contains(&b)) {
            rest.drop_last();
            rest.skip_space();
            let digits = std::str::from_utf8(rest.digits()).unwrap_or_default();
            total += f64::from(digits.parse::<i32>().unwrap_or(0)) * factor;
        }
    }
    rest.skip_space();
    if rest.last() == Some(b'-') {
        rest.drop_last();
        total = -total;
    }
    rest.skip_space();
    rest.0.is_empty().then_some(total)
}

/// A text that is read from its end.
struct Backwards<'t>(&'t [u8]);

impl<'t> Backwards<'t> {
    fn last(&self) -> Option<u8> {
        self.0.last().copied()
    }

    fn drop_last(&mut self) {
        self.0 = self.0.split_last().map_or(self.0, |(_, rest)| rest);
    }

    fn skip_space(&mut self) {
        while self.last().is_some_and(crate::lex::is_space) {
            self.drop_last();
        }
    }

    fn digits(&mut self) -> &'t [u8] {
        let count = self.0.iter().rev().take_while(|b| b.is_ascii_digit()).count();
        let (rest, digits) = self.0.split_at(self.0.len() - count);
        self.0 = rest;
        digits
    }
}

/// Parses a year of four digits, then month, day, hour, minute and second of two each as far as given, with any
/// separators, and a time zone: `Z`, `+hh:mm` or `+hhmm`. Without one it is local time.
pub(crate) fn parse_absolute(text: &[u8], local_offset: i32) -> Option<AbsTime> {
    let (text, zone) = split_zone(text);
    let mut rest = text;
    let mut field = |len: usize| -> Option<i64> {
        rest = &rest[rest.iter().take_while(|b| !b.is_ascii_digit()).count()..];
        let digits = rest.get(..len)?;
        rest = &rest[len..];
        // Leading digits count; a field that ends early is read as by C's atoi.
        let count = digits.iter().take_while(|b| b.is_ascii_digit()).count();
        std::str::from_utf8(&digits[..count]).ok()?.parse().ok()
    };
    let year = field(4)?;
    // A missing month is the first; a missing day is the day before the first, as in HTCondor's mktime.
    let month = field(2).unwrap_or(1);
    let day = field(2).unwrap_or(0);
    let civil = Civil {
        year,
        month,
        day,
        hour: field(2).unwrap_or(0),
        minute: field(2).unwrap_or(0),
        second: field(2).unwrap_or(0),
    };
    if rest.iter().any(u8::is_ascii_digit) {
        return None;
    }
    let offset = zone.unwrap_or(local_offset);
    Some(AbsTime { secs: civil.secs() - i64::from(offset), offset })
}

/// The time zone at the end of a text, in seconds, and the text before it.
fn split_zone(text: &[u8]) -> (&[u8], Option<i32>) {
    let trimmed = text.trim_ascii_end();
    if let Some((b'z' | b'Z', before)) = trimmed.split_last() {
        return (before, Some(0));
    }
    for len in [5, 6] {
        let Some(start) = text.len().checked_sub(len).filter(|start| *start > 0) else { continue };
        let (before, zone) = text.split_at(start);
        let digits: Vec<i32> =
            zone[1..].iter().filter(|b| b.is_ascii_digit()).map(|b| i32::from(b - b'0')).collect();
        let colon = len == 5 || zone[3] == b':';
        if let (b'+' | b'-', true, [a, b, c, d]) = (zone[0], colon, &digits[..]) {
            let secs = (a * 10 + b) * 3600 + (c * 10 + d) * 60;
            return (before, Some(if zone[0] == b'-' { -secs } else { secs }));
        }
    }
    (text, None)
}

/// `strftime` in the plain locale.
pub(crate) fn format(t: &Civil, format: &[u8], local_offset: i32) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = format;
    while let Some((&first, mut tail)) = rest.split_first() {
        if first == b'%'
            && let Some(text) = conversion(t, &mut tail, local_offset)
        {
            out.extend_from_slice(&text);
        } else {
            out.push(first);
        }
        rest = tail;
    }
    out
}

/// One conversion after its percent sign, or none if unknown: then nothing is consumed.
fn conversion(t: &Civil, rest: &mut &[u8], local_offset: i32) -> Option<Vec<u8>> {
    let mut at = *rest;
    let mut flag = None;
    while let Some((&b @ (b'-' | b'_' | b'0' | b'^' | b'#'), tail)) = at.split_first() {
        flag = Some(b);
        at = tail;
    }
    let digits = at.iter().take_while(|b| b.is_ascii_digit()).count();
    let width: usize = std::str::from_utf8(&at[..digits]).ok()?.parse().unwrap_or(0);
    at = &at[digits..];
    if let Some((b'E' | b'O', tail)) = at.split_first() {
        at = tail;
    }
    let (&letter, tail) = at.split_first()?;
    let (text, number) = match converted(t, letter, local_offset)? {
        Part::Text(text) => (text, None),
        Part::Number(number, digits, fill) => (number.to_string(), Some((digits, fill))),
    };
    let (digits, fill) = number.unwrap_or((0, b' '));
    let fill = match flag {
        Some(b'_') => b' ',
        Some(b'0') => b'0',
        _ => fill,
    };
    let width = if flag == Some(b'-') { width } else { width.max(digits) }.min(1023);
    let text = match flag {
        Some(b'^') => text.to_ascii_uppercase(),
        Some(b'#') if matches!(letter, b'Z' | b'p') => text.to_ascii_lowercase(),
        Some(b'#') => text.to_ascii_uppercase(),
        _ => text,
    };
    let mut out = vec![fill; width.saturating_sub(text.len())];
    out.extend_from_slice(text.as_bytes());
    *rest = tail;
    Some(out)
}

enum Part {
    Text(String),
    /// A number, its least width and its padding.
    Number(i64, usize, u8),
}

fn converted(t: &Civil, letter: u8, local_offset: i32) -> Option<Part> {
    let name = |names: &[&str], at: i64| -> String {
        usize::try_from(at)
            .ok()
            .and_then(|at| names.get(at))
            .map_or_else(|| "?".to_owned(), |n| (*n).to_owned())
    };
    let short = |text: String| text.chars().take(3).collect::<String>();
    let nested =
        |f: &str| Part::Text(String::from_utf8_lossy(&format(t, f.as_bytes(), local_offset)).into_owned());
    let two = |number: i64| Part::Number(number, 2, b'0');
    let (yday, wday) = (t.day_of_year(), t.weekday());
    Some(match letter {
        b'%' => Part::Text("%".to_owned()),
        b'n' => Part::Text("\n".to_owned()),
        b't' => Part::Text("\t".to_owned()),
        b'a' => Part::Text(short(name(&DAYS, wday))),
        b'A' => Part::Text(name(&DAYS, wday)),
        b'b' | b'h' => Part::Text(short(name(&MONTHS, t.month - 1))),
        b'B' => Part::Text(name(&MONTHS, t.month - 1)),
        b'c' => nested("%a %b %e %H:%M:%S %Y"),
        b'x' | b'D' => nested("%m/%d/%y"),
        b'X' | b'T' => nested("%H:%M:%S"),
        b'F' => nested("%Y-%m-%d"),
        b'R' => nested("%H:%M"),
        b'r' => nested("%I:%M:%S %p"),
        b'C' => two(t.year.div_euclid(100)),
        b'd' => two(t.day),
        b'e' => Part::Number(t.day, 2, b' '),
        b'g' => two(t.iso_week().0.rem_euclid(100)),
        b'G' => Part::Number(t.iso_week().0, 0, b'0'),
        b'V' => two(t.iso_week().1),
        b'H' => two(t.hour),
        b'I' => two(t.hour12()),
        b'j' => Part::Number(yday + 1, 3, b'0'),
        b'k' => Part::Number(t.hour, 2, b' '),
        b'l' => Part::Number(t.hour12(), 2, b' '),
        b'm' => two(t.month),
        b'M' => two(t.minute),
        b'p' => Part::Text(if t.hour >= 12 { "PM" } else { "AM" }.to_owned()),
        b'P' => Part::Text(if t.hour >= 12 { "pm" } else { "am" }.to_owned()),
        b's' => Part::Number(t.secs() - i64::from(local_offset), 1, b'0'),
        b'S' => two(t.second),
        b'u' => Part::Number((wday + 6) % 7 + 1, 1, b'0'),
        b'U' => two((yday + 7 - wday) / 7),
        b'w' => Part::Number(wday, 1, b'0'),
        b'W' => two((yday + 7 - (wday + 6) % 7) / 7),
        b'y' => two(t.year.rem_euclid(100)),
        b'Y' => Part::Number(t.year, 0, b'0'),
        b'z' => {
            let minutes = local_offset.unsigned_abs() / 60;
            let sign = if local_offset < 0 { '-' } else { '+' };
            Part::Text(format!("{sign}{:02}{:02}", minutes / 60, minutes % 60))
        }
        // No table of zones here: their names are not known.
        b'Z' => Part::Text(if local_offset == 0 { "UTC".to_owned() } else { String::new() }),
        _ => return None,
    })
}
