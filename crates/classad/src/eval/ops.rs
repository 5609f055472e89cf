//! The operators.
//!
//! Most are strict: `ERROR` if an operand is, else `UNDEFINED` if one is. `&&` and `||` are strict only where
//! the other operand does not decide, `=?=` and `=!=` never.

use std::cmp::Ordering;

use super::val::Val;
use crate::expr::{Binary, Unary};
use crate::number::to_i32;
use crate::value::AbsTime;

pub(super) fn unary(operator: Unary, operand: Val) -> Val {
    match (operator, operand) {
        (_, Val::Error) => Val::Error,
        (_, Val::Undefined) => Val::Undefined,
        (Unary::Plus, operand @ (Val::Int(_) | Val::Real(_) | Val::RelTime(_))) => operand,
        (Unary::Minus, Val::Int(i)) => Val::Int(i.wrapping_neg()),
        (Unary::Minus, Val::Real(r)) => Val::Real(-r),
        (Unary::Minus, Val::RelTime(t)) => Val::RelTime(-t),
        (Unary::BitNot, Val::Int(i)) => Val::Int(!i),
        (Unary::Not, operand) => operand.truth().map_or(Val::Error, |b| Val::Bool(!b)),
        _ => Val::Error,
    }
}

pub(crate) fn binary(operator: Binary, left: Val, right: Val) -> Val {
    match operator {
        Binary::Or => logical(true, &left, &right),
        Binary::And => logical(false, &left, &right),
        Binary::Is => same(&left, &right),
        Binary::Isnt => match same(&left, &right) {
            Val::Bool(b) => Val::Bool(!b),
            other => other,
        },
        _ if matches!(left, Val::Error) || matches!(right, Val::Error) => Val::Error,
        _ if matches!(left, Val::Undefined) || matches!(right, Val::Undefined) => Val::Undefined,
        Binary::Equal
        | Binary::NotEqual
        | Binary::Less
        | Binary::LessOrEqual
        | Binary::Greater
        | Binary::GreaterOrEqual => compare(operator, &left, &right),
        Binary::Add | Binary::Subtract | Binary::Multiply | Binary::Divide | Binary::Modulus => {
            arithmetic(operator, &left, &right)
        }
        Binary::BitOr
        | Binary::BitXor
        | Binary::BitAnd
        | Binary::ShiftLeft
        | Binary::ShiftRight
        | Binary::ShiftRightUnsigned => match (left, right) {
            (Val::Int(a), Val::Int(b)) => Val::Int(bitwise(operator, a, b)),
            _ => Val::Error,
        },
    }
}

/// `||` if `decides` is true, else `&&`: an operand of that value decides the result.
fn logical(decides: bool, left: &Val, right: &Val) -> Val {
    let known = |v: &Val| v.truth().is_some() || matches!(v, Val::Undefined | Val::Error);
    if !known(left) || !known(right) {
        return Val::Error;
    }
    match (left.truth(), right.truth()) {
        (Some(l), _) if l == decides => Val::Bool(decides),
        (Some(_), Some(r)) => Val::Bool(r),
        (Some(_), None) => right.clone(),
        _ if matches!(left, Val::Error) => Val::Error,
        (None, Some(r)) if r == decides => Val::Bool(decides),
        (None, Some(_)) => Val::Undefined,
        (None, None) => right.clone(),
    }
}

/// `=?=`: same type and same value; strings by their case too. Lists and ads of one type cannot be compared.
fn same(left: &Val, right: &Val) -> Val {
    Val::Bool(match (left, right) {
        (Val::Undefined, Val::Undefined) | (Val::Error, Val::Error) => true,
        (Val::Bool(a), Val::Bool(b)) => a == b,
        (Val::Int(a), Val::Int(b)) => a == b,
        (Val::Real(a), Val::Real(b)) | (Val::RelTime(a), Val::RelTime(b)) => a == b,
        (Val::Str(a), Val::Str(b)) => a == b,
        (Val::AbsTime(a), Val::AbsTime(b)) => a == b,
        (Val::List(a), Val::List(b)) if a.made == b.made => return Val::Error,
        (Val::Ad(_), Val::Ad(_)) => return Val::Error,
        _ => false,
    })
}

/// The comparisons of values other than `ERROR` and `UNDEFINED`. Bools count as 0 and 1; the case of letters is
/// ignored.
pub(crate) fn compare(operator: Binary, left: &Val, right: &Val) -> Val {
    let order = match (left, right) {
        (Val::Str(a), Val::Str(b)) => Some(order_ignoring_case(a, b)),
        (Val::AbsTime(a), Val::AbsTime(b)) => Some(a.secs.cmp(&b.secs)),
        (Val::RelTime(a), Val::RelTime(b)) => a.partial_cmp(b),
        (left, right) if left.is_number() && right.is_number() => match (integer(left), integer(right)) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => left.to_real().zip(right.to_real()).and_then(|(a, b)| a.partial_cmp(&b)),
        },
        _ => return Val::Error,
    };
    Val::Bool(match operator {
        Binary::Equal => order == Some(Ordering::Equal),
        // Of a NaN too.
        Binary::NotEqual => order != Some(Ordering::Equal),
        Binary::Less => order == Some(Ordering::Less),
        Binary::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Binary::Greater => order == Some(Ordering::Greater),
        _ => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    })
}

