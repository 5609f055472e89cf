//! Names in an expression that nothing answers to, for `unresolved()`.

use std::collections::BTreeMap;

use super::{Evaluator, Found, Result, Val};
use crate::error::EvalError;
use crate::{Expr, Name};

impl Evaluator<'_> {
    /// The names that the expression of an attribute needs and neither ad has, through all its references, in
    /// alphabetical order: empty if a part of it is meaningless. `None` if there is no attribute.
    pub(crate) fn unresolved(&mut self, reference: &Expr) -> Result<Option<Vec<Name>>> {
        let mut names = BTreeMap::new();
        let sensible = match self.target_of(reference)? {
            Found::Nothing => return Ok(None),
            Found::Attr { ad, index, scope } => match ad.get().at(index) {
                Some(expr) => self.within(scope, scope, |e| e.collect(expr, &mut names))?,
                None => true,
            },
            Found::Ad(_) | Found::Time => true,
        };
        Ok(Some(if sensible { names.into_values().collect() } else { Vec::new() }))
    }

    fn collect(&mut self, expr: &Expr, names: &mut BTreeMap<String, Name>) -> Result<bool> {
        if self.depth >= self.context.limits.depth {
            return Err(EvalError::TooDeep);
        }
        self.spend(1)?;
        self.depth += 1;
        let sensible = match expr {
            Expr::Attr { base, name, absolute } => {
                self.collect_name(base.as_deref(), name, *absolute, names)?
            }
            _ => {
                let mut sensible = true;
                for part in parts(expr) {
                    sensible = sensible && self.collect(part, names)?;
                }
                sensible
            }
        };
        self.depth -= 1;
        Ok(sensible)
    }

    fn collect_name(
        &mut self,
        base: Option<&Expr>,
        name: &Name,
        absolute: bool,
        names: &mut BTreeMap<String, Name>,
    ) -> Result<bool> {
        let mut note = |name: Name| names.insert(name.lower().to_owned(), name);
        let start = match base {
            None if absolute => self.scopes.root(),
            None => self.here,
            Some(base) => match self.eval(base)? {
                Val::Undefined => {
                    note(Name::new(&format!("{base}.{name}")));
                    return Ok(true);
                }
                Val::Ad(scope) => scope,
                _ => return Ok(false),
            },
        };
        match self.scopes.lookup(start, name) {
            Found::Nothing => {
                note(name.clone());
                Ok(true)
            }
            Found::Attr { ad, index, scope } => {
                let Some(expr) = ad.get().at(index) else { return Ok(true) };
                let address = std::ptr::from_ref(expr).addr();
                if self.running.contains(&address) {
                    return Ok(true);
                }
                self.running.push(address);
                let sensible = self.within(scope, scope, |e| e.collect(expr, names));
                self.running.pop();
                sensible
            }
            Found::Ad(_) | Found::Time => Ok(true),
        }
    }
}

/// The parts of an expression, except those with a scope of their own.
fn parts(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::Literal(_) | Expr::Attr { .. } | Expr::Ad(_) => Vec::new(),
        Expr::Unary(_, part) | Expr::Paren(part) => vec![&**part],
        Expr::Chain(first, rest) => {
            std::iter::once(&**first).chain(rest.iter().map(|(_, part)| part)).collect()
        }
        Expr::Ternary(parts) => parts.iter().collect(),
        Expr::Elvis(parts) => parts.iter().collect(),
        Expr::Subscript(parts) => parts.iter().collect(),
        Expr::Call(call) => call.args().iter().collect(),
        Expr::List(items) => items.iter().collect(),
    }
}
