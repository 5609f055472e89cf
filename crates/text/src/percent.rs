//! Percent encoding (RFC 3986, 2.1): bytes that a URL cannot contain, as `%XX`.

use std::fmt::Write as _;

/// Encodes `bytes`, except letters, digits, `-._~` and the characters in `more`.
#[must_use]
pub fn percent_encode(bytes: &[u8], more: &str) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || more.as_bytes().contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// Decodes percent-encoded text. `None`: a `%` without two hexadecimal digits.
#[must_use]
pub fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_first_chunk::<2>()?;
        let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
        bytes.push(digit(digits[0])? << 4 | digit(digits[1])?);
        rest = after;
    }
    Some(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_urls_have_no_place_for_is_encoded() {
        assert_eq!(percent_encode("a b%/é~".as_bytes(), "/"), "a%20b%25/%C3%A9~");
        assert_eq!(percent_decode("a%20b%2fc+%c3%A9").unwrap(), "a b/c+é".as_bytes());
        for bad in ["%", "%4", "a%zz", "%+1", "%%41", "%4é"] {
            assert_eq!(percent_decode(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_read_again(bytes: Vec<u8>) {
            let text = percent_encode(&bytes, "@");
            prop_assert!(text.bytes().all(|b| b.is_ascii_graphic()));
            prop_assert_eq!(percent_decode(&text).unwrap(), bytes);
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            if let Some(bytes) = percent_decode(&text) {
                prop_assert!(bytes.len() <= text.len());
            }
        }
    }
}
