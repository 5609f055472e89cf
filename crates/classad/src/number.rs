//! Numbers as C reads, writes and converts them.

/// The real at the start of a text and whether there was one, as `strtod` reads it: white space, a sign, then a
/// decimal or hexadecimal number, `inf`, `infinity` or `nan`. The rest is ignored.
pub(crate) fn real_prefix(text: &[u8]) -> Option<f64> {
    let text = &text[text.iter().take_while(|b| crate::lex::is_space(**b)).count()..];
    let (negative, text) = match text.first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let starts = |word: &[u8]| text.get(..word.len()).is_some_and(|t| t.eq_ignore_ascii_case(word));
    let size = if starts(b"inf") {
        f64::INFINITY
    } else if starts(b"nan") {
        f64::NAN
    } else if starts(b"0x") && hexadecimal(&text[2..]).is_some() {
        hexadecimal(&text[2..])?
    } else {
        decimal(text)?
    };
    Some(if negative { -size } else { size })
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|b| b.is_ascii_digit()).count()
}

/// The length of an exponent, if there is one.
fn exponent(text: &[u8], letter: u8) -> usize {
    if text.first().is_none_or(|b| b.to_ascii_lowercase() != letter) {
        return 0;
    }
    let sign = usize::from(matches!(text.get(1), Some(b'+' | b'-')));
    match digits(&text[1 + sign..]) {
        0 => 0,
        count => 1 + sign + count,
    }
}

fn decimal(text: &[u8]) -> Option<f64> {
    let whole = digits(text);
    let mut len = whole;
    if text.get(len) == Some(&b'.') {
        let fraction = digits(&text[len + 1..]);
        if whole + fraction == 0 {
            return None;
        }
        len += 1 + fraction;
    }
    if len == 0 {
        return None;
    }
    len += exponent(&text[len..], b'e');
    std::str::from_utf8(&text[..len]).ok()?.parse().ok()
}

/// Behind `0x`. Digits beyond the precision of a double only move the exponent.
fn hexadecimal(text: &[u8]) -> Option<f64> {
    let (mut mantissa, mut shift, mut count, mut point) = (0u64, 0i32, 0, false);
    let mut at = 0;
    for b in text {
        let digit = char::from(*b).to_digit(16);
        match digit {
            Some(digit) => {
                count += 1;
                if mantissa >> 58 == 0 {
                    mantissa = mantissa * 16 + u64::from(digit);
                    shift -= 4 * i32::from(point);
                } else {
                    shift = shift.saturating_add(4 * i32::from(!point));
                }
            }
            None if *b == b'.' && !point => point = true,
            None => break,
        }
        at += 1;
    }
    if count == 0 {
        return None;
    }
    let tail = &text[at..];
    let len = exponent(tail, b'p');
    let power: i32 =
        std::str::from_utf8(tail.get(1..len).unwrap_or_default()).ok()?.parse().unwrap_or(match len {
            0 => 0,
            _ if tail.get(1) == Some(&b'-') => -10_000,
            _ => 10_000,
        });
    let power = power.saturating_add(shift).clamp(-10_000, 10_000);
    // In two steps, so that neither factor is infinite or zero where their product is not.
    Some(mantissa as f64 * 2f64.powi(power / 2) * 2f64.powi(power - power / 2))
}

/// A double as an integer, as x86-64 processors convert it: values out of range become the smallest integer.
pub(crate) fn to_i64(real: f64) -> i64 {
    // 2^63, which a double holds exactly.
    const END: f64 = (1u64 << 63) as f64;
    if (-END..END).contains(&real) { real as i64 } else { i64::MIN }
}

/// The same to 32 bits.
pub(crate) fn to_i32(real: f64) -> i32 {
    let real = real.trunc();
    if (-2_147_483_648.0..=2_147_483_647.0).contains(&real) { real as i32 } else { i32::MIN }
}

/// How a real is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `%1.15E`, as HTCondor makes strings of reals: the last bit may get lost.
    Condor,
    /// The same, with one more digit where it needs it to be read as the same.
    Exact,
    /// `%.16G`, as old ads have it, or 17 digits where it needs them.
    Old,
}

