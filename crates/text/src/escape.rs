//! Escapes names for terminals.
//!
//! A file name may contain any byte except `/` and NUL: an escape sequence in it could change the title, the colours or the
//! contents of a terminal. All code that prints a name for people uses [`escaped`]; JSON has its own escapes.

use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::os::unix::ffi::OsStrExt;

/// Displays a name with control characters, invalid UTF-8 and characters that reorder text written as escapes.
///
/// A printable name is unchanged. Other bytes are `\n`, `\t`, `\r`, `\xHH` or `\u{H}`. A backslash of the name is not
/// doubled: the result is for people, and cannot be parsed back.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(&'a [u8]);

/// A path, file name or other text of the operating system, for a terminal.
#[must_use]
pub fn escaped<T: AsRef<OsStr> + ?Sized>(name: &T) -> Escaped<'_> {
    Escaped(name.as_ref().as_bytes())
}

/// As [`escaped`], for bytes.
#[must_use]
pub fn escaped_bytes(name: &[u8]) -> Escaped<'_> {
    Escaped(name)
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\n' => f.write_str("\\n")?,
                    '\r' => f.write_str("\\r")?,
                    '\t' => f.write_str("\\t")?,
                    c if c.is_ascii_control() => write!(f, "\\x{:02x}", u32::from(c))?,
                    c if is_hidden(c) => write!(f, "\\u{{{:x}}}", u32::from(c))?,
                    c => f.write_char(c)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// C1 controls, line separators, and the marks that change the direction or hide a part of a line (Unicode TR 36, 2.5).
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(u32::from(c), 0x61c | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xfeff | 0xfff9..=0xfffb)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn printable_names_stay_and_others_are_written_out() {
        let cases: [(&[u8], &str); 7] = [
            (b"a b.txt", "a b.txt"),
            ("größe-数".as_bytes(), "größe-数"),
            (b"x\x1b]0;title\x07", "x\\x1b]0;title\\x07"),
            (b"two\nlines\r\t", "two\\nlines\\r\\t"),
            (b"\xff\xc3", "\\xff\\xc3"),
            ("a\u{9b}31m".as_bytes(), "a\\u{9b}31m"),
            ("gpj.\u{202e}exe".as_bytes(), "gpj.\\u{202e}exe"),
        ];
        for (name, shown) in cases {
            assert_eq!(escaped_bytes(name).to_string(), shown);
        }
    }

    proptest! {
        #[test]
        fn no_control_character_comes_out(name: Vec<u8>) {
            prop_assert!(escaped_bytes(&name).to_string().chars().all(|c| !c.is_control()));
        }
    }
}