/// The order of strings but for the case of ASCII letters.
pub(crate) fn order_ignoring_case(a: &[u8], b: &[u8]) -> Ordering {
    a.iter().map(u8::to_ascii_lowercase).cmp(b.iter().map(u8::to_ascii_lowercase))
}

/// Two numbers of one type: both real if one is, else integers.
pub(crate) fn promote(a: Val, b: Val) -> (Val, Val) {
    match (integer(&a), integer(&b)) {
        (Some(a), Some(b)) => (Val::Int(a), Val::Int(b)),
        _ => match (a.to_real(), b.to_real()) {
            (Some(a), Some(b)) => (Val::Real(a), Val::Real(b)),
            _ => (a, b),
        },
    }
}

fn integer(value: &Val) -> Option<i64> {
    match value {
        Val::Bool(b) => Some(i64::from(*b)),
        Val::Int(i) => Some(*i),
        _ => None,
    }
}

fn arithmetic(operator: Binary, left: &Val, right: &Val) -> Val {
    let is_time = |v: &Val| matches!(v, Val::AbsTime(_) | Val::RelTime(_));
    if !(left.is_number() || is_time(left)) || !(right.is_number() || is_time(right)) {
        return Val::Error;
    }
    if is_time(left) || is_time(right) {
        return time_arithmetic(operator, left, right);
    }
    if let (Some(a), Some(b)) = (integer(left), integer(right)) {
        return integer_arithmetic(operator, a, b);
    }
    let (Some(a), Some(b)) = (left.to_real(), right.to_real()) else { return Val::Error };
    let real = match operator {
        Binary::Add => a + b,
        Binary::Subtract => a - b,
        Binary::Multiply => a * b,
        Binary::Divide => a / b,
        _ => return Val::Error,
    };
    // Infinity is an error for HTCondor, minus infinity is not.
    if real == f64::INFINITY { Val::Error } else { Val::Real(real) }
}

/// Integers wrap around; only a division by zero is an error.
fn integer_arithmetic(operator: Binary, a: i64, b: i64) -> Val {
    Val::Int(match operator {
        Binary::Add => a.wrapping_add(b),
        Binary::Subtract => a.wrapping_sub(b),
        Binary::Multiply => a.wrapping_mul(b),
        _ if b == 0 => return Val::Error,
        Binary::Divide => a.saturating_div(b),
        _ => a.wrapping_rem(b),
    })
}

fn time_arithmetic(operator: Binary, left: &Val, right: &Val) -> Val {
    let moved =
        |t: &AbsTime, by: i64| Val::AbsTime(AbsTime { secs: t.secs.wrapping_add(by), offset: t.offset });
    match (operator, left, right) {
        (Binary::Add, Val::AbsTime(t), Val::RelTime(d)) | (Binary::Add, Val::RelTime(d), Val::AbsTime(t)) => {
            moved(t, to_i32(*d).into())
        }
        (Binary::Subtract, Val::AbsTime(t), Val::RelTime(d)) => moved(t, -i64::from(to_i32(*d))),
        (Binary::Subtract, Val::AbsTime(a), Val::AbsTime(b)) => {
            Val::RelTime(a.secs.wrapping_sub(b.secs) as f64)
        }
        (Binary::Add, Val::RelTime(a), Val::RelTime(b)) => Val::RelTime(a + b),
        (Binary::Subtract, Val::RelTime(a), Val::RelTime(b)) => Val::RelTime(a - b),
        (Binary::Multiply, Val::RelTime(t), n @ (Val::Int(_) | Val::Real(_)))
        | (Binary::Multiply, n @ (Val::Int(_) | Val::Real(_)), Val::RelTime(t)) => {
            n.to_real().map_or(Val::Error, |n| Val::RelTime(t * n))
        }
        (Binary::Divide, Val::RelTime(t), n @ (Val::Int(_) | Val::Real(_))) => {
            n.to_real().map_or(Val::Error, |n| Val::RelTime(t / n))
        }
        _ => Val::Error,
    }
}

/// Shifts are by the lower six bits of their right operand, as processors do it.
fn bitwise(operator: Binary, a: i64, b: i64) -> i64 {
    // Taking the lower bits is meant.
    let shift = b as u32;
    match operator {
        Binary::BitOr => a | b,
        Binary::BitXor => a ^ b,
        Binary::BitAnd => a & b,
        Binary::ShiftLeft => a.wrapping_shl(shift),
        // HTCondor shifts negative numbers bit by bit: a negative count shifts nothing.
        Binary::ShiftRight if a < 0 => a >> b.clamp(0, 63),
        _ if a >= 0 => a.wrapping_shr(shift),
        // And these by one first, then by the rest.
        _ => ((a as u64) >> 1).wrapping_shr(shift.wrapping_sub(1)) as i64,
    }
}
