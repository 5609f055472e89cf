//! Tokens.

use crate::error::ParseError;

/// A token.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    End,
    /// An integer: may be too large for an `i64`, as the smallest one is without its sign.
    Int(u128),
    Real(f64),
    Str(Vec<u8>),
    /// A name; true if it was quoted, so that it is not a keyword.
    Name(String, bool),
    /// Anything else, as it is written.
    Sign(&'static str),
}

/// Longest first, so that the first that fits is meant.
const SIGNS: [&str; 35] = [
    "=?=", "=!=", ">>>", "||", "&&", "==", "!=", "<=", ">=", "<<", ">>", "<", ">", "|", "^", "&", "+", "-",
    "*", "/", "%", "!", "~", "?", ":", ";", ",", ".", "(", ")", "[", "]", "{", "}", "=",
];

pub(crate) struct Lexer<'t> {
    text: &'t [u8],
    at: usize,
    old: bool,
}

impl<'t> Lexer<'t> {
    pub(crate) fn new(text: &'t [u8], old: bool) -> Self {
        Self { text, at: 0, old }
    }

    /// Where the next token begins, and the token.
    pub(crate) fn next(&mut self) -> Result<(usize, Token), ParseError> {
        self.skip_blank()?;
        let start = self.at;
        let token = match self.peek(0) {
            None => Token::End,
            Some(b'"') => Token::Str(self.string(b'"')?),
            Some(b'\'') => {
                let name = self.string(b'\'')?;
                let name = String::from_utf8(name).map_err(|_| self.error(start, "name is not UTF-8"))?;
                Token::Name(name, true)
            }
            Some(b) if b.is_ascii_alphabetic() || b == b'_' => Token::Name(self.word(), false),
            Some(b) if b.is_ascii_digit() => self.number()?,
            Some(b'.') if self.peek(1).is_some_and(|b| b.is_ascii_digit()) => self.number()?,
            Some(_) => self.sign()?,
        };
        Ok((start, token))
    }

    /// True if a digit or a fraction follows at once: a minus before it is part of the number.
    pub(crate) fn at_number(&self) -> bool {
        let fraction = || self.peek(1).is_some_and(|b| b.is_ascii_digit());
        self.peek(0).is_some_and(|b| b.is_ascii_digit() || (b == b'.' && fraction()))
    }

    /// True if a colon is the next token.
    pub(crate) fn at_colon(&mut self) -> Result<bool, ParseError> {
        self.skip_blank()?;
        Ok(self.peek(0) == Some(b':'))
    }

