//! Lists, and lists of ads.

use super::Named;
use crate::Expr;
use crate::eval::{Evaluator, List, Result, Val, binary, compare, promote};
use crate::expr::Binary;

pub(super) const ALL: &[Named] = &[
    ("size", size),
    ("member", |e, args| member(e, args, Binary::Equal)),
    ("identicalMember", |e, args| member(e, args, Binary::Is)),
    ("anyCompare", |e, args| compare_all(e, args, false)),
    ("allCompare", |e, args| compare_all(e, args, true)),
    ("sum", |e, args| sum(e, args, false)),
    ("avg", |e, args| sum(e, args, true)),
    ("min", |e, args| bound(e, args, Binary::Less)),
    ("max", |e, args| bound(e, args, Binary::Greater)),
    ("evalInEachContext", eval_in_each_context),
    ("countMatches", count_matches),
];

/// How many elements, attributes or bytes.
fn size(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    let [arg] = args else { return Ok(Val::Error) };
    let size = match e.eval(arg)? {
        Val::Undefined => return Ok(Val::Undefined),
        Val::List(list) => list.items.len(),
        Val::Ad(ad) => e.ad_of(ad).len(),
        Val::Str(bytes) => bytes.len(),
        _ => return Ok(Val::Error),
    };
    Ok(Val::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}

fn member(e: &mut Evaluator<'_>, args: &[Expr], equal: Binary) -> Result<Val> {
    let [what, list] = args else { return Ok(Val::Error) };
    let (what, list) = (e.eval(what)?, e.eval(list)?);
    let strict = equal == Binary::Equal;
    if matches!(list, Val::Undefined) || (strict && matches!(what, Val::Undefined)) {
        return Ok(Val::Undefined);
    }
    let Val::List(list) = list else { return Ok(Val::Error) };
    if matches!(what, Val::List(_) | Val::Ad(_)) || (strict && matches!(what, Val::Error)) {
        return Ok(Val::Error);
    }
    for item in list.items.iter() {
        let item = e.element(&list, item)?;
        if matches!(binary(equal, item, what.clone()), Val::Bool(true)) {
            return Ok(Val::Bool(true));
        }
    }
    Ok(Val::Bool(false))
}

fn compare_all(e: &mut Evaluator<'_>, args: &[Expr], all: bool) -> Result<Val> {
    let [operator, list, than] = args else { return Ok(Val::Error) };
    let operator = match e.eval(operator)? {
        Val::Undefined => return Ok(Val::Undefined),
        Val::Str(text) => match &*text {
            b"<" => Binary::Less,
            b"<=" => Binary::LessOrEqual,
            b">" => Binary::Greater,
            b">=" => Binary::GreaterOrEqual,
            b"==" => Binary::Equal,
            b"!=" => Binary::NotEqual,
            b"is" => Binary::Is,
            b"isnt" => Binary::Isnt,
            _ => return Ok(Val::Error),
        },
        _ => return Ok(Val::Error),
    };
    let list = match e.eval(list)? {
        Val::Undefined => return Ok(Val::Undefined),
        Val::List(list) => list,
        _ => return Ok(Val::Error),
    };
    let than = e.eval(than)?;
    for item in list.items.iter() {
        let item = e.element(&list, item)?;
        match binary(operator, item, than.clone()) {
            Val::Bool(b) if b != all => return Ok(Val::Bool(b)),
            Val::Bool(_) => {}
            // The first that cannot be compared ends it.
            Val::Undefined => return Ok(Val::Bool(false)),
            _ => return Ok(Val::Error),
        }
    }
    Ok(Val::Bool(all))
}

/// The numbers of a list without `UNDEFINED` ones; `Err` holds the function's result instead.
fn numbers(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<std::result::Result<Vec<Val>, Val>> {
    let [list] = args else { return Ok(Err(Val::Error)) };
    let list = match e.eval(list)? {
        Val::List(list) => list,
        Val::Undefined => return Ok(Err(Val::Undefined)),
        _ => return Ok(Err(Val::Error)),
    };
    let mut numbers = Vec::new();
    for item in list.items.iter() {
        match e.element(&list, item)? {
            Val::Undefined => {}
            number if number.is_number() => numbers.push(number),
            _ => return Ok(Err(Val::Error)),
        }
    }
    Ok(Ok(numbers))
}

fn sum(e: &mut Evaluator<'_>, args: &[Expr], average: bool) -> Result<Val> {
    let numbers = match numbers(e, args)? {
        Ok(numbers) => numbers,
        Err(value) => return Ok(value),
    };
    let count = numbers.len();
    let sum = numbers.into_iter().reduce(|a, b| binary(Binary::Add, a, b)).unwrap_or(Val::Int(0));
    if !average || count == 0 {
        return Ok(sum);
    }
    Ok(binary(Binary::Divide, sum, Val::Real(count as f64)))
}

fn bound(e: &mut Evaluator<'_>, args: &[Expr], better: Binary) -> Result<Val> {
    let numbers = match numbers(e, args)? {
        Ok(numbers) => numbers,
        Err(value) => return Ok(value),
    };
    // A comparison converts both to reals, if one is, and bools to integers: so is its result.
    let best = numbers.into_iter().reduce(|best, next| {
        let (next, best) = promote(next, best);
        if matches!(compare(better, &next, &best), Val::Bool(true)) { next } else { best }
    });
    Ok(best.unwrap_or(Val::Undefined))
}

/// The expression and the list of ads to evaluate it in; `Err` holds the function's result instead.
fn contexts(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<std::result::Result<(Expr, List), Val>> {
    let [expr, list] = args else { return Ok(Err(Val::Error)) };
    // A name is replaced by the expression of that name here, if it has one.
    let expr = e.referred(expr)?.unwrap_or_else(|| expr.clone());
    Ok(match e.eval(list)? {
        Val::List(list) => Ok((expr, list)),
        Val::Undefined => Err(Val::Undefined),
        _ => Err(Val::Error),
    })
}

fn eval_in_each_context(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    let (expr, list) = match contexts(e, args)? {
        Ok(found) => found,
        Err(value) => return Ok(value),
    };
    let mut results = Vec::new();
    for item in list.items.iter() {
        let value = e.in_context(&expr, &list, item)?;
        results.push(e.expr(value));
    }
    Ok(List::made(results))
}

fn count_matches(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    let (expr, list) = match contexts(e, args)? {
        Ok(found) => found,
        Err(Val::Undefined) => return Ok(Val::Int(0)),
        Err(value) => return Ok(value),
    };
    let mut count = 0;
    for item in list.items.iter() {
        count += i64::from(e.in_context(&expr, &list, item)?.truth() == Some(true));
    }
    Ok(Val::Int(count))
}

/// Elements of a list that must all be strings; none if they are not.
pub(super) fn strings(e: &mut Evaluator<'_>, list: &List) -> Result<Option<Vec<std::sync::Arc<[u8]>>>> {
    let mut strings = Vec::new();
    for item in list.items.iter() {
        match e.element(list, item)? {
            Val::Str(bytes) => strings.push(bytes),
            _ => return Ok(None),
        }
    }
    Ok(Some(strings))
}
