//! Regular expressions.
//!
//! HTCondor has PCRE; this engine always ends in time linear in the text. Unsupported features are an error in the
//! pattern, thus `ERROR`: the crate's README lists them. And `$` is the very end, not also before a last line break.

use regex::bytes::{Regex, RegexBuilder};

use super::{Named, exceptional, pcre, values};
use crate::Expr;
use crate::error::EvalError;
use crate::eval::{Evaluator, Result, Val};

pub(super) const ALL: &[Named] = &[
    ("regexp", regexp),
    ("regexpMember", regexp_member),
    ("regexps", |e, args| substitute(e, args, b"")),
    ("replace", |e, args| substitute(e, args, b"f")),
    ("replaceAll", |e, args| substitute(e, args, b"fg")),
];

/// A compiled pattern, none if it is wrong. Options: `i` ignores case, `m` `^` and `$` match at lines, `s` a dot
/// matches a line break too, `x` ignores blanks; others are ignored.
pub(super) fn compile(e: &mut Evaluator<'_>, pattern: &[u8], options: &[u8]) -> Result<Option<Regex>> {
    // Compiling costs a thousand times a step.
    e.spend(500 + 10 * pattern.len())?;
    let Ok(pattern) = std::str::from_utf8(pattern) else { return Ok(None) };
    let has = |option| options.contains(&option);
    let Some(pattern) = pcre::translate(pattern, has(b'x')) else { return Ok(None) };
    let regex = RegexBuilder::new(&pattern)
        .unicode(false)
        .case_insensitive(has(b'i'))
        .multi_line(has(b'm'))
        .dot_matches_new_line(has(b's'))
        .ignore_whitespace(has(b'x'))
        .size_limit(1 << 20)
        .nest_limit(100)
        .build();
    Ok(regex.ok())
}

/// The arguments, their number checked; `Err` holds the function's result instead. The last of the full number is
/// options, which must be a string.
fn arguments(
    e: &mut Evaluator<'_>,
    args: &[Expr],
    full: usize,
) -> Result<std::result::Result<Vec<Val>, Val>> {
    if args.len() != full && args.len() != full - 1 {
        return Ok(Err(Val::Error));
    }
    let mut args = values(e, args)?;
    if let Some(value) = exceptional(&args) {
        return Ok(Err(value));
    }
    if args.len() < full {
        args.push(Val::Str(b"".as_slice().into()));
    }
    Ok(Ok(args))
}

fn regexp(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    let args = match arguments(e, args, 3)? {
        Ok(args) => args,
        Err(value) => return Ok(value),
    };
    let [Val::Str(pattern), Val::Str(target), Val::Str(options)] = &args[..] else { return Ok(Val::Error) };
    let Some(regex) = compile(e, pattern, options)? else { return Ok(Val::Error) };
    e.spend(target.len() / 8)?;
    Ok(Val::Bool(regex.is_match(target)))
}

fn regexp_member(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    let args = match arguments(e, args, 3)? {
        Ok(args) => args,
        Err(value) => return Ok(value),
    };
    let [Val::Str(pattern), Val::List(list), Val::Str(options)] = &args[..] else { return Ok(Val::Error) };
    let regex = compile(e, pattern, options)?;
    let mut undefined = false;
    for item in list.items.iter() {
        match e.element(list, item)? {
            Val::Str(target) => {
                e.spend(target.len() / 8)?;
                if regex.as_ref().is_some_and(|regex| regex.is_match(&target)) {
                    return Ok(Val::Bool(true));
                }
            }
            Val::Undefined => undefined = true,
            _ => return Ok(Val::Error),
        }
    }
    Ok(if undefined { Val::Undefined } else { Val::Bool(false) })
}

/// Replaces matches of the pattern by a text; `\0` to `\9` in it are the groups. Options besides those of the
/// pattern: `f` the whole string with the change, not the changed part alone; `g` all matches, not the first.
fn substitute(e: &mut Evaluator<'_>, args: &[Expr], more: &[u8]) -> Result<Val> {
    let args = match arguments(e, args, 4)? {
        Ok(args) => args,
        Err(value) => return Ok(value),
    };
    let [Val::Str(pattern), Val::Str(target), Val::Str(by), Val::Str(options)] = &args[..] else {
        return Ok(Val::Error);
    };
    let options = [options, more].concat();
    let (full, all) = (options.contains(&b'f'), options.contains(&b'g'));
    let Some(regex) = compile(e, pattern, &options)? else { return Ok(Val::Error) };
    let mut out = Vec::new();
    let mut end = 0;
    for found in regex.captures_iter(target).take(if all { usize::MAX } else { 1 }) {
        e.spend(1 + by.len() / 8)?;
        let Some(whole) = found.get(0) else { continue };
        if full {
            out.extend_from_slice(&target[end..whole.start()]);
        }
        if !expand(&found, by, &mut out) {
            return Ok(Val::Error);
        }
        if out.len() > e.context.limits.size {
            return Err(EvalError::TooLarge);
        }
        end = whole.end();
    }
    if full {
        out.extend_from_slice(&target[end..]);
    }
    e.spend(target.len() / 8)?;
    e.string(out)
}

/// Writes the replacement of a match; false if it names a group behind the last that took part.
fn expand(found: &regex::bytes::Captures<'_>, by: &[u8], out: &mut Vec<u8>) -> bool {
    let groups = (0..found.len()).rev().find(|i| found.get(*i).is_some()).map_or(0, |last| last + 1);
    let mut rest = by;
    while let Some((&b, tail)) = rest.split_first() {
        rest = tail;
        match tail.first() {
            Some(digit @ b'0'..=b'9') if b == b'\\' => {
                let group = usize::from(digit - b'0');
                if group >= groups {
                    return false;
                }
                out.extend_from_slice(found.get(group).map_or(b"", |m| m.as_bytes()));
                rest = &tail[1..];
            }
            _ => out.push(b),
        }
    }
    true
}
