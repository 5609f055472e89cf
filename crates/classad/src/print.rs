//! Expressions, values and ads as text.

use std::fmt;

use crate::error::NotInOldSyntax;
use crate::expr::{Binary, Expr, Unary};
use crate::lex::is_plain_name;
use crate::number::{Form, write_real};
use crate::{Ad, Name, Value, time};

/// The binary operators as the new syntax writes them.
pub(crate) const BINARY: [(Binary, &str); 23] = [
    (Binary::Or, " || "),
    (Binary::And, " && "),
    (Binary::BitOr, " | "),
    (Binary::BitXor, " ^ "),
    (Binary::BitAnd, " & "),
    (Binary::Equal, " == "),
    (Binary::NotEqual, " != "),
    (Binary::Is, " is "),
    (Binary::Isnt, " isnt "),
    (Binary::Is, " =?= "),
    (Binary::Isnt, " =!= "),
    (Binary::Less, " < "),
    (Binary::LessOrEqual, " <= "),
    (Binary::Greater, " > "),
    (Binary::GreaterOrEqual, " >= "),
    (Binary::ShiftLeft, " << "),
    (Binary::ShiftRight, " >> "),
    (Binary::ShiftRightUnsigned, " >>> "),
    (Binary::Add, " + "),
    (Binary::Subtract, " - "),
    (Binary::Multiply, " * "),
    (Binary::Divide, " / "),
    (Binary::Modulus, " % "),
];

/// Writes trees. The output is ASCII, whatever the bytes of strings are, except for strings in the old syntax.
pub(crate) struct Printer {
    out: Vec<u8>,
    old: bool,
    form: Form,
    /// Line breaks and indentation, as `unparse()` has them, and how far it is indented.
    pretty: Option<usize>,
}

impl Printer {
    fn new(old: bool, form: Form, pretty: bool) -> Self {
        Self { out: Vec::new(), old, form, pretty: pretty.then_some(0) }
    }

    fn text(self) -> String {
        String::from_utf8(self.out).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
    }

