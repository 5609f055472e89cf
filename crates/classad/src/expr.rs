//! Expressions as trees.

use std::sync::Arc;

use crate::functions::Function;
use crate::{Ad, Name, ParseError, Value};

/// An expression. [`Expr::parse`] makes one, `Display` writes it in the new syntax so that it parses as the
/// same.
///
/// Trees are as deep as expressions nest and no deeper (a chain `a + b + c + ...` is one node), and parsed
/// expressions nest at most [`MAX_NESTING`](crate::MAX_NESTING) deep: nothing overflows the stack.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Expr {
    /// A constant.
    Literal(Value),
    /// `name`, `.name` (looked up in the outermost ad) or `base.name`.
    Attr {
        /// Of which ad.
        base: Option<Box<Expr>>,
        /// The attribute.
        name: Name,
        /// True of `.name`.
        absolute: bool,
    },
    /// An operator before its operand.
    Unary(Unary, Box<Expr>),
    /// Binary operators of one precedence, from left to right.
    Chain(Box<Expr>, Box<[(Binary, Expr)]>),
    /// `a ? b : c`
    Ternary(Box<[Expr; 3]>),
    /// `a ?: b ?: c`: the first that is not `UNDEFINED`. It binds tighter than any other operator.
    Elvis(Box<[Expr]>),
    /// `a[b]`
    Subscript(Box<[Expr; 2]>),
    /// `(a)`
    Paren(Box<Expr>),
    /// `name(arguments)`
    Call(Call),
    /// `{ a, b }`
    List(Arc<[Expr]>),
    /// `[ a = b ]`
    Ad(Ad),
}

/// A call of a function.
#[derive(Debug, Clone)]
pub struct Call {
    name: Box<str>,
    pub(crate) function: Option<Function>,
    pub(crate) args: Vec<Expr>,
}

impl Call {
    /// A call. An unknown function evaluates to `ERROR`.
    pub fn new(name: &str, args: Vec<Expr>) -> Self {
        Self { name: name.into(), function: crate::functions::find(name), args }
    }

    /// The function, as it was written.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its arguments.
    pub fn args(&self) -> &[Expr] {
        &self.args
    }
}

impl PartialEq for Call {
    fn eq(&self, other: &Self) -> bool {
        self.name.eq_ignore_ascii_case(&other.name) && self.args == other.args
    }
}

/// Operators before their operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unary {
    /// `+`
    Plus,
    /// `-`
    Minus,
    /// `!`
    Not,
    /// `~`
    BitNot,
}

/// Operators between two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binary {
    /// `||`
    Or,
    /// `&&`
    And,
    /// `|`
    BitOr,
    /// `^`
    BitXor,
    /// `&`
    BitAnd,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `=?=`, `is`
    Is,
    /// `=!=`, `isnt`
    Isnt,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `<<`
    ShiftLeft,
    /// `>>`
    ShiftRight,
    /// `>>>`
    ShiftRightUnsigned,
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Modulus,
}

impl Binary {
    /// How tightly it binds, from 0.
    pub(crate) fn level(self) -> u8 {
        match self {
            Self::Or => 0,
            Self::And => 1,
            Self::BitOr => 2,
            Self::BitXor => 3,
            Self::BitAnd => 4,
            Self::Equal | Self::NotEqual | Self::Is | Self::Isnt => 5,
            Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual => 6,
            Self::ShiftLeft | Self::ShiftRight | Self::ShiftRightUnsigned => 7,
            Self::Add | Self::Subtract => 8,
            Self::Multiply | Self::Divide | Self::Modulus => 9,
        }
    }
}

/// One more than the highest level of a binary operator.
pub(crate) const UNARY_LEVEL: u8 = 10;

impl Expr {
    /// Parses an expression in the new syntax.
    pub fn parse(text: impl AsRef<[u8]>) -> Result<Self, ParseError> {
        crate::parse::expression(text.as_ref(), false)
    }

    /// Parses an expression in the syntax of old ads: a backslash in a string is literal, except before a quote.
    pub fn parse_old(text: impl AsRef<[u8]>) -> Result<Self, ParseError> {
        crate::parse::expression(text.as_ref(), true)
    }

    /// An attribute of the ad that the expression is evaluated in.
    pub fn attr(name: &str) -> Self {
        Self::Attr { base: None, name: Name::new(name), absolute: false }
    }
}

impl From<Value> for Expr {
    /// Lists and ads become the nodes of a tree, all else a constant.
    fn from(value: Value) -> Self {
        match value {
            Value::List(items) => Self::List(items),
            Value::Ad(ad) => Self::Ad(ad),
            value => Self::Literal(value),
        }
    }
}
