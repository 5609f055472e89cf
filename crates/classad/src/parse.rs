//! The parser: precedence climbing over the tokens, and ads in both syntaxes.

use crate::error::ParseError;
use crate::expr::{Binary, Call, Expr, UNARY_LEVEL, Unary};
use crate::lex::{Keyword, Lexer, Token, is_space, keyword};
use crate::{Ad, Name, Value};

/// Maximum nesting of parentheses, lists, ads, calls and operators. HTCondor's limit is lower.
pub const MAX_NESTING: usize = 200;

/// The longest text that is parsed, in bytes.
pub const MAX_TEXT: usize = 16 << 20;

/// True if the text is an ad in the new syntax: it begins with `[`.
pub(crate) fn is_new(text: &[u8]) -> bool {
    match Lexer::new(text, false).next() {
        Ok((_, token)) => token == Token::Sign("["),
        Err(_) => false,
    }
}

pub(crate) fn expression(text: &[u8], old: bool) -> Result<Expr, ParseError> {
    let mut parser = Parser::new(text, old)?;
    let expr = parser.expression()?.0;
    parser.expect_end()?;
    Ok(expr)
}

pub(crate) fn new_ad(text: &[u8]) -> Result<Ad, ParseError> {
    let mut parser = Parser::new(text, false)?;
    parser.expect("[")?;
    let ad = parser.ad()?.0;
    parser.expect_end()?;
    Ok(ad)
}

/// Ads one after the other.
pub(crate) fn new_ads(text: &[u8]) -> Result<Vec<Ad>, ParseError> {
    let mut parser = Parser::new(text, false)?;
    let mut ads = Vec::new();
    while parser.token != Token::End {
        parser.expect("[")?;
        ads.push(parser.ad()?.0);
    }
    Ok(ads)
}

/// Ads with empty lines between them.
pub(crate) fn old_ads(text: &[u8]) -> Result<Vec<Ad>, ParseError> {
    let is_empty = |line: &[u8]| line.iter().all(|b| is_space(*b));
    let lines: Vec<&[u8]> = text.split(|b| *b == b'\n').collect();
    let (mut ads, mut before) = (Vec::new(), 0);
    for lines in lines.split_inclusive(|line| is_empty(line)) {
        let ad = old_ad(&lines.join(&b'\n'));
        let ad = ad.map_err(|e| ParseError { line: before + e.line, ..e })?;
        before += lines.len();
        if !ad.is_empty() {
            ads.push(ad);
        }
    }
    Ok(ads)
}

pub(crate) fn old_ad(text: &[u8]) -> Result<Ad, ParseError> {
    let whole = Lexer::new(text, true);
    if text.len() > MAX_TEXT {
        return Err(whole.error(0, "the text is too long"));
    }
    let mut attrs = Vec::new();
    for (number, line) in text.split(|b| *b == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.iter().all(|b| is_space(*b)) || line.trim_ascii_start().starts_with(b"#") {
            continue;
        }
        attrs.push(old_attr(line).map_err(|e| ParseError { line: number + 1, ..e })?);
    }
    Ok(attrs.into_iter().collect())
}

/// `name = expression`
fn old_attr(line: &[u8]) -> Result<(Name, Expr), ParseError> {
    let lexer = Lexer::new(line, true);
    let equal =
        line.iter().position(|b| *b == b'=').ok_or_else(|| lexer.error(0, "missing = after a name"))?;
    let name = std::str::from_utf8(line[..equal].trim_ascii()).unwrap_or_default();
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.$-".contains(&b)) {
        return Err(lexer.error(0, "missing attribute name"));
    }
    let shift = equal + 1;
    let expr = expression(&line[shift..], true).map_err(|e| ParseError { column: e.column + shift, ..e })?;
    Ok((Name::new(name), expr))
}

/// An expression and how deep it is.
type Deep = (Expr, usize);

struct Parser<'t> {
    lexer: Lexer<'t>,
    token: Token,
    start: usize,
    /// How many calls of [`Self::binary`] are under way.
    open: usize,
    old: bool,
}

impl<'t> Parser<'t> {
    fn new(text: &'t [u8], old: bool) -> Result<Self, ParseError> {
        let mut lexer = Lexer::new(text, old);
        if text.len() > MAX_TEXT {
            return Err(lexer.error(0, "the text is too long"));
        }
        let (start, token) = lexer.next()?;
        Ok(Self { lexer, token, start, open: 0, old })
    }

    fn advance(&mut self) -> Result<Token, ParseError> {
        let (start, token) = self.lexer.next()?;
        self.start = start;
        Ok(std::mem::replace(&mut self.token, token))
    }

