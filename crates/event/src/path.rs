//! Paths in JSON: a path is a string. Bytes that are not UTF-8 are replaced by U+FFFD, and another field, `KEY_base64`, has
//! the bytes.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use data_encoding::{BASE64, HEXLOWER};

/// A path in JSON: the string, and the bytes in Base64 if the string is not exact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// The text, with U+FFFD for bytes that are not UTF-8.
    pub text: String,
    /// The bytes, if they are not UTF-8.
    pub base64: Option<String>,
}

impl Text {
    /// Of a path.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        Self::of_bytes(path.as_os_str().as_bytes())
    }

    /// Of the bytes of a path.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self { text: text.to_owned(), base64: None },
            Err(_) => {
                Self { text: String::from_utf8_lossy(bytes).into_owned(), base64: Some(BASE64.encode(bytes)) }
            }
        }
    }
}

/// The bytes of a path in hexadecimal digits, if they are not UTF-8.
pub(crate) fn hex(path: &Path) -> Option<String> {
    let bytes = path.as_os_str().as_bytes();
    std::str::from_utf8(bytes).is_err().then(|| HEXLOWER.encode(bytes))
}

/// How the fields of a path are written.
pub(crate) trait PathField {
    /// Writes them.
    fn write<S: serde::Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error>;
}

/// Writes the fields `F` of a path; nothing without a path.
pub(crate) fn if_any<F: PathField, S: serde::Serializer>(
    path: &Option<std::path::PathBuf>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match path.as_deref() {
        Some(path) => F::write(path, to),
        None => to.collect_map(std::iter::empty::<(&str, &str)>()),
    }
}

/// Makes a module `$key` whose `serialize` writes a path as the fields `$key` and `$beside`, which has the bytes: in
/// Base64, or encoded by `$bytes`.
macro_rules! path_field {
    ($key:ident, $base64:ident, $doc:literal) => {
        path_field!($key, $base64, $doc, |path| $crate::Text::of(path).base64, "Base64");
    };
    ($key:ident, $beside:ident, $doc:literal, $bytes:expr, $form:literal) => {
        pub(crate) mod $key {
            use serde::ser::SerializeMap as _;

            pub(crate) fn serialize<S: serde::Serializer>(
                path: &std::path::Path,
                to: S,
            ) -> Result<S::Ok, S::Error> {
                let bytes: fn(&std::path::Path) -> Option<String> = $bytes;
                let mut map = to.serialize_map(None)?;
                map.serialize_entry(stringify!($key), &$crate::Text::of(path).text)?;
                if let Some(bytes) = bytes(path) {
                    map.serialize_entry(stringify!($beside), &bytes)?;
                }
                map.end()
            }

            /// For paths that may be absent.
            #[allow(dead_code, reason = "most paths are always there")]
            pub(crate) enum Field {}

            impl $crate::path::PathField for Field {
                fn write<S: serde::Serializer>(path: &std::path::Path, to: S) -> Result<S::Ok, S::Error> {
                    serialize(path, to)
                }
            }

            #[allow(dead_code, reason = "only its schema is used")]
            #[derive(schemars::JsonSchema)]
            pub(crate) struct Schema {
                #[doc = $doc]
                $key: String,
                #[doc = concat!("The bytes of that path in ", $form, ", if they are not UTF-8.")]
                #[schemars(skip_serializing_if = "Option::is_none")]
                $beside: Option<String>,
            }
        }
    };
}
