//! Patterns of PCRE, rewritten for the crate `regex`.
//!
//! Both read most of a pattern alike. This module rewrites the parts that the crate would accept with another meaning:
//! bracket classes (there `&&`, `~~`, `--` and an inner `[` are operators), and the escapes `\<`, `\>`, `\v` and `\x`.
//! All else is copied: the crate rejects the features that it does not have.

/// Escapes that both read alike, outside of classes and in them.
const CHARACTERS: &str = "afnrt";
const SETS: &str = "dDsSwW";
const ASSERTIONS: &str = "AzbB";
/// The names of `[:alpha:]` and the like.
const NAMES: &[&str] = &[
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];
/// The vertical white space of `\v`, within a class.
const VERTICAL: &str = r"\n-\r\x85";

/// The same pattern for the crate `regex`; none if PCRE rejects it, or if it has an unsupported feature. `extended` is
/// the option `x`.
pub(super) fn translate(pattern: &str, extended: bool) -> Option<String> {
    let out = String::with_capacity(pattern.len());
    let mut translator = Translator { rest: pattern, out, extended: vec![extended] };
    while let Some(c) = translator.rest.chars().next() {
        match c {
            '\\' => translator.escape()?,
            '[' => translator.class()?,
            '(' => translator.group(),
            ')' => translator.end_of_group(),
            '#' if translator.is_extended() => translator.comment(),
            _ => translator.copy(c.len_utf8()),
        }
    }
    Some(translator.out)
}

/// A part of a class, as the crate `regex` reads it.
enum Part {
    /// One character, which may begin or end a range.
    Character(String),
    /// A set of characters, which may not.
    Set(String),
}

struct Translator<'p> {
    rest: &'p str,
    out: String,
    /// Whether blanks and comments are ignored, in this group and in each group around it: a bracket in a comment begins no
    /// class.
    extended: Vec<bool>,
}

impl<'p> Translator<'p> {
    fn is_extended(&self) -> bool {
        self.extended.last().is_some_and(|extended| *extended)
    }

