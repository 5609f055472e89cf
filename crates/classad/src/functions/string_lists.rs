//! Strings that are lists: items with commas or blanks between them.

use super::{Named, exceptional, values};
use crate::Expr;
use crate::eval::{Evaluator, Result, Val};
use crate::lex::is_space;
use crate::number::{real_prefix, to_i64};

pub(super) const ALL: &[Named] = &[
    ("stringListSize", |e, args| summary(e, args, |items| Val::Int(items.len() as i64))),
    ("stringListSum", |e, args| summary(e, args, |items| reduced(items, 0.0, |a, b| a + b, false))),
    ("stringListAvg", |e, args| summary(e, args, |items| reduced(items, 0.0, |a, b| a + b, true))),
    ("stringListMin", |e, args| summary(e, args, |items| extreme(items, f32::MAX, f64::min))),
    ("stringListMax", |e, args| summary(e, args, |items| extreme(items, f32::MIN_POSITIVE, f64::max))),
    ("stringListMember", |e, args| member(e, args, |a, b| a == b)),
    ("stringListIMember", |e, args| member(e, args, <[u8]>::eq_ignore_ascii_case)),
    ("stringListSubsetMatch", |e, args| subset(e, args, |a, b| a == b)),
    ("stringListISubsetMatch", |e, args| subset(e, args, <[u8]>::eq_ignore_ascii_case)),
    ("stringListsIntersect", intersect),
    ("stringList_regexpMember", regexp_member),
];

/// The items of a list, blanks around them and empty ones left out.
pub(super) fn items<'s>(string: &'s [u8], separators: &[u8]) -> Vec<&'s [u8]> {
    let all = string.split(|b| separators.contains(b)).map(|item| {
        let start = item.iter().take_while(|b| is_space(**b)).count();
        let end = item.len() - item.iter().rev().take_while(|b| is_space(**b)).count();
        item.get(start..end).unwrap_or_default()
    });
    all.filter(|item| !item.is_empty()).collect()
}

fn summary(e: &mut Evaluator<'_>, args: &[Expr], of: fn(&[&[u8]]) -> Val) -> Result<Val> {
    if !(1..=2).contains(&args.len()) {
        return Ok(Val::Error);
    }
    let args = values(e, args)?;
    let separators: &[u8] = match args.get(1) {
        None => b", ",
        Some(Val::Str(separators)) => separators,
        Some(_) => return Ok(Val::Error),
    };
    let Val::Str(string) = &args[0] else { return Ok(Val::Error) };
    e.spend(string.len() / 8)?;
    Ok(of(&items(string, separators)))
}

/// The numbers of a list and whether one is written as a real; none if an item is not a number.
fn numbers(items: &[&[u8]]) -> Option<(Vec<f64>, bool)> {
    let numbers = items.iter().map(|item| real_prefix(item)).collect::<Option<Vec<_>>>()?;
    let real = items.iter().any(|item| item.iter().any(|b| !b"+-0123456789".contains(b)));
    Some((numbers, real))
}

fn number(value: f64, real: bool) -> Val {
    if real { Val::Real(value) } else { Val::Int(to_i64(value)) }
}

fn reduced(items: &[&[u8]], start: f64, with: fn(f64, f64) -> f64, average: bool) -> Val {
    if items.is_empty() {
        return Val::Real(start);
    }
    match numbers(items) {
        Some((all, real)) => {
            let sum = all.iter().copied().fold(start, with);
            number(if average { sum / all.len() as f64 } else { sum }, real)
        }
        None => Val::Error,
    }
}

/// HTCondor begins at the largest and at the smallest positive number of single precision, and so no minimum is above the one,
/// no maximum below the other: that of `"-1,-2"` is 0.
fn extreme(items: &[&[u8]], start: f32, with: fn(f64, f64) -> f64) -> Val {
    if items.is_empty() {
        return Val::Undefined;
    }
    match numbers(items) {
        Some((all, real)) => number(all.into_iter().fold(f64::from(start), with), real),
        None => Val::Error,
    }
}

