//! Arithmetic beyond the operators.

use super::Named;
use crate::Expr;
use crate::eval::{Evaluator, Result, Val};
use crate::number::to_i64;

pub(super) const ALL: &[Named] = &[
    ("floor", |e, args| round(e, args, f64::floor)),
    ("ceil", |e, args| round(e, args, f64::ceil)),
    ("ceiling", |e, args| round(e, args, f64::ceil)),
    // Halves to the even number.
    ("round", |e, args| round(e, args, f64::round_ties_even)),
    ("pow", pow),
    ("quantize", quantize),
    ("random", random),
];

fn round(e: &mut Evaluator<'_>, args: &[Expr], round: fn(f64) -> f64) -> Result<Val> {
    let [arg] = args else { return Ok(Val::Error) };
    Ok(match e.eval(arg)? {
        Val::Int(i) => Val::Int(i),
        other => other.to_real().map_or(Val::Error, |r| Val::Int(to_i64(round(r)))),
    })
}

fn pow(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    let [base, exponent] = args else { return Ok(Val::Error) };
    let (base, exponent) = (e.eval(base)?, e.eval(exponent)?);
    if let (Val::Int(b), Val::Int(x @ 0..)) = (&base, &exponent) {
        // Through a double, as in HTCondor: a negative power is one too large, large ones are rounded.
        return Ok(Val::Int(to_i64((*b as f64).powf(*x as f64) + 0.5)));
    }
    Ok(match base.to_real().zip(exponent.to_real()) {
        Some((b, x)) => Val::Real(b.powf(x)),
        None => Val::Error,
    })
}

/// The next multiple of a number, or the first of a list that is as large, or else a multiple of its last.
fn quantize(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    let [value, base] = args else { return Ok(Val::Error) };
    let (value, mut base) = (e.eval(value)?, e.eval(base)?);
    let Some(real) = value.to_real() else { return Ok(Val::Error) };
    if let Val::List(list) = base {
        base = Val::Real(0.0);
        for item in list.items.iter() {
            base = e.element(&list, item)?;
            match base.to_real() {
                Some(step) if step >= real => return Ok(base),
                Some(_) => {}
                None => return Ok(Val::Error),
            }
        }
    }
    Ok(match (&value, &base) {
        (_, Val::Int(0)) => value,
        (Val::Int(i), Val::Int(step)) => {
            let up = i.wrapping_add(*step).wrapping_sub(1);
            Val::Int(up.wrapping_div(*step).wrapping_mul(*step))
        }
        _ => match base.to_real() {
            None => Val::Error,
            Some(step) if !matches!(base, Val::Int(_)) && step.abs() <= 1e-8 => value,
            Some(step) => Val::Real((real / step).ceil() * step),
        },
    })
}

/// A random number from 0 up to the argument: an integer below it or a real; of nothing, of 1.0.
fn random(e: &mut Evaluator<'_>, args: &[Expr]) -> Result<Val> {
    let below = match args {
        [] => Val::Real(1.0),
        [below] => e.eval(below)?,
        _ => return Ok(Val::Error),
    };
    Ok(match below {
        Val::Int(below @ 1..) => {
            let below = below.unsigned_abs();
            // The upper half of a product is below the factor: no division, hardly a bias.
            let product = u128::from(e.random()) * u128::from(below);
            Val::Int(i64::try_from(product >> 64).unwrap_or(0))
        }
        Val::Real(below) if below > 0.0 => Val::Real((e.random() >> 11) as f64 / (1u64 << 53) as f64 * below),
        _ => Val::Error,
    })
}