    /// The next bytes of the pattern, which are at its characters' ends.
    fn take(&mut self, bytes: usize) -> &'p str {
        let (taken, rest) = self.rest.split_at(bytes.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    fn copy(&mut self, bytes: usize) {
        let taken = self.take(bytes);
        self.out.push_str(taken);
    }

    /// The beginning of a group, or options such as `(?x)` and `(?x-i:`.
    fn group(&mut self) {
        let around = self.is_extended();
        let mut extended = around;
        let options = self.rest.strip_prefix("(?").unwrap_or_default();
        let length = options.bytes().take_while(|b| b.is_ascii_alphabetic() || *b == b'-').count();
        let mut on = true;
        for option in options.bytes().take(length) {
            match option {
                b'-' => on = false,
                b'x' => extended = on,
                _ => {}
            }
        }
        match options.as_bytes().get(length) {
            Some(b')') => {
                // These options are for the rest of the group around them.
                self.extended.pop();
                self.extended.push(extended);
                self.copy("(?)".len() + length);
            }
            Some(b':') => {
                self.extended.push(extended);
                self.copy("(?:".len() + length);
            }
            _ => {
                self.extended.push(around);
                self.copy(1);
            }
        }
    }

    fn end_of_group(&mut self) {
        // One that ends no group is an error of the pattern, which the crate finds.
        if self.extended.len() > 1 {
            self.extended.pop();
        }
        self.copy(1);
    }

    fn comment(&mut self) {
        let length = self.rest.find('\n').unwrap_or(self.rest.len());
        self.copy(length);
    }

    /// An escape outside of classes.
    fn escape(&mut self) -> Option<()> {
        let mut after = self.rest.chars().skip(1);
        let letter = after.next()?;
        // To the crate, `\b{start}` is an assertion of its own.
        if letter == 'b' && after.next() == Some('{') {
            return None;
        }
        if ASSERTIONS.contains(letter) {
            self.copy(2);
            return Some(());
        }
        match self.escaped()? {
            Part::Set(set) if letter == 'v' => self.out.extend(["[", set.as_str(), "]"]),
            Part::Character(text) | Part::Set(text) => self.out.push_str(&text),
        }
        Some(())
    }

    /// A class, from its opening bracket to the closing one. Its characters are written by their numbers: then neither
    /// operators nor, with the option `x`, blanks are in it.
    fn class(&mut self) -> Option<()> {
        // PCRE rejects `[:alpha:]` outside of a class.
        if posix(self.rest).is_some() {
            return None;
        }
        self.copy(1);
        if self.rest.starts_with('^') {
            self.copy(1);
        }
        let mut is_first = true;
        // A bracket that comes first is a character of the class.
        while is_first || !self.rest.starts_with(']') {
            is_first = false;
            let part = self.part()?;
            // A hyphen that comes last is a character of the class.
            let is_range = self.rest.starts_with('-') && !self.rest.starts_with("-]");
            match (part, is_range) {
                (Part::Character(first), true) => {
                    self.take(1);
                    let Part::Character(last) = self.part()? else { return None };
                    self.out.extend([first.as_str(), "-", last.as_str()]);
                }
                (Part::Set(_), true) => return None,
                (Part::Character(text) | Part::Set(text), false) => self.out.push_str(&text),
            }
        }
        self.copy(1);
        Some(())
    }

    /// A part of a class.
    fn part(&mut self) -> Option<Part> {
        if let Some(named) = posix(self.rest) {
            let name = named.strip_prefix("[:")?.strip_suffix(":]")?;
            let is_known = NAMES.contains(&name.strip_prefix('^').unwrap_or(name));
            return is_known.then(|| Part::Set(self.take(named.len()).to_owned()));
        }
        let c = self.rest.chars().next()?;
        if self.rest.starts_with(r"\b") {
            self.take(2);
            return Some(Part::Character(character('\x08')));
        }
        if c == '\\' {
            return self.escaped();
        }
        self.take(c.len_utf8());
        Some(Part::Character(character(c)))
    }

    /// An escape that means a character or a set of characters; none if it is another one.
    fn escaped(&mut self) -> Option<Part> {
        let letter = self.rest.chars().nth(1).filter(char::is_ascii)?;
        let escape = self.take(2);
        Some(match letter {
            'x' => Part::Character(self.number()),
            'v' => Part::Set(VERTICAL.to_owned()),
            _ if CHARACTERS.contains(letter) => Part::Character(escape.to_owned()),
            _ if SETS.contains(letter) => Part::Set(escape.to_owned()),
            _ if letter.is_ascii_alphanumeric() => return None,
            _ => Part::Character(character(letter)),
        })
    }

    /// The number of a character, after `\x`: in braces, else at most two digits, of which PCRE requires none.
    fn number(&mut self) -> String {
        if self.rest.starts_with('{') {
            let length = self.rest.find('}').map_or(self.rest.len(), |end| end + 1);
            return format!("\\x{}", self.take(length));
        }
        let length = self.rest.bytes().take(2).take_while(u8::is_ascii_hexdigit).count();
        format!("\\x{:0>2}", self.take(length))
    }
}

/// A character that stands for itself in any place of a pattern. One outside ASCII is left as it is: the crate rejects it
/// in a class.
fn character(c: char) -> String {
    if c.is_ascii() && !c.is_ascii_alphanumeric() {
        format!("\\x{:02x}", u32::from(c))
    } else {
        c.to_string()
    }
}

/// What PCRE takes for a name of POSIX at the beginning of a text: `[:alpha:]`, and `[.x.]` and `[=x=]`, which it rejects.
fn posix(text: &str) -> Option<&str> {
    let [b'[', mark @ (b':' | b'.' | b'='), rest @ ..] = text.as_bytes() else { return None };
    let mut at = 0;
    while let Some(&[c, next]) = rest.get(at..at + 2) {
        match c {
            b'\\' if matches!(next, b']' | b'\\') => at += 1,
            b'[' if next == *mark => return None,
            b']' => return None,
            _ if c == *mark && next == b']' => return text.get(..at + 4),
            _ => {}
        }
        at += 1;
    }
    None
}
