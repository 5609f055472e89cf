//! The evaluator.
//!
//! Evaluation is lazy: a list or a nested ad evaluates to itself together with the scope that it stands in,
//! and its expressions are evaluated when something asks for them.

mod ops;
mod references;
mod scope;
mod val;

use crate::error::EvalError;
use crate::expr::{Binary, Expr};
use crate::{Ad, Name, Value};
use scope::{Found, ScopeId, Scopes};

pub(crate) use ops::{binary, compare, promote};
pub(crate) use val::{List, Val};

/// The result of an evaluation.
pub(crate) type Result<T> = std::result::Result<T, EvalError>;

/// Limits of an evaluation. The default is generous for any hand-written policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Maximum depth of nested expressions and references; default: 400.
    pub depth: u32,
    /// Maximum of evaluated nodes; default: 1,000,000. Long strings count more.
    pub steps: u32,
    /// Maximum length of a string in bytes; default: 1 MiB.
    pub size: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth: 400, steps: 1_000_000, size: 1 << 20 }
    }
}

/// The environment of an evaluation: the time and the source of random numbers. There is no other input, so that
/// equal contexts give equal results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Context {
    /// Seconds since 1970, for `time()` and similar functions.
    pub now: i64,
    /// Local time, in seconds east of Greenwich. There is no table of time zones: it is the same all year.
    pub utc_offset: i32,
    /// Where `random()` begins.
    pub seed: u64,
    /// Limits of an evaluation.
    pub limits: Limits,
}

impl Context {
    /// A context at a time, UTC, with the default limits.
    pub fn at(now: i64) -> Self {
        Self { now, ..Self::default() }
    }

    /// Evaluates an expression as if it were an attribute of `my`: names without a scope and `MY.x` are
    /// looked up there; `TARGET.x`, and names that `my` does not have, in `target`.
    ///
    /// Errors: [`EvalError`] if it exceeds a limit. Circular references are `UNDEFINED`.
    pub fn evaluate(&self, expr: &Expr, my: &Ad, target: Option<&Ad>) -> Result<Value> {
        let mut evaluator = Evaluator::new(self, my, target);
        let value = evaluator.eval(expr)?;
        Ok(evaluator.value(value))
    }

    /// Evaluates an attribute of `my`; one that it does not have is `UNDEFINED`.
    ///
    /// Errors: as [`Self::evaluate`].
    pub fn attribute(&self, name: &str, my: &Ad, target: Option<&Ad>) -> Result<Value> {
        let Some(expr) = my.get(name) else { return Ok(Value::Undefined) };
        self.evaluate(expr, my, target)
    }
}

/// One evaluation under way.
pub(crate) struct Evaluator<'a> {
    pub(crate) context: &'a Context,
    scopes: Scopes<'a>,
    /// Where names are looked up.
    here: ScopeId,
    /// The ad that contains the expression: the parent of nested ads. Mostly the same, but functions evaluate the
    /// elements of lists where they are called, as in HTCondor.
    around: ScopeId,
    depth: u32,
    steps: u32,
    /// Attributes that are being evaluated, by the addresses of their expressions: to find circles.
    running: Vec<usize>,
    random: u64,
}

impl<'a> Evaluator<'a> {
    pub(crate) fn new(context: &'a Context, my: &'a Ad, target: Option<&'a Ad>) -> Self {
        let (scopes, my) = Scopes::new(my, target);
        Self {
            context,
            scopes,
            here: my,
            around: my,
            depth: 0,
            steps: context.limits.steps,
            running: Vec::new(),
            random: context.seed,
        }
    }

    /// Switches to the other ad of the match, which becomes `MY`.
    pub(crate) fn turn(&mut self) {
        self.here = self.scopes.other(self.here);
        self.around = self.here;
    }

    /// Takes steps from the remaining ones.
    pub(crate) fn spend(&mut self, steps: usize) -> Result<()> {
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        self.steps = self.steps.checked_sub(steps).ok_or(EvalError::TooManySteps)?;
        Ok(())
    }

