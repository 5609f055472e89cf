//! Words as a POSIX shell reads them.

/// One word for a POSIX shell: as it is where nothing in it means anything to a shell, else in single quotes.
#[must_use]
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-=:@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_a_meaning_are_quoted() {
        assert_eq!(quote("a/b-c.d"), "a/b-c.d");
        assert_eq!(quote(""), "''");
        assert_eq!(quote("it's $HOME"), "'it'\\''s $HOME'");
        assert_eq!(quote("~x"), "'~x'");
    }
}
