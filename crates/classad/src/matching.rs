//! Matchmaking.

use crate::error::EvalError;
use crate::eval::Evaluator;
use crate::{Ad, Context, Value};

impl Context {
    /// True if the two ads match: `Requirements` of each is true, or a nonzero number, with the other as `TARGET`.
    /// An ad without `Requirements` matches nothing.
    ///
    /// Errors: [`EvalError`] if an evaluation exceeds a limit.
    pub fn symmetric_match(&self, left: &Ad, right: &Ad) -> Result<bool, EvalError> {
        let mut evaluator = Evaluator::new(self, left, Some(right));
        if !consents(&mut evaluator, left)? {
            return Ok(false);
        }
        evaluator.turn();
        consents(&mut evaluator, right)
    }

    /// True if `Requirements` of `my` is true with `target` as `TARGET`, whatever that one requires.
    ///
    /// Errors: as [`Self::symmetric_match`].
    pub fn consents(&self, my: &Ad, target: &Ad) -> Result<bool, EvalError> {
        consents(&mut Evaluator::new(self, my, Some(target)), my)
    }

    /// The preference of `my` for `target`: its `Rank`, 0 if that is not a number, as in HTCondor.
    ///
    /// Errors: as [`Self::symmetric_match`].
    pub fn rank(&self, my: &Ad, target: &Ad) -> Result<f64, EvalError> {
        let rank = self.attribute("Rank", my, Some(target))?;
        Ok(match rank {
            Value::Bool(_) | Value::Int(_) | Value::Real(_) => {
                rank.as_real().filter(|r| !r.is_nan()).unwrap_or(0.0)
            }
            _ => 0.0,
        })
    }
}

fn consents(evaluator: &mut Evaluator<'_>, my: &Ad) -> Result<bool, EvalError> {
    let Some(expr) = my.find("requirements").and_then(|at| my.at(at)) else { return Ok(false) };
    Ok(evaluator.requirement(expr)?.truth() == Some(true))
}
