//! A small borrowed tree of bencoded values, for messages and tracker answers.
//!
//! Promise: no more than `Limits::values` nodes are ever built, whatever the input contains.

use super::{Cursor, Error, Fault, Kind};

/// The bounds of [`Value::decode`].
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Most values (of all kinds, keys not counted) in the whole tree.
    pub values: usize,
    /// Deepest nesting.
    pub depth: usize,
}

impl Default for Limits {
    /// Enough for any message of the peer protocol or of a tracker.
    fn default() -> Self {
        Limits { values: 10_000, depth: 16 }
    }
}

/// A bencoded value that borrows its strings from the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value<'a> {
    /// An integer.
    Int(i64),
    /// A string of bytes.
    Bytes(&'a [u8]),
    /// A list.
    List(Vec<Value<'a>>),
    /// A dictionary, sorted by key, without duplicates.
    Dict(Vec<(&'a [u8], Value<'a>)>),
}

impl<'a> Value<'a> {
    /// Decodes an input that holds one value and nothing else.
    pub fn decode(input: &'a [u8], limits: Limits) -> Result<Self, Error> {
        let (value, used) = Self::decode_prefix(input, limits)?;
        if used == input.len() { Ok(value) } else { Err(Error { at: used, what: Fault::Trailing }) }
    }

    /// Decodes the value at the start of `input` and returns how many bytes it took; the rest (the payload of
    /// a BEP 9 message, say) is left to the caller.
    pub fn decode_prefix(input: &'a [u8], limits: Limits) -> Result<(Self, usize), Error> {
        let mut cursor = Cursor::new(input);
        let mut left = limits.values;
        let value = build(&mut cursor, &mut left, limits, 0)?;
        Ok((value, cursor.pos()))
    }

    /// The value under `key`, if this is a dictionary that has it.
    pub fn get(&self, key: &[u8]) -> Option<&Value<'a>> {
        let Value::Dict(pairs) = self else {
            return None;
        };
        let at = pairs.binary_search_by(|(k, _)| (*k).cmp(key)).ok()?;
        pairs.get(at).map(|(_, v)| v)
    }

    /// The integer, if this is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(i) => Some(*i),
            _ => None,
        }
    }

    /// The string, if this is one.
    pub fn as_bytes(&self) -> Option<&'a [u8]> {
        match self {
            Value::Bytes(b) => Some(b),
            _ => None,
        }
    }

    /// The string as text, if this is one and valid UTF-8.
    pub fn as_str(&self) -> Option<&'a str> {
        self.as_bytes().and_then(|b| std::str::from_utf8(b).ok())
    }

    /// The items, if this is a list.
    pub fn as_list(&self) -> Option<&[Value<'a>]> {
        match self {
            Value::List(items) => Some(items),
            _ => None,
        }
    }

    /// The pairs sorted by key, if this is a dictionary.
    pub fn as_dict(&self) -> Option<&[(&'a [u8], Value<'a>)]> {
        match self {
            Value::Dict(pairs) => Some(pairs),
            _ => None,
        }
    }
}

fn build<'a>(
    cursor: &mut Cursor<'a>,
    left: &mut usize,
    limits: Limits,
    depth: usize,
) -> Result<Value<'a>, Error> {
    let at = cursor.pos();
    let fail = |what| Err(Error { at, what });
    match left.checked_sub(1) {
        Some(rest) => *left = rest,
        None => return fail(Fault::Count(limits.values)),
    }
    let kind = cursor.peek()?;
    if matches!(kind, Kind::List | Kind::Dict) && depth >= limits.depth {
        return fail(Fault::Depth);
    }
    match kind {
        Kind::Int => Ok(Value::Int(cursor.int()?)),
        Kind::Bytes => Ok(Value::Bytes(cursor.bytes()?)),
        Kind::End => fail(Fault::Unexpected(b'e')),
        Kind::List => {
            cursor.enter_list()?;
            let mut items = Vec::new();
            while cursor.next_item()? {
                items.push(build(cursor, left, limits, depth + 1)?);
            }
            Ok(Value::List(items))
        }
        Kind::Dict => {
            cursor.enter_dict()?;
            let mut pairs = Vec::new();
            while let Some(key) = cursor.next_key()? {
                pairs.push((key, build(cursor, left, limits, depth + 1)?));
            }
            pairs.sort_by_key(|(key, _)| *key);
            if pairs.windows(2).any(|w| w[0].0 == w[1].0) {
                return fail(Fault::DuplicateKey);
            }
            Ok(Value::Dict(pairs))
        }
    }
}
