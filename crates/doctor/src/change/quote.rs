//! Quoting for a POSIX shell.

/// `word` as one word of a shell command: as it is where no character has a meaning, else in single quotes.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// `text` on one line, for a comment: a control character could end the comment and begin a command.
pub(super) fn comment(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_reads_back_each_word() {
        for word in
            ["eth0", "", "a b", "a'b", "$(reboot)", "`x`", "\"", "\\", "-rf", "*", "x;y", "é", "#", "~"]
        {
            let command = format!("printf %s {}", quoted(word));
            let out = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
            assert_eq!(String::from_utf8(out.stdout).unwrap(), word);
        }
    }

    #[test]
    fn a_comment_stays_on_its_line() {
        assert_eq!(comment("a\nreboot\t\u{7f}é"), "a\\nreboot\\t\\u{7f}é");
    }
}
