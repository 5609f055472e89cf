//! A cursor over bencode: reads one token at a time, borrows from the input, allocates nothing.
//!
//! Promise: every call either moves forward or fails; no input makes it panic, recurse or loop.

use super::{Error, Fault, MAX_DEPTH};
use std::ops::Range;

/// The type of a bencoded value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `i…e`
    Int,
    /// `n:…`
    Bytes,
    /// `l…e`
    List,
    /// `d…e`
    Dict,
    /// The `e` that ends a list or dictionary.
    End,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Kind::Int => "an integer",
            Kind::Bytes => "a string",
            Kind::List => "a list",
            Kind::Dict => "a dictionary",
            Kind::End => "the end of a list or dictionary",
        })
    }
}

/// A position in a bencoded input.
///
/// ```
/// # use tidecast_metainfo::bencode::Cursor;
/// let mut c = Cursor::new(b"d3:agei7ee");
/// c.enter_dict()?;
/// while let Some(key) = c.next_key()? {
///     assert_eq!((key, c.int()?), (&b"age"[..], 7));
/// }
/// assert!(c.is_empty());
/// # Ok::<(), tidecast_metainfo::bencode::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Cursor<'a> {
    input: &'a [u8],
    pos: usize,
    depth: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor at the start of `input`.
    pub fn new(input: &'a [u8]) -> Self {
        Cursor { input, pos: 0, depth: 0 }
    }

    /// A cursor at offset `pos` of `input`; errors and [`Cursor::pos`] count from its start.
    pub fn at(input: &'a [u8], pos: usize) -> Self {
        Cursor { input, pos, depth: 0 }
    }

    /// Offset of the next unread byte.
    pub fn pos(&self) -> usize {
        self.pos
    }

    /// True when every byte has been read.
    pub fn is_empty(&self) -> bool {
        self.pos >= self.input.len()
    }

    /// The bytes not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.input.get(self.pos..).unwrap_or_default()
    }

    fn fail<T>(&self, what: Fault) -> Result<T, Error> {
        Err(Error { at: self.pos, what })
    }

    fn byte(&self) -> Result<u8, Error> {
        match self.input.get(self.pos) {
            Some(b) => Ok(*b),
            None => self.fail(Fault::Truncated),
        }
    }

    /// The type of the next value, without reading it.
    pub fn peek(&self) -> Result<Kind, Error> {
        match self.byte()? {
            b'i' => Ok(Kind::Int),
            b'l' => Ok(Kind::List),
            b'd' => Ok(Kind::Dict),
            b'e' => Ok(Kind::End),
            b'0'..=b'9' => Ok(Kind::Bytes),
            other => self.fail(Fault::Unexpected(other)),
        }
    }

    fn expect(&self, expected: Kind) -> Result<(), Error> {
        let found = self.peek()?;
        if found == expected { Ok(()) } else { self.fail(Fault::Type { expected, found }) }
    }

    /// Reads an integer.
    pub fn int(&mut self) -> Result<i64, Error> {
        self.expect(Kind::Int)?;
        let start = self.pos + 1;
        let tail = self.input.get(start..).unwrap_or_default();
        // The longest canonical form is -9223372036854775808, twenty bytes.
        let window = &tail[..tail.len().min(21)];
        let Some(len) = window.iter().position(|b| *b == b'e') else {
            return self.fail(if window.len() == 21 { Fault::Integer } else { Fault::Truncated });
        };
        let digits = &window[..len];
        let magnitude = digits.strip_prefix(b"-").unwrap_or(digits);
        let canonical = match magnitude {
            [b'0'] => digits.len() == 1,
            [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
            _ => false,
        };
        let value =
            std::str::from_utf8(digits).ok().filter(|_| canonical).and_then(|s| s.parse::<i64>().ok());
        match value {
            Some(v) => {
                self.pos = start + len + 1;
                Ok(v)
            }
            None => self.fail(Fault::Integer),
        }
    }

    /// Reads a string. Its length is checked against the input before anything else happens.
    pub fn bytes(&mut self) -> Result<&'a [u8], Error> {
        self.expect(Kind::Bytes)?;
        let tail = self.rest();
        let mut len: u64 = 0;
        let mut digits = 0;
        loop {
            match tail.get(digits) {
                Some(b @ b'0'..=b'9') if digits < 19 => len = len * 10 + u64::from(b - b'0'),
                Some(b':') => break,
                None => return self.fail(Fault::Truncated),
                Some(_) => return self.fail(Fault::LengthSyntax),
            }
            digits += 1;
        }
        if digits > 1 && tail.first() == Some(&b'0') {
            return self.fail(Fault::LengthSyntax);
        }
        let body = tail.get(digits + 1..).unwrap_or_default();
        match usize::try_from(len).ok().and_then(|n| body.get(..n)) {
            Some(text) => {
                self.pos += digits + 1 + text.len();
                Ok(text)
            }
            None => self.fail(Fault::Length(len)),
        }
    }

    /// Reads a string and returns its range in the input.
    pub fn range(&mut self) -> Result<Range<usize>, Error> {
        let len = self.bytes()?.len();
        Ok(self.pos - len..self.pos)
    }

    fn enter(&mut self, kind: Kind) -> Result<(), Error> {
        self.expect(kind)?;
        if self.depth >= MAX_DEPTH {
            return self.fail(Fault::Depth);
        }
        self.depth += 1;
        self.pos += 1;
        Ok(())
    }

    /// Steps into a dictionary; then [`Cursor::next_key`] and a value in turn until `None`.
    pub fn enter_dict(&mut self) -> Result<(), Error> {
        self.enter(Kind::Dict)
    }

    /// Steps into a list; then [`Cursor::next_item`] and a value in turn until `false`.
    pub fn enter_list(&mut self) -> Result<(), Error> {
        self.enter(Kind::List)
    }

    /// The next key of the dictionary, or `None` at its end (the cursor is then after it).
    pub fn next_key(&mut self) -> Result<Option<&'a [u8]>, Error> {
        if self.next_item()? { self.bytes().map(Some) } else { Ok(None) }
    }

    /// True if the list has one more item; false at its end (the cursor is then after it).
    pub fn next_item(&mut self) -> Result<bool, Error> {
        if self.byte()? != b'e' {
            return Ok(true);
        }
        self.pos += 1;
        self.depth = self.depth.saturating_sub(1);
        Ok(false)
    }

    /// Skips one whole value and returns its bytes exactly as they stand.
    pub fn skip(&mut self) -> Result<&'a [u8], Error> {
        let start = self.pos;
        let outer = self.depth;
        // One bit a level: are we between a key and its value in a dictionary?
        let mut levels: Vec<Level> = Vec::new();
        loop {
            let kind = self.peek()?;
            if let Some(level @ (Level::Key | Level::Value)) = levels.last_mut() {
                match (&level, kind) {
                    (Level::Key, Kind::End) => {}
                    (Level::Key, Kind::Bytes) => *level = Level::Value,
                    (Level::Key, found) => {
                        let expected = Kind::Bytes;
                        return self.fail(Fault::Type { expected, found });
                    }
                    (_, Kind::End) => return self.fail(Fault::Unexpected(b'e')),
                    _ => *level = Level::Key,
                }
            }
            match kind {
                Kind::Int => drop(self.int()?),
                Kind::Bytes => drop(self.bytes()?),
                Kind::List => {
                    self.enter_list()?;
                    levels.push(Level::Item);
                }
                Kind::Dict => {
                    self.enter_dict()?;
                    levels.push(Level::Key);
                }
                Kind::End if levels.is_empty() => return self.fail(Fault::Unexpected(b'e')),
                Kind::End => {
                    self.next_item()?;
                    levels.pop();
                }
            }
            if levels.is_empty() {
                debug_assert_eq!(self.depth, outer);
                return Ok(self.input.get(start..self.pos).unwrap_or_default());
            }
        }
    }
}

/// The next item of a container that is being skipped.
#[derive(Clone, Copy)]
enum Level {
    Item,
    Key,
    Value,
}