type Equal = fn(&[u8], &[u8]) -> bool;

/// Item, list and separators; `Err` holds the function's result instead. `UNDEFINED` counts as empty.
fn member_args(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<std::result::Result<[Vec<u8>; 3], Val>> {
    if !(2..=3).contains(&args.len()) {
        return Ok(Err(Val::Error));
    }
    let args = values(e, args)?;
    let mut strings = [Vec::new(), Vec::new(), b", \t\r\n".to_vec()];
    for (string, arg) in strings.iter_mut().zip(&args) {
        match arg {
            Val::Str(bytes) => *string = bytes.to_vec(),
            Val::Undefined => {}
            _ => return Ok(Err(Val::Error)),
        }
    }
    if matches!(args[..2], [Val::Undefined, Val::Undefined]) {
        return Ok(Err(Val::Undefined));
    }
    e.spend(strings[1].len() / 8)?;
    Ok(Ok(strings))
}

fn member(e: &mut Evaluator<'_>, args: &[Expr], equal: Equal) -> Result<Val> {
    Ok(match member_args(e, args)? {
        Ok([item, list, separators]) => Val::Bool(items(&list, &separators).iter().any(|i| equal(i, &item))),
        Err(value) => value,
    })
}

/// True if each item of the first list is in the second; false for an empty list, though the empty string is a
/// subset.
fn subset(e: &mut Evaluator<'_>, args: &[Expr], equal: Equal) -> Result<Val> {
    let [part, list, separators] = match member_args(e, args)? {
        Ok(args) => args,
        Err(value) => return Ok(value),
    };
    if part.is_empty() {
        return Ok(Val::Bool(true));
    }
    let (part, list) = (items(&part, &separators), items(&list, &separators));
    e.spend(part.len().saturating_mul(list.len()) / 8)?;
    let all = part.iter().all(|item| list.iter().any(|other| equal(item, other)));
    Ok(Val::Bool(!part.is_empty() && all))
}

/// True if the two lists share an item. Blanks count, unless they separate.
fn intersect(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    if !(2..=3).contains(&args.len()) {
        return Ok(Val::Error);
    }
    let args = values(e, args)?;
    if let Some(value) = exceptional(&args) {
        return Ok(value);
    }
    let (Val::Str(left), Val::Str(right)) = (&args[0], &args[1]) else { return Ok(Val::Error) };
    let separators: &[u8] = match args.get(2) {
        None => b" ,",
        Some(Val::Str(separators)) if separators.is_empty() => b" ,",
        Some(Val::Str(separators)) => separators,
        Some(_) => return Ok(Val::Error),
    };
    let items = |s: &'_ [u8]| -> std::collections::BTreeSet<Vec<u8>> {
        s.split(|b| separators.contains(b)).filter(|i| !i.is_empty()).map(<[u8]>::to_vec).collect()
    };
    e.spend((left.len() + right.len()) / 8)?;
    Ok(Val::Bool(!items(left).is_disjoint(&items(right))))
}

fn regexp_member(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    if !(2..=4).contains(&args.len()) {
        return Ok(Val::Error);
    }
    let args = values(e, args)?;
    let (Val::Str(pattern), Val::Str(list)) = (&args[0], &args[1]) else { return Ok(Val::Error) };
    let (separators, options): (&[u8], Vec<u8>) = match &args[2..] {
        [] => (b", ", Vec::new()),
        [Val::Str(separators)] => (separators, Vec::new()),
        [Val::Str(separators), Val::Str(options)] => (separators, options.to_ascii_lowercase()),
        _ => return Ok(Val::Error),
    };
    let Some(regex) = super::regexps::compile(e, pattern, &options)? else { return Ok(Val::Error) };
    let items = items(list, separators);
    e.spend(list.len() / 8)?;
    if items.is_empty() {
        return Ok(Val::Undefined);
    }
    Ok(Val::Bool(items.iter().any(|item| regex.is_match(item))))
}