    /// A string, unless it is too long.
    pub(crate) fn string(&mut self, bytes: impl Into<std::sync::Arc<[u8]>> + AsRef<[u8]>) -> Result<Val> {
        let len = bytes.as_ref().len();
        if len > self.context.limits.size {
            return Err(EvalError::TooLarge);
        }
        self.spend(len / 32)?;
        Ok(Val::Str(bytes.into()))
    }

    pub(crate) fn eval(&mut self, expr: &Expr) -> Result<Val> {
        self.steps = self.steps.checked_sub(1).ok_or(EvalError::TooManySteps)?;
        match expr {
            Expr::Literal(value) => Ok(self.literal(value)),
            Expr::Attr { base: None, name, absolute: false } => self.reference(name),
            expr => {
                if self.depth >= self.context.limits.depth {
                    return Err(EvalError::TooDeep);
                }
                self.depth += 1;
                let value = self.node(expr);
                self.depth -= 1;
                value
            }
        }
    }

    fn node(&mut self, expr: &Expr) -> Result<Val> {
        match expr {
            Expr::Literal(value) => Ok(self.literal(value)),
            Expr::Attr { base: None, name, absolute } => {
                let start = if *absolute { self.scopes.root() } else { self.here };
                self.select(start, name)
            }
            Expr::Attr { base: Some(base), name, .. } => match self.eval(base)? {
                Val::Ad(scope) => self.select(scope, name),
                Val::Undefined => Ok(Val::Undefined),
                Val::List(list) => self.select_each(&list, name),
                _ => Ok(Val::Error),
            },
            Expr::Unary(operator, operand) => {
                let operand = self.eval(operand)?;
                Ok(ops::unary(*operator, operand))
            }
            Expr::Chain(first, rest) => self.chain(first, rest),
            Expr::Paren(inner) => self.eval(inner),
            Expr::Ternary(parts) => match self.eval(&parts[0])? {
                Val::Undefined => Ok(Val::Undefined),
                condition => match condition.truth() {
                    Some(true) => self.eval(&parts[1]),
                    Some(false) => self.eval(&parts[2]),
                    None => Ok(Val::Error),
                },
            },
            Expr::Elvis(parts) => {
                for part in parts {
                    match self.eval(part)? {
                        Val::Undefined => {}
                        value => return Ok(value),
                    }
                }
                Ok(Val::Undefined)
            }
            Expr::Subscript(parts) => {
                let (of, index) = (self.eval(&parts[0])?, self.eval(&parts[1])?);
                self.subscript(of, index)
            }
            Expr::Call(call) => match call.function {
                Some(function) => (function.run)(self, &call.args),
                None => Ok(Val::Error),
            },
            Expr::List(items) => {
                Ok(Val::List(List { items: items.clone(), scope: self.around, made: false }))
            }
            Expr::Ad(ad) => Ok(Val::Ad(self.scopes.nest(ad.clone(), self.around))),
        }
    }

    fn literal(&mut self, value: &Value) -> Val {
        match value {
            Value::Undefined => Val::Undefined,
            Value::Error => Val::Error,
            Value::Bool(b) => Val::Bool(*b),
            Value::Int(i) => Val::Int(*i),
            Value::Real(r) => Val::Real(*r),
            Value::Str(bytes) => Val::Str(bytes.clone()),
            Value::AbsTime(t) => Val::AbsTime(*t),
            Value::RelTime(t) => Val::RelTime(*t),
            Value::List(items) => Val::List(List { items: items.clone(), scope: self.around, made: false }),
            Value::Ad(ad) => Val::Ad(self.scopes.nest(ad.clone(), self.around)),
        }
    }

    fn chain(&mut self, first: &Expr, rest: &[(Binary, Expr)]) -> Result<Val> {
        let mut left = self.eval(first)?;
        for (operator, right) in rest {
            left = match (operator, left.truth()) {
                (Binary::Or, Some(true)) => Val::Bool(true),
                (Binary::And, Some(false)) => Val::Bool(false),
                _ => {
                    let right = self.eval(right)?;
                    binary(*operator, left, right)
                }
            };
        }
        Ok(left)
    }

