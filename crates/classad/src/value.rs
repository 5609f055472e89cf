//! Values of the language.

use std::sync::Arc;

use crate::{Ad, Expr};

/// The result of an expression.
///
/// `==` on values compares them as data (an integer is not a real, a NaN is not itself); the language's own
/// comparisons are operators of expressions.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Something is missing: an attribute that no ad has.
    Undefined,
    /// Something makes no sense: a string times a number.
    Error,
    /// True or false.
    Bool(bool),
    /// A 64-bit integer; arithmetic wraps around.
    Int(i64),
    /// A double.
    Real(f64),
    /// Bytes, mostly UTF-8; never a NUL.
    Str(Arc<[u8]>),
    /// An instant.
    AbsTime(AbsTime),
    /// A span of time in seconds.
    RelTime(f64),
    /// A list. Its elements are expressions, not evaluated yet, as in HTCondor.
    List(Arc<[Expr]>),
    /// A nested ad.
    Ad(Ad),
}

/// An instant, and its time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbsTime {
    /// Seconds since 1970-01-01T00:00:00Z.
    pub secs: i64,
    /// Seconds east of Greenwich.
    pub offset: i32,
}

impl Value {
    /// The type of the value, in the words of the language: `undefined`, `error`, `boolean`, `integer`, `real`,
    /// `string`, `abstime`, `reltime`, `list`, `classad`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Undefined => "undefined",
            Self::Error => "error",
            Self::Bool(_) => "boolean",
            Self::Int(_) => "integer",
            Self::Real(_) => "real",
            Self::Str(_) => "string",
            Self::AbsTime(_) => "abstime",
            Self::RelTime(_) => "reltime",
            Self::List(_) => "list",
            Self::Ad(_) => "classad",
        }
    }

    /// The bool, also of a number (anything but zero is true), as conditions take it.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(b) => Some(*b),
            Self::Int(i) => Some(*i != 0),
            Self::Real(r) => Some(*r != 0.0),
            _ => None,
        }
    }

    /// The integer.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(i) => Some(*i),
            _ => None,
        }
    }

    /// The number, also of an integer or a bool.
    pub fn as_real(&self) -> Option<f64> {
        match self {
            Self::Bool(b) => Some(f64::from(u8::from(*b))),
            // Nearest double: as the language converts.
            Self::Int(i) => Some(*i as f64),
            Self::Real(r) => Some(*r),
            _ => None,
        }
    }

    /// The string, if it is UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        self.as_bytes().and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    /// The bytes of a string.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Str(bytes) => Some(bytes),
            _ => None,
        }
    }
}

impl From<bool> for Value {
    fn from(b: bool) -> Self {
        Self::Bool(b)
    }
}

impl From<i64> for Value {
    fn from(i: i64) -> Self {
        Self::Int(i)
    }
}

impl From<f64> for Value {
    fn from(r: f64) -> Self {
        Self::Real(r)
    }
}

/// A NUL ends the string: no ClassAd can hold one.
impl From<&str> for Value {
    fn from(text: &str) -> Self {
        let end = text.find('\0').unwrap_or(text.len());
        Self::Str(text.as_bytes()[..end].into())
    }
}

impl From<Ad> for Value {
    fn from(ad: Ad) -> Self {
        Self::Ad(ad)
    }
}
