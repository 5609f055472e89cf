//! Names in what a command says: printable for people, exact for programs.
//!
//! For people, [`line`] writes one line without control characters. In JSON a name is a string; where its bytes are not
//! UTF-8, the string has U+FFFD in their place, and a field beside it, called `KEY_base64`, has the bytes.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use data_encoding::BASE64;
use serde_json::{Map, Value};
use tidecast_text::escaped;

/// Between the string and the bytes of a name, until the key of its field is known. No string of JSON that this program
/// makes otherwise begins so: it is no character of a path.
const MARK: char = '\0';

/// One line of text, for a terminal.
pub(crate) fn line(text: &str) -> String {
    escaped(text).to_string()
}

/// A path as a value of JSON.
pub(crate) fn json(path: &Path) -> Value {
    let bytes = path.as_os_str().as_bytes();
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => format!("{MARK}{}{MARK}{}", BASE64.encode(bytes), String::from_utf8_lossy(bytes)).into(),
    }
}

/// The string and the bytes of a value that [`json`] has made of a name that is no UTF-8.
fn parts(value: &Value) -> Option<(String, String)> {
    let (bytes, text) = value.as_str()?.strip_prefix(MARK)?.split_once(MARK)?;
    Some((text.to_owned(), bytes.to_owned()))
}

/// Gives each name that is no UTF-8 its two fields.
pub(crate) fn expand(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(expand_fields(fields)),
        Value::Array(all) => Value::Array(all.into_iter().map(expand).collect()),
        other => match parts(&other) {
            Some((text, _)) => text.into(),
            None => other,
        },
    }
}

fn expand_fields(fields: Map<String, Value>) -> Map<String, Value> {
    let mut out = Map::new();
    for (key, value) in fields {
        let bytes = match &value {
            Value::Array(all) if all.iter().any(|one| parts(one).is_some()) => {
                // Null where the string is exact.
                Some(all.iter().map(|one| parts(one).map(|(_, bytes)| bytes)).collect::<Vec<_>>().into())
            }
            one => parts(one).map(|(_, bytes)| bytes.into()),
        };
        let beside = bytes.map(|bytes: Value| (format!("{key}_base64"), bytes));
        out.insert(key, expand(value));
        out.extend(beside);
    }
    out
}

/// An object as a line of JSON in which no character is one that a terminal acts on.
pub(crate) fn json_line(value: Value) -> String {
    let text = expand(value).to_string();
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // In JSON such a character is part of a string: its escape means the same.
        match c {
            ' '..='~' => out.push(c),
            c if escaped(c.encode_utf8(&mut [0; 4]) as &str).to_string().starts_with('\\') => {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_that_is_no_utf8_has_its_bytes_beside_it() {
        let (bad, good) = (Path::new(OsStr::from_bytes(b"a\xff")), Path::new("b"));
        let value = json!({ "path": json(bad), "list": [json(good), json(bad)], "plain": json(good), "in": { "p": json(bad) } });
        let expected = json!({
            "path": "a\u{fffd}", "path_base64": "Yf8=", "list": ["b", "a\u{fffd}"], "list_base64": [null, "Yf8="],
            "plain": "b", "in": { "p": "a\u{fffd}", "p_base64": "Yf8=" },
        });
        assert_eq!(expand(value), expected);
    }

    #[test]
    fn a_line_of_json_means_the_same_and_shows_no_control_character() {
        let value = json!({ "n": "\u{1b}[31m\n\u{7f}\u{9b}\u{202e}größe\u{1f980}\\" });
        let line = json_line(value.clone());
        assert!(line.chars().all(|c| !c.is_control() && c != '\u{202e}'), "{line}");
        assert!(line.contains("größe\u{1f980}"));
        assert_eq!(serde_json::from_str::<Value>(&line).ok(), Some(value));
    }
}
