//! Quoting and splitting of words for a POSIX shell.

/// A text that cannot be split into words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a quote is not closed")]
pub struct UnclosedQuote;

/// One word for a POSIX shell: unchanged if no character in it is special to a shell, else in single quotes.
#[must_use]
pub fn quote(word: &str) -> String {
    if is_plain(word) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// As [`quote`], for a program's path: a `~` or `~user` at its beginning is left for the shell to expand.
#[must_use]
pub fn quote_program(path: &str) -> String {
    let end = path.find('/').unwrap_or(path.len());
    let (home, below) = path.split_at(end);
    let user = home.strip_prefix('~');
    let is_home =
        user.is_some_and(|user| user.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)));
    if is_home && !below.is_empty() { format!("{home}{}", quote(below)) } else { quote(path) }
}

fn is_plain(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-=:@%+,".contains(c);
    // `=` is special at the beginning of a word in zsh.
    !word.is_empty() && !word.starts_with('=') && word.chars().all(plain)
}

/// Splits a command line into words as a shell does: at white space outside of quotes and backslashes. Nothing is expanded,
/// and no other character is special.
///
/// # Errors
/// A quote is not closed, or a backslash is last.
pub fn split(text: &str) -> Result<Vec<String>, UnclosedQuote> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, None::<char>);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quoted, c) {
            (Some(q), c) if c == q => quoted = None,
            (Some('\''), c) => word.get_or_insert_default().push(c),
            (_, '\\') => {
                let next = chars.next().ok_or(UnclosedQuote)?;
                let word = word.get_or_insert_default();
                // In double quotes a backslash is literal, except before characters that are special there.
                if quoted.is_some() && !"\"\\$`".contains(next) {
                    word.push('\\');
                }
                word.push(next);
            }
            (None, '\'' | '"') => {
                quoted = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if quoted.is_some() {
        return Err(UnclosedQuote);
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_with_a_meaning_are_quoted() {
        assert_eq!(quote("a/b-c.d"), "a/b-c.d");
        assert_eq!(quote(""), "''");
        assert_eq!(quote("it's $HOME"), "'it'\\''s $HOME'");
        assert_eq!(quote("~x"), "'~x'");
        assert_eq!(quote_program("~/my bin/x"), "~'/my bin/x'");
        assert_eq!(quote_program("~me/bin/x"), "~me/bin/x");
        assert_eq!(quote_program("~$(x)/y"), "'~$(x)/y'");
    }

    #[test]
    fn command_lines_are_split_as_a_shell_splits_them() {
        let words = |text: &str| split(text).unwrap();
        assert_eq!(words("ssh  -p 2222"), ["ssh", "-p", "2222"]);
        assert_eq!(words("'a b/ssh' -o \"X Y\" c\\ d ''"), ["a b/ssh", "-o", "X Y", "c d", ""]);
        assert_eq!(words(r#""a\b\"c" 'a\b'"#), ["a\\b\"c", "a\\b"]);
        assert_eq!(words("a;b $(c)"), ["a;b", "$(c)"]);
        assert_eq!(words(" "), [""; 0]);
        assert!(split("'x").is_err() && split("x\\").is_err() && split("\"x'").is_err());
    }

    proptest! {
        #[test]
        fn a_quoted_word_is_one_word_again(word in "\\PC{0,20}") {
            prop_assert_eq!(split(&quote(&word)).unwrap(), [word]);
        }
    }
}