    fn error<T>(&self, reason: &str) -> Result<T, ParseError> {
        let reason = if self.token == Token::End { "unexpected end of the text" } else { reason };
        Err(self.lexer.error(self.start, reason))
    }

    fn is(&self, sign: &'static str) -> bool {
        self.token == Token::Sign(sign)
    }

    /// Passes over a sign if it is there.
    fn take(&mut self, sign: &'static str) -> Result<bool, ParseError> {
        let there = self.is(sign);
        if there {
            self.advance()?;
        }
        Ok(there)
    }

    fn expect(&mut self, sign: &'static str) -> Result<(), ParseError> {
        if self.take(sign)? { Ok(()) } else { self.error(&format!("missing {sign}")) }
    }

    fn expect_end(&self) -> Result<(), ParseError> {
        match self.token {
            Token::End => Ok(()),
            _ => self.error("unexpected text after the end"),
        }
    }

    /// One more level around a tree, unless that is too many.
    fn deeper(&self, depth: usize) -> Result<usize, ParseError> {
        if depth < MAX_NESTING {
            Ok(depth + 1)
        } else {
            Err(self.lexer.error(self.start, "nested too deeply"))
        }
    }

    fn expression(&mut self) -> Result<Deep, ParseError> {
        self.open = self.deeper(self.open)?;
        let condition = self.binary(0)?;
        let whole = if self.take("?")? {
            let yes = self.expression()?;
            self.expect(":")?;
            let no = self.expression()?;
            let depth = self.deeper(condition.1.max(yes.1).max(no.1))?;
            (Expr::Ternary(Box::new([condition.0, yes.0, no.0])), depth)
        } else {
            condition
        };
        self.open -= 1;
        Ok(whole)
    }

    /// Binary operators of at least a level.
    fn binary(&mut self, level: u8) -> Result<Deep, ParseError> {
        if level == UNARY_LEVEL {
            return self.unary();
        }
        // Straight to the level of the operator that follows, instead of through all between.
        let mut left = self.unary()?;
        while let Some(next) = self.operator().map(Binary::level).filter(|l| *l >= level) {
            left = self.chain(left, next)?;
        }
        Ok(left)
    }

    /// All operators of one level behind an operand.
    fn chain(&mut self, first: Deep, level: u8) -> Result<Deep, ParseError> {
        let (first, mut depth) = first;
        let mut rest = Vec::new();
        while let Some(operator) = self.operator().filter(|o| o.level() == level) {
            self.advance()?;
            self.open = self.deeper(self.open)?;
            let operand = self.binary(level + 1)?;
            self.open -= 1;
            depth = depth.max(operand.1);
            rest.push((operator, operand.0));
        }
        Ok((Expr::Chain(Box::new(first), rest.into()), self.deeper(depth)?))
    }

    fn operator(&self) -> Option<Binary> {
        let sign = match &self.token {
            Token::Sign(sign) => *sign,
            Token::Name(word, false) => match keyword(word)? {
                Keyword::Is => return Some(Binary::Is),
                Keyword::Isnt => return Some(Binary::Isnt),
                _ => return None,
            },
            _ => return None,
        };
        crate::print::BINARY.iter().find(|(_, text)| text.trim() == sign).map(|(operator, _)| *operator)
    }

    fn unary(&mut self) -> Result<Deep, ParseError> {
        // A minus right before a number is part of it.
        if self.is("-") && self.lexer.at_number() {
            return self.elvis();
        }
        let operator = match &self.token {
            Token::Sign("+") => Unary::Plus,
            Token::Sign("-") => Unary::Minus,
            Token::Sign("!") => Unary::Not,
            Token::Sign("~") => Unary::BitNot,
            _ => return self.elvis(),
        };
        self.advance()?;
        self.open = self.deeper(self.open)?;
        let (operand, depth) = self.unary()?;
        self.open -= 1;
        Ok((Expr::Unary(operator, Box::new(operand)), self.deeper(depth)?))
    }

    /// Operands with `?:` between them.
    fn elvis(&mut self) -> Result<Deep, ParseError> {
        let (first, mut depth) = self.postfix()?;
        let mut all = vec![first];
        while self.is("?") && self.lexer.at_colon()? {
            self.advance()?;
            self.advance()?;
            let next = self.postfix()?;
            depth = depth.max(next.1);
            all.push(next.0);
        }
        match all.pop() {
            Some(only) if all.is_empty() => Ok((only, depth)),
            last => {
                all.extend(last);
                Ok((Expr::Elvis(all.into()), self.deeper(depth)?))
            }
        }
    }

