//! Strings.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Named, exceptional, text, values};
use crate::Expr;
use crate::error::EvalError;
use crate::eval::{Evaluator, List, Result, Val};
use crate::lex::is_space;
use crate::value::Value;

pub(super) const ALL: &[Named] = &[
    ("strcat", strcat),
    ("join", join),
    ("toUpper", |e, args| change_case(e, args, <[u8]>::to_ascii_uppercase)),
    ("toLower", |e, args| change_case(e, args, <[u8]>::to_ascii_lowercase)),
    ("substr", substr),
    ("strcmp", |e, args| compare(e, args, |a, b| sign(a.cmp(b)))),
    ("stricmp", |e, args| compare(e, args, |a, b| sign(a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase())))),
    ("versioncmp", |e, args| compare(e, args, |a, b| Val::Int(versions(a, b)))),
    ("versionLE", |e, args| compare(e, args, |a, b| Val::Bool(versions(a, b) <= 0))),
    ("versionLT", |e, args| compare(e, args, |a, b| Val::Bool(versions(a, b) < 0))),
    ("versionGE", |e, args| compare(e, args, |a, b| Val::Bool(versions(a, b) >= 0))),
    ("versionGT", |e, args| compare(e, args, |a, b| Val::Bool(versions(a, b) > 0))),
    ("versionEQ", |e, args| compare(e, args, |a, b| Val::Bool(versions(a, b) == 0))),
    ("version_in_range", version_in_range),
    ("split", split),
    ("splitUserName", |e, args| split_at(e, args, true)),
    ("splitSlotName", |e, args| split_at(e, args, false)),
    ("userMap", user_map),
    ("userHome", user_home),
];

/// Adds to a string that grows, unless it grows too long.
fn append(e: &Evaluator<'_>, out: &mut Vec<u8>, more: &[u8]) -> Result<()> {
    out.extend_from_slice(more);
    if out.len() > e.context.limits.size { Err(EvalError::TooLarge) } else { Ok(()) }
}

fn strcat(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    let mut out = Vec::new();
    for arg in args {
        let value = e.eval(arg)?;
        match text(e, value)? {
            Ok(bytes) => append(e, &mut out, &bytes)?,
            Err(value) => return Ok(value),
        }
    }
    e.string(out)
}

/// The first argument between the others, or between the elements of a list; `UNDEFINED` ones are skipped.
fn join(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    let mut joined = Joined { separator: Vec::new(), out: Vec::new(), defined: false, undefined: false };
    let last = match args {
        [list] | [_, list] => Some(e.eval(list)?),
        _ => None,
    };
    let wrong = match (last, args) {
        (Some(Val::List(list)), _) => {
            let mut wrong = match args {
                [separator, _] => {
                    let value = e.eval(separator)?;
                    joined.begin(e, value)?
                }
                _ => false,
            };
            for item in list.items.iter() {
                if !wrong {
                    let value = e.element(&list, item)?;
                    wrong = joined.add(e, value)?;
                }
            }
            wrong
        }
        (_, [separator, rest @ ..]) => {
            let value = e.eval(separator)?;
            let mut wrong = joined.begin(e, value)?;
            for arg in rest {
                if !wrong {
                    let value = e.eval(arg)?;
                    wrong = joined.add(e, value)?;
                }
            }
            wrong
        }
        (_, []) => false,
    };
    if wrong {
        return Ok(Val::Error);
    }
    if joined.undefined && !joined.defined {
        return Ok(Val::Undefined);
    }
    e.string(joined.out)
}

struct Joined {
    separator: Vec<u8>,
    out: Vec<u8>,
    defined: bool,
    undefined: bool,
}

impl Joined {
    /// Takes the separator; true if it is an error.
    fn begin(&mut self, e: &mut Evaluator<'_>, separator: Val) -> Result<bool> {
        match text(e, separator)? {
            Ok(bytes) => self.separator = bytes.to_vec(),
            Err(Val::Undefined) => self.undefined = true,
            Err(_) => return Ok(true),
        }
        Ok(false)
    }

