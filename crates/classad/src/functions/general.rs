//! Types, conversions, conditions, and expressions as data.

use super::{Named, text};
use crate::eval::{Evaluator, Result, Val};
use crate::{Expr, Name, print};

pub(super) const ALL: &[Named] = &[
    ("isUndefined", |e, args| is(e, args, |v| matches!(v, Val::Undefined))),
    ("isError", |e, args| is(e, args, |v| matches!(v, Val::Error))),
    ("isString", |e, args| is(e, args, |v| matches!(v, Val::Str(_)))),
    ("isInteger", |e, args| is(e, args, |v| matches!(v, Val::Int(_)))),
    ("isReal", |e, args| is(e, args, |v| matches!(v, Val::Real(_)))),
    ("isList", |e, args| is(e, args, |v| matches!(v, Val::List(_)))),
    ("isClassAd", |e, args| is(e, args, |v| matches!(v, Val::Ad(_)))),
    ("isBoolean", |e, args| is(e, args, |v| matches!(v, Val::Bool(_)))),
    ("isAbsTime", |e, args| is(e, args, |v| matches!(v, Val::AbsTime(_)))),
    ("isRelTime", |e, args| is(e, args, |v| matches!(v, Val::RelTime(_)))),
    ("int", |e, args| convert(e, args, |_, v| Ok(v.to_int().map_or(Val::Error, Val::Int)))),
    ("real", |e, args| convert(e, args, |_, v| Ok(v.to_real().map_or(Val::Error, Val::Real)))),
    ("string", |e, args| convert(e, args, |e, v| Ok(text(e, v)?.map_or_else(|v| v, Val::Str)))),
    ("bool", |e, args| convert(e, args, |_, v| Ok(to_bool(&v)))),
    ("ifThenElse", if_then_else),
    ("eval", eval),
    ("debug", |e, args| convert(e, args, |_, v| Ok(v))),
    ("unparse", unparse),
    ("unresolved", unresolved),
];

fn is(e: &mut Evaluator<'_>, args: &[Expr], test: fn(&Val) -> bool) -> Result<Val> {
    let [arg] = args else { return Ok(Val::Error) };
    Ok(Val::Bool(test(&e.eval(arg)?)))
}

type Convert = fn(&mut Evaluator<'_>, Val) -> Result<Val>;

fn convert(e: &mut Evaluator<'_>, args: &[Expr], convert: Convert) -> Result<Val> {
    let [arg] = args else { return Ok(Val::Error) };
    match e.eval(arg)? {
        Val::Undefined => Ok(Val::Undefined),
        value => convert(e, value),
    }
}

fn to_bool(value: &Val) -> Val {
    match value {
        Val::Str(text) if text.eq_ignore_ascii_case(b"true") => Val::Bool(true),
        Val::Str(text) if text.eq_ignore_ascii_case(b"false") => Val::Bool(false),
        Val::Str(_) => Val::Undefined,
        Val::RelTime(t) => Val::Bool(t.trunc() != 0.0),
        other => other.truth().map_or(Val::Error, Val::Bool),
    }
}

fn if_then_else(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    let [condition, yes, no] = args else { return Ok(Val::Error) };
    let condition = e.eval(condition)?;
    match condition.truth() {
        Some(true) => e.eval(yes),
        Some(false) => e.eval(no),
        None if matches!(condition, Val::Undefined) => Ok(Val::Undefined),
        None => Ok(Val::Error),
    }
}

/// The string that the argument is, as an expression.
fn eval(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    let [arg] = args else { return Ok(Val::Error) };
    let value = e.eval(arg)?;
    let Ok(source) = text(e, value)? else { return Ok(Val::Error) };
    e.spend(source.len())?;
    match Expr::parse(&source) {
        Ok(expr) => e.eval_here(&expr),
        Err(_) => Ok(Val::Error),
    }
}

/// The expression of an attribute of the ad, not evaluated.
fn unparse(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    let [Expr::Attr { base, name, absolute }] = args else { return Ok(Val::Error) };
    let found = if base.is_none() && !absolute { e.own(name) } else { None };
    let text = found.map(|expr| print::pretty(&expr)).unwrap_or_default();
    e.string(text.into_bytes())
}

/// The names in the expression of an attribute that neither the ad nor the target has; with a pattern,
/// whether one of them fits it.
fn unresolved(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    let (attr, pattern) = match args {
        [attr @ Expr::Attr { .. }] => (attr, None),
        [attr @ Expr::Attr { .. }, pattern] => (attr, Some(pattern)),
        _ => return Ok(Val::Error),
    };
    let Some(names) = e.unresolved(attr)? else { return Ok(Val::Undefined) };
    let pattern = match pattern.map(|p| e.eval(p)).transpose()? {
        None => None,
        Some(Val::Str(pattern)) => match super::regexps::compile(e, &pattern, b"i")? {
            Some(regex) => Some(regex),
            None => return Ok(Val::Error),
        },
        Some(_) => return Ok(Val::Error),
    };
    let plain = |name: &Name| match name.lower().strip_prefix("target.") {
        Some(rest) => name.as_str()[name.as_str().len() - rest.len()..].to_owned(),
        None => name.as_str().to_owned(),
    };
    let names: Vec<String> = names.iter().map(plain).collect();
    match pattern {
        Some(regex) => {
            let fits = |name: &String| regex.find_iter(name.as_bytes()).any(|m| !m.is_empty());
            Ok(Val::Bool(names.iter().any(fits)))
        }
        None => e.string(names.join(",").into_bytes()),
    }
}
