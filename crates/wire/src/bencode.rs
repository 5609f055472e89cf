//! The little bencoding (BEP 3) that extension messages need: one flat look at a dictionary, no tree, no allocation.
//! Depth is bounded, lengths by the message that holds it. Keys in any order are taken: not every client sorts them.

use crate::Error;
use bytes::{BufMut, BytesMut};

/// Real extension messages nest two deep.
const MAX_DEPTH: usize = 8;

/// A value of a dictionary; of a list only that it is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Int(i64),
    Bytes(&'a [u8]),
    Dict(Dict<'a>),
    List,
}

/// A dictionary whose syntax has been checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dict<'a>(&'a [u8]);

impl<'a> Dict<'a> {
    /// The dictionary at the start of `data`, and its length in bytes.
    pub(crate) fn parse(message: &'static str, data: &'a [u8]) -> Result<(Self, usize), Error> {
        let bad = |(at, why)| Error::Bencode { message, at, why };
        if data.first() != Some(&b'd') {
            return Err(bad((0, "not a dictionary")));
        }
        let end = skip(data, 0).map_err(bad)?;
        Ok((Self(data.get(..end).unwrap_or_default()), end))
    }

    /// The entries in their order.
    pub(crate) fn entries(self) -> impl Iterator<Item = (&'a [u8], Value<'a>)> {
        let (data, mut at) = (self.0, 1);
        std::iter::from_fn(move || {
            let (key, next) = string(data, at).ok()?;
            let end = skip(data, next).ok()?;
            let raw = data.get(next..end)?;
            at = end;
            let value = match raw.first()? {
                b'i' => Value::Int(integer(raw, 0).ok()?.0),
                b'l' => Value::List,
                b'd' => Value::Dict(Self(raw)),
                _ => Value::Bytes(string(raw, 0).ok()?.0),
            };
            Some((key, value))
        })
    }
}

type Bad = (usize, &'static str);

/// The byte string at `at`, and where it ends.
fn string(data: &[u8], at: usize) -> Result<(&[u8], usize), Bad> {
    let mut len = 0_usize;
    let mut i = at;
    loop {
        match data.get(i) {
            Some(&digit @ b'0'..=b'9') if i - at < 9 => len = len * 10 + usize::from(digit - b'0'),
            Some(b':') if i > at => break,
            Some(_) => return Err((i, "not a string length")),
            None => return Err((i, "it ends inside a string length")),
        }
        i += 1;
    }
    let end = i + 1 + len;
    data.get(i + 1..end).map(|s| (s, end)).ok_or((i, "a string runs past the end"))
}

/// The integer at `at`, and where it ends.
fn integer(data: &[u8], at: usize) -> Result<(i64, usize), Bad> {
    let body = data.get(at + 1..).unwrap_or_default();
    // No integer of 64 bits has more than 20 characters.
    let len = body.iter().take(21).position(|&b| b == b'e').ok_or((at, "an integer without end"))?;
    let text = body.get(..len).and_then(|d| std::str::from_utf8(d).ok()).unwrap_or_default();
    let digits = text.strip_prefix('-').unwrap_or(text);
    if text == "-0" || text.starts_with('+') || (digits.len() > 1 && digits.starts_with('0')) {
        return Err((at, "not the one form of an integer"));
    }
    let value = text.parse().map_err(|_| (at, "not an integer of 64 bits"))?;
    Ok((value, at + len + 2))
}

#[derive(Clone, Copy, PartialEq)]
enum Within {
    List,
    Key,
    Value,
}

/// Where the value at `at` ends; checks all of it.
fn skip(data: &[u8], mut at: usize) -> Result<usize, Bad> {
    let mut stack = [Within::List; MAX_DEPTH];
    let mut depth = 0_usize;
    loop {
        let top = depth.checked_sub(1).and_then(|d| stack.get_mut(d));
        let token = *data.get(at).ok_or((at, "it ends inside a value"))?;
        let is_string = token.is_ascii_digit();
        match top {
            Some(within @ Within::Key) if is_string => *within = Within::Value,
            Some(Within::Key) if token != b'e' => return Err((at, "a key that is no string")),
            Some(Within::Value) if token == b'e' => return Err((at, "a key without value")),
            Some(within @ Within::Value) => *within = Within::Key,
            _ => {}
        }
        match token {
            b'i' => at = integer(data, at)?.1,
            b'e' if depth > 0 => {
                depth -= 1;
                at += 1;
            }
            b'l' | b'd' => {
                *stack.get_mut(depth).ok_or((at, "nested too deep"))? =
                    if token == b'l' { Within::List } else { Within::Key };
                depth += 1;
                at += 1;
            }
            _ if is_string => at = string(data, at)?.1,
            _ => return Err((at, "not a value")),
        }
        if depth == 0 {
            return Ok(at);
        }
    }
}

/// Appends a byte string.
pub(crate) fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    out.put_slice(bytes.len().to_string().as_bytes());
    out.put_u8(b':');
    out.put_slice(bytes);
}

/// Appends a key and an integer.
pub(crate) fn put_int(out: &mut BytesMut, key: &str, value: impl Into<i64>) {
    put_bytes(out, key.as_bytes());
    let value: i64 = value.into();
    out.put_u8(b'i');
    out.put_slice(value.to_string().as_bytes());
    out.put_u8(b'e');
}

/// Appends a key and a byte string.
pub(crate) fn put_entry(out: &mut BytesMut, key: &str, value: &[u8]) {
    put_bytes(out, key.as_bytes());
    put_bytes(out, value);
}
