//! Names of attributes: case is kept, and means nothing.

use std::cmp::Ordering;
use std::fmt;

/// Names that every ad resolves when it has no such attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    /// `MY`, `SELF`: the ad itself.
    Itself,
    /// `PARENT`: the ad around it.
    Parent,
    /// `ROOT`, `TOPLEVEL`: the outermost ad.
    Root,
    /// `CurrentTime`: the time, as old ClassAds called it.
    Time,
}

/// The name of an attribute. Two names that differ only in the case of ASCII letters are the same.
#[derive(Clone)]
pub struct Name {
    text: Box<str>,
    lower: Box<str>,
    special: Option<Special>,
}

impl Name {
    /// A name; any text will do, for the syntax can quote it.
    pub fn new(text: &str) -> Self {
        let lower = text.to_ascii_lowercase().into_boxed_str();
        let special = match &*lower {
            "my" | "self" => Some(Special::Itself),
            "parent" => Some(Special::Parent),
            "root" | "toplevel" => Some(Special::Root),
            "currenttime" => Some(Special::Time),
            _ => None,
        };
        Self { text: text.into(), lower, special }
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// In lower case.
    pub(crate) fn lower(&self) -> &str {
        &self.lower
    }

    pub(crate) fn special(&self) -> Option<Special> {
        self.special
    }
}

/// HTCondor's order of attributes: short names first, then by the alphabet. It is quick to search in, too.
pub(crate) fn order(a: &str, b: &str) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.lower == other.lower
    }
}

impl Eq for Name {}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}
