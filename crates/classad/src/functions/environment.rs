//! Environments and argument lists in the syntax of job ads.
//!
//! In the second syntax of both, blanks separate; single quotes enclose items with blanks, and two of them within
//! quotes are one. In the first, an environment has semicolons between its entries and arguments have blanks, and
//! neither can be quoted.

use std::collections::BTreeMap;

use super::{Named, values};
use crate::Expr;
use crate::eval::{Evaluator, List, Result, Val};
use crate::value::Value;

pub(super) const ALL: &[Named] = &[
    ("envV1ToV2", env_v1_to_v2),
    ("mergeEnvironment", merge_environment),
    ("argsToList", args_to_list),
    ("listToArgs", list_to_args),
];

/// Names and values; `$$(name)` is literal and has no value.
type Environment = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

const BLANKS: &[u8] = b" \t\r\n";

/// Adds `name=value`; false if it is not that.
fn set(environment: &mut Environment, entry: &[u8]) -> bool {
    match entry.iter().position(|b| *b == b'=') {
        Some(0) => return false,
        Some(at) => environment.insert(entry[..at].to_vec(), Some(entry[at + 1..].to_vec())),
        None if entry.windows(2).any(|w| w == b"$$") => environment.insert(entry.to_vec(), None),
        None => return false,
    };
    true
}

/// Splits by the second syntax; none if a quote does not end.
fn split(string: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut rest = string.iter().copied().peekable();
    while let Some(b) = rest.next() {
        if BLANKS.contains(&b) {
            words.extend(word.take());
            continue;
        }
        let word = word.get_or_insert_default();
        if b != b'\'' {
            word.push(b);
            continue;
        }
        loop {
            match rest.next()? {
                b'\'' if rest.next_if_eq(&b'\'').is_none() => break,
                b => word.push(b),
            }
        }
    }
    words.extend(word);
    Some(words)
}

/// Writes a word in the second syntax.
fn quote(out: &mut Vec<u8>, word: &[u8]) {
    if !out.is_empty() {
        out.push(b' ');
    }
    let special = |b: u8| BLANKS.contains(&b) || b == b'\'';
    for run in word.chunk_by(|a, b| special(*a) == special(*b)) {
        if special(run[0]) {
            out.push(b'\'');
            out.extend(run.iter().flat_map(|b| std::iter::repeat_n(*b, 1 + usize::from(*b == b'\''))));
            out.push(b'\'');
        } else {
            out.extend_from_slice(run);
        }
    }
    if word.is_empty() {
        out.extend_from_slice(b"''");
    }
}

fn written(e: &mut Evaluator<'_>, environment: Environment) -> Result<Val> {
    let mut out = Vec::new();
    for (name, value) in environment {
        let entry = match value {
            Some(value) => [&name[..], b"=", &value].concat(),
            None => name,
        };
        quote(&mut out, &entry);
    }
    e.string(out)
}

fn env_v1_to_v2(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    let [arg] = args else { return Ok(Val::Error) };
    let string = match e.eval(arg)? {
        Val::Undefined => return Ok(Val::Undefined),
        Val::Str(string) => string,
        _ => return Ok(Val::Error),
    };
    e.spend(string.len())?;
    // A leading separator selects the syntax.
    let (separator, rest) = match string.split_first() {
        Some((b @ (b';' | b'|'), rest)) => (*b, rest),
        _ => (b';', &string[..]),
    };
    let mut environment = Environment::new();
    for entry in rest.split(|b| *b == separator || *b == b'\n') {
        let entry = &entry[entry.iter().take_while(|b| BLANKS.contains(b)).count()..];
        if !entry.is_empty() && !set(&mut environment, entry) {
            return Ok(Val::Error);
        }
    }
    written(e, environment)
}

/// Later ones win; `UNDEFINED` ones are skipped.
fn merge_environment(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    let mut environment = Environment::new();
    for arg in args {
        let string = match e.eval(arg)? {
            Val::Undefined => continue,
            Val::Str(string) => string,
            _ => return Ok(Val::Error),
        };
        e.spend(string.len())?;
        let Some(entries) = split(&string) else { return Ok(Val::Error) };
        if !entries.iter().all(|entry| set(&mut environment, entry)) {
            return Ok(Val::Error);
        }
    }
    written(e, environment)
}

/// The first argument, and the syntax that the second selects; none if they are wrong.
fn versioned(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Option<(Val, bool)>> {
    let args = values(e, args)?;
    Ok(match &args[..] {
        [arg] => Some((arg.clone(), false)),
        [arg, version] => match version.int32() {
            Some(1) => Some((arg.clone(), true)),
            Some(2) => Some((arg.clone(), false)),
            _ => None,
        },
        _ => None,
    })
}

fn args_to_list(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    let Some((Val::Str(string), first)) = versioned(e, args)? else { return Ok(Val::Error) };
    e.spend(string.len())?;
    let words = if first {
        let words = string.split(|b| BLANKS.contains(b)).filter(|word| !word.is_empty());
        Some(words.map(<[u8]>::to_vec).collect())
    } else {
        split(&string)
    };
    Ok(match words {
        Some(words) => List::made(words.into_iter().map(|w| Expr::Literal(Value::Str(w.into()))).collect()),
        None => Val::Error,
    })
}

fn list_to_args(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    let Some((Val::List(list), first)) = versioned(e, args)? else { return Ok(Val::Error) };
    let Some(words) = super::lists::strings(e, &list)? else { return Ok(Val::Error) };
    let mut out = Vec::new();
    for (i, word) in words.iter().enumerate() {
        if !first {
            quote(&mut out, word);
        } else if word.is_empty() || word.iter().any(|b| BLANKS.contains(b)) {
            return Ok(Val::Error);
        } else {
            out.extend_from_slice(if i > 0 { b" " } else { b"" });
            out.extend_from_slice(word);
        }
        e.spend(1 + word.len() / 8)?;
    }
    e.string(out)
}