    fn add(&mut self, e: &mut Evaluator<'_>, value: Val) -> Result<bool> {
        match text(e, value)? {
            Ok(bytes) => {
                if !self.out.is_empty() {
                    append(e, &mut self.out, &self.separator)?;
                }
                append(e, &mut self.out, &bytes)?;
                self.defined = true;
            }
            Err(Val::Undefined) => self.undefined = true,
            Err(_) => return Ok(true),
        }
        Ok(false)
    }
}

fn change_case(e: &mut Evaluator<'_>, args: &[Expr], change: fn(&[u8]) -> Vec<u8>) -> Result<Val> {
    let [arg] = args else { return Ok(Val::Error) };
    let value = e.eval(arg)?;
    match text(e, value)? {
        Ok(bytes) => e.string(change(&bytes)),
        Err(value) => Ok(value),
    }
}

/// As in Perl: a negative offset or length counts from the end.
fn substr(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    if !(2..=3).contains(&args.len()) {
        return Ok(Val::Error);
    }
    let args = values(e, args)?;
    if args.iter().any(|v| matches!(v, Val::Undefined)) {
        return Ok(Val::Undefined);
    }
    let (Val::Str(bytes), Some(offset)) = (&args[0], args[1].int32()) else { return Ok(Val::Error) };
    let size = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
    let offset = i64::from(offset);
    let offset = if offset < 0 { (size + offset).max(0) } else { offset.min(size) };
    let rest = size - offset;
    let len = match args.get(2).map(Val::int32) {
        None => rest,
        Some(Some(len @ ..=-1)) => (rest + i64::from(len)).max(0),
        Some(Some(len)) => i64::from(len).min(rest),
        Some(None) => return Ok(Val::Error),
    };
    let (from, to) = (usize::try_from(offset).unwrap_or(0), usize::try_from(offset + len).unwrap_or(0));
    e.string(bytes.get(from..to).unwrap_or_default().to_vec())
}

/// Compares two arguments as strings.
fn compare(e: &mut Evaluator<'_>, args: &[Expr], with: fn(&[u8], &[u8]) -> Val) -> Result<Val> {
    let [left, right] = args else { return Ok(Val::Error) };
    let (left, right) = (e.eval(left)?, e.eval(right)?);
    if matches!(left, Val::Undefined) || matches!(right, Val::Undefined) {
        return Ok(Val::Undefined);
    }
    Ok(match (text(e, left)?, text(e, right)?) {
        (Ok(left), Ok(right)) => with(&left, &right),
        _ => Val::Error,
    })
}

fn sign(order: Ordering) -> Val {
    Val::Int(order as i64)
}

fn version_in_range(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    let [version, least, most] = args else { return Ok(Val::Error) };
    let [version, least, most] = [e.eval(version)?, e.eval(least)?, e.eval(most)?];
    if matches!(least, Val::Undefined) || matches!(most, Val::Undefined) {
        return Ok(Val::Undefined);
    }
    Ok(match (text(e, version)?, text(e, least)?, text(e, most)?) {
        (Ok(v), Ok(least), Ok(most)) => Val::Bool(versions(&least, &v) <= 0 && versions(&v, &most) <= 0),
        _ => Val::Error,
    })
}