pub(crate) fn write_real(out: &mut String, real: f64, form: Form) {
    if real == 0.0 {
        out.push_str(if real.is_sign_negative() { "-0.0" } else { "0.0" });
    } else if real.is_nan() {
        out.push_str("real(\"NaN\")");
    } else if real.is_infinite() {
        out.push_str(if real > 0.0 { "real(\"INF\")" } else { "real(\"-INF\")" });
    } else {
        let mut digits = 15;
        if form != Form::Condor && format!("{real:.15e}").parse() != Ok(real) {
            digits = 16;
        }
        if form == Form::Old { general(out, real, digits + 1) } else { scientific(out, real, digits) }
    }
}

/// `%.{digits}E`
fn scientific(out: &mut String, real: f64, digits: usize) {
    let text = format!("{real:.digits$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |e| ('-', e));
    out.push_str(&format!("{mantissa}E{sign}{exponent:0>2}"));
}

/// `%.{digits}G`, with `.0` appended if it looks like an integer.
fn general(out: &mut String, real: f64, digits: usize) {
    let text = format!("{real:.*e}", digits - 1);
    let exponent: i32 = text.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    if exponent < -4 || exponent >= i32::try_from(digits).unwrap_or(i32::MAX) {
        let mut text = String::new();
        scientific(&mut text, real, digits - 1);
        let (mantissa, exponent) = text.split_once('E').unwrap_or((&text, "+00"));
        out.push_str(&format!("{}E{exponent}", mantissa.trim_end_matches('0').trim_end_matches('.')));
        return;
    }
    let behind = usize::try_from(i32::try_from(digits).unwrap_or(17) - 1 - exponent).unwrap_or(0);
    let text = format!("{real:.behind$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    out.push_str(text);
    if !text.contains('.') {
        out.push_str(".0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(real: f64, form: Form) -> String {
        let mut out = String::new();
        write_real(&mut out, real, form);
        out
    }

    #[test]
    fn reals_are_written_as_c_does() {
        assert_eq!(written(1.5, Form::Condor), "1.500000000000000E+00");
        assert_eq!(written(-1e300, Form::Condor), "-1.000000000000000E+300");
        assert_eq!(written(1e-5, Form::Condor), "1.000000000000000E-05");
        assert_eq!(written(0.1 + 0.2, Form::Condor), "3.000000000000000E-01");
        assert_eq!(written(0.1 + 0.2, Form::Exact), "3.0000000000000004E-01");
        assert_eq!(written(-0.0, Form::Exact), "-0.0");
        for (real, text) in [
            (100_000.0, "100000.0"),
            (0.1, "0.1"),
            (1e20, "1E+20"),
            (1e-7, "1E-07"),
            (1e300, "1E+300"),
            (1.5, "1.5"),
            (0.0001, "0.0001"),
            (123_456_789.123, "123456789.123"),
            (1e16, "1E+16"),
            (1e15, "1000000000000000.0"),
            (0.1 + 0.2, "0.30000000000000004"),
        ] {
            assert_eq!(written(real, Form::Old), text);
        }
    }

    #[test]
    fn reals_are_read_as_strtod_does() {
        for (text, real) in [
            ("  12abc", 12.0),
            ("1.5e", 1.5),
            ("0x10", 16.0),
            ("0x1p3", 8.0),
            ("0x.8", 0.5),
            ("0x", 0.0),
            ("-.5", -0.5),
            ("5.", 5.0),
            ("+5", 5.0),
            ("1_000", 1.0),
            ("INFinite", f64::INFINITY),
            ("1e400", f64::INFINITY),
            ("0x1p-1074", 5e-324),
            ("0x123456789abcdef01p-4", 1311768467463790336.0),
        ] {
            assert_eq!(real_prefix(text.as_bytes()), Some(real), "{text}");
        }
        for text in ["", " ", "a", "-", ".", "+.", "e5"] {
            assert_eq!(real_prefix(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn what_does_not_fit_into_an_integer_is_the_smallest() {
        assert_eq!(to_i64(1e300), i64::MIN);
        assert_eq!(to_i64(f64::NAN), i64::MIN);
        assert_eq!(to_i64(-5.9), -5);
        assert_eq!(to_i64(9_223_372_036_854_775_807.0), i64::MIN);
        assert_eq!(to_i32(2_147_483_647.9), i32::MAX);
        assert_eq!(to_i32(2_147_483_648.0), i32::MIN);
        assert_eq!(to_i32(-5e9), i32::MIN);
    }
}
