//! The dictionaries of extension messages, through the bencoding of `tidecast-metainfo`, with bounds that fit
//! messages.

use tidecast_metainfo::bencode::{Limits, Value};

use crate::Error;

/// Real messages nest two deep and have some dozens of values.
const LIMITS: Limits = Limits { values: 1000, depth: 8 };

/// The dictionary at the start of a message, and its length in bytes.
pub(crate) fn dict<'a>(message: &'static str, body: &'a [u8]) -> Result<(Value<'a>, usize), Error> {
    let (value, end) =
        Value::decode_prefix(body, LIMITS).map_err(|source| Error::Bencode { message, source })?;
    if value.as_dict().is_none() {
        return Err(Error::NotDict { message });
    }
    Ok((value, end))
}

/// A value that must be an integer that fits, or it counts as absent.
pub(crate) fn int<T: TryFrom<i64>>(dict: &Value<'_>, key: &str) -> Option<T> {
    dict.get(key.as_bytes())?.as_int()?.try_into().ok()
}

/// A value that must be a string, or it counts as absent.
pub(crate) fn bytes<'a>(dict: &Value<'a>, key: &str) -> Option<&'a [u8]> {
    dict.get(key.as_bytes())?.as_bytes()
}