    pub(crate) fn error(&self, at: usize, reason: &str) -> ParseError {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.iter().filter(|b| **b == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|b| **b != b'\n').count() + 1;
        ParseError { reason: reason.to_owned(), line, column }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    fn rest(&self) -> &'t [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// White space and comments.
    fn skip_blank(&mut self) -> Result<(), ParseError> {
        loop {
            self.skip_space();
            let rest = self.rest();
            if rest.starts_with(b"//") {
                self.at += rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
            } else if rest.starts_with(b"/*") {
                let end = rest[2..].windows(2).position(|pair| pair == b"*/");
                let end = end.ok_or_else(|| self.error(self.at, "unterminated comment"))?;
                self.at += end + 4;
            } else {
                return Ok(());
            }
        }
    }

    fn skip_space(&mut self) {
        self.at += self.rest().iter().take_while(|b| is_space(**b)).count();
    }

    fn word(&mut self) -> String {
        let len = self.rest().iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
        let word = &self.rest()[..len];
        self.at += len;
        String::from_utf8_lossy(word).into_owned()
    }

    fn digits(&mut self) -> usize {
        let len = self.rest().iter().take_while(|b| b.is_ascii_digit()).count();
        self.at += len;
        len
    }

    /// Decimal integers and reals; HTCondor 25 knows no hexadecimal and no factors (`1K`) any more, and of octal only the
    /// digits: `010` is ten, and `08` an error.
    fn number(&mut self) -> Result<Token, ParseError> {
        let start = self.at;
        let whole = self.digits();
        let mut real = false;
        if self.peek(0) == Some(b'.') {
            self.at += 1;
            real = true;
            if self.digits() == 0 {
                return Err(self.error(start, "number without digits after the decimal point"));
            }
        }
        if matches!(self.peek(0), Some(b'e' | b'E')) {
            self.at += 1;
            real = true;
            if matches!(self.peek(0), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.digits() == 0 {
                return Err(self.error(start, "number without digits in the exponent"));
            }
        }
        if self.peek(0).is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(self.error(start, "letters directly after a number"));
        }
        let text = String::from_utf8_lossy(&self.text[start..self.at]);
        if real {
            return Ok(Token::Real(text.parse().unwrap_or(f64::INFINITY)));
        }
        if whole > 1 && text.starts_with('0') && text.contains(['8', '9']) {
            return Err(self.error(start, "8 or 9 in an integer with a leading zero"));
        }
        Ok(Token::Int(text.parse().unwrap_or(u128::MAX)))
    }

    /// A string, or strings behind each other, which are one.
    fn string(&mut self, quote: u8) -> Result<Vec<u8>, ParseError> {
        let start = self.at;
        let mut out = Vec::new();
        self.at += 1;
        loop {
            let Some(b) = self.peek(0) else {
                return Err(self.error(start, "unterminated string"));
            };
            self.at += 1;
            if b == quote {
                if self.old || !self.continues(quote) {
                    return Ok(out);
                }
            } else if b == b'\\' && self.old {
                // It is literal, except before a quote that does not end the line.
                let ends = matches!(self.peek(1), None | Some(b'\n'));
                if self.peek(0) == Some(quote) && !ends {
                    self.at += 1;
                    out.push(quote);
                } else {
                    out.push(b);
                }
            } else if b == b'\\' {
                out.push(self.escape());
            } else {
                out.push(b);
            }
            if out.last() == Some(&0) {
                return Err(self.error(self.at - 1, "NUL in a string"));
            }
        }
    }

    /// Continues into a string that follows.
    fn continues(&mut self, quote: u8) -> bool {
        let end = self.at;
        self.skip_space();
        let more = self.peek(0) == Some(quote);
        self.at = if more { self.at + 1 } else { end };
        more
    }

    /// The character after a backslash.
    fn escape(&mut self) -> u8 {
        let Some(b) = self.peek(0) else { return b'\\' };
        self.at += 1;
        match b {
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            b'0'..=b'7' => {
                let mut byte = b - b'0';
                // A third digit only if it fits into a byte.
                for largest in [7, 0o37] {
                    match self.peek(0) {
                        Some(digit @ b'0'..=b'7') if byte <= largest => {
                            byte = byte * 8 + (digit - b'0');
                            self.at += 1;
                        }
                        _ => break,
                    }
                }
                byte
            }
            other => other,
        }
    }

    fn sign(&mut self) -> Result<Token, ParseError> {
        let rest = self.rest();
        let fits = SIGNS.iter().find(|sign| rest.starts_with(sign.as_bytes()));
        let sign = fits.ok_or_else(|| self.error(self.at, "unexpected character"))?;
        self.at += sign.len();
        Ok(Token::Sign(sign))
    }
}

/// White space as in C.
pub(crate) fn is_space(b: u8) -> bool {
    b.is_ascii_whitespace() || b == 11
}

/// True if a name needs no quotes.
pub(crate) fn is_plain_name(name: &str) -> bool {
    let first = name.as_bytes().first().is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_');
    first && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && keyword(name).is_none()
}

/// Words that are not names unless they are quoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keyword {
    True,
    False,
    Undefined,
    Error,
    Is,
    Isnt,
}

pub(crate) fn keyword(word: &str) -> Option<Keyword> {
    const WORDS: [(&str, Keyword); 6] = [
        ("true", Keyword::True),
        ("false", Keyword::False),
        ("undefined", Keyword::Undefined),
        ("error", Keyword::Error),
        ("is", Keyword::Is),
        ("isnt", Keyword::Isnt),
    ];
    WORDS.iter().find(|(text, _)| text.eq_ignore_ascii_case(word)).map(|(_, keyword)| *keyword)
}