    fn put(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn expr(&mut self, expr: &Expr) {
        match expr {
            // A constant that was too large, which reads as the same; as a value it is a call.
            Expr::Literal(Value::Real(r)) if r.is_infinite() && self.form != Form::Condor => {
                self.put(if *r > 0.0 { "1E+999" } else { "-1E+999" });
            }
            Expr::Literal(value) => self.value(value),
            Expr::Attr { base: Some(base), name, .. } => {
                self.expr(base);
                // Not the point of a number.
                self.put(if matches!(**base, Expr::Literal(Value::Int(_))) { " ." } else { "." });
                self.name(name, is_plain_name(name.as_str()));
            }
            Expr::Attr { base: None, name, absolute } => {
                self.put(if *absolute { "." } else { "" });
                // HTCondor quotes this one too.
                self.name(name, is_plain_name(name.as_str()) && name.lower() != "parent");
            }
            Expr::Unary(operator, operand) => {
                self.put(match operator {
                    Unary::Plus => " +",
                    Unary::Minus => " -",
                    Unary::Not => " !",
                    Unary::BitNot => " ~",
                });
                // A minus would become part of a number right behind it.
                let apart = self.form != Form::Condor && *operator == Unary::Minus;
                self.put(if apart && starts_with_digit(operand) { " " } else { "" });
                self.expr(operand);
            }
            Expr::Chain(first, rest) => {
                self.expr(first);
                for (operator, operand) in rest {
                    self.operator(*operator);
                    self.expr(operand);
                }
            }
            Expr::Ternary(parts) => self.joined(&parts[..], |i| if i == 1 { " ? " } else { " : " }),
            Expr::Elvis(parts) => self.joined(parts, |_| " ?: "),
            Expr::Subscript(parts) => {
                self.joined(&parts[..], |_| "[");
                self.put("]");
            }
            Expr::Paren(inner) => {
                self.put("(");
                self.expr(inner);
                self.put(")");
            }
            Expr::Call(call) => {
                self.name(&Name::new(call.name()), is_plain_name(call.name()));
                self.put("(");
                for (i, arg) in call.args().iter().enumerate() {
                    self.put(if i > 0 { "," } else { "" });
                    self.expr(arg);
                }
                self.put(")");
            }
            Expr::List(items) => self.list(items),
            Expr::Ad(ad) => self.ad(ad),
        }
    }

    /// Parts, with a text before each but the first.
    fn joined(&mut self, parts: &[Expr], before: fn(usize) -> &'static str) {
        for (i, part) in parts.iter().enumerate() {
            self.put(if i > 0 { before(i) } else { "" });
            self.expr(part);
        }
    }

    fn operator(&mut self, operator: Binary) {
        let text = match operator {
            Binary::Is if self.old => " =?= ",
            Binary::Isnt if self.old => " =!= ",
            _ => BINARY.iter().find(|(o, _)| *o == operator).map_or("", |(_, text)| *text),
        };
        self.put(text);
    }

    fn name(&mut self, name: &Name, plain: bool) {
        if plain { self.put(name.as_str()) } else { self.quoted(name.as_str().as_bytes(), b'\'') }
    }

    fn quoted(&mut self, bytes: &[u8], quote: u8) {
        self.out.push(quote);
        for &b in bytes {
            match b {
                b if b == quote => self.out.extend_from_slice(&[b'\\', quote]),
                b if self.old => self.out.push(b),
                b'\\' => self.put("\\\\"),
                b'\n' => self.put("\\n"),
                b'\t' => self.put("\\t"),
                b'\r' => self.put("\\r"),
                7 => self.put("\\a"),
                8 => self.put("\\b"),
                12 => self.put("\\f"),
                11 => self.put("\\v"),
                b' '..=b'~' => self.out.push(b),
                b => self.put(&format!("\\{b:03o}")),
            }
        }
        self.out.push(quote);
    }

    fn value(&mut self, value: &Value) {
        let mut text = String::new();
        match value {
            Value::Undefined => text.push_str("undefined"),
            Value::Error => text.push_str("error"),
            Value::Bool(b) => text.push_str(if *b { "true" } else { "false" }),
            Value::Int(i) => text.push_str(&i.to_string()),
            Value::Real(r) => write_real(&mut text, *r, self.form),
            Value::Str(bytes) => self.quoted(bytes, b'"'),
            Value::AbsTime(t) => text = format!("absTime(\"{}\")", time::absolute_text(*t)),
            Value::RelTime(t) => {
                text = format!("relTime(\"{}\")", time::relative_text(*t, self.form != Form::Condor))
            }
            Value::List(items) => self.list(items),
            Value::Ad(ad) => self.ad(ad),
        }
        self.put(&text);
    }

    /// Opens a bracket, and returns the closing text.
    fn open(&mut self, open: &str, close: &str, indent: usize) -> String {
        let Some(level) = &mut self.pretty else {
            self.put(&format!("{open} "));
            return format!(" {close}");
        };
        let outer = *level + indent;
        *level += 2 * indent;
        self.put(&format!("\n{:outer$}{open}", ""));
        format!("\n{:outer$}{close}", "")
    }

    fn item(&mut self) {
        if let Some(level) = self.pretty {
            self.put(&format!("\n{:level$}", ""));
        }
    }

    fn close(&mut self, close: &str, indent: usize) {
        self.pretty = self.pretty.map(|level| level.saturating_sub(2 * indent));
        self.put(close);
    }

    fn list(&mut self, items: &[Expr]) {
        let close = self.open("{", "}", 3);
        for (i, item) in items.iter().enumerate() {
            self.put(if i > 0 { "," } else { "" });
            self.item();
            self.expr(item);
        }
        self.close(&close, 3);
    }

    fn ad(&mut self, ad: &Ad) {
        let close = self.open("[", "]", 4);
        for (i, (name, expr)) in ad.iter().enumerate() {
            self.put(if i > 0 { "; " } else { "" });
            self.item();
            self.name(name, is_plain_name(name.as_str()));
            self.put(" = ");
            self.expr(expr);
        }
        self.close(&close, 4);
    }
}

/// As `unparse()` writes an expression.
pub(crate) fn pretty(expr: &Expr) -> String {
    let mut printer = Printer::new(false, Form::Condor, true);
    printer.expr(expr);
    printer.text()
}

/// A value other than a string as `string()` writes it.
pub(crate) fn condor(value: &Value) -> String {
    let mut printer = Printer::new(false, Form::Condor, false);
    printer.value(value);
    printer.text()
}

/// The attributes of an ad, a line each. Whatever is written was read again and found to be the same.
pub(crate) fn old_ad(ad: &Ad) -> Result<String, NotInOldSyntax> {
    let mut lines = Vec::new();
    for (name, expr) in ad.iter() {
        let mut printer = Printer::new(true, Form::Old, false);
        printer.put(&format!("{name} = "));
        printer.expr(expr);
        let line = String::from_utf8(printer.out).ok();
        let line = line.filter(|line| {
            let back = Ad::parse_old(line).ok();
            back.is_some_and(|back| back.len() == 1 && back.get(name.as_str()).is_some_and(|e| same(e, expr)))
        });
        lines.push(line.ok_or_else(|| NotInOldSyntax { what: format!("{name} = {expr}") })?);
        lines.push("\n".to_owned());
    }
    Ok(lines.concat())
}

/// True if two expressions mean the same: constants that the syntax can only write as calls (a NaN, a time)
/// are compared as they are written.
fn same(a: &Expr, b: &Expr) -> bool {
    a == b || a.to_string() == b.to_string()
}

/// The new syntax; it parses as the same expression.
impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printer = Printer::new(false, Form::Exact, false);
        printer.expr(self);
        f.write_str(printer.text().trim_start_matches(' '))
    }
}

/// The new syntax; it evaluates to the same value.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printer = Printer::new(false, Form::Exact, false);
        printer.value(self);
        f.write_str(&printer.text())
    }
}

/// The new syntax.
impl fmt::Display for Ad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printer = Printer::new(false, Form::Exact, false);
        printer.ad(self);
        f.write_str(&printer.text())
    }
}

/// True if an expression is written with a number without sign in front.
fn starts_with_digit(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(Value::Int(i)) => *i >= 0,
        Expr::Literal(Value::Real(r)) => r.is_sign_positive(),
        Expr::Attr { base: Some(base), .. } => starts_with_digit(base),
        Expr::Subscript(parts) => starts_with_digit(&parts[0]),
        Expr::Elvis(parts) => parts.first().is_some_and(starts_with_digit),
        _ => false,
    }
}
