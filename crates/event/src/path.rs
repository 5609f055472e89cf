//! Paths in JSON: a path is a string; one whose bytes are not UTF-8 has U+FFFD in their place, and a field beside it,
//! called `KEY_base64`, has the bytes.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use data_encoding::BASE64;

/// A path as JSON has it: the string, and the bytes in Base64 where the string is not exact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// What can be shown.
    pub text: String,
    /// The bytes, if they are not UTF-8.
    pub base64: Option<String>,
}

impl Text {
    /// Of a path.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let bytes = path.as_os_str().as_bytes();
        match std::str::from_utf8(bytes) {
            Ok(text) => Self { text: text.to_owned(), base64: None },
            Err(_) => {
                Self { text: String::from_utf8_lossy(bytes).into_owned(), base64: Some(BASE64.encode(bytes)) }
            }
        }
    }
}

/// Makes a module `$key` whose `serialize` writes a path (or what holds one) as the fields `$key` and `$key_base64`.
macro_rules! path_field {
    ($key:ident, $base64:ident, $doc:literal) => {
        pub(crate) mod $key {
            use serde::ser::SerializeMap as _;

            pub(crate) fn serialize<S: serde::Serializer>(
                path: &std::path::Path,
                to: S,
            ) -> Result<S::Ok, S::Error> {
                let text = $crate::Text::of(path);
                let mut map = to.serialize_map(None)?;
                map.serialize_entry(stringify!($key), &text.text)?;
                if let Some(bytes) = &text.base64 {
                    map.serialize_entry(stringify!($base64), bytes)?;
                }
                map.end()
            }

            #[allow(dead_code, reason = "only its schema is used")]
            #[derive(schemars::JsonSchema)]
            pub(crate) struct Schema {
                #[doc = $doc]
                $key: String,
                /// The bytes of that path in Base64, if they are not UTF-8.
                $base64: Option<String>,
            }
        }
    };
}
