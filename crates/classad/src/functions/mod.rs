//! The functions of the language, by the names that HTCondor's manual gives them.

mod environment;
mod general;
mod lists;
mod numbers;
mod pcre;
mod regexps;
mod string_lists;
mod strings;
mod times;

use std::sync::Arc;

use crate::Expr;
use crate::eval::{Evaluator, Result, Val};
use crate::{print, time};

type Run = fn(&mut Evaluator<'_>, &[Expr]) -> Result<Val>;

/// A function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Function {
    pub(crate) run: Run,
}

/// A name and its function.
type Named = (&'static str, Run);

/// Finds a function by its name, whatever its case.
pub(crate) fn find(name: &str) -> Option<Function> {
    let all = [
        general::ALL,
        lists::ALL,
        numbers::ALL,
        strings::ALL,
        string_lists::ALL,
        regexps::ALL,
        times::ALL,
        environment::ALL,
    ];
    let found = all.into_iter().flatten().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, run)| Function { run: *run })
}

/// A value as `string()` converts it; `Err` holds the function's result instead.
fn text(e: &mut Evaluator<'_>, value: Val) -> Result<std::result::Result<Arc<[u8]>, Val>> {
    let text = match value {
        Val::Undefined | Val::Error => return Ok(Err(value)),
        Val::Str(bytes) => return Ok(Ok(bytes)),
        Val::AbsTime(t) => time::absolute_text(t),
        Val::RelTime(t) => time::relative_text(t, false),
        other => print::condor(&e.value(other)),
    };
    Ok(match e.string(text.into_bytes())? {
        Val::Str(bytes) => Ok(bytes),
        other => Err(other),
    })
}

/// Evaluates all arguments.
fn values(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Vec<Val>> {
    args.iter().map(|arg| e.eval(arg)).collect()
}

/// The result of a strict function if one of its arguments is not a value.
fn exceptional(args: &[Val]) -> Option<Val> {
    if args.iter().any(|v| matches!(v, Val::Error)) {
        return Some(Val::Error);
    }
    args.iter().any(|v| matches!(v, Val::Undefined)).then_some(Val::Undefined)
}