/// The order of version numbers, as in glibc's `strverscmp`: runs of digits count as numbers, and those with more
/// leading zeros come first.
fn versions(a: &[u8], b: &[u8]) -> i64 {
    let Some(at) = (0..a.len().max(b.len())).find(|i| a.get(*i) != b.get(*i)) else { return 0 };
    // Bytes are signed where HTCondor runs.
    let at_of = |s: &[u8], i: usize| i64::from(s.get(i).copied().unwrap_or(0).cast_signed());
    let difference = at_of(a, at) - at_of(b, at);
    let is_digit = |s: &[u8], i: usize| s.get(i).is_some_and(u8::is_ascii_digit);
    let start = at - a[..at].iter().rev().take_while(|c| c.is_ascii_digit()).count();
    if start == at && !(is_digit(a, at) && is_digit(b, at)) {
        return difference;
    }
    // Zeros in front of the number; the last zero of nothing but zeros is the number itself.
    let zeros = |s: &[u8]| {
        let zeros = s[start..].iter().take_while(|c| **c == b'0').count();
        if zeros > 0 && !is_digit(s, start + zeros) { zeros - 1 } else { zeros }
    };
    let (a_zeros, b_zeros) = (zeros(a), zeros(b));
    let differ = |x: usize, y: usize| i64::try_from(x).unwrap_or(0) - i64::try_from(y).unwrap_or(0);
    if a_zeros != b_zeros {
        return differ(b_zeros, a_zeros);
    }
    if a_zeros > 0 {
        return difference;
    }
    let digits = |s: &[u8]| s[start..].iter().take_while(|c| c.is_ascii_digit()).count();
    let (a_digits, b_digits) = (digits(a), digits(b));
    if a_digits == b_digits { difference } else { differ(a_digits, b_digits) }
}

fn string_list(items: Vec<&[u8]>) -> Val {
    List::made(items.into_iter().map(|item| Expr::Literal(Value::Str(item.into()))).collect())
}

/// Splits at each of the given characters, by default commas and blanks. Blanks at a separator belong to it, and
/// two of the same separator have an empty string between them.
fn split(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    if !(1..=2).contains(&args.len()) {
        return Ok(Val::Error);
    }
    let args = values(e, args)?;
    let Val::Str(string) = &args[0] else { return Ok(Val::Error) };
    let separators: Arc<[u8]> = match args.get(1) {
        None => b", \t".as_slice().into(),
        Some(Val::Str(separators)) => separators.clone(),
        Some(_) => return Ok(Val::Error),
    };
    e.spend(string.len())?;
    let mut items = Vec::new();
    let (mut begin, mut last) = (0, None);
    for (at, b) in string.iter().enumerate().filter(|(_, b)| separators.contains(b)) {
        if at > begin {
            items.push(&string[begin..at]);
        } else if last == Some(*b) {
            items.push(b"");
        }
        if !is_space(*b) {
            last = Some(*b);
        }
        begin = at + 1;
    }
    if begin < string.len() {
        items.push(&string[begin..]);
    }
    Ok(string_list(items))
}

/// `user@domain` or `slot@machine`; without an `@` it is the user or the machine.
fn split_at(e: &mut Evaluator<'_>, args: &[Expr], first: bool) -> Result<Val> {
    let [arg] = args else { return Ok(Val::Error) };
    let Val::Str(string) = e.eval(arg)? else { return Ok(Val::Error) };
    let (left, right) = match string.iter().position(|b| *b == b'@') {
        Some(at) => (&string[..at], &string[at + 1..]),
        None if first => (&string[..], &b""[..]),
        None => (&b""[..], &string[..]),
    };
    Ok(string_list(vec![left, right]))
}

/// There are no maps here: the result is `UNDEFINED`, or the given default.
fn user_map(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    if !(2..=4).contains(&args.len()) {
        return Ok(Val::Error);
    }
    let mut args = values(e, args)?;
    if matches!(exceptional(&args[..2]), Some(Val::Error)) {
        return Ok(Val::Error);
    }
    Ok(if args.len() == 4 { args.swap_remove(3) } else { Val::Undefined })
}

/// Home directories are unknown here, as in HTCondor unless a setting allows them: the default, or `UNDEFINED`.
fn user_home(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    if !(1..=2).contains(&args.len()) {
        return Ok(Val::Error);
    }
    let args = values(e, args)?;
    Ok(match (&args[0], args.get(1)) {
        (_, Some(Val::Str(home))) if !home.is_empty() => Val::Str(home.clone()),
        (Val::Undefined | Val::Str(_), _) => Val::Undefined,
        _ => Val::Error,
    })
}