    /// A name without a scope: looked up here, around, and at last in the target.
    fn reference(&mut self, name: &Name) -> Result<Val> {
        let found = self.find(name);
        self.deref(found)
    }

    fn find(&mut self, name: &Name) -> Found<'a> {
        match self.scopes.lookup(self.here, name) {
            Found::Nothing => match self.scopes.alternative(self.here) {
                Some(other) => self.scopes.lookup(other, name),
                None => Found::Nothing,
            },
            found => found,
        }
    }

    /// A name in the scope of an ad.
    fn select(&mut self, scope: ScopeId, name: &Name) -> Result<Val> {
        let found = self.scopes.lookup(scope, name);
        self.deref(found)
    }

    #[inline]
    fn deref(&mut self, found: Found<'a>) -> Result<Val> {
        match found {
            Found::Attr { ad, index, scope } => match ad.get().at(index) {
                // Constants need no scope.
                Some(Expr::Literal(value)) => Ok(self.literal(value)),
                Some(expr) => self.attribute(expr, scope),
                None => Ok(Val::Undefined),
            },
            Found::Ad(scope) => Ok(Val::Ad(scope)),
            Found::Time => Ok(Val::Int(self.context.now)),
            Found::Nothing => Ok(Val::Undefined),
        }
    }

    /// The expression of an attribute in the scope of its ad. One that is being evaluated already is
    /// `UNDEFINED`.
    fn attribute(&mut self, expr: &Expr, scope: ScopeId) -> Result<Val> {
        let address = std::ptr::from_ref(expr).addr();
        if self.running.contains(&address) {
            return Ok(Val::Undefined);
        }
        if self.depth >= self.context.limits.depth {
            return Err(EvalError::TooDeep);
        }
        self.depth += 1;
        self.running.push(address);
        let value = self.within(scope, scope, |e| e.eval(expr));
        self.running.pop();
        self.depth -= 1;
        value
    }

    /// Does something in other scopes.
    fn within<T>(&mut self, here: ScopeId, around: ScopeId, work: impl FnOnce(&mut Self) -> T) -> T {
        let before = (self.here, self.around);
        (self.here, self.around) = (here, around);
        let done = work(self);
        (self.here, self.around) = before;
        done
    }

    /// An element of a list where it is used: its names are resolved here.
    pub(crate) fn element(&mut self, list: &List, item: &Expr) -> Result<Val> {
        self.within(self.here, list.scope, |e| e.eval(item))
    }

    /// `{ [x = 1], [x = 2] }.x` is `{ 1, 2 }`.
    fn select_each(&mut self, list: &List, name: &Name) -> Result<Val> {
        let mut items = Vec::new();
        for item in list.items.iter() {
            let value = match self.element(list, item)? {
                Val::Undefined => Val::Undefined,
                Val::Ad(scope) => self.select(scope, name)?,
                Val::List(inner) => {
                    self.spend(inner.items.len())?;
                    if self.depth >= self.context.limits.depth {
                        return Err(EvalError::TooDeep);
                    }
                    self.depth += 1;
                    let value = self.select_each(&inner, name);
                    self.depth -= 1;
                    value?
                }
                _ => Val::Error,
            };
            items.push(self.expr(value));
        }
        Ok(Val::List(List { items: items.into(), scope: ScopeId::NOWHERE, made: false }))
    }

    fn subscript(&mut self, of: Val, index: Val) -> Result<Val> {
        if matches!(of, Val::Error) || matches!(index, Val::Error) {
            return Ok(Val::Error);
        }
        match (of, index) {
            (Val::Undefined, _) | (_, Val::Undefined) => Ok(Val::Undefined),
            (Val::List(list), Val::Int(index)) => {
                // HTCondor looks at the lower 32 bits only.
                match usize::try_from(index as i32).ok().and_then(|i| list.items.get(i)) {
                    Some(item) => self.within(list.scope, list.scope, |e| e.eval(item)),
                    None => Ok(Val::Error),
                }
            }
            (Val::Ad(scope), Val::Str(name)) => {
                let name = Name::new(&String::from_utf8_lossy(&name));
                let found = self.scopes.own(scope, &name);
                self.deref(found)
            }
            _ => Ok(Val::Error),
        }
    }

    /// Evaluates an expression in the scope of an ad, for `evalInEachContext()` and `countMatches()`.
    pub(crate) fn in_context(&mut self, expr: &Expr, list: &List, item: &Expr) -> Result<Val> {
        match self.element(list, item)? {
            Val::Ad(scope) => {
                let scope = self.scopes.with_alternative(scope);
                self.within(scope, self.around, |e| e.eval(expr))
            }
            Val::Undefined => Ok(Val::Undefined),
            _ => Ok(Val::Error),
        }
    }

    /// The unevaluated target of a reference; none if it is not a reference or has no target.
    pub(crate) fn referred(&mut self, expr: &Expr) -> Result<Option<Expr>> {
        Ok(match self.target_of(expr)? {
            Found::Attr { ad, index, .. } => ad.get().at(index).cloned(),
            Found::Ad(scope) => Some(Expr::Ad(self.scopes.ad(scope))),
            Found::Time => Some(Expr::Literal(Value::Int(self.context.now))),
            Found::Nothing => None,
        })
    }

    fn target_of(&mut self, expr: &Expr) -> Result<Found<'a>> {
        Ok(match expr {
            Expr::Attr { base: None, name, absolute: false } => self.find(name),
            Expr::Attr { base: None, name, .. } => self.scopes.lookup(self.scopes.root(), name),
            Expr::Attr { base: Some(base), name, .. } => match self.eval(base)? {
                Val::Ad(scope) => self.scopes.lookup(scope, name),
                _ => Found::Nothing,
            },
            _ => Found::Nothing,
        })
    }

    /// The attribute of the ad that names are looked up in, and of no other.
    pub(crate) fn own(&self, name: &Name) -> Option<Expr> {
        match self.scopes.own(self.here, name) {
            Found::Attr { ad, index, .. } => ad.get().at(index).cloned(),
            _ => None,
        }
    }

    /// An expression that came up on the way, as if it stood in the ad that names are looked up in.
    pub(crate) fn eval_here(&mut self, expr: &Expr) -> Result<Val> {
        self.within(self.here, self.here, |e| e.eval(expr))
    }

    /// The expression of an attribute of the ad that names are looked up in.
    pub(crate) fn requirement(&mut self, expr: &Expr) -> Result<Val> {
        self.attribute(expr, self.here)
    }

    /// An ad without a scope around it.
    pub(crate) fn ad(&mut self, ad: Ad) -> Val {
        Val::Ad(self.scopes.nest(ad, ScopeId::NOWHERE))
    }

    /// The ad of a value.
    pub(crate) fn ad_of(&self, scope: ScopeId) -> Ad {
        self.scopes.ad(scope)
    }

    /// Evaluates an attribute of a single ad.
    pub(crate) fn field(&mut self, scope: ScopeId, name: &str) -> Result<Val> {
        let found = self.scopes.own(scope, &Name::new(name));
        self.deref(found)
    }

    /// The value for callers.
    pub(crate) fn value(&self, value: Val) -> Value {
        match value {
            Val::Undefined => Value::Undefined,
            Val::Error => Value::Error,
            Val::Bool(b) => Value::Bool(b),
            Val::Int(i) => Value::Int(i),
            Val::Real(r) => Value::Real(r),
            Val::Str(bytes) => Value::Str(bytes),
            Val::AbsTime(t) => Value::AbsTime(t),
            Val::RelTime(t) => Value::RelTime(t),
            Val::List(list) => Value::List(list.items),
            Val::Ad(scope) => Value::Ad(self.scopes.ad(scope)),
        }
    }

    /// A value as an element of a list.
    pub(crate) fn expr(&self, value: Val) -> Expr {
        self.value(value).into()
    }

    /// A random number of 64 bits (SplitMix64).
    pub(crate) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
