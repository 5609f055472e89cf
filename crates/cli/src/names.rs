//! Escapes names in output: printable text for people, and JSON without characters that control a terminal.

use serde_json::Value;
use tidecast_text::escaped;

/// One line of text, for a terminal.
pub(crate) fn line(text: &str) -> String {
    escaped(text).to_string()
}

/// An object as a line of JSON without characters that control a terminal.
pub(crate) fn json_line(value: Value) -> String {
    let text = value.to_string();
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // In JSON a control character can only be inside a string, where its escape means the same.
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
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_of_json_means_the_same_and_shows_no_control_character() {
        let value = json!({ "n": "\u{1b}[31m\n\u{7f}\u{9b}\u{202e}größe\u{1f980}\\" });
        let line = json_line(value.clone());
        assert!(line.chars().all(|c| !c.is_control() && c != '\u{202e}'), "{line}");
        assert!(line.contains("größe\u{1f980}"));
        assert_eq!(serde_json::from_str::<Value>(&line).ok(), Some(value));
    }
}
