//! Errors: text that is not a ClassAd, and evaluations that would not end.

/// Text is not a ClassAd or an expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason} (line {line}, column {column})")]
pub struct ParseError {
    /// The defect.
    pub reason: String,
    /// Line of the text, from 1.
    pub line: usize,
    /// Byte of the line, from 1.
    pub column: usize,
}

/// An evaluation was stopped. A meaningless result is `ERROR` or `UNDEFINED` instead, which are values of the
/// language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// Expressions or references nest deeper than [`Limits::depth`](crate::Limits::depth).
    #[error("the expression refers to itself or others too deeply")]
    TooDeep,
    /// It took more steps than [`Limits::steps`](crate::Limits::steps).
    #[error("the expression takes too many steps")]
    TooManySteps,
    /// A string or list grew longer than [`Limits::size`](crate::Limits::size).
    #[error("the expression produces a value that is too large")]
    TooLarge,
}

/// An ad or expression that the old syntax cannot express: it has no way to write a line break in a string,
/// nor a backslash before a quote that does not end its line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot be written in the old ClassAd syntax")]
pub struct NotInOldSyntax {
    /// The attribute or expression, in the new syntax.
    pub what: String,
}
