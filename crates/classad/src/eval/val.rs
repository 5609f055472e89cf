//! Values while an evaluation is under way.

use std::sync::Arc;

use super::scope::ScopeId;
use crate::Expr;
use crate::number::{real_prefix, to_i32, to_i64};
use crate::value::AbsTime;

/// A value; an ad is the scope that it opens.
#[derive(Debug, Clone)]
pub(crate) enum Val {
    Undefined,
    Error,
    Bool(bool),
    Int(i64),
    Real(f64),
    Str(Arc<[u8]>),
    AbsTime(AbsTime),
    RelTime(f64),
    List(List),
    Ad(ScopeId),
}

/// A list: its expressions, and their scope.
#[derive(Debug, Clone)]
pub(crate) struct List {
    pub(crate) items: Arc<[Expr]>,
    pub(super) scope: ScopeId,
    /// True if a function has created it. For `=?=` such a list has another type, as in HTCondor.
    pub(super) made: bool,
}

impl List {
    /// A list that a function has made, of constants.
    pub(crate) fn made(items: Vec<Expr>) -> Val {
        Val::List(Self { items: items.into(), scope: ScopeId::NOWHERE, made: true })
    }
}

impl Val {
    /// True or false, as conditions take it: of bools and numbers.
    pub(crate) fn truth(&self) -> Option<bool> {
        match self {
            Self::Bool(b) => Some(*b),
            Self::Int(i) => Some(*i != 0),
            Self::Real(r) => Some(*r != 0.0),
            _ => None,
        }
    }

    pub(crate) fn is_number(&self) -> bool {
        self.truth().is_some()
    }

    /// Converts as `real()`; none if it is not a number.
    pub(crate) fn to_real(&self) -> Option<f64> {
        match self {
            Self::Bool(b) => Some(f64::from(u8::from(*b))),
            Self::Int(i) => Some(*i as f64),
            Self::Real(r) => Some(*r),
            Self::Str(bytes) => real_prefix(bytes),
            Self::AbsTime(t) => Some(t.secs as f64),
            Self::RelTime(t) => Some(to_i64(*t) as f64),
            _ => None,
        }
    }

    /// As `int()` converts.
    pub(crate) fn to_int(&self) -> Option<i64> {
        match self {
            Self::Int(i) => Some(*i),
            Self::AbsTime(t) => Some(t.secs),
            other => other.to_real().map(to_i64),
        }
    }

    /// An integer that HTCondor keeps in 32 bits.
    pub(crate) fn int32(&self) -> Option<i32> {
        match self {
            // The lower half, whatever the upper is.
            Self::Int(i) => Some(*i as i32),
            _ => None,
        }
    }

    /// Seconds in 32 bits, of a number.
    pub(crate) fn secs32(&self) -> Option<i32> {
        match self {
            Self::Real(r) => Some(to_i32(*r)),
            other => other.int32(),
        }
    }
}
