#![doc = include_str!("../README.md")]

mod ad;
mod error;
mod eval;
mod expr;
mod functions;
mod lex;
mod matching;
mod name;
mod number;
mod parse;
mod print;
mod time;
mod value;

pub use ad::Ad;
pub use error::{EvalError, NotInOldSyntax, ParseError};
pub use eval::{Context, Limits};
pub use expr::{Binary, Call, Expr, Unary};
pub use name::Name;
pub use parse::{MAX_NESTING, MAX_TEXT};
pub use value::{AbsTime, Value};
