//! Filter rules: which names a copy leaves out and protects from deletion, with the meaning that rsync's manual gives them under
//! "FILTER RULES" and "PATTERN MATCHING RULES". `tests/e2e/test_copy_filter.py` has rsync judge that on random trees.
//!
//! A rule is matched against the path in the copy (the source's own name is its first component, unless the source was given with
//! a slash at its end), so that both ends decide alike. The first rule that matches decides; a name that none matches is copied.

mod wild;

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::part::MAX_PATH;
use wild::Wild;

/// A rule as it travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Matching names are copied, whatever later rules say; else they are left out.
    pub include: bool,
    /// The pattern.
    pub pattern: OsString,
}

impl Rule {
    /// Adds the rule given on a command line or a line of a file. `+ ` or `- ` before the pattern overrides
    /// `include`, and `!` alone removes the rules before it.
    ///
    /// # Errors
    /// There is no pattern after such a prefix, or it is longer than any path.
    pub fn add(rules: &mut Vec<Self>, text: &[u8], include: bool) -> Result<(), Error> {
        let (include, pattern) = match text {
            b"" => return Ok(()),
            b"!" => {
                rules.clear();
                return Ok(());
            }
            [b'+', b' ', pattern @ ..] => (true, pattern),
            [b'-', b' ', pattern @ ..] => (false, pattern),
            pattern => (include, pattern),
        };
        if pattern.is_empty() {
            return Err(Error::Usage("filter rule has no pattern after its prefix".into()));
        }
        if pattern.len() >= MAX_PATH {
            return Err(Error::Usage(format!("filter rule has more than {MAX_PATH} bytes")));
        }
        rules.push(Self { include, pattern: OsString::from_vec(pattern.to_vec()) });
        Ok(())
    }

    /// The same for each line of a file, or with `nul` each text up to a NUL. Those that begin with `#` or `;` are comments.
    ///
    /// # Errors
    /// As [`Rule::add`].
    pub fn add_lines(rules: &mut Vec<Self>, text: &[u8], include: bool, nul: bool) -> Result<(), Error> {
        for line in lines(text, nul).filter(|line| !matches!(line.first(), Some(b'#' | b';'))) {
            Self::add(rules, line, include)?;
        }
        Ok(())
    }

    /// Whether no name can match: a `[` without its `]`, a class that does not exist.
    #[must_use]
    pub fn is_malformed(&self) -> bool {
        matches!(Pattern::new(self.pattern.as_bytes()).text, Text::Wild(Wild { malformed: true, .. }))
    }
}

/// The lines of a file, or with `nul` the texts up to each NUL, without their ends.
pub fn lines(text: &[u8], nul: bool) -> impl Iterator<Item = &[u8]> + Clone {
    text.split(move |b| if nul { *b == 0 } else { matches!(b, b'\n' | b'\r') })
}

/// Compiled rules.
#[derive(Debug, Default)]
pub(crate) struct Filter(Vec<(bool, Pattern)>);

impl Filter {
    pub(crate) fn new(rules: &[Rule]) -> Self {
        Self(rules.iter().map(|rule| (rule.include, Pattern::new(rule.pattern.as_bytes()))).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this path in the copy is left out, if the directories above it are not. The destination itself never is.
    pub(crate) fn leaves_out(&self, path: &[u8], is_dir: bool) -> bool {
        let first = self.0.iter().find(|(_, pattern)| !path.is_empty() && pattern.matches(path, is_dir));
        first.is_some_and(|(include, _)| !include)
    }

    /// Whether this path is left out, or a directory above it.
    pub(crate) fn leaves_out_below(&self, path: &[u8], is_dir: bool) -> bool {
        let slashes = path.iter().enumerate().filter(|(_, b)| **b == b'/');
        self.leaves_out(path, is_dir) || slashes.into_iter().any(|(at, _)| self.leaves_out(&path[..at], true))
    }
}

#[derive(Debug)]
struct Pattern {
    text: Text,
    from: Start,
    /// It ended in a slash.
    only_dirs: bool,
}

#[derive(Debug)]
enum Text {
    /// Without wildcards every byte stands for itself, a backslash too.
    Literal(Vec<u8>),
    Wild(Wild),
}

/// Where in a path a match may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// At its beginning.
    Root,
    /// At its beginning, before which there is a slash.
    Slash,
    /// At the last this many components.
    Last(usize),
    /// At any component.
    Any,
}

impl Pattern {
    fn new(pattern: &[u8]) -> Self {
        let (pattern, only_dirs) = match pattern {
            [rest @ .., b'/'] if !rest.is_empty() => (rest, true),
            all => (all, false),
        };
        let (body, anchored) = pattern.strip_prefix(b"/").map_or((pattern, false), |body| (body, true));
        let is_wild = pattern.iter().any(|b| b"*?[".contains(b));
        // Only of these the whole path is looked at, wherever a match begins.
        let crosses = is_wild && pattern.windows(2).any(|two| two == b"**");
        let slashes = body.iter().filter(|b| **b == b'/').count();
        let from = match (anchored, crosses) {
            (true, _) => Start::Root,
            (false, true) if body.starts_with(b"**") => Start::Slash,
            (false, true) => Start::Any,
            (false, false) => Start::Last(slashes + 1),
        };
        let text = if is_wild { Text::Wild(Wild::new(body)) } else { Text::Literal(body.to_vec()) };
        Self { text, from, only_dirs }
    }