    /// Subscripts and selections behind an operand.
    fn postfix(&mut self) -> Result<Deep, ParseError> {
        let (mut expr, mut depth) = self.primary()?;
        loop {
            if self.take(".")? {
                let Some(name) = self.name()? else { return self.error("missing name after a dot") };
                depth = self.deeper(depth)?;
                expr = Expr::Attr { base: Some(Box::new(expr)), name, absolute: false };
            } else if self.take("[")? {
                let index = self.expression()?;
                self.expect("]")?;
                depth = self.deeper(depth.max(index.1))?;
                expr = Expr::Subscript(Box::new([expr, index.0]));
            } else {
                return Ok((expr, depth));
            }
        }
    }

    fn name(&mut self) -> Result<Option<Name>, ParseError> {
        let name = match &self.token {
            Token::Name(text, quoted) if *quoted || keyword(text).is_none() => Name::new(text),
            _ => return Ok(None),
        };
        self.advance()?;
        Ok(Some(name))
    }

    fn primary(&mut self) -> Result<Deep, ParseError> {
        if let Some(value) = self.constant()? {
            return Ok((Expr::Literal(value), 1));
        }
        if let Some(name) = self.name()? {
            return if self.is("(") { self.call(name.as_str()) } else { Ok((attr(name, false), 1)) };
        }
        if self.take("(")? {
            let (inner, depth) = self.expression()?;
            self.expect(")")?;
            return Ok((Expr::Paren(Box::new(inner)), self.deeper(depth)?));
        }
        if self.take("{")? {
            let (items, depth) = self.list("}")?;
            return Ok((Expr::List(items.into()), depth));
        }
        if self.take("[")? {
            let (ad, depth) = self.ad()?;
            return Ok((Expr::Ad(ad), depth));
        }
        if self.take(".")? {
            let Some(name) = self.name()? else { return self.error("missing name after a dot") };
            return Ok((attr(name, true), 1));
        }
        self.error("missing expression")
    }

    fn constant(&mut self) -> Result<Option<Value>, ParseError> {
        let minus = self.is("-") && self.lexer.at_number();
        if minus {
            self.advance()?;
        }
        let value = match &mut self.token {
            // Values out of range become the limit.
            Token::Int(i) if minus => {
                Value::Int(0i64.saturating_sub_unsigned(u64::try_from(*i).unwrap_or(u64::MAX)))
            }
            Token::Int(i) => Value::Int(i64::try_from(*i).unwrap_or(i64::MAX)),
            Token::Real(r) => Value::Real(if minus { -*r } else { *r }),
            Token::Str(bytes) => Value::Str(std::mem::take(bytes).into()),
            Token::Name(word, false) => match keyword(word) {
                Some(Keyword::True) => Value::Bool(true),
                Some(Keyword::False) => Value::Bool(false),
                Some(Keyword::Undefined) => Value::Undefined,
                Some(Keyword::Error) => Value::Error,
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        self.advance()?;
        Ok(Some(value))
    }

    fn call(&mut self, name: &str) -> Result<Deep, ParseError> {
        self.expect("(")?;
        let (args, depth) = self.list(")")?;
        Ok((Expr::Call(Call::new(name, args)), depth))
    }

    /// Expressions with commas between them, up to the closing bracket.
    fn list(&mut self, close: &'static str) -> Result<(Vec<Expr>, usize), ParseError> {
        let mut items = Vec::new();
        let mut depth = 0;
        if !self.take(close)? {
            loop {
                let item = self.expression()?;
                depth = depth.max(item.1);
                items.push(item.0);
                if self.take(close)? {
                    break;
                }
                // Old ads may have semicolons between the arguments of a function.
                if !(close == ")" && self.old && self.take(";")?) {
                    self.expect(",")?;
                }
            }
        }
        Ok((items, self.deeper(depth)?))
    }

    /// An ad behind its opening bracket.
    fn ad(&mut self) -> Result<(Ad, usize), ParseError> {
        let mut attrs = Vec::new();
        let mut depth = 0;
        while !self.take("]")? {
            let Some(name) = self.name()? else { return self.error("missing attribute name") };
            self.expect("=")?;
            let value = self.expression()?;
            depth = depth.max(value.1);
            attrs.push((name, value.0));
            if !self.is("]") {
                self.expect(";")?;
                while self.take(";")? {}
            }
        }
        Ok((attrs.into_iter().collect(), self.deeper(depth)?))
    }
}

fn attr(name: Name, absolute: bool) -> Expr {
    Expr::Attr { base: None, name, absolute }
}