    fn matches(&self, path: &[u8], is_dir: bool) -> bool {
        if self.only_dirs && !is_dir {
            return false;
        }
        match (&self.text, self.from) {
            (Text::Literal(text), Start::Root) => path == text.as_slice(),
            (Text::Literal(text), _) => path
                .strip_suffix(text.as_slice())
                .is_some_and(|before| before.is_empty() || before.ends_with(b"/")),
            (Text::Wild(wild), Start::Last(count)) => {
                last(path, count).is_some_and(|path| wild.matches(path))
            }
            (Text::Wild(wild), from) => {
                // So `dir/***` matches the directory itself, too.
                let behind: &[u8] = if is_dir && wild.ends_in_three { b"/" } else { b"" };
                let before: &[u8] = if from == Start::Slash { b"/" } else { b"" };
                let whole = [before, path, behind].concat();
                let later = || whole.iter().enumerate().filter(|(_, b)| **b == b'/');
                wild.matches(&whole)
                    || from == Start::Any && later().any(|(at, _)| wild.matches(&whole[at + 1..]))
            }
        }
    }
}

/// The last this many components of a path that has as many.
fn last(path: &[u8], count: usize) -> Option<&[u8]> {
    let slashes = || path.iter().enumerate().rev().filter(|(_, b)| **b == b'/');
    match slashes().nth(count - 1) {
        Some((at, _)) => Some(&path[at + 1..]),
        None => (slashes().count() + 1 == count).then_some(path),
    }
}

/// Rules that leave these patterns out.
#[cfg(test)]
pub(crate) fn rules(patterns: &[&str]) -> Vec<Rule> {
    patterns.iter().map(|pattern| Rule { include: false, pattern: pattern.into() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Rule> {
        let mut rules = Vec::new();
        Rule::add_lines(&mut rules, text.as_bytes(), false, false).unwrap();
        rules
    }

    /// The names among these that are left out; a slash at the end marks a directory.
    fn left_out(text: &str, names: &[&'static str]) -> Vec<&'static str> {
        let filter = Filter::new(&read(text));
        let is_out = |name: &&&str| match name.strip_suffix('/') {
            Some(dir) => filter.leaves_out(dir.as_bytes(), true),
            None => filter.leaves_out(name.as_bytes(), false),
        };
        names.iter().filter(is_out).copied().collect()
    }

    #[test]
    fn slashes_say_where_and_what() {
        assert_eq!(left_out("build/", &["build/", "a/build/", "build", "a/build"]), ["build/", "a/build/"]);
        assert_eq!(left_out("/a", &["a", "b/a"]), ["a"]);
        assert_eq!(left_out("a/b", &["a/b", "x/a/b", "xa/b", "b"]), ["a/b", "x/a/b"]);
        assert_eq!(left_out("a/*", &["a/b", "x/a/b", "a/b/c", "a/"]), ["a/b", "x/a/b"]);
        assert_eq!(left_out("/a/**", &["a/", "a/b", "a/b/c", "x/a/b"]), ["a/b", "a/b/c"]);
        assert_eq!(left_out("a/***", &["a/", "a", "a/b", "x/a/b/c"]), ["a/", "a/b", "x/a/b/c"]);
        assert_eq!(left_out("**/a", &["a", "x/a", "x/ya"]), ["a", "x/a"]);
        assert_eq!(left_out("*/", &["a/", "b"]), ["a/"]);
        assert_eq!(left_out("/", &["a", "a/"]), [""; 0]);
    }

    #[test]
    fn wildcards() {
        assert_eq!(left_out("*.[ch]", &["a.c", "x/b.h", "a.o", "a.cc"]), ["a.c", "x/b.h"]);
        assert_eq!(left_out("[!a-c]?", &["ax", "dx", "d"]), ["dx"]);
        assert_eq!(left_out("x[[:digit:]-]", &["x1", "x-", "xa"]), ["x1", "x-"]);
        assert_eq!(left_out("[]x]", &["]", "x", "y"]), ["]", "x"]);
        assert_eq!(
            left_out("a\\b", &["a\\b", "ab"]),
            ["a\\b"],
            "nothing is escaped where nothing is special"
        );
        assert_eq!(left_out("a\\**", &["a*", "a*b", "ab"]), ["a*", "a*b"]);
        assert_eq!(left_out("[a", &["[a", "a"]), [""; 0]);
        assert!(read("x[a")[0].is_malformed() && read("[[:none:]]")[0].is_malformed());
        assert!(!read("[a]")[0].is_malformed() && !read("a]")[0].is_malformed());
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        assert_eq!(left_out("+ *.c\n+ */\n- *\n", &["a.c", "a.o", "d/", "d/x.c"]), ["a.o"]);
        assert_eq!(left_out("*\n! \n", &["a"]), ["a"], "only ! alone removes what was before");
        assert_eq!(left_out("*\r\n!\r\n# no\n; no\nb", &["a", "b"]), ["b"]);
        let mut all = Vec::new();
        assert!(
            Rule::add(&mut all, b"- ", true).is_err()
                && Rule::add(&mut all, &[b'a'; MAX_PATH], true).is_err()
        );
        Rule::add(&mut all, b"", true).unwrap();
        assert!(all.is_empty());
    }
}
